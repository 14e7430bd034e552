"""Tensors of given values, sizes."""

from __future__ import annotations

from typing import Any, cast

from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.plugins.importing.tensors import Size, as_size, dtype_of, shape_of
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import Value, converter
from relaxpy.plugins.torch.symbols import sympy_of


def filled(cx: Context, value: Value) -> Expr:
    """A tensor of the result's shape and datatype with one value everywhere."""
    dtype = cx.result_dtype()
    return R.full(tuple(cx.result_shape()), cx.tensor(value, dtype), dtype)


@converter("scalar_tensor", namespace="prims")
@converter("full", "new_full", "full_like", "fill", "scalar_tensor")
def full(cx: Context, *args: Value) -> Expr:
    at = (
        0
        if "scalar_tensor" in str(cx.node.target)
        else 2
        if "new_full" in str(cx.node.target)
        else 1
    )
    return filled(cx, args[at])


@converter(
    *("zeros", "zeros_like", "new_zeros", "empty", "empty_like", "new_empty", "empty_strided"),
    *("empty_permuted", "new_empty_strided", "_efficientzerotensor"),
)
def zeros(cx: Context, *args: Value) -> Expr:
    return _uniform(cx, args[0], R.zeros, R.zeros_like)


@converter("ones", "ones_like", "new_ones")
def ones(cx: Context, *args: Value) -> Expr:
    return _uniform(cx, args[0], R.ones, R.ones_like)


def _uniform(cx: Context, first: Value, new: Any, like: Any) -> Expr:
    """The result of an operator that takes a shape, or a tensor that has it."""
    dtype = cx.result_dtype()
    if "_like." in str(cx.node.target) and isinstance(first, Expr) and dtype_of(first) == dtype:
        return cast("Expr", like(first))
    return cast("Expr", new(tuple(cx.result_shape()), dtype))


@converter("arange", "arange.start", "arange.start_step", wide=True)
def arange(cx: Context, *args: Any) -> Expr:
    numbers = [arg for arg in args if arg is not None]
    start, step = 0, 1
    if len(numbers) == 1:
        (end,) = numbers
    else:
        start, end, *rest = numbers
        step = rest[0] if rest else 1
    dtype = cx.result_dtype()
    if "int" in dtype:
        if not any(isinstance(number, float) for number in numbers):
            return R.arange(start, end, step, dtype)
        # after it has counted them
        start, step = (int(v) if isinstance(v, float) else v for v in (start, step))
    return _ramp(cx, cx.result_shape()[0], start, step)


@converter("iota", namespace="prims")
def iota(cx: Context, count: Size, *, start: Any, step: Any, dtype: Value) -> Expr:
    """`count` numbers from `start` on."""
    return _ramp(cx, count, start, step)


def _ramp(cx: Context, count: Size, start: Any, step: Any) -> Expr:
    dtype = cx.result_dtype()
    places = R.astype(R.arange(0, count, 1, "int64"), dtype)
    scaled = places if _is(step, 1) else R.multiply(places, cx.tensor(step, dtype))
    return scaled if _is(start, 0) else R.add(scaled, cx.tensor(start, dtype))


def _is(value: Any, number: int) -> bool:
    return isinstance(value, (int, float)) and value == number


@converter("linspace")
def linspace(cx: Context, start: Any, end: Any, count: Any, *_: Value) -> Expr:
    dtype = cx.result_dtype()
    wide = "float64"
    places = R.astype(R.arange(0, count, 1, "int64"), wide)
    first, last = cx.tensor(start, wide), cx.tensor(end, wide)
    if isinstance(count, int) and count < 2:
        return R.astype(R.add(R.multiply(places, const(0.0, wide)), first), dtype)
    steps = R.subtract(cx.tensor(count, wide), const(1.0, wide))
    step = R.divide(R.subtract(last, first), steps)
    below = R.add(first, R.multiply(places, step))
    above = R.subtract(last, R.multiply(R.subtract(steps, places), step))
    is_below = R.less(places, R.divide(cx.tensor(count, wide), const(2.0, wide)))
    return R.astype(R.where(is_below, below, above), dtype)


@converter(
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"),
    *("fft_fftfreq", "fft_rfftfreq", "range"),
)
def table(cx: Context, *numbers: Any) -> Any:
    """The elements that PyTorch computes, which depend on numbers only."""
    if not all(isinstance(number, (bool, int, float)) for number in numbers if number is not None):
        raise UnsupportedError("a table whose size depends on inputs")
    given = [number for number in numbers if number is not None]
    return cx.importer.value(cx.node.target(*given, dtype=cx.meta().dtype))


@converter("eye", "eye.m")
def eye(cx: Context, rows: Size, columns: Size | None = None, *, dtype: Value = None) -> Expr:
    return R.eye(rows, rows if columns is None else columns, 0, cx.result_dtype())


@converter("sym_size.int")
def sym_size(cx: Context, x: Expr, axis: int) -> Size:
    size = shape_of(x)[cx.axis(axis, x)]
    for symbol in cx.importer.symbols.unknown(cx.meta()):
        if symbol == sympy_of(cx.meta()):  # a size of which only we have a variable
            cx.importer.symbols.known[symbol] = as_size(size)
    return size


@converter("sym_storage_offset")
def sym_storage_offset(cx: Context, x: Expr) -> Any:
    """Ours has none; where PyTorch does not know its own, ours stands for it."""
    for symbol in cx.importer.symbols.unknown(cx.meta()):
        cx.importer.symbols.known[symbol] = as_size(0)
    return sym_value(cx, x)


@converter("sym_numel", "sym_stride.int", "numel")
def sym_value(cx: Context, x: Expr, *rest: Value) -> Any:
    return cx.importer.symbols.expr(cx.meta())
