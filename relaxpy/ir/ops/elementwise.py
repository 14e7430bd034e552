"""Elementwise operators, which broadcast their operands, and casts."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import BOOL, FLOAT32, DataType
from relaxpy.ir.op_record import Memory
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.axis_rules import BROADCASTING, BY_ELEMENT, same_layout
from relaxpy.ir.ops.definition.gradients import elementwise, is_differentiable, masked, no_gradient
from relaxpy.ir.ops.definition.registry import R, Rows, family, register, rows
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape, tensor_sinfo
from relaxpy.ir.relax.nodes import (
    Call,
    Constant,
    Expr,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    Var,
    const,
)
from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo
from relaxpy.ir.te import topi
from relaxpy.ir.tir import ops
from relaxpy.support.dataclass import replace

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder
    from relaxpy.ir.te.tensor import Tensor


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
    return rows(
        rule,
        doc,
        lambda name: rules.by_te(name, f"tir_{name}"),
        gradient=no_gradient,
        precision_policy=1,
        **BY_ELEMENT,
    )


def _asinh_gradient(g: Any, x: Any, y: Any) -> Any:
    """g / sqrt(x * x + 1), where the square may be too large."""
    size = R.abs(x)
    scale = 1 / R.maximum(size, 1)
    return g * scale * R.rsqrt(R.square(R.minimum(size, 1)) + R.square(scale))


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
        "log2",
        "The logarithm of x to base 2.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g / x * (1 / math.log(2))),
    ),
    _float(
        "log10",
        "The logarithm of x to base 10.",
        precision_policy=2,
        gradient=elementwise(lambda g, x, y: g / x * (1 / math.log(10))),
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
    **BY_ELEMENT,
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


_NAMES = ("x1", "x2")
_DIVISIONS = frozenset(("divide", "floor_divide", "mod", "floor_mod"))
Numbers: TypeAlias = rx.TensorStructInfo | rx.PrimStructInfo


def _operand(sinfo: Numbers) -> rx.TensorStructInfo:
    """Convert a scalar operand to a tensor of rank 0."""
    return sinfo if isinstance(sinfo, rx.TensorStructInfo) else rules.tensor((), sinfo.dtype)


def _of_known_shapes(*sinfos: rx.TensorStructInfo) -> Sequence[rx.TensorStructInfo]:
    """The tensors, with the dimensions that different shape variables are known to have."""
    if not any(isinstance(s.shape, rx.Var) for s in sinfos) or sinfos[0].shape is sinfos[-1].shape:
        return sinfos
    return [rules.tensor(s.get_shape(), s.dtype, s.vdevice, s.ndim) for s in sinfos]


def _broadcast(x1: Numbers, x2: Numbers, dtype: DataType) -> Numbers:
    if isinstance(x1, rx.PrimStructInfo) and isinstance(x2, rx.PrimStructInfo):
        return rx.PrimStructInfo(dtype)
    operands = _of_known_shapes(_operand(x1), _operand(x2))
    shape, ndim = rules.broadcast(operands, _NAMES)
    return rules.tensor(shape, dtype, rules.joint_vdevice(operands, strict=True), ndim)


def _infer_arithmetic(x1: Numbers, x2: Numbers) -> Numbers:
    return _broadcast(x1, x2, rules.joint_dtype(x1, x2, _NAMES))


def _infer_atan2(x1: Numbers, x2: Numbers) -> Numbers:
    for sinfo, name in zip((x1, x2), _NAMES, strict=True):
        rules.require_float(_operand(sinfo), name)
    return _infer_arithmetic(x1, x2)


def _infer_comparison(x1: Numbers, x2: Numbers) -> Numbers:
    return _broadcast(x1, x2, BOOL)


def literal(value: object, dtype: DataType) -> rx.Constant:
    """Convert a Python number to a tensor of rank 0 with the datatype of the other operand.

    Errors:
        MisuseError: the datatype is open, or has no such value.
    """
    if dtype.is_void:
        raise MisuseError(
            f"the datatype of {value!r} is open beside a tensor of unknown datatype",
            hint="write R.const(value, dtype)",
            about=value,
        )
    is_integral = isinstance(value, (numbers.Integral, np.bool_))
    if dtype.is_int:
        low, high = ops.int_range(dtype)
        if not is_integral or not low <= int(value) <= high:  # type: ignore[call-overload]
            raise MisuseError(
                f"{value!r} is not a value of {dtype}",
                about=value,
                hint=None if is_integral else "convert the other operand with R.astype",
            )
    return rx.const(value, dtype)


def fit_numbers(arguments: dict[str, Any]) -> None:
    """Convert a Python number among two operands to the datatype of the other one.

    An array keeps its datatype where the other operand has it; else `const` converts it.
    """
    if isinstance(arguments["x1"], rx.Expr) and isinstance(arguments["x2"], rx.Expr):
        return
    for name, other in (_NAMES, _NAMES[::-1]):
        array, other_value = arguments[name], arguments[other]
        if isinstance(array, np.ndarray):
            sinfo = other_value.struct_info if isinstance(other_value, rx.Expr) else None
            same = isinstance(sinfo, rx.TensorStructInfo) and sinfo.dtype == DataType(array.dtype)
            arguments[name] = rx.Constant(array) if same else rx.const(array)
    for name, other in (_NAMES, _NAMES[::-1]):
        value, other_value = arguments[name], arguments[other]
        if isinstance(value, rx.Expr) or not isinstance(value, (bool, numbers.Real, np.bool_)):
            continue
        sinfo = other_value.struct_info if isinstance(other_value, rx.Expr) else None
        if isinstance(sinfo, rx.TensorStructInfo):
            arguments[name] = literal(value, sinfo.dtype)
        elif isinstance(sinfo, (rx.PrimStructInfo, DTensorStructInfo)):
            number = literal(value, sinfo.dtype).data.item()
            arguments[name] = rx.PrimValue(ops.const(number, sinfo.dtype))
        elif isinstance(other_value, rx.Expr) and sinfo is None:
            raise MisuseError(
                f"the datatype of {value!r} is open: nothing is known yet about the other operand",
                hint="write R.const(value, dtype)",
                about=value,
            )


def _is_zero(operand: rx.Expr) -> bool:
    """True if a scalar is the literal 0."""
    return isinstance(operand, rx.PrimValue) and getattr(operand.value, "value", None) == 0


def _legalization(name: str) -> rules.Legalize:
    """A scalar literal becomes part of the kernel; a call on two known scalars is evaluated."""

    def function(x1: Any, x2: Any) -> Any:
        return getattr(topi, name)(x1, x2)

    def kernel(x1: Any, x2: Any, dtype: str) -> Tensor:
        from relaxpy.ir.te.topi.elementwise import as_dtype  # legalisation alone needs it

        return as_dtype(function(x1, x2), DataType(dtype))

    def legalize(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        result = builder.struct_info_of(call)
        operands = [builder.struct_info_of(a) for a in call.args]
        if isinstance(result, rx.PrimStructInfo):
            values = [v.value for v in operands if isinstance(v, rx.PrimStructInfo)]
            return (
                call
                if None in values
                else rx.PrimValue(ops.cast_to(function(*values), result.dtype))
            )
        assert isinstance(result, rx.TensorStructInfo)
        args: list[object] = list(call.args)
        if name in _DIVISIONS and _is_zero(call.args[1]):
            args[1] = rx.const(0, operands[1].dtype)  # type: ignore[attr-defined]
        for k in (1, 0):
            value = rules.scalar_literal(call.args[k])
            if k == 1 and name in _DIVISIONS and getattr(value, "value", None) == 0:
                value = None  # TIR refuses a literal divisor 0, even where it never runs
            if value is not None and isinstance(operands[1 - k], rx.TensorStructInfo):
                args[k] = value
                break
        return rules.te_kernel(builder, kernel, name, *args, dtype=str(result.dtype))

    return legalize


_ARITHMETIC = """Element by element: {}.

