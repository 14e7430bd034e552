"""Tensors computed by a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.te.tensor import Tensor, extern
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore
from relaxpy.support.entry import user_facing


@user_facing
def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **kwargs: Any) -> Any:
    """Return the tensors that `primfunc` writes, where it reads `input_tensors`.

    These are the values of the buffers that it reads, in the order of its parameters. A result is
    a buffer that it only writes, or, if it reads all that it writes, the last of these, which is
    then not among the inputs. `kwargs` are options of `extern`.

    Errors:
        MisuseError (also TypeError): a parameter is not a buffer, nothing is read or written, or
            the tensors are not as many as the inputs, or have other shapes.
    """
    check_type(primfunc, PrimFunc, "expected a PrimFunc")
    buffers = [primfunc.buffer_of(param) for param in primfunc.params]
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for node in walk(primfunc.body):
        if isinstance(node, (BufferLoad, BufferStore)):
            (reads if isinstance(node, BufferLoad) else writes).add(node.buffer)
    ins = [buffer for buffer in buffers if buffer is not None and buffer in reads]
    outs = [buffer for buffer in buffers if buffer is not None and buffer in writes - reads]
    changed = [buffer for buffer in ins if buffer in writes]
    if not outs and changed:
        outs = [changed[-1]]
        ins.remove(changed[-1])
    if None in buffers or not outs or not ins:
        raise MisuseError("the kernel of an extern reads and writes buffers, which it takes")
    if [len(t.shape) for t in input_tensors] != [b.ndim for b in ins] or any(
        not bool(a == b)
        for tensor, buffer in zip(input_tensors, ins, strict=True)
        for a, b in zip(tensor.shape, buffer.shape, strict=True)
    ):
        expected = ", ".join(f"{b.name} {b.shape}" for b in ins)
        raise MisuseError(f"the inputs are the tensors for {expected}", about=input_tensors)
    return extern(
        [buffer.shape for buffer in outs],
        input_tensors,
        lambda ins, outs: primfunc.body,
        in_buffers=ins,
        out_buffers=outs,
        dtype=[str(buffer.dtype) for buffer in outs],
        **kwargs,
    )
