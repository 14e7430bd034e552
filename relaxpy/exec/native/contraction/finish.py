"""Emits epilogues as loops over the sums of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxpy.exec.native.contraction.operands import (
    Epilogue,
    Gemm,
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
    rows: tuple[Sequence[Size], Size, Size],
    vectors: Sequence[tuple[Size, int, Value | None]],
    sums: Callable[[Value], list[Value]],
) -> None:
    """Store the results of an epilogue.

    `rows` are the outer indices, the first row and the number of rows; `vectors` the first columns,
    lanes and masks of adjacent columns; `sums` those of the vectors of a row, counted from the
    first one.
    """
    outer, start, height = rows
    element = contraction.accumulator.element

    def loaded(row: Size, operand: Initial) -> list[Value]:
        """The elements of an operand for each vector; one scalar if all columns share it."""
        if _is_zero(operand.strides[-1]):
            first, *_ = vectors
            shared = elements(f, operand, (*outer, row, first[0]), Type(element), None)
            return [shared] * len(vectors)
        return [
            elements(f, operand, (*outer, row, column), Type(element, lanes), mask)
            for column, lanes, mask in vectors
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
            for n, (column, _, mask) in enumerate(vectors):
                value = epilogue.compute(frame, totals[n], [values[n] for values in operands])
                store(f, contraction, (*outer, row, column), value, mask)

    f.loop(0, height, 1, [], finish)


def _is_zero(stride: Size) -> bool:
    return not isinstance(stride, Value) and stride == 0
