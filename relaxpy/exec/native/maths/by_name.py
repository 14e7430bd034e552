"""The functions by name: their widths, and which of them are functions of the module."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeAlias

from relaxpy.exec.native.llvm.writer import Function, Value
from relaxpy.exec.native.maths import exponential, others, trigonometric
from relaxpy.exec.native.maths.numbers import absolute, narrow, square_root, widen, with_sign
from relaxpy.support.dataclass import dataclass

Emitter: TypeAlias = Callable[..., Value]


@dataclass(slots=True, frozen=True)
class _Emitters:
    """The emitters of a function, by the format in which they compute.

    Those of `short` and `single` are used in place, the others make a function of the module, which
    computes in `double` unless there is a `single_called`.
    """

    short: Emitter | None = None
    """A few instructions, of any format."""
    double: Emitter | None = None
    single: Emitter | None = None
    single_called: Emitter | None = None
    for_single: Emitter | None = None
    """In `double`, exact enough for `float` only."""


def _llvm(intrinsic: str) -> _Emitters:
    return _Emitters(lambda x: x.function.intrinsic(intrinsic, x))


_TABLE: Final[Mapping[str, _Emitters]] = {
    "fabs": _Emitters(absolute),
    "sqrt": _Emitters(square_root),
    "copysign": _Emitters(with_sign),
    "rsqrt": _Emitters(others.rsqrt),
    "nextafter": _Emitters(others.nextafter),
    "ldexp": _Emitters(others.ldexp),
    "floor": _llvm("floor"),
    "ceil": _llvm("ceil"),
    "trunc": _llvm("trunc"),
    "round": _llvm("roundeven"),
    "nearbyint": _llvm("roundeven"),
    "exp": _Emitters(double=exponential.exp, single=exponential.exp),
    "exp2": _Emitters(double=exponential.exp2, single=exponential.exp2),
    "exp10": _Emitters(double=exponential.exp10, single=exponential.exp10),
    "sigmoid": _Emitters(double=exponential.sigmoid, single=exponential.sigmoid_float),
    "sinh": _Emitters(double=exponential.sinh, single=exponential.sinh),
    "cosh": _Emitters(double=exponential.cosh, single=exponential.cosh),
    "tanh": _Emitters(double=exponential.tanh, single=exponential.tanh_float),
    "log": _Emitters(double=exponential.log, single=exponential.log_float),
    "log2": _Emitters(double=exponential.log2, single=exponential.log2_float),
    "log10": _Emitters(double=exponential.log10, single=exponential.log10_float),
    "log1p": _Emitters(double=exponential.log1p, single_called=exponential.log1p_float),
    "asinh": _Emitters(double=exponential.asinh, for_single=exponential.asinh_short),
    "acosh": _Emitters(double=exponential.acosh, for_single=exponential.acosh_short),
    "atanh": _Emitters(double=exponential.atanh, for_single=exponential.atanh_short),
    "pow": _Emitters(double=exponential.power, single=exponential.power_float),
    "sin": _Emitters(double=trigonometric.sin, single_called=trigonometric.sin_float),
    "cos": _Emitters(double=trigonometric.cos, single_called=trigonometric.cos_float),
    "tan": _Emitters(double=trigonometric.tan),
    "asin": _Emitters(double=trigonometric.asin, single_called=trigonometric.asin_float),
    "acos": _Emitters(double=trigonometric.acos, single_called=trigonometric.acos_float),
    "atan": _Emitters(double=trigonometric.atan, single_called=trigonometric.atan_float),
    "atan2": _Emitters(double=trigonometric.atan2, for_single=trigonometric.atan2_short),
    "erf": _Emitters(double=others.erf, single=others.erf_float),
    "hypot": _Emitters(double=others.hypot, for_single=others.hypot_short),
    "fmod": _Emitters(double=others.fmod),
}

MATHS: Final = frozenset(_TABLE)
"""The names of the functions."""

LONG: Final = frozenset(name for name, emitters in _TABLE.items() if emitters.short is None)
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
    emitters = _TABLE[name]
    in_place = emitters.short or (emitters.single if element == "float" else None)
    if in_place is not None:
        with _exactly(function):
            return in_place(*values)
    return _called(function, name, emitters, *values)


def _called(function: Function, name: str, emitters: _Emitters, *values: Value) -> Value:
    """A call of the function of the module, which is written at its first use."""
    type = values[0].type
    symbol = f"relaxpy.{name}.{type.suffix}"
    if symbol not in function.module.functions:
        params = [(type, f"x{n}") for n in range(len(values))]
        callee = function.module.function(symbol, params, type)
        with _exactly(callee):
            single = type.element == "float"
            if single and emitters.single_called is not None:
                callee.ret(emitters.single_called(*callee.params))
            else:
                emit = (emitters.for_single if single else None) or emitters.double
                assert emit is not None
                wide = [_converted(p, "fpext", "double") for p in callee.params]
                callee.ret(_converted(emit(*wide), "fptrunc", type.element))
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
