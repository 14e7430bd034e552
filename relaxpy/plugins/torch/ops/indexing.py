"""Elements by indices: gathering, scattering, places of elements that are not zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo, Var, const, is_call_of
from relaxpy.ir.te.text import T, kernel_text, variable
from relaxpy.plugins.importing.tensors import (
    Size,
    dtype_of,
    kernel,
    product,
    rank_of,
    reshaped,
    shape_of,
    wide_dtype,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.ops.elementwise import truth
from relaxpy.plugins.torch.ops.movement import bounds, norm
from relaxpy.plugins.torch.registry import Value, converter
from relaxpy.plugins.torch.symbols import sympy_of


def wrapped(cx: Context, indices: Expr, size: Size) -> Expr:
    """Indices counted from the front, as int64; those out of bounds are unchanged."""
    whole = cx.tensor(indices, "int64")
    constant = cx.constant(indices)
    if constant is not None and (constant >= 0).all():
        return whole
    length = cx.tensor(size, "int64")
    is_from_end = R.logical_and(whole < const(0, "int64"), whole >= -length)
    return R.where(is_from_end, whole + length, whole)


def _is_inside(cx: Context, indices: Expr, size: Size) -> bool:
    """True if indices are constants that count from the front."""
    constant = cx.constant(indices)
    return (
        constant is not None
        and isinstance(size, int)
        and bool(((constant >= 0) & (constant < size)).all())
    )


def from_front(cx: Context, indices: Expr, size: Size) -> Expr:
    """Indices for an operator which writes and counts negative ones from the end.

    They are unsigned, so that it counts none from the end, and finds negative ones out of range.
    """
    if _is_inside(cx, indices, size):
        return indices
    return R.astype(cx.tensor(indices, "int64"), "uint64")


@converter("embedding")
def embedding(cx: Context, weight: Expr, indices: Expr, *rest: Value) -> Expr:
    return R.take(weight, indices, 0)


@converter("index_select", "index_select_copy")
def index_select(cx: Context, x: Expr, axis: int, indices: Expr) -> Expr:
    if not rank_of(x):
        return x
    vector = indices if rank_of(indices) else reshaped(indices, [1])
    return R.take(x, vector, cx.axis(axis, x))


@converter("take")
def take(cx: Context, x: Expr, indices: Expr) -> Expr:
    total = product(shape_of(x))
    return R.take(reshaped(x, [total]), wrapped(cx, indices, total), 0)


@converter("one_hot")
def one_hot(cx: Context, indices: Expr, classes: int = -1) -> Expr:
    if classes < 0:
        raise UnsupportedError("the number of classes depends on the elements")
    if not _is_inside(cx, indices, classes):
        # Reading the numbers of the classes fails, with the index, where one is out of range.
        indices = cx.emit(R.take(R.arange(0, classes, 1, "int64"), indices, 0))
    places = R.expand_dims(cx.tensor(indices, "int64"), rank_of(indices))
    return R.astype(R.equal(places, const(np.arange(classes), "int64")), "int64")


@converter("gather")
def gather(cx: Context, x: Expr, axis: int, indices: Expr, *, sparse_grad: bool = False) -> Expr:
    at = cx.axis(axis, x)
    if 0 in [size for size in shape_of(indices) if isinstance(size, int)]:
        return R.zeros(tuple(shape_of(indices)), dtype_of(x))
    if not rank_of(x):
        return R.broadcast_to(x, tuple(shape_of(indices)))
    if not rank_of(indices):
        return reshaped(R.gather_elements(x, reshaped(indices, [1]), at), [])
    return R.gather_elements(_cut(cx, x, indices, at), indices, axis)


def _cut(cx: Context, x: Expr, indices: Expr, axis: int) -> Expr:
    """`x` with the sizes of the indices along the other axes."""
    sizes, wanted = shape_of(x), shape_of(indices)
    axes = [
        k
        for k in range(len(sizes))
        if k != axis and not cx.importer.symbols.equal(sizes[k], wanted[k])
    ]
    if not axes:
        return x
    return R.strided_slice(x, axes, [0] * len(axes), [wanted[k] for k in axes])


def _advanced(
    cx: Context, x: Expr, indices: Sequence[Expr | None]
) -> tuple[Expr, list[Expr], list[int], int, bool]:
    """A tensor whose first axes are indexed, the indices, the order of its axes, and more.

    Masks become the places that are not zero. The number is where the axes of the result of the
    indices go; the Boolean says whether they go there from the front.
    """
    expanded: list[Expr | None] = []
    for index in indices:
        if index is not None and dtype_of(index) in ("bool", "uint8"):
            places = _nonzero(cx, index)
            expanded += [
                reshaped(R.strided_slice(places, [1], [k], [k + 1]), [shape_of(places)[0]])
                for k in range(rank_of(index))
            ]
        else:
            expanded.append(index)
    axes = [k for k, index in enumerate(expanded) if index is not None]
    others = [k for k in range(rank_of(x)) if k not in axes]
    chosen = [cx.tensor(index, "int64") for index in expanded if index is not None]
    together = axes == list(range(axes[0], axes[-1] + 1)) if axes else True
    order = [*axes, *others]
    moved = x if order == list(range(len(order))) else R.permute_dims(x, order)
    return moved, chosen, order, axes[0] if together and axes else 0, together


def _nonzero(cx: Context, x: Expr) -> Expr:
    """The places of the elements that are not zero, a row for each."""
    rank = rank_of(x)
    count = cx.importer.symbols.new("count")
    rows = cx.emit(R.permute_dims(cx.emit(R.nonzero(x)), [1, 0]))
    cast = cx.builder.match_cast(rows, TensorStructInfo((count, rank), "int64"), "places")
    assert cast is not None
    return cast


def _joint(cx: Context, chosen: Sequence[Expr]) -> list[Size]:
    """The shape to which indices broadcast."""
    rank = max(rank_of(index) for index in chosen)
    result: list[Size] = [1] * rank
    for index in chosen:
        for k, size in enumerate(shape_of(index), rank - rank_of(index)):
            if not cx.is_size(size, 1):
                result[k] = size
    return result


@converter("index.Tensor", "_unsafe_index.Tensor")
def index_tensor(cx: Context, x: Expr, indices: Sequence[Expr | None]) -> Expr:
    moved, chosen, _, at, _ = _advanced(cx, x, indices)
    if not chosen:
        return x
    joint = _joint(cx, chosen)
    if len(chosen) == 1:
        y = R.take(moved, wrapped(cx, chosen[0], shape_of(moved)[0]), 0)
    else:
        y = R.index_tensor(moved, chosen)
    if not at:
        return y
    outer, count = len(joint), len(cx.meta().shape)
    order = [*range(outer, outer + at), *range(outer), *range(outer + at, count)]
    return R.permute_dims(y, order)


@converter("index_put", "_unsafe_index_put")
def index_put(
    cx: Context, x: Expr, indices: Sequence[Expr | None], values: Expr, accumulate: bool = False
) -> Expr:
    moved, chosen, order, at, _ = _advanced(cx, x, indices)
    joint = _joint(cx, chosen)
    source = cx.tensor(values, dtype_of(x))
    rest = shape_of(moved)[len(chosen) :]
    if at and rank_of(source) > len(rest) - at:
        full = [*rest[:at], *joint, *rest[at:]]
        source = R.broadcast_to(source, tuple(full))
        outer = len(joint)
        source = R.permute_dims(
            source, [*range(at, at + outer), *range(at), *range(at + outer, len(full))]
        )
    source = R.broadcast_to(source, (*joint, *rest))
    spread = [R.broadcast_to(index, tuple(joint)) for index in chosen]
    y = R.index_put(moved, spread, source, accumulate)
    if order == list(range(len(order))):
        return y
    return R.permute_dims(y, [order.index(k) for k in range(len(order))])


@converter("nonzero")
def nonzero(cx: Context, x: Expr) -> Expr:
    if not rank_of(x):
        count = cx.number_of(cx.emit(R.astype(truth(cx, x), "int64")), "count")
        return R.zeros((count, 0), "int64")
    return R.permute_dims(cx.emit(R.nonzero(x)), [1, 0])


@converter("masked_select")
def masked_select(cx: Context, x: Expr, mask: Expr) -> Expr:
    sizes = _joint(cx, [x, mask]) if rank_of(x) or rank_of(mask) else []
    whole, where = (R.broadcast_to(item, tuple(sizes)) for item in (x, mask))
    flat = reshaped(where, [product(sizes)])
    places = _nonzero(cx, cx.emit(flat))
    return R.take(reshaped(whole, [product(sizes)]), reshaped(places, [shape_of(places)[0]]), 0)


_OLD_REDUCTIONS = {"add": "add", "multiply": "mul"}


def scattered(
    cx: Context, x: Expr, axis: int, indices: Expr, source: Expr, reduction: str = "update"
) -> Expr:
    """`x` with elements of the source at places along an axis, counted from its begin."""
    if not rank_of(x):
        row = [reshaped(item, [1]) for item in (x, from_front(cx, indices, 1), source)]
        return reshaped(R.scatter_elements(*row, 0, reduction), [])
    at = cx.axis(axis, x)
    if not rank_of(indices):
        indices, source = reshaped(indices, [1]), reshaped(source, [1])
    sizes, wanted = shape_of(source), shape_of(indices)
    axes = [k for k in range(len(sizes)) if not cx.importer.symbols.equal(sizes[k], wanted[k])]
    if axes:
        source = R.strided_slice(source, axes, [0] * len(axes), [wanted[k] for k in axes])
    rows = _of_rows(cx, indices) if at == 0 else None
    if rows is not None and all(map(cx.importer.symbols.equal, shape_of(x)[1:], wanted[1:])):
        return R.scatter_nd(x, from_front(cx, rows, shape_of(x)[0]), source, reduction)
    places = from_front(cx, indices, shape_of(x)[at])
    return R.scatter_elements(x, places, source, at, reduction)


def _of_rows(cx: Context, indices: Expr) -> Expr | None:
    """A column with the index that all elements of a row have; None if they may differ."""
    value = cx.builder.lookup_binding(indices) if isinstance(indices, Var) else indices
    if not is_call_of(value, "relax.broadcast_to"):
        return None
    column, sizes = value.args[0], shape_of(value.args[0])
    count = shape_of(indices)[0]
    is_column = len(sizes) == rank_of(indices) and cx.importer.symbols.equal(sizes[0], count)
    if not is_column or not all(cx.is_size(size, 1) for size in sizes[1:]):
        return None
    return reshaped(column, [count, 1])


@converter("scatter.src", "scatter.reduce")
def scatter(
    cx: Context, x: Expr, axis: int, indices: Expr, source: Expr, *, reduce: str = ""
) -> Expr:
    return scattered(
        cx, x, axis, indices, cx.tensor(source, dtype_of(x)), _OLD_REDUCTIONS.get(reduce, "update")
    )


@converter("scatter.value", "scatter.value_reduce")
def scatter_value(
    cx: Context, x: Expr, axis: int, indices: Expr, value: Value, *, reduce: str = ""
) -> Expr:
    source = R.full(tuple(shape_of(indices)), cx.tensor(value, dtype_of(x)), dtype_of(x))
    return scattered(cx, x, axis, indices, source, _OLD_REDUCTIONS.get(reduce, "update"))


@converter("scatter_add")
def scatter_add(cx: Context, x: Expr, axis: int, indices: Expr, source: Expr) -> Expr:
    return scattered(cx, x, axis, indices, source, "add")


@converter("index_add")
def index_add(
    cx: Context, x: Expr, axis: int, indices: Expr, source: Expr, *, alpha: Value = 1
) -> Expr:
    scaled = source if alpha == 1 else source * cx.tensor(alpha, dtype_of(source))
    return _slices_scattered(cx, x, axis, indices, scaled, "add")


@converter("index_copy")
def index_copy(cx: Context, x: Expr, axis: int, indices: Expr, source: Expr) -> Expr:
    return _slices_scattered(cx, x, axis, indices, source)


def _slices_scattered(
    cx: Context, x: Expr, axis: int, indices: Expr, source: Expr, reduction: str = "update"
) -> Expr:
    """`x` with slices of the source at the places of a vector along an axis.

    Slices along the first axis are rows, which are stored as a whole.
    """
    if not rank_of(source):
        return scattered(cx, x, axis, indices, source, reduction)
    at = cx.axis(axis, x)
    if at == 0:
        places = reshaped(from_front(cx, indices, shape_of(x)[0]), [shape_of(source)[0], 1])
        return R.scatter_nd(x, places, source, reduction)
    axes = list(range(rank_of(x)))
    order, back = [at, *axes[:at], *axes[at + 1 :]], [*axes[1 : at + 1], 0, *axes[at + 1 :]]
    x, source = (cx.emit(R.permute_dims(item, order)) for item in (x, source))
    moved = cx.emit(_slices_scattered(cx, x, 0, indices, source, reduction))
    return R.permute_dims(moved, back)


def along_axis(cx: Context, x: Expr, axis: int, indices: Expr, source: Expr) -> Expr:
    """A vector of indices along an axis as one index for each element of the source."""
    if not rank_of(source):
        return indices
    at = cx.axis(axis, x)
    sizes = shape_of(source)
    shape = [sizes[k] if k == at else 1 for k in range(len(sizes))]
    return R.broadcast_to(reshaped(indices, shape), tuple(sizes))


@converter("select_scatter")
def select_scatter(cx: Context, x: Expr, source: Expr, axis: int, index: Any) -> Expr:
    at = cx.axis(axis, x)
    size = shape_of(x)[at]
    begin = index + size if isinstance(index, int) and index < 0 else index
    part = R.expand_dims(cx.tensor(source, dtype_of(x)), at)
    return R.slice_scatter(x, part, begin, cx.simplify(begin + 1), 1, at)


@converter("slice_scatter")
def slice_scatter(
    cx: Context,
    x: Expr,
    source: Expr,
    axis: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Expr:
    at = cx.axis(axis, x)
    begin, stop = bounds(cx, shape_of(x)[at], start, end)
    y = cx.tensor(source, dtype_of(x))
    if cx.is_size(begin, 0) and cx.importer.symbols.equal(stop, shape_of(x)[at]) and step == 1:
        return R.broadcast_to(y, tuple(shape_of(x)))
    return R.slice_scatter(x, y, begin, stop, step, at)


@converter("diagonal_scatter")
def diagonal_scatter(
    cx: Context, x: Expr, source: Expr, offset: int = 0, first: int = 0, second: int = 1
) -> Expr:
    a, b = cx.axis(first, x), cx.axis(second, x)
    sizes = shape_of(x)
    rows, columns = R.arange(0, sizes[a], 1, "int64"), R.arange(0, sizes[b], 1, "int64")
    on = R.equal(R.expand_dims(rows + const(offset, "int64"), 1), R.expand_dims(columns, 0))
    rest = [k for k in range(len(sizes)) if k not in (a, b)]
    length = shape_of(source)[-1]
    starts = const(np.array(max(-offset, 0)), "int64")
    place = R.minimum(R.maximum(rows - starts, const(0, "int64")), cx.tensor(length, "int64"))
    # One element more, for the rows without one on the diagonal.
    last = rank_of(source) - 1
    longer = R.nn.pad(source, [0, 0] * last + [0, 1])
    spread = R.expand_dims(R.take(longer, place, last), last + 1)
    moved = R.permute_dims(x, [*rest, a, b])
    result = R.where(on, spread, moved)
    order = [*rest, a, b]
    return R.permute_dims(result, [order.index(k) for k in range(len(order))])


@converter("item", "_local_scalar_dense")
def item(cx: Context, x: Expr) -> Any:
    value = cx.meta()
    symbol = sympy_of(value)
    if "int" in dtype_of(x) and getattr(symbol, "is_Symbol", False):
        size = cx.number_of(x, str(symbol))
        cx.importer.symbols.known[symbol] = size
        return size
    if getattr(symbol, "is_Symbol", False):
        return reshaped(x, [])
    if dtype_of(x) == "bool" and len(getattr(symbol, "free_symbols", ())) == 1:
        (bit,) = symbol.free_symbols  # the truth is that it is 1
        cx.importer.symbols.known[bit] = cx.number_of(x, str(bit))
        return cx.importer.symbols.expr(value)
    raise UnsupportedError("what the operator does depends on the value of a tensor")


@converter("embedding_renorm", wide=True)
def embedding_renorm(cx: Context, weight: Expr, indices: Expr, most: float, order: float) -> Expr:
    """The embedding rows that are looked up, renormalised to the maximum norm."""
    dtype = dtype_of(weight)
    rows, _ = shape_of(weight)
    flat = reshaped(indices, [product(shape_of(indices))])
    ones = R.ones(tuple(shape_of(flat)), dtype)
    used = R.scatter_elements(R.zeros((rows,), dtype), flat, ones, 0)
    norms = cx.emit(norm(cx, R.abs(weight), order))
    long = R.logical_and(used > const(0, dtype), norms > const(most, dtype))
    shorter = const(most, dtype) / (norms + const(1e-7, dtype))
    return weight * R.expand_dims(R.where(long, shorter, const(1, dtype)), 1)


@converter("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    cx: Context,
    weight: Expr,
    indices: Expr,
    offsets: Expr,
    scaled: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Expr | None = None,
    has_last: bool = False,
    padding: int = -1,
) -> tuple[Expr, ...]:
    (count,), (bags, width) = shape_of(indices), cx.result_shape(0)
    greatest, dtype = mode == 2, dtype_of(weight)
    # Sums of 16-bit floats are rounded once; the table itself is not copied into wider floats.
    summed = dtype if greatest else wide_dtype(dtype)
    outputs = {"y": ((bags, width), summed), "sizes": ((bags,), "int64")}
    if greatest and cx.uses(3):
        outputs["chosen"] = (bags, width), "int64"
    inputs = {"weight": weight, "indices": indices, "offsets": offsets, "factors": weights}
    options = {"mode": mode, "padding": padding}
    y, sizes, *chosen = kernel(cx, "embedding_bag", outputs, inputs, _fill_bags, **options)
    rest = [R.zeros(tuple(cx.result_shape(k)), cx.result_dtype(k)) for k in (1, 2, 3)]
    if (mode or padding >= 0) and cx.uses(1):  # sums of all rows need no bags
        starts = R.strided_slice(R.astype(offsets, "int64"), [0], [0], [bags])
        places = R.arange(0, count, 1, "int64")
        rest[0] = R.astype(R.bucketize(places, starts, right=True), "int64") - const(1, "int64")
    if mode and cx.uses(2):
        rest[1] = sizes
    if mode == 1 or chosen:  # means have no maxima, and PyTorch returns the sizes
        rest[2] = chosen[0] if chosen else sizes
    return y, *rest


@kernel_text
def _fill_bags(
    weight: Any,
    indices: Any,
    offsets: Any,
    y: Any,
    sizes: Any,
    mode: int,
    padding: int,
    factors: Any = None,
    chosen: Any = None,
) -> None:
    bags, width = T.meta_var(y.shape)
    for bag in T.serial(bags):
        for j in T.serial(width):
            y[bag, j] = 0.0
            if chosen is not None:
                chosen[bag, j] = 0
        end, size = variable(indices.shape[0]), variable(T.int64(0))
        start = offsets[bag].astype("int64")
        if bag + 1 < offsets.shape[0]:
            end[0] = offsets[bag + 1]
        for i in T.serial(start, end[0]):
            row = indices[i].astype("int64")
            if row != padding if padding >= 0 else True:
                for j in T.serial(width):
                    if mode != 2:
                        factor = T.meta_var(1 if factors is None else factors[i].astype(y.dtype))
                        part = weight[row, j].astype(y.dtype)
                        y[bag, j] += part if factors is None else part * factor
                    elif (size[0] == 0) | (weight[row, j] > y[bag, j]):
                        y[bag, j] = weight[row, j]
                        if chosen is not None:
                            chosen[bag, j] = row
                size[0] += 1
        sizes[bag] = size[0]
        if mode == 1:
            divisor = T.Cast(y.dtype, T.max(size[0], 1))
            for j in T.serial(width):
                y[bag, j] /= divisor
