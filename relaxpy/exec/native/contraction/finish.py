"""Emits epilogues as loops over the sums of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxpy.exec.native.contraction.operands import (
    Epilogue,
    Gemm,
    Indices,
    Initial,
    Size,
    combine,
    elements,
    store,
)
from relaxpy.exec.native.llvm.function import Function, Type, Value


def finish_rows(
    f: Function,
    contraction: Gemm,
    epilogue: Epilogue,
    first: Indices,
    height: Size,
    vectors: Sequence[tuple[int, int, Value | None]],
    sums: Callable[[Value], list[Value]],
) -> None:
    """Store the results of an epilogue.

    `first` are the indices of the first element; `height` is the number of rows; `vectors` are the
    columns before each vector, its lanes and its mask; `sums` are those of the vectors of a row,
    counted from the first one.
    """
    *outer, start, column = first
    element = contraction.accumulator.element

    def loaded(row: Size, operand: Initial) -> list[Value]:
        """The elements of an operand for each vector; one scalar if all columns share it."""
        if _is_zero(operand.strides[-1]):
            shared = elements(f, operand, (*outer, row, column), Type(element), None)
            return [shared] * len(vectors)
        return [
            elements(f, operand, (*outer, row, column), Type(element, lanes), mask, (0, before))
            for before, lanes, mask in vectors
        ]

    # Values that all rows share are hoisted out of the loop.
    fixed = {
        n: loaded(start, operand)
        for n, operand in enumerate(epilogue.operands)
        if _is_zero(operand.strides[-2])
    }
    frame = epilogue.frame(f)

    def finish(index: Value) -> None:
        row = combine(f, "add", start, index)
        totals = sums(index)
        operands = [
            fixed[n] if n in fixed else loaded(row, operand)
            for n, operand in enumerate(epilogue.operands)
        ]
        fresh = [values for n, values in enumerate(operands) if n not in fixed]
        with frame.level():
            frame.settle(value for values in (totals, *fresh) for value in values)
            for n, (before, _, mask) in enumerate(vectors):
                value = epilogue.compute(frame, totals[n], [values[n] for values in operands])
                store(f, contraction, (*outer, row, column), value, mask, (0, before))

    f.loop(0, height, 1, [], finish)


def _is_zero(stride: Size) -> bool:
    return not isinstance(stride, Value) and stride == 0
