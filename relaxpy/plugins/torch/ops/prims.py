"""PyTorch's `prims`, which its own decompositions end in, and functions of a number's bits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.tir import intrin, ops
from relaxpy.ir.tir.expr import Select
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import Loops, Number, kernel
from relaxpy.plugins.torch.arrays import dtype_name
from relaxpy.plugins.torch.context import Context, cast
from relaxpy.plugins.torch.ops.elementwise import floated, operands
from relaxpy.plugins.torch.ops.movement import first_of_strided
from relaxpy.plugins.torch.ops.reduce import variance
from relaxpy.plugins.torch.ops.special import each_element, elementwise, spread
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
    wide = tensors.wide_dtype(x)
    integer = wide.replace("float", "int")
    y = cx.emit(tensors.reshaped(cx.tensor(x, wide), [tensors.product(tensors.shape_of(x))]))

    def write(k: Loops, numbers: Any, out: Any) -> None:
        with k.loop(out.shape[0]) as i:
            bits = intrin.reinterpret(integer, numbers[i])
            k.store(out, i, bits < ops.const(0, integer))

    (flat,) = kernel(cx, "signbit", [(tensors.shape_of(y), "bool")], [y], write)
    return tensors.reshaped(flat, tensors.shape_of(x))


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
    parts, least = max(old, new) // min(old, new), min(old, new)
    narrow, wide = f"uint{least}", f"uint{max(old, new)}"
    total = tensors.product(tensors.shape_of(x) if old > new else sizes)
    of_bits = cx.emit(tensors.reshaped(x, [total, parts] if old < new else [total]))

    def write(k: Loops, x: Any, out: Any) -> None:
        with k.loop(total) as i:
            if old == new:
                k.store(out, i, intrin.reinterpret(dtype, x[i]))
            elif old > new:
                bits = k.local(intrin.reinterpret(wide, x[i]), wide)
                for part in range(parts):
                    low = (bits[0] >> ops.const(part * least, wide)) & ops.const(2**least - 1, wide)
                    number = ops.cast_to(low, DataType(narrow))
                    k.store(out, (i, part), intrin.reinterpret(dtype, number))
            else:
                bits = k.local(ops.const(0, wide), wide)
                for part in range(parts):
                    low = ops.cast_to(intrin.reinterpret(narrow, x[i, part]), DataType(wide))
                    k.store(bits, 0, bits[0] | (low << ops.const(part * least, wide)))
                k.store(out, i, intrin.reinterpret(dtype, bits[0]))

    shape = [total, parts] if old > new else [total]
    (result,) = kernel(cx, "view_dtype", [(shape, dtype)], [of_bits], write)
    return tensors.reshaped(result, sizes)


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


def _hypot_short(k: Loops, x: Number, y: Number) -> Number:
    """The root of the sum of squares, which float64 holds."""
    a, b = (k.local(ops.cast_to(v, "float64"))[0] for v in (x, y))
    root = ops.cast_to(intrin.sqrt(a * a + b * b), "float32")
    return Select(intrin.isinf(x) | intrin.isinf(y), ops.const(math.inf, "float32"), root)


@elementwise("hypot", prims="hypot", short=_hypot_short)
def hypot(k: Loops, x: Number, y: Number) -> Number:
    a, b = (k.local(Select(v < 0, -v, v))[0] for v in (x, y))
    large = k.local(Select(a < b, b, a))[0]
    ratio = k.local(Select(a < b, a, b) / large)[0]
    infinite = intrin.isinf(x) | intrin.isinf(y)
    value = Select(large == 0.0, large, large * intrin.sqrt(ratio * ratio + 1.0))
    unknown = intrin.isnan(x) | intrin.isnan(y)
    value = Select(unknown, a + b, value)
    return Select(infinite, ops.const(math.inf, "float64"), value)


@converter("gcd")
def gcd(cx: Context, x: Value, y: Value) -> Expr:
    """The greatest common divisor; the least number of a datatype is its own absolute value."""
    least = ops.const(torch.iinfo(getattr(torch, cx.result_dtype())).min, "int64")

    def size(x: Number) -> Number:
        return Select((x < ops.const(0, "int64")) & (x != least), -x, x)

    def divisor(k: Loops, first: Number, second: Number) -> Number:
        a, b = k.local(size(second)), k.local(size(first))
        with k.repeat(b[0] != ops.const(0, "int64")):
            rest = k.local(ops.truncmod(a[0], b[0]))
            k.store(a, 0, b[0])
            k.store(b, 0, rest[0])
        return a[0]

    return each_element(cx, "gcd", divisor, x, y, dtype="int64")


@converter("frexp", "frexp.Tensor")
def frexp(cx: Context, x: Expr) -> tuple[Expr, Expr]:
    total = tensors.product(tensors.shape_of(x))
    wide = cx.emit(tensors.reshaped(cx.tensor(x, "float64"), [total]))

    def write(k: Loops, numbers: Any, mantissas: Any, exponents: Any) -> None:
        def whole(value: int) -> Number:
            return ops.const(value, "int64")

        with k.loop(numbers.shape[0]) as i:
            value = numbers[i]
            tiny = k.local(Select(value < 0, -value, value) < 2.0**-1022)[0]
            scaled = k.local(Select(tiny, value * 2.0**54, value))[0]
            bits = k.local(intrin.reinterpret("int64", scaled))[0]
            exponent = intrin.bitwise_and(intrin.shift_right(bits, whole(52)), whole(0x7FF))
            lower = intrin.bitwise_and(bits, whole(~(0x7FF << 52)))
            fraction = intrin.reinterpret("float64", intrin.bitwise_or(lower, whole(1022 << 52)))
            special = (value == 0.0) | (exponent == whole(0x7FF))
            k.store(mantissas, i, Select(special, value, fraction))
            shift = Select(tiny, whole(1022 + 54), whole(1022))
            k.store(exponents, i, Select(special, whole(0), exponent - shift))

    outputs = [([total], "float64"), ([total], "int64")]
    found = kernel(cx, "frexp", outputs, [wide], write)
    mantissa, exponent = (tensors.reshaped(item, tensors.shape_of(x)) for item in found)
    return R.astype(mantissa, tensors.dtype_of(x)), R.astype(exponent, "int32")


@converter("nextafter")
def nextafter(cx: Context, x: Value, y: Value) -> Expr:
    """The bits of a float, as a number with its sign, count the floats from 0."""
    dtype = cx.result_dtype()
    integer = f"int{DataType(dtype).bits}"
    vectors = [spread(cx, operand, dtype) for operand in (x, y)]

    def write(k: Loops, first: Any, second: Any, out: Any) -> None:
        one = ops.const(1, integer)
        with k.loop(out.shape[0]) as i:
            a, b = first[i], second[i]
            bits = intrin.reinterpret(integer, a)
            outwards = (a < b) == (a > 0.0)
            moved = intrin.reinterpret(dtype, Select(outwards, bits + one, bits - one))
            least = intrin.reinterpret(dtype, one)
            moved = Select(a == 0.0, Select(b > 0.0, least, -least), moved)
            moved = Select(a == b, b, moved)
            k.store(out, i, Select(intrin.isnan(a) | intrin.isnan(b), a + b, moved))

    (flat,) = kernel(cx, "nextafter", [(tensors.shape_of(vectors[0]), dtype)], vectors, write)
    return tensors.reshaped(flat, cx.result_shape())


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

    def write(k: Loops, old: Any, new: Any, memory: Any, out: Any) -> None:
        with k.every(old.shape) as index:
            k.store(memory, position(index, strides, 0), old[index])
        with k.every(new.shape) as index:
            place = position(index, stride, begin)
            with k.when(ops.all_of(ops.convert(place >= 0), ops.convert(place < span))):
                k.store(memory, place, new[index])
        with k.every(out.shape) as index:
            k.store(out, index, memory[position(index, strides, 0)])

    def position(index: Sequence[Any], steps: Sequence[Any], first: Any) -> Any:
        return sum((i * step for i, step in zip(index, steps, strict=True)), ops.convert(first))

    dtype = tensors.dtype_of(x)
    outputs = [([span], dtype), (sizes, dtype)]
    return kernel(cx, "as_strided_scatter", outputs, [x, source], write)[1]


_register()
