"""The parameters that kernels write in place, and when a kernel may run again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from relaxpy.exec.graph.program import Memory, Step, Tensor
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import MatchBufferRegion


def indices_in_place(call: rx.Call, outputs: int) -> Sequence[int]:
    """The number of the argument that is each output of a kernel; -1 if it is new."""
    indices = call.attrs.get("inplace_indices")
    return [-1] * outputs if indices is None else indices


def have_shape(tensor: Tensor, sizes: Sequence[tir.PrimExpr]) -> bool:
    """Return whether a tensor certainly has this shape."""
    pairs = zip(tensor.shape, sizes, strict=False)
    return len(tensor.shape) == len(sizes) and all(prove_equal(a, b) is True for a, b in pairs)


def may_run_again(
    kernel: PrimFunc | None, index: int, tensors: Iterable[Tensor], before: Iterable[Step]
) -> bool:
    """Return whether a kernel that writes its parameter `index` can run twice after the same steps.

    It and the steps before it must not have read that memory. `tensors` are its arguments.
    """
    tensors = list(tensors)
    memory = tensors[index].memory
    others = [tensor for number, tensor in enumerate(tensors) if number != index]
    read = (*others, *(tensor for step in before for tensor in step.reads()))
    return not _has(read, memory) and kernel is not None and not _reads(kernel, index)


def _has(tensors: Iterable[Tensor], memory: Memory) -> bool:
    return any(tensor.memory is memory for tensor in tensors)


def _reads(kernel: PrimFunc, index: int) -> bool:
    """Return whether a kernel may read a parameter."""
    buffer = kernel.buffer_map_items[index]
    if buffer is None:
        return True
    nodes = set(walk(kernel.body))
    sources = {node.source.buffer for node in nodes if isinstance(node, MatchBufferRegion)}
    loads = {node.buffer for node in nodes if isinstance(node, BufferLoad)}
    return buffer in sources | loads or buffer.data in nodes
