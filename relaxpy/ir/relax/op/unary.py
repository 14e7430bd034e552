"""Operators on each element of one tensor."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.ir.relax.nodes import PrimStructInfo, TensorStructInfo
from relaxpy.ir.relax.op.registry import OpDef, register
from relaxpy.ir.relax.op.rules import by_te, comparison_info, of_bits, refuse_type, require_float
from relaxpy.ir.te import topi

_ANY_NUMBERS = {
    "abs": "The absolute value |x|.",
    "bitwise_not": "The bits of x, each inverted.",
    "logical_not": "1 where x is 0, else 0, in the datatype of x.",
    "ceil": "The least integer not below x.",
    "floor": "The greatest integer not above x.",
    "round": "The nearest integer to x; of two equally near the even one.",
    "trunc": "The nearest integer to x not farther from 0.",
    "sign": "1 where x is positive, -1 where it is negative, else 0; NaN where it is NaN.",
    "square": "x * x.",
}
_FLOATS = {
    "acos": "The angle in [0, pi] whose cosine is x.",
    "acosh": "The number not below 0 whose hyperbolic cosine is x.",
    "asin": "The angle in [-pi/2, pi/2] whose sine is x.",
    "asinh": "The number whose hyperbolic sine is x.",
    "atan": "The angle in [-pi/2, pi/2] whose tangent is x.",
    "atanh": "The number whose hyperbolic tangent is x.",
    "cos": "The cosine of x radians.",
    "cosh": "(exp(x) + exp(-x)) / 2.",
    "erf": "2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
    "exp": "e to the power x.",
    "log": "The natural logarithm of x.",
    "rsqrt": "1 / sqrt(x).",
    "sigmoid": "1 / (1 + exp(-x)).",
    "sin": "The sine of x radians.",
    "sinh": "(exp(x) - exp(-x)) / 2.",
    "sqrt": "The square root of x.",
    "tan": "The tangent of x radians.",
    "tanh": "sinh(x) / cosh(x).",
}
_NUMBERS = {"negative": "-x."}
_TESTS = {
    "isfinite": "Whether x is neither an infinity nor NaN.",
    "isinf": "Whether x is an infinity.",
    "isnan": "Whether x is NaN.",
}
_DOC = """{meaning}

Shapes:
    x       any{kind}
    result  as x{dtype}
Errors:
    StructInfoError: x is no tensor{error}.
"""


def _any(x: TensorStructInfo) -> TensorStructInfo:
    return x


def _float(x: TensorStructInfo) -> TensorStructInfo:
    require_float(x, "x")
    return x


def _negative(x: TensorStructInfo) -> TensorStructInfo:
    if x.dtype.is_bool:
        raise refuse_type(f"x holds numbers, found {x}", x, hint="write R.logical_not(x)")
    return x


def _family(
    table: dict[str, str], rule: Callable[[TensorStructInfo], TensorStructInfo], **words: str
) -> dict[str, OpDef]:
    """One operator for each entry, all under the same rule."""
    made = {}
    for name, meaning in table.items():

        def infer(x: TensorStructInfo) -> TensorStructInfo:
            return rule(x)

        infer.__name__ = infer.__qualname__ = name
        infer.__doc__ = _DOC.format(meaning=meaning, **words)
        legalize = by_te(getattr(topi, name), "erf" if name == "erf" else f"tir_{name}")
        if name == "bitwise_not":
            legalize = of_bits(legalize)
        made[name] = register(f"relax.{name}", pure=True, legalize=legalize)(infer)
    return made


UNARY = {
    **_family(_ANY_NUMBERS, _any, kind="", dtype="", error=""),
    **_family(_NUMBERS, _negative, kind=" but Booleans", dtype="", error=", or holds Booleans"),
    **_family(_FLOATS, _float, kind=", float dtype", dtype="", error=", or holds no floats"),
    **_family(_TESTS, comparison_info, kind="", dtype=", Bool", error=""),
}
"""The operators of this family that differ in nothing but the function of an element."""


@register("relax.clip", pure=True, legalize=by_te(topi.clip, "tir_clip"))
def clip(x: TensorStructInfo, min: PrimStructInfo, max: PrimStructInfo) -> TensorStructInfo:
    """x where it lies between `min` and `max`, else the nearer of the two.

    Shapes:
        x         any
        min, max  scalars, converted to the datatype of x
        result    as x
    Errors:
        StructInfoError: x is no tensor, or a bound no scalar.
    """
    return x
