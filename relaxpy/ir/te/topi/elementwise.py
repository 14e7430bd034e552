"""Elementwise functions of one tensor or of several tensors that broadcast, and quantisation."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import BOOL, FLOAT32, INT32, DataType, accumulator as accumulator
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.shapes import (
    as_sizes,
    broadcast_index,
    broadcast_shapes,
    normal_axis,
    sum_dtype,
)
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr

__all__: list[str] = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "cast",
    "ceil",
    "clip",
    "cos",
    "cosh",
    "dequantize",
    "divide",
    "elemwise_sum",
    "equal",
    "erf",
    "exp",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "full_like",
    "fused_multiply_add",
    "greater",
    "greater_equal",
    "identity",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log2",
    "log10",
    "log_add_exp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "negative",
    "not_equal",
    "power",
    "quantize",
    "reinterpret",
    "right_shift",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "where",
]

Value: TypeAlias = Tensor | ExprLike
Unary: TypeAlias = Callable[[PrimExpr], PrimExpr]
Binary: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]
ELEMENTWISE, BROADCAST, INJECTIVE = "elemwise", "broadcast", "injective"


def computed(
    shape: Sequence[PrimExpr], element: Callable[..., Any], name: str, tag: str = ""
) -> Tensor:
    """The tensor whose elements `element` computes from indices."""
    result: Tensor = te.compute(shape, element, name=name, tag=tag)
    return result


def injective(shape: Sequence[PrimExpr], element: Callable[..., Any], name: str) -> Tensor:
    """The tensor whose elements `element` selects from other tensors."""
    return computed(shape, element, name, INJECTIVE)


def map_elements(function: Unary, x: Tensor, name: str) -> Tensor:
    """Apply `function` to each element."""
    return computed(x.shape, lambda *i: function(x(*i)), name, ELEMENTWISE)


def identity(x: Tensor) -> Tensor:
    """A copy."""
    return map_elements(lambda v: v, x, "compute")


def through_float32(function: Callable[..., PrimExpr]) -> Callable[..., PrimExpr]:
    """A function of narrow floats that is computed in float32, and rounded once."""

    def wide(*values: PrimExpr) -> PrimExpr:
        dtype = values[0].dtype
        result = function(*(ops.cast_to(v, accumulator(v.dtype)) for v in values))
        return result if accumulator(dtype) == dtype else ops.cast_to(result, dtype)

    return wide


def is_true(v: PrimExpr) -> PrimExpr:
    """True if a number is not 0."""
    return v if v.dtype.is_bool else ops.compare(tir.NE, v, ops.const(0, v.dtype))


def _logical_not(v: PrimExpr) -> PrimExpr:
    return ops.cast_to(ops.logical_not(is_true(v)), v.dtype)


def _bitwise_not(v: PrimExpr) -> PrimExpr:
    return ops.logical_not(v) if v.dtype.is_bool else ~v


def _sign(v: PrimExpr) -> PrimExpr:
    zero, one = ops.const(0, v.dtype), ops.const(1, v.dtype)
    if v.dtype.family == "uint":
        return tir.Select(v > zero, one, zero)
    otherwise = tir.Select(ops.compare(tir.EQ, v, zero), zero, v) if v.dtype.is_float else zero
    return tir.Select(v > zero, one, tir.Select(v < zero, ops.const(-1, v.dtype), otherwise))


def _negative(v: PrimExpr) -> PrimExpr:
    if v.dtype.is_bool:
        raise MisuseError("a Boolean has no negative")
    return v * (ops.const(-1, v.dtype) if v.dtype.family != "uint" else _all_ones(v.dtype))


def _all_ones(dtype: DataType) -> PrimExpr:
    """-1 modulo 2**bits."""
    return ops.const(ops.int_range(dtype)[1], dtype)


_ANGLES = tuple(
    f"{a}{name}{h}" for a in ("", "a") for name in ("sin", "cos", "tan") for h in ("", "h")
)
_UNARY: Mapping[str, Unary] = {
    **{n: getattr(intrin, n) for n in ("exp", "log", "log2", "log10", "sqrt", "rsqrt", "sigmoid")},
    **{n: getattr(intrin, n) for n in _ANGLES},
    **{n: getattr(intrin, n) for n in ("floor", "ceil", "round", "trunc", "abs")},
    **{n: getattr(intrin, n) for n in ("isnan", "isinf", "isfinite")},
    "erf": through_float32(intrin.erf),
    "logical_not": _logical_not,
    "bitwise_not": _bitwise_not,
    "sign": _sign,
    "negative": _negative,
}
_NEEDS_FLOAT = frozenset(("sqrt", "rsqrt", "log10"))
_NAMED = frozenset(("logical_not", "bitwise_not", "sign"))
"""The functions whose blocks TVM names after them."""


def _unary(name: str) -> Callable[[Tensor], Tensor]:
    function = _UNARY[name]

    def apply(x: Tensor) -> Tensor:
        if name in _NEEDS_FLOAT and x.dtype.is_int:
            x = cast(x, "float32")
        if name in _ANGLES and x.dtype.is_int:
            raise MisuseError(
                f"topi.{name} only supports floating-point inputs, but got {x.dtype}",
                rule="DER-36",
                about=x,
            )
        return map_elements(function, x, f"T_{name}" if name in _NAMED else "compute")

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{name} of each element."
    return apply


exp, log, log2, log10, sigmoid = map(_unary, ("exp", "log", "log2", "log10", "sigmoid"))
sqrt, rsqrt, erf = map(_unary, ("sqrt", "rsqrt", "erf"))
sin, cos, tan = map(_unary, ("sin", "cos", "tan"))
asin, acos, atan = map(_unary, ("asin", "acos", "atan"))
sinh, cosh, tanh = map(_unary, ("sinh", "cosh", "tanh"))
asinh, acosh, atanh = map(_unary, ("asinh", "acosh", "atanh"))
floor, ceil, round, trunc = map(_unary, ("floor", "ceil", "round", "trunc"))
abs, sign, negative = map(_unary, ("abs", "sign", "negative"))
isnan, isinf, isfinite = map(_unary, ("isnan", "isinf", "isfinite"))
logical_not, bitwise_not = map(_unary, ("logical_not", "bitwise_not"))


def reinterpret(x: Tensor, dtype: str) -> Tensor:
    """The elements with the same bits in another datatype.

    Errors:
        MisuseError: the datatypes have different numbers of bits.
    """
    return map_elements(lambda v: intrin.reinterpret(dtype, v), x, "T_reinterpret")


def elemwise_sum(xs: Sequence[Tensor]) -> Tensor:
    """The sum of corresponding elements of tensors of one shape.

    Errors:
        MisuseError: there are no tensors.
    """
    if not xs:
        raise MisuseError("elemwise_sum takes at least one tensor")

    def element(*index: PrimExpr) -> PrimExpr:
        first, *rest = (x(*index) for x in xs)
        return functools.reduce(ops.add, rest, ops.convert(first))

    return computed(xs[0].shape, element, "T_elemwise_sum", ELEMENTWISE)


def square(x: Tensor) -> Tensor:
    """x * x."""
    return map_elements(lambda v: v * v, x, "T_multiply")


def cast(x: Tensor, dtype: str) -> Tensor:
    """Convert each element to `dtype` as in C: toward zero, and to Bool by != 0."""
    return map_elements(lambda v: ops.cast_to(v, dtype), x, "compute")


def as_dtype(x: Tensor, dtype: DataType) -> Tensor:
    """Convert x to `dtype`, or return x if it has that datatype."""
    return x if x.dtype == dtype else map_elements(lambda v: ops.cast_to(v, dtype), x, "T_cast")


def clip(x: Tensor, a_min: ExprLike, a_max: ExprLike) -> Tensor:
    """max(min(x, a_max), a_min); the bounds are converted to the datatype of x."""
    low, high = (ops.cast_to(_scalar(bound, x.dtype), x.dtype) for bound in (a_min, a_max))
    return map_elements(lambda v: ops.maximum(ops.minimum(v, high), low), x, "compute")


def _scalar(value: ExprLike, dtype: DataType) -> PrimExpr:
    """Convert a bound; a literal outside the range of the datatype becomes the nearest value."""
    literal = value.value if isinstance(value, (tir.IntImm, tir.FloatImm)) else value
    if not dtype.is_int or not isinstance(literal, (int, float)) or math.isnan(literal):
        return ops.convert(value)
    low, high = ops.int_range(dtype)
    return ops.const(math.trunc(max(low, min(high, literal))), dtype)


def _power(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """x**y; on integers through double precision, exact up to 2**53."""
    a, b = ops.match_dtypes(x, y)
    if a.dtype.is_float:
        return intrin.pow(a, b)
    wide = intrin.pow(ops.cast_to(a, "float64"), ops.cast_to(b, "float64"))
    return ops.cast_to(intrin.round(wide), a.dtype)


def _floor_divide(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    a, b = ops.match_dtypes(x, y)
    return a // b if a.dtype.is_int else tir.FloorDiv(a, b)


def _floor_mod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    a, b = ops.match_dtypes(x, y)
    return a % b if a.dtype.is_int else tir.FloorMod(a, b)


def _divide(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """Divide floats, also by a literal 0, or integers with rounding toward zero."""
    a, b = ops.match_dtypes(x, y)
    return ops.div(a, b) if a.dtype.is_int else tir.Div(a, b)


def _mod(x: PrimExpr, y: PrimExpr) -> PrimExpr:
    a, b = ops.match_dtypes(x, y)
    return ops.truncmod(a, b) if a.dtype.is_int else tir.Mod(a, b)


def _atan2(y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The angle of the point (x, y)."""
    return through_float32(intrin.atan2)(*ops.match_dtypes(y, x))


