"""The functions by name: their widths, and which of them are functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from relaxpy.exec.native.llvm.function import Function, Value
from relaxpy.exec.native.maths import (
    exact,
    exponential,
    inverse_trigonometric,
    logarithmic,
    others,
    trigonometric,
)
from relaxpy.exec.native.maths.numbers import absolute, number, shifted, square_root, with_sign

Emitter: TypeAlias = Callable[..., Value]

_SHORT: Final[Mapping[str, Emitter]] = {
    "fabs": absolute,
    "sqrt": square_root,
    "copysign": with_sign,
    "rsqrt": others.rsqrt,
    "nextafter": exact.nextafter,
    "ldexp": exact.ldexp,
    **{
        name: lambda x, intrinsic=intrinsic: x.function.intrinsic(intrinsic, x)
        for name, intrinsic in (
            *(("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc")),
            *(("round", "roundeven"), ("nearbyint", "roundeven")),
        )
    },
}
"""The functions of any format that are a few instructions."""

_FLOAT: Final[Mapping[str, Emitter]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "exp10": exponential.exp10,
    "sigmoid": exponential.sigmoid_float,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "tanh": exponential.tanh_float,
    "log": logarithmic.log_float,
    "pow": logarithmic.power_float,
    "erf": others.erf_float,
}
"""The functions that compute in `float` where they are used."""

_FLOAT_CALLED: Final[Mapping[str, Emitter]] = {
    "log1p": logarithmic.log1p_float,
    "sin": trigonometric.sin_float,
    "cos": trigonometric.cos_float,
    "asin": inverse_trigonometric.asin_float,
    "acos": inverse_trigonometric.acos_float,
    "atan": inverse_trigonometric.atan_float,
}
"""The functions of the module that compute in `float`; the others of it compute in `double`."""

_ROUNDED: Final[Mapping[str, Emitter]] = {
    "asinh": logarithmic.asinh_short,
    "acosh": logarithmic.acosh_short,
    "atanh": logarithmic.atanh_short,
    "atan2": inverse_trigonometric.atan2_short,
}
"""The functions of `double` that are for `float` only."""

_DOUBLE: Final[Mapping[str, Emitter]] = {
    "exp": exponential.exp,
    "exp2": exponential.exp2,
    "exp10": exponential.exp10,
    "sigmoid": exponential.sigmoid,
    "sinh": exponential.sinh,
    "cosh": exponential.cosh,
    "tanh": exponential.tanh,
    "log": logarithmic.log,
    "log2": logarithmic.log2,
    "log10": logarithmic.log10,
    "log1p": logarithmic.log1p,
    "asinh": logarithmic.asinh,
    "acosh": logarithmic.acosh,
    "atanh": logarithmic.atanh,
    "pow": logarithmic.power,
    "sin": trigonometric.sin,
    "cos": trigonometric.cos,
    "tan": trigonometric.tan,
    "asin": inverse_trigonometric.asin,
    "acos": inverse_trigonometric.acos,
    "atan": inverse_trigonometric.atan,
    "atan2": inverse_trigonometric.atan2,
    "erf": others.erf,
    "hypot": others.hypot,
    "fmod": exact.fmod,
}

MATHS: Final = frozenset({*_SHORT, *_DOUBLE})
"""The names of the functions."""

LONG: Final = frozenset(_DOUBLE)
"""The names of those that are many instructions."""


def emit_maths(function: Function, name: str, *values: Value) -> Value:
    """The function `name` of floats, in each lane, in their format.

    Errors are at most 2 ulp; NaN, infinities, zeros of either sign and subnormal numbers are as in
    NumPy. No result depends on the number of lanes. `half` and `bfloat` compute in `float`. The
    second value of `ldexp` is an integer.
    """
    element = values[0].type.element
    if element in ("half", "bfloat") and name != "nextafter":
        wide = [widen(value) if value.type.element == element else value for value in values]
        return narrow(emit_maths(function, name, *wide), element)
    if name in _SHORT:
        with _exactly(function):
            return _SHORT[name](*values)
    if name in _FLOAT and element == "float":
        with _exactly(function):
            return _FLOAT[name](*values)
    return _called(function, name, *values)


def widen(x: Value) -> Value:
    """A value of `half` or `bfloat` as `float`."""
    if x.type.element == "half":
        return x.function.cast("fpext", x, "float")
    upper = x.function.cast("zext", x.function.cast("bitcast", x, "i16"), "i32")
    return number(shifted("shl", upper, 16), "float")


def narrow(x: Value, element: str) -> Value:
    """A value of `float` rounded to `half` or `bfloat`, ties to even.

    The instruction for `bfloat` of some CPUs flushes subnormal numbers.
    """
    f = x.function
    if element == "half":
        return f.cast("fptrunc", x, "half")
    bits = f.cast("bitcast", x, "i32")
    odd = f.arithmetic("and", shifted("lshr", bits, 16), 1)
    rounded = shifted("lshr", bits + 0x7FFF + odd, 16)
    quiet = f.arithmetic("or", shifted("lshr", bits, 16), 0x40)
    upper = f.select(f.compare("uno", x, x), quiet, rounded)
    return f.cast("bitcast", f.cast("trunc", upper, "i16"), "bfloat")


def _called(function: Function, name: str, *values: Value) -> Value:
    """A call of the function of the module, which is written at its first use."""
    type = values[0].type
    symbol = f"relaxpy.{name}.{type.suffix}"
    if symbol not in function.module.functions:
        params = [(type, f"x{n}") for n in range(len(values))]
        callee = function.module.function(symbol, params, type)
        with _exactly(callee):
            if type.element == "float" and name in _FLOAT_CALLED:
                callee.ret(_FLOAT_CALLED[name](*callee.params))
            else:
                wide = [_converted(p, "fpext", "double") for p in callee.params]
                emitters = _ROUNDED if type.element == "float" and name in _ROUNDED else _DOUBLE
                callee.ret(_converted(emitters[name](*wide), "fptrunc", type.element))
    return function.call(symbol, type, *values)


def _converted(x: Value, instruction: str, element: str) -> Value:
    return x if x.type.element == element else x.function.cast(instruction, x, element)


@contextmanager
def _exactly(function: Function) -> Iterator[None]:
    """No fast-math flags, so that each operation is rounded as written."""
    flags, function.flags = function.flags, ""
    try:
        yield
    finally:
        function.flags = flags
