"""Products of bytes with zero points, as products of the bytes without what these contribute.

`f(a - p, b - q)` is `f(a, b) - f(p, b - q) - f(a, q)` for a function that is linear in both, and
exactly so for integers modulo a power of two. Processors have instructions for bytes, and what
weights contribute is a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import Args, dims, dtype_of, listed, number
from relaxpy.ir.tir.expr import IntImm

_BYTES = ("int8", "uint8")


def without_zero_points(
    name: str, plain: Callable[[Args, Any], rx.Expr], args: Args, attrs: Any
) -> rx.Expr | None:
    """The product `name` of two operands of bytes and their zero points, from `plain` products.

    None if that is not possible: an operand is not of bytes, the first zero point is no scalar, or
    it would be padded and is not known.
    """
    a, b, p, q = args[:4]
    known = attrs["out_dtype"] == "int32" and all(dtype_of(x) in _BYTES for x in (a, b))
    if not known or len(dims(p)) > 0:
        return None
    match name:
        case "nn.dense":
            parts = _dense(a, b, q, attrs)
        case "nn.conv2d":
            parts = _convolution(a, b, p, q, attrs)
        case _:
            return None
    if parts is None:
        return None
    result = plain((parts.data, b), parts.attrs)
    if not _is_zero(p):
        # What the zero point of the data contributes, for each column: (sum(b) - count * q) * p.
        sums = plain((_ones(parts.one_row), b), parts.row_attrs)
        if not _is_zero(q):
            sums = R.subtract(sums, R.multiply(parts.zeros, number(parts.summands, "int32")))
        result = R.subtract(result, R.multiply(sums, R.astype(p, "int32")))
    if not _is_zero(q):
        one = {**parts.attrs, "units": None, "channels": None}
        sums = plain((parts.data, _ones(parts.one_column)), one)
        result = R.subtract(result, R.multiply(sums, parts.zeros))
    return result


class _Parts(NamedTuple):
    """The data and attributes of the plain product, and what the sums of its operands are.

    `one_row` and `one_column` are the shapes of operands of ones, with which products are the sums
    of the other operand; each has so many `summands`. `zeros` are the zero points of the weight.
    """

    data: rx.Expr
    attrs: Any
    one_row: list[int]
    row_attrs: Any
    one_column: list[int]
    summands: int
    zeros: rx.Expr


def _dense(a: rx.Expr, b: rx.Expr, q: rx.Expr, attrs: Any) -> _Parts | None:
    count = dims(b)[1]
    if not isinstance(count, IntImm):
        return None
    one = [1, count.value]
    return _Parts(a, attrs, one, attrs, one, count.value, R.astype(q, "int32"))


def _convolution(a: rx.Expr, b: rx.Expr, p: rx.Expr, q: rx.Expr, attrs: Any) -> _Parts | None:
    layout, kernel, groups = attrs["data_layout"], attrs["kernel_layout"], attrs["groups"]
    if sorted(layout) != sorted("NCHW") or sorted(kernel) != sorted("OIHW"):
        return None
    if len(dims(a)) != len(layout) or len(dims(b)) != len(kernel):
        return None
    found = dict(zip(kernel, dims(b), strict=True))
    sizes = {axis: size.value for axis, size in found.items() if isinstance(size, IntImm)}
    if attrs["out_layout"] not in ("", layout) or len(sizes) < len(found):
        return None
    if (groups > 1 and not _is_zero(q)) or (len(dims(q)) and kernel[0] != "O"):
        return None
    if any(listed(attrs["padding"])) and not _is_zero(p):
        padded = _padded(a, p, layout, listed(attrs["padding"]))
        if padded is None:
            return None
        a, attrs = padded, {**attrs, "padding": (0, 0)}
    zeros = R.astype(q, "int32")
    if len(dims(q)):
        zeros = R.reshape(zeros, [-1 if axis == "C" else 1 for axis in layout])
    whole = {**sizes, "N": 1, "C": sizes["I"] * groups, "O": 1}
    alone = {**attrs, "padding": (0, 0), "strides": (1, 1), "dilation": (1, 1)}
    one_row, one_column = ([whole[axis] for axis in axes] for axes in (layout, kernel))
    return _Parts(a, attrs, one_row, alone, one_column, math.prod(one_column), zeros)


def _ones(shape: list[int]) -> rx.Expr:
    return rx.Constant(np.ones(shape, "int8"))


def _padded(a: rx.Expr, p: rx.Expr, layout: str, padding: list[Any]) -> rx.Expr | None:
    """The data within its zero point; None if that is not known, or no value of the data."""
    info = np.iinfo(dtype_of(a))
    if not isinstance(p, rx.Constant) or not info.min <= p.data.item() <= info.max:
        return None
    sides = padding * (4 // len(padding))
    widths = {"H": (sides[0], sides[2]), "W": (sides[1], sides[3])}
    every = [width for axis in layout for width in widths.get(axis, (0, 0))]
    padded: rx.Expr = R.nn.pad(a, every, "constant", float(p.data.item()))
    return padded


def _is_zero(zero_point: rx.Expr) -> bool:
    return isinstance(zero_point, rx.Constant) and not zero_point.data.any()