def _numbers(combine: Binary) -> Binary:
    """Compute arithmetic on two Booleans in int32."""

    def apply(x: PrimExpr, y: PrimExpr) -> PrimExpr:
        if not (x.dtype.is_bool and y.dtype.is_bool):
            return combine(x, y)
        return ops.cast_to(combine(ops.cast_to(x, INT32), ops.cast_to(y, INT32)), BOOL)

    return apply


def _comparison(node: type[tir.CmpExpr]) -> Binary:
    return lambda x, y: ops.compare(node, x, y)


def _bits(name: str) -> Binary:
    return lambda x, y: ops.bitwise(f"tir.{name}", x, y)


def _logical(combine: Callable[[PrimExpr, PrimExpr], PrimExpr]) -> Binary:
    def apply(x: PrimExpr, y: PrimExpr) -> PrimExpr:
        return ops.cast_to(combine(is_true(x), is_true(y)), x.dtype)

    return apply


_ARITHMETIC: Mapping[str, Binary] = {
    "add": ops.add,
    "subtract": ops.sub,
    "multiply": ops.mul,
    "divide": _divide,
    "floor_divide": _floor_divide,
    "mod": _mod,
    "floor_mod": _floor_mod,
    "power": _power,
    "log_add_exp": intrin.logaddexp,
    "atan2": _atan2,
    "maximum": ops.maximum,
    "minimum": ops.minimum,
}
_BINARY: Mapping[str, Binary] = {
    **{name: _numbers(combine) for name, combine in _ARITHMETIC.items()},
    "equal": _comparison(tir.EQ),
    "not_equal": _comparison(tir.NE),
    "less": _comparison(tir.LT),
    "less_equal": _comparison(tir.LE),
    "greater": _comparison(tir.GT),
    "greater_equal": _comparison(tir.GE),
    "bitwise_and": _bits("bitwise_and"),
    "bitwise_or": _bits("bitwise_or"),
    "bitwise_xor": _bits("bitwise_xor"),
    "left_shift": _numbers(_bits("shift_left")),
    "right_shift": _numbers(_bits("shift_right")),
    "logical_and": _logical(ops.all_of),
    "logical_or": _logical(ops.any_of),
    "logical_xor": _logical(lambda x, y: ops.compare(tir.NE, x, y)),
}


