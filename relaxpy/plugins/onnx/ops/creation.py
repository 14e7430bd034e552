"""Tensors that are made or drawn, and rearranged in blocks or by conditions.

A node of random numbers without a seed has one that its place in the graph decides.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.exec.runtime.registry import register_func
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, PrimValue, ShapeExpr, TupleGetItem, const
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.tensors import (
    LIMIT,
    Element,
    Size,
    as_size,
    dtype_of,
    is_float,
    literal,
    normal_axis,
    number,
    product,
    rank_of,
    ratio_of,
    reshaped,
    scalar,
    shape_of,
    tensor_info,
    tensor_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, Value, converter
from relaxpy.plugins.onnx.folding import sized
from relaxpy.plugins.onnx.ops.movement import wrapped
from relaxpy.plugins.onnx.view import dtype_of as dtype_of_code

#: No range has as many elements.
_MOST = 1 << 48


@converter("Trilu")
def trilu(cx: Context, x: Expr, k: Value = None, *, upper: int = 1) -> Expr:
    found: list[Size] | None = [0] if k is None else cx.integers(k)
    if found is not None:
        return R.triu(x, found[0]) if upper else R.tril(x, found[0])
    *_, rows, columns = shape_of(x)
    row = reshaped(R.arange(0, rows, 1, "int64"), (rows, 1))
    diagonal = R.arange(0, columns, 1, "int64") - R.reshape(cx.tensor(k), ())
    kept = diagonal >= row if upper else diagonal <= row
    return R.where(kept, x, scalar(0, x))


@converter("EyeLike")
def eye_like(cx: Context, x: Expr, *, dtype: int | None = None, k: int = 0) -> Expr:
    return R.eye_like(x, k, dtype_of(x) if dtype is None else dtype_of_code(dtype))


@converter("Range", domain="com.microsoft")
def range_of_vectors(cx: Context, start: Value, limit: Value, delta: Value = None) -> Expr:
    """As Range; a bound may be a vector of one element, and the step is 1 by default."""
    bounds: list[Value] = []
    for value in (start, limit, delta):
        array = cx.array(value)
        if array is not None:
            bounds.append(literal(array.reshape(())))
        elif value is None:
            bounds.append(const(1, dtype_of(cx.tensor(start))))
        else:
            bounds.append(cx.emit(R.reshape(cx.tensor(value), ())))
    return range_(cx, *bounds)


@converter("Range", ignored=["stash_type"])
def range_(cx: Context, start: Value, limit: Value, delta: Value) -> Expr:
    found = [cx.elements(value) for value in (start, limit, delta)]
    tensors = [cx.tensor(value) for value in (start, limit, delta)]
    dtype = dtype_of(tensors[0])
    size = None
    step_given = cx.array(delta)
    if step_given is not None and not step_given.all():
        raise UnsupportedError("delta is 0")
    if all(items is not None for items in found):
        first, last, step = (items[0] for items in found if items is not None)
        numbers = [item for item in (first, last, step) if not isinstance(item, PrimExpr)]
        if len(numbers) == 3 and (numbers[1] - numbers[0]) / numbers[2] <= LIMIT:
            array = np.arange(first, last, step)  # type: ignore[arg-type]
            return const(array.astype(dtype), dtype)
        if "int" in dtype:
            return R.arange(first, last, step, dtype)
        size = _length(first, last, step)
    if size is None:
        length = R.ceil(
            R.divide(
                *(R.astype(t, "float64") for t in (R.subtract(tensors[1], tensors[0]), tensors[2]))
            )
        )
        length = cx.within(length, "(limit - start) / delta", -_MOST, _MOST)
        count = R.reshape(R.maximum(R.astype(length, "int64"), const(0, "int64")), (1,))
        (size,) = cx.sizes_at_run_time(count, 1, "length")
    position = R.astype(R.arange(0, size, 1, "int64"), dtype)
    return R.reshape(tensors[0], ()) + position * R.reshape(tensors[2], ())


def _length(first: Element, last: Element, step: Element) -> Size | None:
    """The number of steps from `first` up to `last`; None if it is not an expression of sizes."""
    ratios = [ratio_of(item) for item in (first, last, step)]
    if isinstance(step, PrimExpr) or step <= 0 or any(ratio is None for ratio in ratios):
        return None
    (a, p), (b, q), (c, r) = (ratio for ratio in ratios if ratio is not None)
    below = p * q * c
    length = number((b * p * r - a * q * r + (below - 1)) // below)
    if not isinstance(length, PrimExpr) or not Analyzer().can_prove(sized(length) >= 0):
        length = number(tir.Max(as_size(length), as_size(0)))
    return length if isinstance(length, PrimExpr) else int(length)


@converter("ConstantOfShape")
def constant_of_shape(cx: Context, shape: Value, *, value: Any = None) -> Expr:
    fill = np.zeros(1, np.float32) if value is None else np.asarray(value)
    sizes = cx.sizes_or_shape(shape)
    one = cx.importer.literal(fill.reshape(()))
    return cx.of_element_type(R.full(sizes, one, dtype_of(one)), cx.element_type(one))


@converter("ConstantFill")
def constant_fill(
    cx: Context,
    x: Value = None,
    *,
    dtype: int = 1,
    extra_shape: Sequence[int] = (),
    input_as_shape: int = 0,
    shape: Sequence[int] = (),
    value: float = 0.0,
) -> Expr:
    """A tensor of one number in the shape of an operand, or that an operand or an attribute is.

    It was experimental until opset 9.
    """
    sizes = list[Size](shape)
    if x is not None:
        sizes = cx.sizes(x, "size") if input_as_shape else shape_of(cx.tensor(x))
    name = dtype_of_code(dtype)
    return R.full((*sizes, *extra_shape), const(value, name), name)


@converter("Constant")
def constant(
    cx: Context,
    *,
    value: Any = None,
    sparse_value: Any = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Expr:
    given = (value, sparse_value, value_int, value_ints, value_float, value_floats)
    count = sum(v is not None for v in (*given, value_string, value_strings))
    if count != 1:
        raise UnsupportedError(f"it has {count} values, expected one attribute with a value")
    if value is not None:
        return cx.importer.literal(value)
    if sparse_value is not None:
        return cx.importer.literal(sparse_value)
    if value_string is not None:
        return cx.importer.strings.constant([value_string], ())
    if value_strings is not None:
        return cx.importer.strings.constant(value_strings, [len(value_strings)])
    integers = value_int if value_int is not None else value_ints
    if integers is not None:
        return literal(np.array(integers, np.int64))
    return literal(np.array(value_float if value_float is not None else value_floats, np.float32))


@converter("OneHot", strings=True)
def one_hot(cx: Context, indices: Expr, depth: Value, values: Expr, *, axis: int = -1) -> Expr:
    size = cx.size_in(depth, "depth", 1)
    values = cx.shaped(values, "values", [2])
    rank = rank_of(indices) + 1
    at = normal_axis(axis, rank)
    shape: list[Size] = [1] * rank
    shape[at] = size
    whole = R.astype(indices, "int64")
    position = reshaped(R.arange(0, size, 1, "int64"), tuple(shape))
    hit = R.equal(R.expand_dims(wrapped(whole, size), [at]), position)
    off, on = (R.reshape(R.take(values, const([k], "int64"), 0), ()) for k in (0, 1))
    return R.where(hit, on, off)


_ORDER = {"mode": ("DCR", "CRD")}


@converter("DepthToSpace", admitted=_ORDER, strings=True)
def depth_to_space(cx: Context, x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    n, c, h, w = shape_of(x, 4)
    b = blocksize
    depth = number(c // (b * b))
    if mode == "DCR":
        wide = R.permute_dims(reshaped(x, (n, b, b, depth, h, w)), [0, 3, 4, 1, 5, 2])
    else:
        wide = R.permute_dims(reshaped(x, (n, depth, b, b, h, w)), [0, 1, 4, 2, 5, 3])
    return reshaped(wide, (n, depth, number(h * b), number(w * b)))


@converter("SpaceToDepth", admitted=_ORDER, strings=True)
def space_to_depth(cx: Context, x: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    n, c, h, w = shape_of(x, 4)
    b = blocksize
    high, wide = number(h // b), number(w // b)
    parts = reshaped(x, (n, c, high, b, wide, b))
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return reshaped(R.permute_dims(parts, order), (n, number(c * (b * b)), high, wide))


@converter("ReverseSequence", strings=True)
def reverse_sequence(
    cx: Context, x: Expr, lengths: Expr, *, batch_axis: int = 1, time_axis: int = 0
) -> Expr:
    size = shape_of(x)[normal_axis(time_axis, rank_of(x))]
    whole = R.astype(cx.within(lengths, "sequence_lens", 0, size), "int64")
    return R.reverse_sequence(x, whole, time_axis, batch_axis)


@converter("NonZero", strings=True)
def non_zero(cx: Context, x: Expr) -> Expr:
    # Of a scalar there is one row, as of a vector with one element.
    return cx.match(R.nonzero(x), [max(rank_of(x), 1), cx.new_size("count")], "int64")


@converter("Compress", strings=True)
def compress(cx: Context, x: Expr, condition: Expr, *, axis: int | None = None) -> Expr:
    data = reshaped(x, (product(shape_of(x)),)) if axis is None else x
    known = cx.array(condition)
    if known is not None:
        return R.take(data, const(np.flatnonzero(known), "int64"), 0 if axis is None else axis)
    places = cx.match(R.nonzero(condition), [1, cx.new_size("count")], "int64")
    return R.take(data, R.squeeze(places, [0]), 0 if axis is None else axis)


@converter("Unique", strings=True)
def unique(cx: Context, x: Expr, *, axis: int | None = None, sorted: int = 1) -> list[Expr]:
    is_ranked = bool(sorted) and cx.has_strings(x)
    ordered = x
    if is_ranked:
        ordered = cx.emit(cx.importer.strings.call("ranks", tensor_info(x), x))
    found = cx.builder.emit(
        R.unique(
            ordered,
            sorted=bool(sorted),
            return_index=True,
            return_inverse=True,
            return_counts=True,
            axis=axis,
        )
    )
    parts = [TupleGetItem(found, k) for k in range(4)]
    count = cx.new_size("count")
    sizes = [count] if axis is None else [*shape_of(x)]
    if axis is not None:
        sizes[axis] = count
    total = product(shape_of(x)) if axis is None else shape_of(x)[axis]
    values, first = parts[0], cx.match(parts[1], [count], "int64")
    if is_ranked:
        flat = reshaped(x, (total,)) if axis is None else x
        values = R.take(flat, first, 0 if axis is None else axis)
    return [
        cx.match(values, sizes, dtype_of(x)),
        first,
        cx.match(parts[2], [total], "int64"),
        cx.match(parts[3], [count], "int64"),
    ]


#: The names of the packed functions below.
PREFIX = "relaxpy.onnx."


def _drawn(cx: Context, name: str, sizes: Sequence[Any], seed: float | None) -> Expr:
    """Numbers of float64 of a shape."""
    if seed is None:
        seed = zlib.crc32(f"{cx.node.index} {' '.join(cx.node.outputs)}".encode())
    shape = ShapeExpr(tuple(map(as_size, sizes)))
    number = PrimValue(as_size(int(seed) % (1 << 32)))
    info = tensor_of(list(sizes), "float64")
    return cx.emit(R.call_pure_packed(PREFIX + name, shape, number, sinfo_args=[info]))


def _scaled(x: Expr, scale: float, offset: float, dtype: str) -> Expr:
    moved = x * const(scale, "float64") + const(offset, "float64")
    return R.astype(moved, dtype)


def _like(x: Expr, dtype: int | None) -> str:
    return dtype_of_code(dtype) if dtype else dtype_of(x) if is_float(x) else "float32"


@converter("RandomNormal")
def random_normal(
    cx: Context,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "normal", shape, seed), scale, mean, dtype_of_code(dtype))


@converter("RandomNormalLike")
def random_normal_like(
    cx: Context,
    x: Expr,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "normal", shape_of(x), seed), scale, mean, _like(x, dtype))


@converter("RandomUniform")
def random_uniform(
    cx: Context,
    *,
    shape: Sequence[int],
    dtype: int = 1,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "uniform", shape, seed), high - low, low, dtype_of_code(dtype))


@converter("RandomUniformLike")
def random_uniform_like(
    cx: Context,
    x: Expr,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
) -> Expr:
    return _scaled(_drawn(cx, "uniform", shape_of(x), seed), high - low, low, _like(x, dtype))


@converter("Bernoulli")
def bernoulli(cx: Context, x: Expr, *, dtype: int | None = None, seed: float | None = None) -> Expr:
    hit = R.less(_drawn(cx, "uniform", shape_of(x), seed), R.astype(x, "float64"))
    return R.astype(hit, dtype_of_code(dtype) if dtype else dtype_of(x))


@converter("Multinomial")
def multinomial(
    cx: Context, x: Expr, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None
) -> Expr:
    batch, classes = shape_of(x, 2)
    shares = R.cumsum(R.nn.softmax(R.astype(x, "float64"), -1), 1)
    draws = R.expand_dims(_drawn(cx, "uniform", [batch, sample_size], seed), 2)
    below = R.astype(draws >= R.expand_dims(shares, 1), "int64")
    last = R.sum(R.ones((classes,), "int64")) - const(1, "int64")
    return R.astype(R.minimum(R.sum(below, [2]), last), dtype_of_code(dtype))


@converter("Dropout")
def dropout_1(cx: Context, x: Expr, *, ratio: float = 0.5, is_test: int = 0) -> tuple[Expr, Expr]:
    return x, R.ones_like(x, "bool" if cx.opset >= 10 else None)


@converter("Dropout", since=12)
def dropout(
    cx: Context,
    x: Expr,
    ratio: Value = None,
    training_mode: Value = None,
    *,
    seed: int | None = None,
) -> tuple[Expr, Expr]:
    everything = R.ones_like(x, "bool")
    known = np.zeros((), bool) if training_mode is None else cx.array(training_mode)
    if known is not None and not known.any():
        return x, everything
    share = R.reshape(cx.tensor(ratio), ()) if ratio is not None else const(0.5, "float32")
    share = R.astype(share, "float64")
    kept = R.greater_equal(_drawn(cx, "uniform", shape_of(x), 0 if seed is None else seed), share)
    scale = R.astype(const(1.0, "float64") / (const(1.0, "float64") - share), dtype_of(x))
    if training_mode is not None and known is None:
        training = R.reshape(cx.tensor(training_mode), ())
        kept = R.where(training, kept, everything)
        scale = R.where(training, scale, scalar(1, x))
    mask = cx.emit(kept)
    return R.where(mask, x * scale, scalar(0, x)), mask


def uniform(shape: Any, seed: int) -> Array:
    """Numbers from 0 to 1 in float64."""
    return np.random.RandomState(seed).uniform(0.0, 1.0, tuple(map(int, shape)))


def normal(shape: Any, seed: int) -> Array:
    """Numbers of mean 0 and deviation 1 in float64."""
    return np.random.RandomState(seed).normal(0.0, 1.0, tuple(map(int, shape)))


for _function in (uniform, normal):
    register_func(PREFIX + _function.__name__, _function, override=True, pure=True)
