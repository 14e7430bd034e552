"""Tensors with room around or between their elements."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError, counted
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import as_sizes, is_const
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__ = ["dilate", "pad"]

INJECTIVE = "injective"


def pad(
    data: Tensor,
    pad_before: Sequence[ExprLike],
    pad_after: Sequence[ExprLike] | None = None,
    pad_value: ExprLike = 0.0,
    name: str = "PadInput",
) -> Tensor:
    """The data with so many elements of one value before and after each axis.

    Errors:
        MisuseError: a width is missing for an axis.
    """
    before = as_sizes(pad_before)
    after = before if pad_after is None else as_sizes(pad_after)
    for widths in (before, after):
        if len(widths) != data.ndim:
            raise MisuseError(f"pad: {counted(len(widths), 'width')} for rank {data.ndim}")
    fill = ops.cast_to(pad_value, data.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        inside, source = [], []
        for i, low, high, size in zip(index, before, after, data.shape, strict=True):
            if not is_const(low, 0):
                inside.append(ops.compare(tir.GE, i, low))
            if not is_const(high, 0):
                inside.append(ops.compare(tir.LT, i, ops.add(low, size)))
            source.append(i if is_const(low, 0) else ops.sub(i, low))
        value = data(*source)
        return intrin.if_then_else(ops.all_of(*inside), value, fill) if inside else value

    shape = [
        ops.add(ops.add(size, low), high)
        for size, low, high in zip(data.shape, before, after, strict=True)
    ]
    made: Tensor = te.compute(shape, element, name=name, tag=INJECTIVE)
    return made


def dilate(
    data: Tensor,
    strides: Sequence[int],
    dilation_value: ExprLike = 0.0,
    name: str = "DilatedInput",
) -> Tensor:
    """The data with `strides[a] - 1` elements of one value between neighbours along axis a.

    Errors:
        MisuseError: a stride is missing for an axis.
    """
    if len(strides) != data.ndim:
        raise MisuseError(f"dilate: {counted(len(strides), 'stride')} for rank {data.ndim}")
    fill = ops.cast_to(dilation_value, data.dtype)
    steps = as_sizes(strides)

    def element(*index: PrimExpr) -> PrimExpr:
        inside, source = [], []
        for i, step in zip(index, steps, strict=True):
            if is_const(step, 1):
                source.append(i)
                continue
            inside.append(ops.compare(tir.EQ, ops.floormod(i, step), ops.const(0, i.dtype)))
            source.append(ops.floordiv(i, step))
        value = data(*source)
        return intrin.if_then_else(ops.all_of(*inside), value, fill) if inside else value

    shape = [
        size if is_const(step, 1) else _dilated(size, step)
        for size, step in zip(data.shape, steps, strict=True)
    ]
    made: Tensor = te.compute(shape, element, name=name, tag=INJECTIVE)
    return made


def _dilated(size: PrimExpr, step: PrimExpr) -> PrimExpr:
    """How many elements `size` of them become: nothing stays nothing."""
    one = ops.const(1, size.dtype)
    return ops.maximum(ops.add(ops.mul(ops.sub(size, one), step), one), ops.const(0, size.dtype))
