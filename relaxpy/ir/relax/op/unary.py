"""Operators on each element of one tensor."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from relaxpy.ir.core.dtype import BOOL
from relaxpy.ir.relax.nodes import PrimStructInfo, StructInfo, TensorStructInfo
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import elementwise, masked, no_gradient
from relaxpy.ir.relax.op.definition.layouts import same_layout
from relaxpy.ir.relax.op.definition.registry import R, Rows, family, register
from relaxpy.ir.relax.op.definition.sharding import same_axes


def _infer_same(x: TensorStructInfo) -> TensorStructInfo:
    return x


def _infer_float(x: TensorStructInfo) -> TensorStructInfo:
    rules.require_float(x, "x")
    return x


def _infer_negative(x: TensorStructInfo) -> TensorStructInfo:
    if x.dtype.is_bool:
        raise rules.refuse_type(f"x holds numbers, found {x}", x, hint="write R.logical_not(x)")
    return x


def _infer_test(x: TensorStructInfo) -> TensorStructInfo:
    return rules.with_dtype(x, BOOL)


def _rows(
    rule: Callable[..., StructInfo], takes: str = "any", result: str = "as x", error: str = ""
) -> Rows:
    doc = f"""{{}}

Shapes:
    x       {takes}
    result  {result}
Errors:
    StructInfoError: x is not a tensor{error}.
"""
    return Rows(
        rule,
        doc,
        lambda name: rules.by_te(name, f"tir_{name}"),
        gradient=no_gradient,
        precision_policy=1,
        layout=same_layout,
        sharding=same_axes,
    )


def _asinh_gradient(g: Any, x: Any, y: Any) -> Any:
    """g / sqrt(x * x + 1), where the square may be too large."""
    scale = 1 / R.maximum(R.abs(x), 1)
    return g * scale * R.rsqrt(R.square(x * scale) + R.square(scale))


_number, _test = _rows(_infer_same), _rows(_infer_test, result="as x, Bool")
_float = _rows(_infer_float, "any, float dtype", error=", or holds no floats")
_negative = _rows(_infer_negative, "any but Booleans", error=", or holds Booleans")

UNARY = family(
    _number(
        "abs",
        "The absolute value |x|.",
        gradient=elementwise(lambda g, x, y: g * R.sign(x), exact=True),
    ),
    _number(
        "bitwise_not",
        "The bits of x, each inverted.",
        legalize=rules.of_bits(rules.by_te("bitwise_not", "tir_bitwise_not")),
    ),
    _number("logical_not", "1 where x is 0, else 0, in the datatype of x."),
    _number("ceil", "The least integer not below x."),
    _number("floor", "The greatest integer not above x."),
    _number("round", "The nearest integer to x; of two equally near the even one."),
    _number("trunc", "The nearest integer to x not farther from 0."),
    _number("sign", "1 where x is positive, -1 where it is negative, else 0; NaN where it is NaN."),
    _number("square", "x * x.", gradient=elementwise(lambda g, x, y: g * x * 2)),
    _negative("negative", "-x.", gradient=elementwise(lambda g, x, y: -g, exact=True)),
    _float(
        "acos",
        "The angle in [0, pi] whose cosine is x.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: -g * R.rsqrt((1 - x) * (1 + x))),
    ),
    _float(
        "acosh",
        "The number not below 0 whose hyperbolic cosine is x.",
        gradient=elementwise(lambda g, x, y: g * R.rsqrt(R.abs(x) - 1) * R.rsqrt(R.abs(x) + 1)),
    ),
    _float(
        "asin",
        "The angle in [-pi/2, pi/2] whose sine is x.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g * R.rsqrt((1 - x) * (1 + x))),
    ),
    _float(
        "asinh", "The number whose hyperbolic sine is x.", gradient=elementwise(_asinh_gradient)
    ),
    _float(
        "atan",
        "The angle in [-pi/2, pi/2] whose tangent is x.",
        gradient=elementwise(lambda g, x, y: g / (1 + x * x)),
    ),
    _float(
        "atanh",
        "The number whose hyperbolic tangent is x.",
        gradient=elementwise(lambda g, x, y: g / ((1 - x) * (1 + x))),
    ),
    _float("cos", "The cosine of x radians.", gradient=elementwise(lambda g, x, y: -g * R.sin(x))),
    _float(
        "cosh",
        "(exp(x) + exp(-x)) / 2.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g * R.sinh(x)),
    ),
    _float(
        "erf",
        "2 / sqrt(pi) times the integral of exp(-t * t) from 0 to x.",
        legalize=rules.by_te("erf", "erf"),
        gradient=elementwise(lambda g, x, y: g * R.exp(-x * x) * (2 / math.sqrt(math.pi))),
    ),
    _float(
        "exp", "e to the power x.", precision_policy=2, gradient=elementwise(lambda g, x, y: g * y)
    ),
    _float(
        "log",
        "The natural logarithm of x.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g / x),
    ),
    _float(
        "rsqrt",
        "1 / sqrt(x).",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g * y / x * -0.5),
    ),
    _float("sigmoid", "1 / (1 + exp(-x)).", gradient=elementwise(lambda g, x, y: g * y * (1 - y))),
    _float("sin", "The sine of x radians.", gradient=elementwise(lambda g, x, y: g * R.cos(x))),
    _float(
        "sinh",
        "(exp(x) - exp(-x)) / 2.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g * R.cosh(x)),
    ),
    _float("sqrt", "The square root of x.", gradient=elementwise(lambda g, x, y: g / y * 0.5)),
    _float(
        "tan",
        "The tangent of x radians.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g * (1 + y * y)),
    ),
    _float("tanh", "sinh(x) / cosh(x).", gradient=elementwise(lambda g, x, y: g * (1 - y * y))),
    _test("isfinite", "Whether x is neither an infinity nor NaN."),
    _test("isinf", "Whether x is an infinity."),
    _test("isnan", "Whether x is NaN."),
)
"""The operators of this family that differ in nothing but the function of an element."""


@register(
    "relax.clip",
    sharding=same_axes,
    layout=same_layout,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("clip", "tir_clip"),
    gradient=elementwise(
        lambda g, x, low, high, y: masked(g, R.equal(x, y)), None, None, exact=True
    ),
)
def clip(x: TensorStructInfo, min: PrimStructInfo, max: PrimStructInfo) -> TensorStructInfo:
    """x where it lies between `min` and `max`, else the nearer of the two.

    Shapes:
        x         any
        min, max  scalars, converted to the datatype of x
        result    as x
    Errors:
        StructInfoError: x is not a tensor, or a bound not a scalar.
    """
    return x