Shapes:
    x1, x2  tensors that broadcast, or scalars of one datatype (or one Bool); a number takes the
            datatype of the other one
    result  what they broadcast to, in the datatype of x1; a scalar where both are, else a scalar
            has rank 0
Errors:
    StructInfoError: a known size differs and is not 1, or the datatypes do.
"""
_COMPARISON = """Element by element: {}.

Shapes:
    x1, x2  tensors that broadcast, or scalars; a number takes the datatype of the other one
    result  what they broadcast to, Bool; a scalar where both are, else a scalar has rank 0
Errors:
    StructInfoError: a known size differs and is not 1.
"""


_arithmetic = rows(
    _infer_arithmetic,
    _ARITHMETIC,
    _legalization,
    adapt=fit_numbers,
    gradient=no_gradient,
    precision_policy=1,
    **BROADCASTING,
)
_comparison = replace(_arithmetic, rule=_infer_comparison, doc=_COMPARISON)
_bitwise = replace(_arithmetic, kernel=lambda name: rules.of_bits(_legalization(name)))


def _power_base(g: Any, a: Any, b: Any, y: Any) -> Any:
    derivative = g * b * R.power(a, b - 1)
    if isinstance(b, rx.Constant) and np.all(np.asarray(b.data, "float64") != 0):
        return derivative
    return masked(derivative, R.not_equal(b, 0))


def _power_exponent(g: Any, a: Any, b: Any, y: Any) -> Any:
    is_flat = R.logical_and(R.equal(a, 0), R.greater_equal(b, 0))
    return masked(g * y * R.log(a), R.logical_not(is_flat))


def _atan2_gradient(g: Any, a: Any, b: Any) -> Any:
    """g * a / (a * a + b * b), where the squares may be too large or too small; 0 at 0."""
    size = R.maximum(R.abs(a), R.abs(b))
    scale = 1 / size
    slope = g * (a * scale) / (R.square(a * scale) + R.square(b * scale)) * scale
    return masked(slope, R.not_equal(size * 0.5, size))  # equal for 0 and infinity


def _chosen(g: Any, a: Any, b: Any, is_other: Any) -> Any:
    """The gradient of an operand that is chosen unless `is_other`; equal ones get half of it."""
    return R.where(R.equal(a, b), g * 0.5, masked(g, R.logical_not(is_other)))


BINARY = family(
    _arithmetic(
        "add",
        "x1 + x2",
        takes_twice=True,
        in_place=True,
        sign="+",
        commutative=True,
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: g, exact=True),
    ),
    _arithmetic(
        "subtract",
        "x1 - x2",
        takes_twice=True,
        in_place=True,
        sign="-",
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: -g, exact=True),
    ),
    _arithmetic(
        "multiply",
        "x1 * x2",
        takes_twice=True,
        in_place=True,
        sign="*",
        commutative=True,
        gradient=elementwise(lambda g, a, b, y: g * b, lambda g, a, b, y: g * a),
    ),
    _arithmetic(
        "divide",
        "x1 / x2, on integers rounded toward zero",
        in_place=True,
        sign="/",
        gradient=elementwise(lambda g, a, b, y: g / b, lambda g, a, b, y: -g * y / b),
    ),
    _arithmetic(
        "power",
        "x1 to the power x2, on integers modulo their range",
        precision_policy=2,
        sign="**",
        gradient=elementwise(_power_base, _power_exponent),
    ),
    _arithmetic("floor_divide", "x1 / x2 rounded down", sign="//"),
    _arithmetic(
        "mod",
        "the remainder of x1 / x2 rounded toward zero, with the sign of x1",
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: -g * R.round((a - y) / b)),
    ),
    _arithmetic(
        "floor_mod",
        "the remainder of x1 / x2 rounded down, with the sign of x2",
        gradient=elementwise(lambda g, a, b, y: g, lambda g, a, b, y: -g * R.floor_divide(a, b)),
    ),
    _arithmetic(
        "log_add_exp",
        "log(exp(x1) + exp(x2)), without overflow",
        gradient=elementwise(
            lambda g, a, b, y: g * R.sigmoid(a - b), lambda g, a, b, y: g * R.sigmoid(b - a)
        ),
    ),
    replace(_arithmetic, rule=_infer_atan2)(
        "atan2",
        "the angle of the point (x2, x1) from the positive x axis, in [-pi, pi], of floats",
        gradient=elementwise(
            lambda g, a, b, y: _atan2_gradient(g, b, a),
            lambda g, a, b, y: _atan2_gradient(-g, a, b),
        ),
    ),
    _arithmetic(
        "maximum",
        "the larger one; NaN if one is",
        takes_twice=True,
        gradient=elementwise(
            lambda g, a, b, y: _chosen(g, a, b, R.less(a, b)),
            lambda g, a, b, y: _chosen(g, a, b, R.less(b, a)),
            exact=True,
        ),
    ),
    _arithmetic(
        "minimum",
        "the smaller one; NaN if one is",
        takes_twice=True,
        gradient=elementwise(
            lambda g, a, b, y: _chosen(g, a, b, R.greater(a, b)),
            lambda g, a, b, y: _chosen(g, a, b, R.greater(b, a)),
            exact=True,
        ),
    ),
    _arithmetic("logical_and", "whether both are other than 0"),
    _arithmetic("logical_or", "whether one is other than 0"),
    _arithmetic("logical_xor", "whether exactly one is other than 0"),
    _bitwise("bitwise_and", "the bits that both have"),
    _bitwise("bitwise_or", "the bits that one has"),
    _bitwise("bitwise_xor", "the bits that exactly one has"),
    _bitwise("left_shift", "the bits of x1 moved up by x2 places"),
    _bitwise("right_shift", "the bits of x1 moved down by x2 places, its sign repeated"),
    _comparison("equal", "x1 == x2", sign="=="),
    _comparison("not_equal", "x1 != x2", sign="!="),
    _comparison("less", "x1 < x2", sign="<", ordering=True),
    _comparison("less_equal", "x1 <= x2", sign="<=", ordering=True),
    _comparison("greater", "x1 > x2", sign=">", ordering=True),
    _comparison("greater_equal", "x1 >= x2", sign=">=", ordering=True),
)
"""The operators of this family by their names without `relax.`"""


_gradient = elementwise(
    lambda g, a, b, c, y: g * b, lambda g, a, b, c, y: g * a, lambda g, a, b, c, y: g
)


@register(
    "relax.ewise_fma",
    **BROADCASTING,
    precision_policy=1,
    pure=True,
    legalize=rules.by_te("fused_multiply_add", "ewise_fma"),
    gradient=_gradient,
)
def ewise_fma(x1: TensorStructInfo, x2: TensorStructInfo, x3: TensorStructInfo) -> TensorStructInfo:
    """x1 * x2 + x3.

    Shapes:
        x1, x2, x3  of one shape and one datatype
        result      as they
    Errors:
        StructInfoError: ranks or datatypes differ, or known sizes are not provably equal.
    """
    sinfos = (x1, x2, x3)
    dtype, vdevice = (
        rules.common_dtype(sinfos, "x1, x2, x3"),
        rules.joint_vdevice(sinfos, strict=False),
    )
    ndim = rules.common_rank(sinfos, "x1, x2, x3")
    if None not in map(literal_shape, sinfos):
        shapes = rules.unified_shapes(sinfos, "shapes of x1, x2, x3")
        if shapes is None:
            raise rules.refuse(
                f"x1, x2, x3 have one shape, which cannot be proved of {x1}, {x2}, {x3}",
                hint="declare one shape for them with R.match_cast first",
            )
        return rules.tensor(shapes[0], dtype, vdevice)
    if x1.shape is not None and x1.shape is x2.shape is x3.shape:
        return rules.tensor(x1.shape, dtype, vdevice, ndim)
    return rules.tensor(None, dtype, vdevice, ndim)


def _legalize_astype(builder: BlockBuilder, call: Call) -> Expr:
    x, dtype = call.args[0], str(call.attrs["dtype"])
    if isinstance(x, Constant) and not x.data.ndim and (number := _converted(x, dtype)) is not None:
        return const(number, dtype)
    return rules.te_kernel(builder, topi.cast, "cast", x, dtype=dtype)


def _converted(x: Constant, dtype: str) -> object:
    """The element of a scalar constant in `dtype`, or None where it does not fit."""
    kind, value = DataType(dtype), x.data[()]
    if not kind.is_int or kind.is_bool:
        return x.data
    if not DataType(x.data.dtype).is_int and not math.isfinite(value):
        return None
    low, high = ops.int_range(kind)
    return int(value) if low <= int(value) <= high else None


def _cast_gradient(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    [x] = call.args
    sinfo = tensor_sinfo(x)
    if sinfo is None or not (is_differentiable(x) and is_differentiable(var)):
        return no_gradient(var, call, gradient, builder)
    return [astype(gradient, sinfo.dtype)]


@register(
    "relax.astype",
    **BY_ELEMENT,
    precision_policy=1,
    pure=True,
    legalize=_legalize_astype,
    gradient=_cast_gradient,
)
def astype(x: TensorStructInfo, dtype: DataType) -> TensorStructInfo:
    """x with its elements converted to `dtype`: toward zero, numbers to Bool by being other than 0.

    Shapes:
        x       any
        result  as x, in `dtype`
    Errors:
        StructInfoError: x is not a tensor.
    """
    return rules.with_dtype(x, dtype)


def _legalize_wrap_param(builder: BlockBuilder, call: Call) -> Expr:
    [data], dtype = call.args, call.attrs["dtype"]
    return data if _has_datatype(builder, data, dtype) else astype(data, dtype)


def _memory_of_wrap_param(call: Call) -> Memory:
    sinfo, dtype = tensor_sinfo(call.args[0]), call.attrs["dtype"]
    if sinfo is None or sinfo.dtype.is_void or sinfo.dtype == dtype:
        return Memory.SAME
    return Memory.NEW


def _has_datatype(builder: BlockBuilder, x: Expr, dtype: object) -> bool:
    sinfo = builder.struct_info_of(x)
    return isinstance(sinfo, TensorStructInfo) and sinfo.dtype == dtype


@register(
    "relax.wrap_param",
    layout=same_layout,
    pure=True,
    memory=_memory_of_wrap_param,
    legalize=_legalize_wrap_param,
    gradient=_cast_gradient,
)
def wrap_param(data: TensorStructInfo, dtype: DataType = FLOAT32) -> TensorStructInfo:
    """A parameter of a model, converted to `dtype` as by astype; itself if it has the datatype.

    Shapes:
        data    any
        result  as data, in `dtype`
    Errors:
        StructInfoError: data is not a tensor.
    """
    return rules.with_dtype(data, dtype)
