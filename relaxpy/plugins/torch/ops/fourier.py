"""Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.ir.relax.nodes import Expr
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.fourier import transformed
from relaxpy.plugins.importing.tensors import Size, dtype_of, product, rank_of, scalar, shape_of
from relaxpy.plugins.torch.complexes import Complex, complex_converter, from_pair, to_pair
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import converter

#: How PyTorch scales: not at all, by the root of the number of points, by the number of points.
_NONE, _ROOT, _WHOLE = range(3)


def _scaled(cx: Context, x: Expr, count: Size, normalization: int, *, inverse: bool) -> Expr:
    """`x` scaled for a mode of normalisation; "backward" divides inverse transforms by `count`."""
    wanted = {_NONE: 0.0, _ROOT: -0.5, _WHOLE: -1.0}[normalization] + (1.0 if inverse else 0.0)
    if not wanted:
        return x
    if isinstance(count, int):
        return R.multiply(x, scalar(float(count) ** wanted, x)) if count else x
    number = cx.tensor(count, dtype_of(x))
    return R.multiply(x, R.power(number, scalar(wanted, x)))


@complex_converter("_fft_c2c")
def c2c(cx: Context, z: Complex, axes: Sequence[int], normalization: int, forward: bool) -> Complex:
    pair = cx.emit(to_pair(z))
    places = [cx.axis(axis, z.re) for axis in axes]
    sizes = shape_of(z.re)
    for axis in places:
        pair = cx.emit(
            transformed(cx, pair, axis, sizes[axis], inverse=not forward, onesided=False)
        )
    count = product([sizes[axis] for axis in places])
    return from_pair(cx, cx.emit(_scaled(cx, pair, count, normalization, inverse=not forward)))


@complex_converter("_fft_r2c")
def r2c(cx: Context, x: Expr, axes: Sequence[int], normalization: int, onesided: bool) -> Complex:
    places = [cx.axis(axis, x) for axis in axes]
    sizes = shape_of(x)
    pair: Expr = cx.emit(R.expand_dims(x, rank_of(x)))
    for k, axis in enumerate(reversed(places)):
        halved = onesided and not k
        pair = cx.emit(transformed(cx, pair, axis, sizes[axis], inverse=False, onesided=halved))
    count = product([sizes[axis] for axis in places])
    return from_pair(cx, cx.emit(_scaled(cx, pair, count, normalization, inverse=False)))


@converter("_fft_c2r")
def c2r_of_reals(cx: Context, x: Expr, axes: Sequence[int], normalization: int, last: Any) -> Expr:
    return c2r(cx, Complex(x, R.zeros_like(x)), axes, normalization, last)


@complex_converter("_fft_c2r")
def c2r(cx: Context, z: Complex, axes: Sequence[int], normalization: int, last: Any) -> Expr:
    places = [cx.axis(axis, z.re) for axis in axes]
    sizes = shape_of(z.re)
    pair: Expr = cx.emit(to_pair(z))
    for axis in places[:-1]:
        pair = cx.emit(transformed(cx, pair, axis, sizes[axis], inverse=True, onesided=False))
    real = cx.emit(transformed(cx, pair, places[-1], last, inverse=True, onesided=True))
    count = product([*(sizes[axis] for axis in places[:-1]), last])
    whole = R.squeeze(real, [rank_of(real) - 1])
    return _scaled(cx, whole, count, normalization, inverse=True)
