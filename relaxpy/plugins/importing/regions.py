"""RoI align, RoI pooling and deformable convolution."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.ir.relax.op import regions
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.shapes import double
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.place import Place
from relaxpy.plugins.importing.tensors import (
    Size,
    as_dtype,
    as_size,
    product,
    reshaped,
    shape_of,
    sizes_known,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import Windows


def averaged(
    cx: Place,
    x: Expr,
    rois: Expr,
    scale: float,
    pooled: tuple[Size, Size],
    ratio: int,
    **options: Any,
) -> Expr:
    """`topi.regions.averaged`, at least in float32."""
    dtype = wide_dtype(x)
    operands = (cx.emit(as_dtype(item, dtype)) for item in (x, rois))
    rows, columns = map(as_size, pooled)
    return cx.te(
        lambda x, rois: regions.averaged(x, rois, scale, (rows, columns), ratio, **options),
        *operands,
        name="roi_align",
    )


def maxima(
    cx: Place, x: Expr, rois: Expr, scale: float, rows: Size, columns: Size
) -> tuple[Expr, Expr]:
    """`topi.regions.maxima`, at least in float32."""
    dtype = wide_dtype(x)
    operands = (cx.emit(as_dtype(item, dtype)) for item in (x, rois))
    both = cx.te(
        lambda x, rois: regions.maxima(x, rois, scale, as_size(rows), as_size(columns)),
        *operands,
        name="roi_pool",
    )
    return cx.emit(TupleGetItem(both, 0)), cx.emit(TupleGetItem(both, 1))


def deformed(
    cx: Place,
    x: Expr,
    w: Expr,
    offset: Expr,
    mask: Expr | None,
    windows: Windows,
    group: int,
    offset_group: int,
) -> Expr:
    """A convolution whose kernel's elements are moved, as a product with the elements they meet."""
    operands = [x, offset, *([mask] if mask is not None else [])]
    columns = cx.te(
        lambda *tensors: _columns(windows, offset_group, *tensors), *operands, name="deform"
    )
    batch, channels, members, *out = shape_of(columns)
    outputs, _ = sizes_known(w)[:2]
    depth = product([channels, members]) // group
    matrix = reshaped(w, (group, outputs // group, depth))
    y = R.matmul(matrix, reshaped(columns, (batch, group, depth, product(out))))
    return reshaped(cx.emit(y), (batch, outputs, *out))


def _columns(windows: Windows, groups: int, x: Any, offset: Any, mask: Any = None) -> Any:
    """The elements under each member of each window, moved by the offsets and interpolated."""
    count, members = windows.count, math.prod(windows.kernel)
    if count > 3:
        raise UnsupportedError(f"{count} axes of space are more than 3")
    channels = x.shape[1]
    zero = ops.const(0, "int64")

    def element(n: PrimExpr, c: PrimExpr, member: PrimExpr, *at: PrimExpr) -> PrimExpr:
        part = ops.floordiv(c * groups, channels) * members + member
        positions = []
        rest = member
        for k in reversed(range(count)):
            index = ops.floormod(rest, ops.const(windows.kernel[k], "int64"))
            rest = ops.floordiv(rest, ops.const(windows.kernel[k], "int64"))
            base = at[k] * windows.strides[k] - windows.before[k] + index * windows.dilations[k]
            positions.append(double(base) + double(offset(n, part * count + k, *at)))
        positions.reverse()
        total: PrimExpr = double(0.0)
        for corner in range(2**count):
            weight, inside, source = double(1.0), [], []
            for k, position in enumerate(positions):
                below = intrin.floor(position)
                high = corner >> k & 1
                weight = weight * (position - below if high else below + double(1.0) - position)
                bounded = ops.maximum(ops.minimum(below, double(2.0**40)), double(-(2.0**40)))
                index = ops.cast_to(bounded, "int64") + high
                inside += [index >= 0, index < x.shape[k + 2]]
                source.append(ops.maximum(ops.minimum(index, x.shape[k + 2] - 1), zero))
            value = double(x(n, c, *source)) * weight
            total = total + tir.Select(ops.all_of(*inside), value, double(0.0))
        if mask is not None:
            total = total * double(mask(n, part, *at))
        return ops.cast_to(total, x.dtype)

    shape = [*x.shape[:2], ops.const(members, "int64"), *offset.shape[2:]]
    return computed(shape, element, "deform_columns")