def broadcast(combine: Callable[..., PrimExpr], values: Sequence[Value], name: str) -> Any:
    """Apply `combine` to corresponding elements of the values after broadcasting.

    If all values are scalars, the result is a scalar expression.
    """
    tensors = [v for v in values if isinstance(v, Tensor)]
    if not tensors:
        return combine(*(ops.convert(v) for v in values))
    shape = tensors[0].shape
    for tensor in tensors[1:]:
        shape = broadcast_shapes(shape, tensor.shape)
    dtype = tensors[0].dtype

    def element(*index: PrimExpr) -> PrimExpr:
        return combine(
            *(
                v(*broadcast_index(v.shape, index, shape))
                if isinstance(v, Tensor)
                else _adopted(v, dtype)
                for v in values
            )
        )

    return te.compute(shape, element, name=name, tag=BROADCAST)


def _adopted(value: ExprLike, dtype: DataType) -> PrimExpr:
    """Convert a scalar operand; Python numbers take the datatype of the tensors if possible."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ops.convert(value)
    fits = dtype.is_float or (isinstance(value, int) and not dtype.is_bool)
    return ops.const(value, dtype) if fits else ops.convert(value)


def _binary(name: str) -> Callable[[Value, Value], Any]:
    combine = _BINARY[name]

    def apply(lhs: Value, rhs: Value) -> Any:
        return broadcast(combine, (lhs, rhs), f"T_{name}")

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = f"{name} of the elements of two operands that broadcast."
    return apply


add, subtract, multiply, divide = map(_binary, ("add", "subtract", "multiply", "divide"))
_binary_functions = {"add": add, "subtract": subtract, "multiply": multiply, "divide": divide}
log_add_exp, atan2 = map(_binary, ("log_add_exp", "atan2"))
floor_divide, floor_mod, mod = map(_binary, ("floor_divide", "floor_mod", "mod"))
maximum, minimum = map(_binary, ("maximum", "minimum"))
equal, not_equal = map(_binary, ("equal", "not_equal"))
less, less_equal, greater, greater_equal = map(
    _binary, ("less", "less_equal", "greater", "greater_equal")
)
logical_and, logical_or, logical_xor = map(_binary, ("logical_and", "logical_or", "logical_xor"))
bitwise_and, bitwise_or, bitwise_xor = map(_binary, ("bitwise_and", "bitwise_or", "bitwise_xor"))
left_shift, right_shift = map(_binary, ("left_shift", "right_shift"))


_float_power = _binary("power")


def power(lhs: Value, rhs: Value) -> Any:
    """lhs**rhs of the elements of two operands that broadcast.

    The result for integers is wrapped. For a negative exponent it is 1 / x**-rhs rounded toward
    zero.
    """
    tensors = [v for v in (lhs, rhs) if isinstance(v, Tensor)]
    kind = tensors[0].dtype if tensors else FLOAT32
    if not kind.is_int or kind.is_bool or any(t.dtype != kind for t in tensors):
        return _float_power(lhs, rhs)
    base = lhs if isinstance(lhs, Tensor) else full((), kind, lhs)
    if not isinstance(rhs, Tensor):
        rhs = ops.cast_to(_adopted(rhs, kind), kind)
        if isinstance(rhs, tir.IntImm) and rhs.value >= 0:
            return _literal_power(base, rhs.value)
    *squares, last = _squares(base, 7)
    logarithm = broadcast(_logarithm_of_large_power, (rhs, last), "T_power_log")
    return broadcast(_product_of_squares, (rhs, last, logarithm, *squares), "T_power")


def _squares(x: Tensor, count: int) -> list[Tensor]:
    """x, x**2, x**4, … as separate stages."""
    squares = [x]
    while len(squares) < count:
        squares.append(square(squares[-1]))
    return squares


def _literal_power(x: Tensor, exponent: int) -> Tensor:
    squares = _squares(x, exponent.bit_length())
    factors = [t for k, t in enumerate(squares) if exponent >> k & 1]
    if not factors:
        return full_like(x, 1)
    result: Tensor = broadcast(lambda *v: functools.reduce(ops.mul, v), factors, "T_power")
    return result


#: log(1 + 256 t) / 256 and exp(256 m) - 1 as polynomials over integers of up to 64 bits: the
#: exponent of 2 and the odd divisor of each coefficient, from that of the first power on.
_LOGARITHM = ((0, 1), (7, -1), (16, 3), (22, -1), (32, 5), (39, -3), (48, 7), (53, -1))
_EXPONENTIAL = ((8, 1), (15, 1), (23, 3), (29, 3), (37, 15), (44, 45), (52, 315), (57, 315))


def _polynomial(x: PrimExpr, coefficients: Sequence[tuple[int, int]]) -> PrimExpr:
    """The sum of the coefficients times x, x**2, x**3, …, wrapped."""
    kind = x.dtype
    result: PrimExpr = ops.const(0, kind)
    for exponent, divisor in reversed(coefficients):
        number = (pow(divisor, -1, 1 << kind.bits) << exponent) % (1 << kind.bits)
        low, high = ops.int_range(kind)
        factor = ops.const(number if number <= high else number + 2 * low, kind)
        result = (result + factor) * x
    return result


def _logarithm_of_large_power(y: PrimExpr, last: PrimExpr) -> PrimExpr:
    """The logarithm of x**(64 * (y // 64)) over 256, where `last` is x**64 of an odd x.

    That is 1 + 256 t with an integer t, and the series of its logarithm is finite, as powers of 256
    are 0 from the eighth on.
    """
    kind = y.dtype
    if kind.bits == 8:  # the power is 1
        return ops.const(0, kind)
    eight, six = ops.const(8, kind), ops.const(6, kind)
    t = ops.bitwise("tir.shift_right", last - ops.const(1, kind), eight)
    return ops.bitwise("tir.shift_right", y, six) * _polynomial(t, _LOGARITHM)


def _product_of_squares(
    y: PrimExpr, last: PrimExpr, logarithm: PrimExpr, *squares: PrimExpr
) -> PrimExpr:
    """x**y: the product of those of x, x**2, x**4, … whose bit is set in y, and more.

    `last` is x**64, which is 0 if x is even.
    """
    kind = y.dtype
    zero, one = ops.const(0, kind), ops.const(1, kind)
    result: PrimExpr = one
    for k, factor in enumerate(squares):
        shifted = ops.bitwise("tir.shift_right", y, ops.const(k, kind))
        bit = ops.bitwise("tir.bitwise_and", shifted, one)
        result = result * tir.Select(ops.compare(tir.EQ, bit, one), factor, one)
    is_odd = ops.compare(tir.NE, last, zero)
    large = tir.Select(is_odd, one + _polynomial(logarithm, _EXPONENTIAL), zero)
    is_small = y < ops.const(1 << len(squares), kind)
    result = result * tir.Select(is_small, one, large)
    if kind.family == "uint":
        return result
    x, minus = squares[0], ops.const(-1, kind)
    unit = ops.any_of(ops.compare(tir.EQ, x, one), ops.compare(tir.EQ, x, minus))
    odd = ops.bitwise("tir.bitwise_and", y, one)
    inverse = tir.Select(unit, tir.Select(ops.compare(tir.EQ, odd, one), x, one), zero)
    return tir.Select(y < zero, inverse, result)


def combine(name: str, lhs: Any, rhs: Any) -> Any:
    """Apply a Python operator to whole tensors.

    Errors:
        MisuseError: integers are divided, for which the rounding is ambiguous.
    """
    if name == "divide":
        dtypes = [v.dtype for v in (lhs, rhs) if isinstance(v, (Tensor, PrimExpr))]
        if all(dtype.is_int for dtype in dtypes) and not any(
            isinstance(v, float) for v in (lhs, rhs)
        ):
            raise MisuseError(
                "the rounding of / on integers is ambiguous",
                hint="use topi.floor_divide (down) or topi.divide (toward zero)",
            )
    return cast(lhs, rhs) if name == "cast" else _binary_functions[name](lhs, rhs)


def where(condition: Value, x: Value, y: Value) -> Any:
    """x where the condition is true, else y; all three broadcast."""

    def choose(c: PrimExpr, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        if not c.dtype.is_bool:
            return tir.Select(is_true(c), a, b)
        as_number = ops.cast_to(c, "int64")  # as TVM compares it
        return tir.Select(ops.const(0, "int64") < as_number, a, b)

    return broadcast(choose, (condition, x, y), "T_where")


def fused_multiply_add(x: Value, y: Value, z: Value) -> Any:
    """x * y + z."""
    add, multiply = _BINARY["add"], _BINARY["multiply"]
    combine = through_float32(lambda a, b, c: add(multiply(a, b), c))
    return broadcast(combine, (x, y, z), "T_fma")


def broadcast_to(data: Tensor, shape: Sequence[ExprLike]) -> Tensor:
    """Repeat `data` along axes of size 1 and along new leading axes.

    Errors:
        MisuseError: a dimension of `data` is neither 1 nor that of the shape.
    """
    sizes = as_sizes(shape)
    full = broadcast_shapes(data.shape, sizes)
    if len(full) > len(sizes) or any(
        ops.is_const(size, 1) and isinstance(other, tir.IntImm) and other.value != 1
        for size, other in zip(sizes, full, strict=True)
    ):
        raise unexpected(
            shape, f"broadcast_to: shape is a repetition of {data.name} of {data.shape}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        return data(*broadcast_index(data.shape, index, sizes))

    return computed(sizes, element, "T_broadcast_to", BROADCAST)


def full(shape: Sequence[ExprLike], dtype: str, fill_value: Value) -> Tensor:
    """A tensor whose elements are `fill_value`, a scalar or a tensor of rank 0."""

    def element(*index: PrimExpr) -> PrimExpr:
        value = fill_value() if isinstance(fill_value, Tensor) else ops.convert(fill_value)
        return ops.cast_to(value, dtype)

    return computed(as_sizes(shape), element, "T_full")


def full_like(x: Tensor, fill_value: Value) -> Tensor:
    """A tensor of the shape and datatype of x whose elements are `fill_value`."""
    return full(x.shape, x.dtype, fill_value)


def _parameter(
    x: Tensor | PrimExpr, index: tuple[PrimExpr, ...], axis: int, wide: DataType
) -> PrimExpr:
    """The value of a parameter for the element at an index of the data."""
    if isinstance(x, PrimExpr):
        return ops.cast_to(x, wide)
    if x.ndim == 0:
        return ops.cast_to(x(), wide)
    if ops.is_const(x.shape[0], 1):
        return ops.cast_to(x(ops.const(0, x.shape[0].dtype)), wide)
    return ops.cast_to(x(index[normal_axis(axis, len(index))]), wide)


def _clipped(value: PrimExpr, dtype: DataType) -> PrimExpr:
    """The finite number of `dtype` that is nearest to a float."""
    low, high = ops.int_range(dtype) if dtype.is_int else ops.float_range(dtype)
    bounded = ops.minimum(value, ops.const(float(high), value.dtype))
    return ops.cast_to(ops.maximum(bounded, ops.const(float(low), value.dtype)), dtype)


def quantize(
    data: Tensor, scale: Tensor | PrimExpr, zero_point: Tensor | PrimExpr, axis: int, out_dtype: str
) -> Tensor:
    """round(data / scale) + zero_point, or the nearest number of `out_dtype`.

    Only integers are rounded, halves to even. A parameter is a scalar, or has one number for each
    index along the axis.
    """
    dtype = DataType(out_dtype)
    wide = sum_dtype(data.dtype, scale.dtype, zero_point.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value = ops.cast_to(data(*index), wide) / _parameter(scale, index, axis, wide)
        rounded = intrin.round(value) if dtype.is_int else value
        return _clipped(rounded + _parameter(zero_point, index, axis, wide), dtype)

    return computed(data.shape, element, "quantized")


def dequantize(
    data: Tensor, scale: Tensor | PrimExpr, zero_point: Tensor | PrimExpr, axis: int, out_dtype: str
) -> Tensor:
    """(data - zero_point) * scale; the result is finite if `out_dtype` is narrower than float32.

    A parameter is a scalar, or has one number for each index along the axis.
    """
    dtype = DataType(out_dtype)
    wide = sum_dtype(data.dtype, scale.dtype, zero_point.dtype, dtype)

    is_narrow = all(d.is_int and d.bits <= 16 for d in (data.dtype, zero_point.dtype))
    exact = INT32 if is_narrow else wide

    def element(*index: PrimExpr) -> PrimExpr:
        zero = _parameter(zero_point, index, axis, exact)
        difference = ops.cast_to(ops.cast_to(data(*index), exact) - zero, wide)
        value = difference * _parameter(scale, index, axis, wide)
        return _clipped(value, dtype) if dtype.bits < FLOAT32.bits else ops.cast_to(value, dtype)

    return computed(data.shape, element, "dequantized")
