"""PyTorch's `prims`, which its own decompositions end in, and functions of a number's bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.ir.tir import ops
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import Number, kernel
from relaxpy.plugins.torch.arrays import dtype_name
from relaxpy.plugins.torch.context import Context, cast
from relaxpy.plugins.torch.ops.elementwise import floated, operands
from relaxpy.plugins.torch.ops.movement import first_of_strided
from relaxpy.plugins.torch.ops.reduce import variance
from relaxpy.plugins.torch.ops.special import INFINITY, each_element, elementwise, size_of, spread
from relaxpy.plugins.torch.registry import CONVERTERS, Value, converter

#: Prims that mean what operators of ATen of the same name do, on operands of one datatype.
_TWINS = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and"),
    *("bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clone", "cos", "cosh", "div", "eq"),
    *("erf", "exp", "exp2", "expm1", "floor", "fmod", "ge", "gt", "isfinite", "le", "log"),
    *("log10", "log1p", "log2", "lt", "maximum", "minimum", "mul", "ne", "neg", "pow"),
    *("reciprocal", "remainder", "round", "rsqrt", "sign", "sin", "sinh"),
    *("sqrt", "sub", "tan", "tanh", "trunc", "where", "add", "signbit", "copysign", "fmax"),
    *("fmin", "gcd", "frexp", "nextafter", "as_strided_scatter", "amax", "amin", "cat", "fill"),
    *("full", "full_like"),
)


#: Prims that mean what operators of other names do.
_OTHERS = {
    "transpose": "permute",
    "rev": "flip",
    "shift_left": "bitwise_left_shift",
    "shift_right_arithmetic": "bitwise_right_shift",
    "view_of": "alias",
    "sum": "sum.dim_IntList",
    **{name: name for name in _TWINS},
}


def _register() -> None:
    for name, twin in _OTHERS.items():
        CONVERTERS[f"prims.{name}"] = CONVERTERS[f"aten.{twin}"]


@converter("reshape", "collapse", "collapse_view", "split_dim", "squeeze", namespace="prims")
def of_result_shape(cx: Context, x: Expr, *rest: Value) -> Expr:
    return tensors.reshaped(x, cx.result_shape())


@converter("broadcast_in_dim", namespace="prims")
def broadcast_in_dim(cx: Context, x: Expr, shape: Value, axes: Sequence[int]) -> Expr:
    """Axes of the operand are these of the result; the others are repeated."""
    sizes = cx.result_shape()
    given = dict(zip(axes, tensors.shape_of(x), strict=True))
    apart = tensors.reshaped(x, [given.get(k, 1) for k in range(len(sizes))])
    return R.broadcast_to(apart, tuple(sizes))


@converter("var", namespace="prims", wide=True)
def var(cx: Context, x: Expr, axes: Any, correction: float) -> Any:
    return variance(cx, x, axes, correction=correction)


@converter("convert_element_type", namespace="prims")
def convert_element_type(cx: Context, x: Expr, dtype: Any) -> Expr:
    return cast(x, dtype_name(dtype))


def is_negative(cx: Context, x: Expr) -> Expr:
    """A boolean tensor: true where the sign bit of elements is set."""
    if not tensors.is_float(x):
        return x < 0 if tensors.dtype_of(x) != "bool" else R.logical_xor(x, x)
    wide = cx.tensor(x, tensors.wide_dtype(x))
    y = cx.emit(tensors.reshaped(wide, [tensors.product(tensors.shape_of(x))]))
    outputs = {"out": (tensors.shape_of(y), "bool")}
    (flat,) = kernel(cx, "signbit", outputs, {"numbers": y}, _test_signs)
    return tensors.reshaped(flat, tensors.shape_of(x))


@kernel_text
def _test_signs(numbers: Any, out: Any) -> None:
    for i in T.serial(out.shape[0]):
        out[i] = T.reinterpret(f"int{numbers.dtype.bits}", numbers[i]) < 0


@converter("copy_strided", namespace="prims")
def copy_strided(cx: Context, x: Expr, strides: Value) -> Expr:
    """A copy: strides are how PyTorch lays it out, not what it is."""
    return x


@converter("view.dtype")
def view_dtype(cx: Context, x: Expr, dtype: Any) -> Expr:
    return bits_as(cx, x, dtype_name(dtype), cx.result_shape())


def bits_as(cx: Context, x: Expr, dtype: str, sizes: Sequence[tensors.Size]) -> Expr:
    """The bits of elements as elements of another datatype, in this shape.

    Where one element has the bits of several, the first of these has its lowest bits.
    """
    if tensors.dtype_of(x) == "bool":
        x = R.astype(x, "uint8")
    if dtype == "bool":
        bits = cx.emit(bits_as(cx, x, "uint8", sizes))
        return R.not_equal(bits, tensors.scalar(0, bits))
    if tensors.dtype_of(x) == dtype:
        return tensors.reshaped(x, sizes)
    old, new = DataType(tensors.dtype_of(x)).bits, DataType(dtype).bits
    total = tensors.product(tensors.shape_of(x) if old > new else sizes)
    of_bits = cx.emit(tensors.reshaped(x, [total, max(new // old, 1)]))
    outputs = {"out": ([total, max(old // new, 1)], dtype)}
    (result,) = kernel(cx, "view_dtype", outputs, {"x": of_bits}, _copy_bits)
    return tensors.reshaped(result, sizes)


@kernel_text
def _copy_bits(x: Any, out: Any) -> None:
    """Of each row, the bits of all elements, the first of which has the lowest ones."""
    old, new = T.meta_var((x.dtype.bits, out.dtype.bits))
    wide = T.meta_var(f"uint{max(old, new)}")
    for i in T.serial(out.shape[0]):
        bits = variable(T.Cast(wide, 0))
        for n in T.unroll(max(new // old, 1)):
            low = T.reinterpret(f"uint{old}", x[i, n]).astype(wide)
            bits[0] = T.bitwise_or(bits[0], T.shift_left(low, T.Cast(wide, n * old)))
        for n in T.unroll(max(old // new, 1)):
            high = T.shift_right(bits[0], T.Cast(wide, n * new))
            out[i, n] = T.reinterpret(out.dtype, high.astype(f"uint{new}"))


@converter("signbit")
def signbit(cx: Context, x: Expr) -> Expr:
    return is_negative(cx, x)


@converter("copysign")
def copysign(cx: Context, x: Value, y: Value) -> Expr:
    a, b = (floated(cx, operand) for operand in operands(cx, x, y))
    size = R.abs(a)
    return R.where(is_negative(cx, cx.emit(b)), -size, size)


@converter("fmax", "fmin")
def fmax(cx: Context, x: Value, y: Value) -> Expr:
    a, b = operands(cx, x, y)
    op = R.maximum if "fmax" in str(cx.node.target) else R.minimum
    if not tensors.is_float(a):
        return op(a, b)
    return R.where(R.isnan(a), b, R.where(R.isnan(b), a, op(a, b)))


@kernel_text
def _hypot_short(x: Number, y: Number) -> Number:
    """The root of the sum of squares, which float64 holds."""
    a, b = T.Cast("float64", x), T.Cast("float64", y)
    root = T.Cast("float32", T.sqrt(a * a + b * b))
    return T.Select(T.isinf(x) | T.isinf(y), T.float32(math.inf), root)


@elementwise("hypot", prims="hypot", short=_hypot_short)
@kernel_text
def hypot(x: Number, y: Number) -> Number:
    a, b = size_of(x), size_of(y)
    large = T.Select(a < b, b, a)
    ratio = T.Select(a < b, a, b) / large
    finite = T.Select(large == 0.0, large, large * T.sqrt(ratio * ratio + 1.0))
    known = T.Select(T.isnan(x) | T.isnan(y), a + b, finite)
    return T.Select(T.isinf(x) | T.isinf(y), INFINITY, known)


@converter("gcd")
def gcd(cx: Context, x: Value, y: Value) -> Expr:
    least = torch.iinfo(getattr(torch, cx.result_dtype())).min
    return each_element(cx, "gcd", _divisor, x, y, dtype="int64", least=least)


@kernel_text
def _divisor(first: Number, second: Number, least: int) -> Number:
    """The greatest common divisor; the least number of a datatype is its own absolute value."""
    a, b = [variable(T.Select((x < 0) & (x != least), -x, x)) for x in (second, first)]
    while b[0] != 0:
        rest = T.truncmod(a[0], b[0])
        a[0] = b[0]
        b[0] = rest
    return a[0]


@converter("frexp", "frexp.Tensor")
def frexp(cx: Context, x: Expr) -> tuple[Expr, Expr]:
    total = tensors.product(tensors.shape_of(x))
    wide = cx.emit(tensors.reshaped(cx.tensor(x, "float64"), [total]))
    outputs = {"mantissas": ([total], "float64"), "exponents": ([total], "int64")}
    found = kernel(cx, "frexp", outputs, {"numbers": wide}, _split)
    mantissa, exponent = (tensors.reshaped(item, tensors.shape_of(x)) for item in found)
    return R.astype(mantissa, tensors.dtype_of(x)), R.astype(exponent, "int32")


@kernel_text
def _split(numbers: Any, mantissas: Any, exponents: Any) -> None:
    for i in T.serial(numbers.shape[0]):
        value = numbers[i]
        tiny = size_of(value) < 2.0**-1022
        bits = T.reinterpret("int64", T.Select(tiny, value * 2.0**54, value))
        exponent = T.bitwise_and(T.shift_right(bits, T.int64(52)), T.int64(0x7FF))
        lower = T.bitwise_and(bits, T.int64(~(0x7FF << 52)))
        fraction = T.reinterpret("float64", T.bitwise_or(lower, T.int64(1022 << 52)))
        special = (value == 0.0) | (exponent == 0x7FF)
        mantissas[i] = T.Select(special, value, fraction)
        shift = T.Select(tiny, T.int64(1022 + 54), T.int64(1022))
        exponents[i] = T.Select(special, T.int64(0), exponent - shift)


@converter("nextafter")
def nextafter(cx: Context, x: Value, y: Value) -> Expr:
    dtype = cx.result_dtype()
    inputs = {name: spread(cx, operand, dtype) for name, operand in (("first", x), ("second", y))}
    outputs = {"out": (tensors.shape_of(inputs["first"]), dtype)}
    (flat,) = kernel(cx, "nextafter", outputs, inputs, _step)
    return tensors.reshaped(flat, cx.result_shape())


@kernel_text
def _step(first: Any, second: Any, out: Any) -> None:
    """The bits of a float, as a number with its sign, count the floats from 0."""
    integer = T.meta_var(f"int{out.dtype.bits}")
    for i in T.serial(out.shape[0]):
        a, b = first[i], second[i]
        bits = T.reinterpret(integer, a)
        outwards = (a < b) == (a > 0.0)
        beside = T.reinterpret(out.dtype, T.Select(outwards, bits + 1, bits - 1))
        least = T.reinterpret(out.dtype, T.Cast(integer, 1))
        moved = T.Select(a == 0.0, T.Select(b > 0.0, least, -least), beside)
        known = T.Select(a == b, b, moved)
        out[i] = T.Select(T.isnan(a) | T.isnan(b), a + b, known)


@converter("angle")
def angle(cx: Context, x: Expr) -> Expr:
    y = floated(cx, x)
    pi = const(math.pi, tensors.dtype_of(y))
    turned = R.where(y < 0, pi, tensors.scalar(0.0, y))
    return R.where(R.isnan(y), y, turned)


@converter("fma", namespace="prims")
def fma(cx: Context, a: Value, b: Value, c: Value) -> Expr:
    """a * b + c; of less than 64 bits, the product is exact in a datatype twice as wide."""
    dtype = cx.result_dtype()
    wide = "float64" if dtype in ("float32", "float64") else "float32"
    x, y, z = (cx.tensor(value, wide) for value in (a, b, c))
    return cast(x * y + z, dtype)


@converter("as_strided_scatter")
def as_strided_scatter(
    cx: Context, x: Expr, source: Expr, size: Any, stride: Any, offset: Any = None
) -> Expr:
    """In memory with the strides of `x`; positions outside of it do not matter.

    PyTorch copies a tensor whose elements share memory to a contiguous one first.
    """
    meta, sizes = cx.operand_meta(0), tensors.shape_of(x)
    begin = first_of_strided(cx, offset)
    is_strided = not meta.is_contiguous() and all(meta.stride())
    kept = meta if is_strided else meta.contiguous()
    strides = [cx.importer.symbols.expr(step) for step in kept.stride()]
    span = tensors.product(sizes)
    if is_strided:
        span = 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
    if not tensors.rank_of(source):
        source, stride = cx.emit(tensors.reshaped(source, [1])), [0]
    dtype = tensors.dtype_of(x)
    inputs, outputs = {"old": x, "new": source}, {"memory": ([span], dtype), "out": (sizes, dtype)}
    options = {"strides": strides, "steps": stride, "begin": begin}
    return kernel(cx, "as_strided_scatter", outputs, inputs, _scatter_strided, **options)[1]


@kernel_text
def _scatter_strided(
    old: Any, new: Any, memory: Any, out: Any, strides: Any, steps: Any, begin: Any
) -> None:
    for (*index,) in T.grid(*old.shape):
        memory[_position(index, strides, 0)] = old[*index]
    for (*index,) in T.grid(*new.shape):
        place = _position(index, steps, begin)
        if (place >= 0) & (place < memory.shape[0]):
            memory[place] = new[*index]
    for (*index,) in T.grid(*out.shape):
        out[*index] = memory[_position(index, strides, 0)]


def _position(index: Sequence[Any], steps: Sequence[Any], first: Any) -> Any:
    return sum((i * step for i, step in zip(index, steps, strict=True)), ops.convert(first))


_register()
