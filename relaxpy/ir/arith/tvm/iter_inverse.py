"""Inverse affine maps: iterators computed from the values of the indices."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.arith.canonical import entry_point
from relaxpy.ir.arith.tvm.iter_expr import IterMark, IterSplitExpr, IterSumExpr, marks_of
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var


@entry_point
def inverse_affine_iter_map(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]
) -> dict[Var, PrimExpr]:
    """The iterators as expressions of `outputs`, the values of the indices of a detected map.

    Digits of iterators that no index uses are 0.

    Errors:
        MisuseError (also ValueError): there are more or fewer outputs than indices, or an index is
            a sum of several splits.
    """
    marks = values_of_marks(iter_map, outputs)
    return {
        var: value
        for mark, value_of_mark in marks.items()
        if not isinstance(mark.source, IterSumExpr)
        for var, value in [_variable(mark.source, value_of_mark)]
    }


def values_of_marks(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[ExprLike]
) -> dict[IterMark, PrimExpr]:
    """The value of every iterator of a map, fused ones included, by the values of the indices."""
    values = ops.convert_all(outputs)
    check_type(iter_map, (list, tuple), "expected a list of indices")
    for index in iter_map:
        if not isinstance(index, IterSumExpr):
            raise MisuseError(f"expected an IterSumExpr, found {index!r:.60}", about=iter_map)
    if len(values) != len(iter_map):
        raise MisuseError(f"there are {len(iter_map)} indices and {len(values)} outputs")
    values_by_mark: dict[IterMark, PrimExpr] = {}
    for index, value in zip(iter_map, values, strict=True):
        if len(index.args) > 1:
            raise MisuseError(f"an index of several splits has no inverse: {index}", about=index)
        for arg in index.args:
            shifted = ops.sub(ops.cast_to(value, arg.dtype), index.base)
            _enter(values_by_mark, arg, _unscaled(shifted, arg.scale))
    for mark in marks_of(iter_map):
        if isinstance(mark.source, IterSumExpr):
            _split_fused(
                values_by_mark,
                mark.source,
                values_by_mark.setdefault(mark, ops.const(0, mark.dtype)),
            )
    return values_by_mark


def _enter(values: dict[IterMark, PrimExpr], split: IterSplitExpr, digits: PrimExpr) -> None:
    digits_value = ops.mul(digits, split.lower_factor)
    entered = values.get(split.source)
    values[split.source] = digits_value if entered is None else ops.add(entered, digits_value)


def _unscaled(value: PrimExpr, scale: PrimExpr) -> PrimExpr:
    if isinstance(scale, tir.IntImm) and scale.value < 0:
        return ops.floordiv(ops.mul(value, -1), ops.const(-scale.value, scale.dtype))
    return ops.floordiv(value, scale)


def _split_fused(values: dict[IterMark, PrimExpr], source: IterSumExpr, value: PrimExpr) -> None:
    """Enter the operands of a fused iterator, from the coarsest to the finest."""
    if len(source.args) == 1:
        [arg] = source.args
        _enter(values, arg, _unscaled(ops.sub(value, source.base), arg.scale))
        return
    for position, arg in enumerate(source.args):
        factor = arg.scale
        negative = isinstance(factor, tir.IntImm) and factor.value < 0
        digits = ops.floordiv(value, ops.mul(factor, -1) if negative else factor)
        if position:
            digits = ops.floormod(digits, arg.extent)
        _enter(values, arg, ops.sub(ops.sub(arg.extent, 1), digits) if negative else digits)


def _variable(source: PrimExpr, value: PrimExpr) -> tuple[Var, PrimExpr]:
    match source:
        case Var():
            return source, value
        case tir.Sub(a=Var() as var, b=start):
            return var, ops.add(value, start)
        case _:
            raise MisuseError(f"an iterator over `{source}` has no variable", about=source)
