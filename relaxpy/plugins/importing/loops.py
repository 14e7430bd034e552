"""Kernels as loops over buffers, written statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.ir.te.loops import Loops as Loops, Number as Number, whole as whole, written
from relaxpy.ir.te.tensor import Tensor
from relaxpy.plugins.importing.tensors import Place, Size, as_size


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
    sized = [(tuple(map(as_size, shape)), dtype) for shape, dtype in outputs]

    def compute(*tensors: Tensor) -> Any:
        results = written(name, sized, tensors, write)
        return results[0] if len(results) == 1 else results

    result = cx.te(compute, *inputs, name=name)
    if len(outputs) == 1:
        return [result]
    return [cx.emit(TupleGetItem(result, k)) for k in range(len(outputs))]
