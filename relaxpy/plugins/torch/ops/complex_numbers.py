"""Operators on complex numbers: parts, arithmetic, questions, reductions, Fourier transforms.

Elementary functions are computed in float64; the inverse ones follow Kahan, "Branch cuts for
complex elementary functions" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.plugins.importing.fourier import transformed
from relaxpy.plugins.importing.tensors import (
    Size,
    dtype_of,
    kernel,
    product,
    rank_of,
    reshaped,
    scalar,
    shape_of,
)
from relaxpy.plugins.torch.arrays import dtype_name, part_name
from relaxpy.plugins.torch.complexes import (
    Complex,
    as_complex,
    complex_converter,
    from_pair,
    part,
    to_pair,
)
from relaxpy.plugins.torch.context import Context, cast
from relaxpy.plugins.torch.ops import creation, indexing, reduce
from relaxpy.plugins.torch.ops.elementwise import expm1, log1p
from relaxpy.plugins.torch.ops.movement import transposed
from relaxpy.plugins.torch.ops.prims import bits_as, is_negative
from relaxpy.plugins.torch.registry import CONVERTERS, Value, converter


@complex_converter("sym_size.int")
def sym_size(cx: Context, z: Complex, axis: int) -> Size:
    return creation.sym_size(cx, z.re, axis)


@complex_converter("sym_numel", "sym_stride.int", "sym_storage_offset", "numel")
def sym_value(cx: Context, z: Complex, *rest: Value) -> Any:
    return cx.importer.symbols.expr(cx.meta())


@complex_converter("view_as_complex", "view_as_complex_copy")
def view_as_complex(cx: Context, x: Expr) -> Complex:
    return from_pair(cx, x)


@complex_converter("view_as_real", "view_as_real_copy")
def view_as_real(cx: Context, z: Complex) -> Expr:
    return to_pair(z)


@complex_converter("view.dtype")
def view_dtype(cx: Context, x: Expr | Complex, dtype: Any) -> Expr | Complex:
    parts = cx.emit(to_pair(x)) if isinstance(x, Complex) else x
    sizes = cx.result_shape()
    if not dtype.is_complex:
        return bits_as(cx, parts, dtype_name(dtype), sizes)
    return from_pair(cx, cx.emit(bits_as(cx, parts, part_name(dtype), [*sizes, 2])))


@complex_converter("complex")
def complex_of(cx: Context, re: Expr, im: Expr) -> Complex:
    sizes = tuple(cx.result_shape())
    return Complex(*(R.broadcast_to(cx.tensor(x, cx.result_dtype()), sizes) for x in (re, im)))


@complex_converter("polar")
def polar(cx: Context, size: Expr, turn: Expr) -> Complex:
    return Complex(size * R.cos(turn), size * R.sin(turn))


@complex_converter("real")
def real(cx: Context, z: Complex) -> Expr:
    return z.re


@complex_converter("imag")
def imag(cx: Context, z: Complex) -> Expr:
    return z.im


@complex_converter("conj", "_conj", "_conj_copy", "conj_physical", "_conj_physical")
def conj(cx: Context, z: Complex) -> Complex:
    return Complex(z.re, -z.im)


@complex_converter("_neg_view", "_neg_view_copy")
def neg(cx: Context, z: Complex) -> Complex:
    return Complex(-z.re, -z.im)


@complex_converter("mH", "matrix_H", "adjoint")
def adjoint(cx: Context, z: Complex) -> Complex:
    return Complex(transposed(cx, z.re), -transposed(cx, z.im))


@complex_converter(
    *("_to_copy", "to.dtype", "to.dtype_layout", "to.device", "to.other", "type_as"),
    *("convert_element_type", "_cast_Float"),
)
def to_copy(cx: Context, x: Expr | Complex, *rest: Value) -> Expr | Complex:
    dtype = cx.meta().dtype
    if dtype.is_complex:
        return as_complex(cx, x)
    assert isinstance(x, Complex)
    return cast(truth(x) if dtype_name(dtype) == "bool" else x.re, dtype_name(dtype))


@complex_converter("ones", "ones_like", "new_ones")
def ones(cx: Context, *args: Value) -> Expr | Complex:
    one = creation.filled(cx, 1)
    return Complex(one, R.zeros_like(one)) if cx.meta().is_complex() else one


@complex_converter("eye", "eye.m")
def eye(cx: Context, rows: Size, columns: Size | None = None, *, dtype: Value = None) -> Complex:
    re = R.eye(rows, rows if columns is None else columns, 0, cx.result_dtype())
    return Complex(re, R.zeros_like(re))


# ---- arithmetic


def real_of(value: Any) -> bool:
    """True if an operand has no imaginary part."""
    return not isinstance(value, (Complex, complex))


def times(cx: Context, a: Complex, b: Complex) -> Complex:
    """The product, element by element."""
    re = a.re * b.re - a.im * b.im
    im = a.re * b.im + a.im * b.re
    return Complex(cx.emit(re), cx.emit(im))


def plus(cx: Context, a: Complex, b: Complex) -> Complex:
    """The sum, element by element."""
    return Complex(cx.emit(a.re + b.re), cx.emit(a.im + b.im))


@complex_converter("addcmul", "addcdiv")
def addcmul(cx: Context, x: Value, a: Value, b: Value, *, value: Value = 1) -> Complex:
    first, second = as_complex(cx, a), as_complex(cx, b)
    combine = quotient if "addcdiv" in str(cx.node.target) else times
    scaled = times(cx, combine(cx, first, second), as_complex(cx, value))
    return plus(cx, as_complex(cx, x), scaled)


@complex_converter("addmm", "addmv", "baddbmm", "addbmm", "addr")
def addmm(
    cx: Context, x: Complex, a: Complex, b: Complex, *, beta: Value = 1, alpha: Value = 1
) -> Complex:
    name = cx.node.target.overloadpacket.__name__
    a, b = as_complex(cx, a), as_complex(cx, b)
    if name == "addr":
        a, b = (Complex(*(R.expand_dims(k, n) for k in (z.re, z.im))) for z, n in ((a, 1), (b, 0)))
    op: Any = R.multiply if name == "addr" else R.matmul
    re = op(a.re, b.re) - op(a.im, b.im)
    im = op(a.re, b.im) + op(a.im, b.re)
    parts = [R.sum(k, [0]) for k in (re, im)] if name == "addbmm" else [re, im]
    found = times(cx, Complex(*map(cx.emit, parts)), as_complex(cx, alpha))
    if beta == 0:
        return Complex(*(R.broadcast_to(k, tuple(cx.result_shape())) for k in (found.re, found.im)))
    return plus(cx, found, times(cx, as_complex(cx, x), as_complex(cx, beta)))


@complex_converter("vdot")
def vdot(cx: Context, a: Complex, b: Complex) -> Complex:
    re = R.matmul(a.re, b.re) + R.matmul(a.im, b.im)
    return Complex(re, R.matmul(a.re, b.im) - R.matmul(a.im, b.re))


def quotient(cx: Context, a: Complex, b: Complex) -> Complex:
    """a / b, with b scaled so that its square neither overflows nor vanishes."""
    large = R.maximum(R.abs(b.re), R.abs(b.im))
    scale = cx.emit(R.where(R.equal(large, scalar(0.0, large)), R.ones_like(large), large))
    c, d = (cx.emit(k / scale) for k in (b.re, b.im))
    below = cx.emit(c * c + d * d)
    above = times(cx, a, Complex(c, -d))
    return Complex(*(cx.emit(k / below / scale) for k in (above.re, above.im)))


@complex_converter("div", "divide", "true_divide")
def div(cx: Context, x: Value, y: Value) -> Complex:
    a = as_complex(cx, x)
    if real_of(y):
        below = cx.tensor(y, cx.result_dtype())
        return Complex(a.re / below, a.im / below)
    return quotient(cx, a, as_complex(cx, y))


@complex_converter("reciprocal")
def reciprocal(cx: Context, z: Complex) -> Complex:
    return quotient(cx, Complex(R.ones_like(z.re), R.zeros_like(z.re)), z)


@complex_converter("square")
def square(cx: Context, z: Complex) -> Complex:
    return times(cx, z, z)


def size_of(cx: Context, z: Complex) -> Expr:
    """The absolute value, without overflow on the way."""
    dtype = dtype_of(z.re)
    if dtype != "float64":
        squares = (x * x for x in (cx.emit(R.astype(k, "float64")) for k in (z.re, z.im)))
        size = R.astype(R.sqrt(R.add(*squares)), dtype)
    else:
        a, b = cx.emit(R.abs(z.re)), cx.emit(R.abs(z.im))
        large = cx.emit(R.maximum(a, b))
        plain = cx.emit(R.logical_or(R.equal(large, scalar(0.0, large)), R.isinf(large)))
        ratio = cx.emit(R.minimum(a, b) / R.where(plain, R.ones_like(large), large))
        root = R.sqrt(ratio * ratio + 1)
        size = R.where(plain, large, large * root)
    infinite = R.logical_or(R.isinf(z.re), R.isinf(z.im))
    return cx.emit(R.where(infinite, const(math.inf, dtype), size))


@complex_converter("abs")
def absolute(cx: Context, z: Complex) -> Expr:
    return size_of(cx, z)


@complex_converter("angle")
def angle(cx: Context, z: Complex) -> Expr:
    return R.atan2(z.im, z.re)


@complex_converter("sgn")
def sgn(cx: Context, z: Complex) -> Complex:
    size = size_of(cx, z)
    below = R.where(R.equal(size, scalar(0.0, size)), R.ones_like(size), size)
    return Complex(z.re / below, z.im / below)


# ---- questions


def truth(value: Any) -> Expr:
    """A boolean tensor: true where elements are not zero."""
    if not isinstance(value, Complex):
        return value if dtype_of(value) == "bool" else R.not_equal(value, scalar(0, value))
    zero = scalar(0.0, value.re)
    return R.logical_or(R.not_equal(value.re, zero), R.not_equal(value.im, zero))


def _compared(join: Any, op: Any) -> Callable[..., Expr]:
    def convert(cx: Context, x: Value, y: Value) -> Expr:
        dtype = cx.promoted(0, 1)
        pairs = ([cx.tensor(part(operand, k), dtype) for operand in (x, y)] for k in (0, 1))
        result: Expr = join(*(op(*pair) for pair in pairs))
        return result

    return convert


complex_converter("eq")(_compared(R.logical_and, R.equal))
complex_converter("ne")(_compared(R.logical_or, R.not_equal))


def _asked(join: Any, op: Any) -> Callable[..., Expr]:
    return lambda cx, z: join(op(z.re), op(z.im))


complex_converter("isnan")(_asked(R.logical_or, R.isnan))
complex_converter("isinf")(_asked(R.logical_or, R.isinf))
complex_converter("isfinite")(_asked(R.logical_and, R.isfinite))


def _of_truth(name: str) -> Callable[..., Any]:
    """The converter of an operator that asks only which of its operands are not zero."""

    def convert(cx: Context, *args: Any) -> Any:
        operands = (truth(arg) if isinstance(arg, (Expr, Complex)) else arg for arg in args)
        return CONVERTERS[f"aten.{name}"].function(cx, *operands)

    return convert


for _name in (
    *("logical_not", "logical_and", "logical_or", "logical_xor", "any", "any.dim", "any.dims"),
    *("all", "all.dim", "all.dims", "nonzero"),
):
    complex_converter(_name)(_of_truth(_name))


@complex_converter("nonzero_static")
def nonzero_static(cx: Context, z: Complex, *, size: int, fill_value: int = -1) -> Expr:
    return reduce.nonzero_static(cx, truth(z), size=size, fill_value=fill_value)


@complex_converter("masked_select")
def masked_select(cx: Context, z: Complex, mask: Expr) -> Complex:
    """Both parts, at the places that one question finds."""
    total = product(shape_of(z.re))
    places = cx.emit(reshaped(R.arange(0, total, 1, "int64"), shape_of(z.re)))
    chosen = cx.emit(indexing.masked_select(cx, places, mask))
    return Complex(*(R.take(cx.emit(reshaped(x, [total])), chosen, 0) for x in (z.re, z.im)))


# ---- reductions


@complex_converter("linalg_vector_norm")
def norm(
    cx: Context,
    z: Complex,
    order: float = 2,
    axes: reduce.Axes = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Expr:
    return reduce.vector_norm(cx, size_of(cx, z), order, axes, keepdim)


@complex_converter("var.correction", "std.correction", "var_mean.correction", "std_mean.correction")
def variance(
    cx: Context,
    z: Complex,
    axes: reduce.Axes = None,
    *,
    correction: Any = None,
    keepdim: bool = False,
) -> Any:
    """The variances of the parts have the variance as their sum."""
    parts = [reduce.moments(cx, x, axes, correction, keepdim) for x in (z.re, z.im)]
    sums, means = zip(*parts, strict=True)
    result = R.add(*sums)
    name = str(cx.node.target)
    result = R.sqrt(result) if "std" in name else result
    return (result, Complex(*means)) if "_mean" in name else result


def _running(cx: Context, z: Complex, axis: int, *, last: bool) -> Complex:
    """Products of the elements up to each along an axis, or only the last ones."""
    sizes = shape_of(z.re)
    outer, count, inner = product(sizes[:axis]), sizes[axis], product(sizes[axis + 1 :])
    parts = {"re": z.re, "im": z.im}
    inputs = {name: cx.emit(reshaped(x, [outer, count, inner])) for name, x in parts.items()}
    shape = [outer, inner] if last else [outer, count, inner]
    outputs = {f"out_{name}": (shape, dtype_of(z.re)) for name in parts}
    found = kernel(cx, "prod" if last else "cumprod", outputs, inputs, _multiply, last=last)
    left = [*sizes[:axis], *sizes[axis + 1 :]] if last else sizes
    return Complex(*(reshaped(x, left) for x in found))


@kernel_text
def _multiply(re: Any, im: Any, out_re: Any, out_im: Any, last: bool) -> None:
    for i, j in T.grid(re.shape[0], re.shape[2]):
        a, b = [variable(T.Cast(re.dtype, value)) for value in (1.0, 0.0)]
        for n in T.serial(re.shape[1]):
            x, y = re[i, n, j], im[i, n, j]
            new = a[0] * x - b[0] * y
            b[0] = a[0] * y + b[0] * x
            a[0] = new
            if not last:
                out_re[i, n, j] = a[0]
                out_im[i, n, j] = b[0]
        if last:
            out_re[i, j] = a[0]
            out_im[i, j] = b[0]


@complex_converter("cumprod")
def cumprod(cx: Context, x: Value, axis: int, *, dtype: Any = None) -> Complex:
    z = as_complex(cx, x)
    return _running(cx, z, cx.axis(axis, z.re), last=False) if rank_of(z.re) else z


@complex_converter("prod", "prod.dim_int")
def prod(
    cx: Context, x: Value, axis: int | None = None, keepdim: bool = False, *, dtype: Any = None
) -> Complex:
    z = as_complex(cx, x)
    if not rank_of(z.re):
        return z
    if axis is None:
        flat = [product(shape_of(z.re))]
        z, axis = Complex(reshaped(z.re, flat), reshaped(z.im, flat)), 0
    found = _running(cx, z, cx.axis(axis, z.re), last=True)
    sizes = cx.result_shape()
    return Complex(reshaped(found.re, sizes), reshaped(found.im, sizes))


Function = Callable[[Context, Complex], Complex]


def _number(value: float) -> Expr:
    return const(value, "float64")


def _wide(cx: Context, value: Value) -> Complex:
    z = as_complex(cx, value)
    return Complex(cx.emit(R.astype(z.re, "float64")), cx.emit(R.astype(z.im, "float64")))


def _emitted(cx: Context, re: Expr, im: Expr) -> Complex:
    return Complex(cx.emit(re), cx.emit(im))


def _scaled(z: Complex, factor: float) -> Complex:
    return Complex(z.re * _number(factor), z.im * _number(factor))


def _moved(z: Complex, distance: float) -> Complex:
    return Complex(z.re + _number(distance), z.im)


def _conj(z: Complex) -> Complex:
    return Complex(z.re, -z.im)


def _turned_left(z: Complex) -> Complex:
    """i z."""
    return Complex(-z.im, z.re)


def _turned_right(z: Complex) -> Complex:
    """-i z."""
    return Complex(z.im, -z.re)


def _with_sign(cx: Context, size: Expr, sign: Expr) -> Expr:
    return R.where(is_negative(cx, cx.emit(sign)), -size, size)


def exp(cx: Context, z: Complex) -> Complex:
    size, real = cx.emit(R.exp(z.re)), R.equal(z.im, _number(0.0))
    return _emitted(
        cx, R.where(real, size, size * R.cos(z.im)), R.where(real, z.im, size * R.sin(z.im))
    )


def exp_minus_one(cx: Context, z: Complex) -> Complex:
    half = cx.emit(R.sin(z.im * _number(0.5)))
    below = _number(2.0) * (half * half)
    re = expm1(cx, z.re) * R.cos(z.im) - below
    return _emitted(cx, re, R.exp(z.re) * R.sin(z.im))


def log(cx: Context, z: Complex) -> Complex:
    return _emitted(cx, R.log(size_of(cx, z)), R.atan2(z.im, z.re))


def log_of_one_more(cx: Context, z: Complex) -> Complex:
    x, y = z.re, z.im
    square = x * (x + _number(2.0)) + y * y
    near = _number(0.5) * log1p(cx, cx.emit(square))
    moved = _moved(z, 1.0)
    whole = log(cx, moved)
    is_near = size_of(cx, z) < _number(0.5)
    return _emitted(cx, R.where(is_near, near, whole.re), whole.im)


def sqrt(cx: Context, z: Complex) -> Complex:
    zero = _number(0.0)
    mean = _number(0.5) * (size_of(cx, z) + R.abs(z.re))
    root = cx.emit(R.sqrt(mean))
    below = R.where(R.equal(root, zero), _number(1.0), _number(2.0) * root)
    other = cx.emit(R.abs(z.im) / below)
    right = cx.emit(z.re >= zero)
    infinite = R.isinf(z.im)
    re = R.where(infinite, _number(math.inf), R.where(right, root, other))
    size = R.where(infinite, _number(math.inf), R.where(right, other, root))
    return _emitted(cx, re, _with_sign(cx, size, z.im))


def sinh(cx: Context, z: Complex) -> Complex:
    re = R.sinh(z.re) * R.cos(z.im)
    return _emitted(cx, re, R.cosh(z.re) * R.sin(z.im))


def cosh(cx: Context, z: Complex) -> Complex:
    re = R.cosh(z.re) * R.cos(z.im)
    return _emitted(cx, re, R.sinh(z.re) * R.sin(z.im))


def tanh(cx: Context, z: Complex) -> Complex:
    t, s, c = (cx.emit(x) for x in (R.tanh(z.re), R.sin(z.im), R.cos(z.im)))
    square = cx.emit(t * t)
    below = cx.emit(c * c + square * (s * s))
    above = s * c * (_number(1.0) - square)
    return _emitted(cx, t / below, above / below)


def asinh(cx: Context, z: Complex) -> Complex:
    return _turned_right(asin(cx, _turned_left(z)))


def asin(cx: Context, z: Complex) -> Complex:
    left, right = _roots(cx, z)
    crossed = times(cx, left, right)
    re = R.atan2(z.re, crossed.re)
    return _emitted(cx, re, R.asinh(times(cx, _conj(left), right).im))


def _roots(cx: Context, z: Complex) -> tuple[Complex, Complex]:
    """The roots of 1 - z and of 1 + z."""
    left = sqrt(cx, _emitted(cx, _number(1.0) - z.re, -z.im))
    return left, sqrt(cx, _emitted(cx, z.re + _number(1.0), z.im))


def acos(cx: Context, z: Complex) -> Complex:
    left, right = _roots(cx, z)
    re = _number(2.0) * R.atan2(left.re, right.re)
    return _emitted(cx, re, R.asinh(times(cx, _conj(right), left).im))


def acosh(cx: Context, z: Complex) -> Complex:
    below = sqrt(cx, _emitted(cx, z.re - _number(1.0), z.im))
    above = sqrt(cx, _emitted(cx, z.re + _number(1.0), z.im))
    im = _number(2.0) * R.atan2(below.im, above.re)
    return _emitted(cx, R.asinh(times(cx, _conj(below), above).re), im)


def atanh(cx: Context, z: Complex) -> Complex:
    one = _number(1.0)
    x, y = cx.emit(R.abs(z.re)), z.im
    near, far = cx.emit(one - x), one + x
    square = cx.emit(y * y)
    below = near * near + square
    ratio = _number(4.0) * x / below
    size = _number(0.25) * log1p(cx, cx.emit(ratio))
    im = R.atan2(_number(2.0) * y, near * far - square)
    return _emitted(cx, _with_sign(cx, size, z.re), _number(0.5) * im)


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


#: How PyTorch scales: not at all, by the root of the number of points, by the number of points.
_NONE, _ROOT, _WHOLE = range(3)


def _normalised(cx: Context, x: Expr, count: Size, normalization: int, *, inverse: bool) -> Expr:
    """`x` scaled for a mode of normalisation; "backward" divides inverse transforms by `count`."""
    wanted = {_NONE: 0.0, _ROOT: -0.5, _WHOLE: -1.0}[normalization] + (1.0 if inverse else 0.0)
    if not wanted:
        return x
    if isinstance(count, int):
        return x * scalar(float(count) ** wanted, x) if count else x
    number = cx.tensor(count, dtype_of(x))
    return x * number ** scalar(wanted, x)


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
    return from_pair(cx, cx.emit(_normalised(cx, pair, count, normalization, inverse=not forward)))


@complex_converter("_fft_r2c")
def r2c(cx: Context, x: Expr, axes: Sequence[int], normalization: int, onesided: bool) -> Complex:
    places = [cx.axis(axis, x) for axis in axes]
    sizes = shape_of(x)
    pair: Expr = cx.emit(R.expand_dims(x, rank_of(x)))
    for k, axis in enumerate(reversed(places)):
        halved = onesided and not k
        pair = cx.emit(transformed(cx, pair, axis, sizes[axis], inverse=False, onesided=halved))
    count = product([sizes[axis] for axis in places])
    return from_pair(cx, cx.emit(_normalised(cx, pair, count, normalization, inverse=False)))


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
    return _normalised(cx, whole, count, normalization, inverse=True)
