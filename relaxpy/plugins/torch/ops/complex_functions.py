"""Elementary functions of complex numbers, computed in float64.

The inverse functions follow Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.torch.complexes import Complex, as_complex, complex_converter
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.complex_numbers import reciprocal, size_of, times
from relaxpy.plugins.torch.ops.elementwise import expm1, log1p
from relaxpy.plugins.torch.ops.prims import is_negative
from relaxpy.plugins.torch.registry import Value

Function = Callable[[Context, Complex], Complex]


def _number(value: float) -> Expr:
    return const(value, "float64")


def _wide(cx: Context, value: Value) -> Complex:
    z = as_complex(cx, value)
    return Complex(cx.emit(R.astype(z.re, "float64")), cx.emit(R.astype(z.im, "float64")))


def _emitted(cx: Context, re: Expr, im: Expr) -> Complex:
    return Complex(cx.emit(re), cx.emit(im))


def _scaled(z: Complex, factor: float) -> Complex:
    return Complex(R.multiply(z.re, _number(factor)), R.multiply(z.im, _number(factor)))


def _moved(z: Complex, distance: float) -> Complex:
    return Complex(R.add(z.re, _number(distance)), z.im)


def _conj(z: Complex) -> Complex:
    return Complex(z.re, R.negative(z.im))


def _turned_left(z: Complex) -> Complex:
    """i z."""
    return Complex(R.negative(z.im), z.re)


def _turned_right(z: Complex) -> Complex:
    """-i z."""
    return Complex(z.im, R.negative(z.re))


def _with_sign(cx: Context, size: Expr, sign: Expr) -> Expr:
    return R.where(is_negative(cx, cx.emit(sign)), R.negative(size), size)


def exp(cx: Context, z: Complex) -> Complex:
    size, real = cx.emit(R.exp(z.re)), R.equal(z.im, _number(0.0))
    return _emitted(
        cx,
        R.where(real, size, R.multiply(size, R.cos(z.im))),
        R.where(real, z.im, R.multiply(size, R.sin(z.im))),
    )


def exp_minus_one(cx: Context, z: Complex) -> Complex:
    half = cx.emit(R.sin(R.multiply(z.im, _number(0.5))))
    below = R.multiply(_number(2.0), R.multiply(half, half))
    re = R.subtract(R.multiply(expm1(cx, z.re), R.cos(z.im)), below)
    return _emitted(cx, re, R.multiply(R.exp(z.re), R.sin(z.im)))


def log(cx: Context, z: Complex) -> Complex:
    return _emitted(cx, R.log(size_of(cx, z)), R.atan2(z.im, z.re))


def log_of_one_more(cx: Context, z: Complex) -> Complex:
    x, y = z.re, z.im
    square = R.add(R.multiply(x, R.add(x, _number(2.0))), R.multiply(y, y))
    near = R.multiply(_number(0.5), log1p(cx, cx.emit(square)))
    moved = _moved(z, 1.0)
    whole = log(cx, moved)
    is_near = R.less(size_of(cx, z), _number(0.5))
    return _emitted(cx, R.where(is_near, near, whole.re), whole.im)


def sqrt(cx: Context, z: Complex) -> Complex:
    zero = _number(0.0)
    mean = R.multiply(_number(0.5), R.add(size_of(cx, z), R.abs(z.re)))
    root = cx.emit(R.sqrt(mean))
    below = R.where(R.equal(root, zero), _number(1.0), R.multiply(_number(2.0), root))
    other = cx.emit(R.divide(R.abs(z.im), below))
    right = cx.emit(R.greater_equal(z.re, zero))
    infinite = R.isinf(z.im)
    re = R.where(infinite, _number(math.inf), R.where(right, root, other))
    size = R.where(infinite, _number(math.inf), R.where(right, other, root))
    return _emitted(cx, re, _with_sign(cx, size, z.im))


def sinh(cx: Context, z: Complex) -> Complex:
    re = R.multiply(R.sinh(z.re), R.cos(z.im))
    return _emitted(cx, re, R.multiply(R.cosh(z.re), R.sin(z.im)))


def cosh(cx: Context, z: Complex) -> Complex:
    re = R.multiply(R.cosh(z.re), R.cos(z.im))
    return _emitted(cx, re, R.multiply(R.sinh(z.re), R.sin(z.im)))


def tanh(cx: Context, z: Complex) -> Complex:
    t, s, c = (cx.emit(x) for x in (R.tanh(z.re), R.sin(z.im), R.cos(z.im)))
    square = cx.emit(R.multiply(t, t))
    below = cx.emit(R.add(R.multiply(c, c), R.multiply(square, R.multiply(s, s))))
    above = R.multiply(R.multiply(s, c), R.subtract(_number(1.0), square))
    return _emitted(cx, R.divide(t, below), R.divide(above, below))


def asinh(cx: Context, z: Complex) -> Complex:
    return _turned_right(asin(cx, _turned_left(z)))


def asin(cx: Context, z: Complex) -> Complex:
    left, right = _roots(cx, z)
    crossed = times(cx, left, right)
    re = R.atan2(z.re, crossed.re)
    return _emitted(cx, re, R.asinh(times(cx, _conj(left), right).im))


def _roots(cx: Context, z: Complex) -> tuple[Complex, Complex]:
    """The roots of 1 - z and of 1 + z."""
    left = sqrt(cx, _emitted(cx, R.subtract(_number(1.0), z.re), R.negative(z.im)))
    return left, sqrt(cx, _emitted(cx, R.add(z.re, _number(1.0)), z.im))


def acos(cx: Context, z: Complex) -> Complex:
    left, right = _roots(cx, z)
    re = R.multiply(_number(2.0), R.atan2(left.re, right.re))
    return _emitted(cx, re, R.asinh(times(cx, _conj(right), left).im))


def acosh(cx: Context, z: Complex) -> Complex:
    below = sqrt(cx, _emitted(cx, R.subtract(z.re, _number(1.0)), z.im))
    above = sqrt(cx, _emitted(cx, R.add(z.re, _number(1.0)), z.im))
    im = R.multiply(_number(2.0), R.atan2(below.im, above.re))
    return _emitted(cx, R.asinh(times(cx, _conj(below), above).re), im)


def atanh(cx: Context, z: Complex) -> Complex:
    one = _number(1.0)
    x, y = cx.emit(R.abs(z.re)), z.im
    near, far = cx.emit(R.subtract(one, x)), R.add(one, x)
    square = cx.emit(R.multiply(y, y))
    below = R.add(R.multiply(near, near), square)
    ratio = R.divide(R.multiply(_number(4.0), x), below)
    size = R.multiply(_number(0.25), log1p(cx, cx.emit(ratio)))
    im = R.atan2(R.multiply(_number(2.0), y), R.subtract(R.multiply(near, far), square))
    return _emitted(cx, _with_sign(cx, size, z.re), R.multiply(_number(0.5), im))


def _about(function: Function) -> Function:
    """-i f(i z), which is sin of sinh, tan of tanh, atan of atanh."""
    return lambda cx, z: _turned_right(function(cx, _turned_left(z)))


def _sigmoid(cx: Context, z: Complex) -> Complex:
    return reciprocal(cx, _moved(exp(cx, _scaled(z, -1.0)), 1.0))


_FUNCTIONS: dict[str, Function] = {
    "exp": exp,
    "exp2": lambda cx, z: exp(cx, _scaled(z, math.log(2))),
    "expm1": exp_minus_one,
    "log": log,
    "log1p": log_of_one_more,
    "log2": lambda cx, z: _scaled(log(cx, z), 1 / math.log(2)),
    "log10": lambda cx, z: _scaled(log(cx, z), 1 / math.log(10)),
    "sqrt": sqrt,
    "rsqrt": lambda cx, z: reciprocal(cx, sqrt(cx, z)),
    "sin": _about(sinh),
    "cos": lambda cx, z: cosh(cx, _turned_left(z)),
    "tan": _about(tanh),
    "sinh": sinh,
    "cosh": cosh,
    "tanh": tanh,
    "asin": asin,
    "acos": acos,
    "atan": _about(atanh),
    "asinh": asinh,
    "acosh": acosh,
    "atanh": atanh,
    "sigmoid": _sigmoid,
    "silu": lambda cx, z: times(cx, z, _sigmoid(cx, z)),
}


def _result(cx: Context, z: Complex) -> Complex:
    return Complex(*(R.astype(x, cx.result_dtype()) for x in (z.re, z.im)))


def _register() -> None:
    for name, function in _FUNCTIONS.items():
        complex_converter(name)(
            lambda cx, x, function=function: _result(cx, function(cx, _wide(cx, x)))
        )


@complex_converter("pow", "float_power")
def power(cx: Context, x: Value, y: Value) -> Complex:
    base = _wide(cx, x)
    if isinstance(y, int) and 0 <= y <= _FEW:
        return _result(cx, _whole_power(cx, base, y))
    exponent = _wide(cx, y)
    found = exp(cx, times(cx, exponent, log(cx, base)))
    zero = _number(0.0)
    at_zero = cx.emit(R.equal(size_of(cx, base), zero))
    to_zero = R.equal(size_of(cx, exponent), zero)
    ends = R.where(to_zero, _number(1.0), zero)
    re, im = R.where(at_zero, ends, found.re), R.where(at_zero, zero, found.im)
    return _result(cx, _emitted(cx, re, im))


#: Powers up to this one are products.
_FEW = 8


def _whole_power(cx: Context, z: Complex, count: int) -> Complex:
    if not count:
        return Complex(R.ones_like(z.re), R.zeros_like(z.re))
    half = _whole_power(cx, z, count // 2)
    if count == 1:
        return z
    squared = times(cx, half, half)
    return times(cx, squared, z) if count % 2 else squared


_register()
