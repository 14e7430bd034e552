"""Kernels as loops over buffers, written statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.frontend.shared.place import Place
from relaxpy.frontend.shared.tensors import Size, as_size
from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.loops import Loops as Loops, Number as Number, whole as whole
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.stmt import Stmt


def kernel(
    cx: Place,
    name: str,
    outputs: Sequence[tuple[Sequence[Size], str]],
    inputs: Sequence[Expr],
    write: Callable[..., None],
) -> list[Expr]:
    """The results of a kernel of loops, of these shapes and datatypes.

    `write` gets a `Loops`, the buffers of the inputs, and those of the outputs.
    """

    def compute(*tensors: te.Tensor) -> Any:
        def body(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
            loops = Loops()
            write(loops, *ins, *outs)
            return loops.body()

        shapes = [tuple(as_size(size) for size in shape) for shape, _ in outputs]
        dtypes = [dtype for _, dtype in outputs]
        return te.extern(shapes, list(tensors), body, name, dtypes)

    result = cx.te(compute, *inputs, name=name)
    if len(outputs) == 1:
        return [result]
    return [cx.emit(TupleGetItem(result, k)) for k in range(len(outputs))]
