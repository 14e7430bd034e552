"""Pools of windows: their maxima, the places of these, and their means."""

from __future__ import annotations

import math
from typing import Any

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.pooling import pool_selected
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.place import Place
from relaxpy.plugins.importing.tensors import Size, dtype_of, is_float, shape_of
from relaxpy.plugins.importing.windows import LAYOUTS, Windows, spatial

MAXIMA = {1: R.nn.max_pool1d, 2: R.nn.max_pool2d, 3: R.nn.max_pool3d}
MEANS = {1: R.nn.avg_pool1d, 2: R.nn.avg_pool2d, 3: R.nn.avg_pool3d}


def pooled(
    cx: Place, operators: dict[int, Any], x: Expr, windows: Windows, *, ceil: bool, inside: bool
) -> Expr:
    """The reduced windows; `inside` says whether padding counts."""
    y: Expr = operators[spatial(x)](
        x, windows.kernel, windows.strides, windows.pads, windows.dilations, ceil, inside
    )
    return begun(cx, y, windows) if ceil else y


def begun(cx: Place, y: Expr, windows: Windows) -> Expr:
    """The result without the windows that would start in the padding behind."""
    bound = cx.emit(y)
    sizes, wanted = shape_of(bound)[2:], [windows.outputs(k) for k in range(windows.count)]
    axes = [
        k
        for k, after in enumerate(windows.after)
        if not isinstance(after, int)
        or (after + windows.strides[k] > windows.span(k) and not is_same(sizes[k], wanted[k]))
    ]
    if not axes:
        return bound
    begin: list[Size] = [0] * len(axes)
    result: Expr = R.strided_slice(bound, [k + 2 for k in axes], begin, [wanted[k] for k in axes])
    return result


def is_same(a: Size, b: Size) -> bool:
    """True if two sizes are known to be the same number."""
    return isinstance(a, int) and isinstance(b, int) and a == b


def lowest(x: Expr) -> float:
    """The least number of the datatype of a tensor."""
    dtype = dtype_of(x)
    if is_float(x):
        return -math.inf
    return float(ops.int_range(DataType(dtype))[0])


def max_indices(
    cx: Place, x: Expr, windows: Windows, *, ceil: bool, by_columns: bool, by_channel: bool = False
) -> Expr:
    """The argmax of each pooling window, as an index into the whole tensor or into a channel."""
    layout = LAYOUTS[spatial(x)]

    def selected(t: Tensor) -> Tensor:
        numbers = _numbered(t, by_columns=by_columns, by_channel=by_channel)
        return pool_selected(
            numbers,
            t,
            windows.kernel,
            windows.strides,
            windows.dilations,
            windows.pads,
            ceil,
            layout,
        )

    indices = cx.te(selected, x, name="max_pool_indices")
    return begun(cx, indices, windows) if ceil else indices


def _numbered(x: Tensor, *, by_columns: bool, by_channel: bool) -> Tensor:
    """The number of each element of images; `by_columns` the first spatial axis varies last."""

    def element(*index: PrimExpr) -> PrimExpr:
        order = [
            *(() if by_channel else (0, 1)),
            *(range(len(index) - 1, 1, -1) if by_columns else range(2, len(index))),
        ]
        total: PrimExpr = ops.const(0, "int64")
        for axis in order:
            total = ops.add(ops.mul(total, x.shape[axis]), index[axis])
        return ops.cast_to(total, "int64")

    return computed(x.shape, element, "numbers")


def mean_pooled(cx: Place, x: Expr, windows: Windows, *, ceil: bool, inside: bool) -> Expr:
    """The means of windows; `inside` says whether padding counts."""
    if windows.is_fixed:
        return pooled(cx, MEANS, x, windows, ceil=ceil, inside=inside)
    data, whole = windows.padded(cx, x, 0)
    total = pooled(cx, MEANS, data, whole, ceil=ceil, inside=True)
    if inside:
        return total
    ones, _ = windows.padded(cx, R.ones((1, 1, *windows.sizes), dtype_of(x)), 0)
    counts = pooled(cx, MEANS, ones, whole, ceil=ceil, inside=True)
    result: Expr = R.divide(total, counts)
    return result
