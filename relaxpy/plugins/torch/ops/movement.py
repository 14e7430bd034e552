"""Shapes and movement: reshaping, transposing, joining, slicing, repeating, contracting."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.te.tensor import Tensor, compute
from relaxpy.ir.te.text import T, kernel_text
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import Select
from relaxpy.ir.tir.intrin import if_then_else, pow, sqrt
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.tensors import (
    Number,
    Size,
    as_size,
    dtype_of,
    product,
    rank_of,
    reshaped,
    shape_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import padded
from relaxpy.plugins.torch.context import Context
from relaxpy.plugins.torch.registry import Value, converter
from relaxpy.plugins.torch.symbols import is_symbolic, sympy_of

_END = (1 << 63) - 1


@converter(
    *("view", "reshape", "_unsafe_view", "flatten.using_ints", "unflatten.int", "view_copy"),
    *("_reshape_alias", "_reshape_copy", "view_as", "reshape_as", "ravel"),
)
def reshape(cx: Context, x: Expr, *rest: Value) -> Expr:
    return to_shape(cx, x, cx.result_shape())


def to_shape(cx: Context, x: Expr, sizes: Sequence[Size]) -> Expr:
    """`x` in this shape, unless it has it."""
    return x if _is_shape(cx, x, sizes) else reshaped(x, sizes)


def _is_shape(cx: Context, x: Expr, sizes: Sequence[Size]) -> bool:
    old = shape_of(x)
    return len(old) == len(sizes) and all(map(cx.importer.symbols.equal, old, sizes))


@converter("permute", "permute_copy")
def permute(cx: Context, x: Expr, axes: Sequence[int]) -> Expr:
    order = [cx.axis(axis, x) for axis in axes] if rank_of(x) else []
    return x if order == list(range(len(order))) else R.permute_dims(x, order)


@converter("transpose.int", "transpose_copy.int", "swapaxes", "swapdims")
def transpose(cx: Context, x: Expr, first: int, second: int) -> Expr:
    order = list(range(rank_of(x)))
    if order:
        a, b = cx.axis(first, x), cx.axis(second, x)
        order[a], order[b] = order[b], order[a]
    return x if order == list(range(len(order))) else R.permute_dims(x, order)


@converter("t", "t_copy", "numpy_T", "mT", "matrix_H", "mH")
def transposed(cx: Context, x: Expr) -> Expr:
    rank = rank_of(x)
    if rank < 2:
        return x
    if "numpy_T" in str(cx.node.target):
        return R.permute_dims(x)
    return R.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])


@converter("unsqueeze", "unsqueeze_copy")
def unsqueeze(cx: Context, x: Expr, axis: int) -> Expr:
    return R.expand_dims(x, axis)


@converter("squeeze", "squeeze.dim", "squeeze.dims", "squeeze_copy")
def squeeze(cx: Context, x: Expr, axes: int | Sequence[int] | None = None) -> Expr:
    """`x` without the axes of size 1 among `axes`, or among all."""
    sizes = shape_of(x)
    chosen = cx.axes(axes, x) if axes != [] else []
    gone = [axis for axis in chosen if cx.is_size(sizes[axis], 1)]
    if len(result := cx.result_shape()) != len(sizes) - len(gone):
        return reshaped(x, result)  # PyTorch knows by guards that a size such as min(n, 1) is 1
    if not gone:
        return x
    all_known = axes is None and all(isinstance(size, int) for size in sizes)
    return R.squeeze(x, None if all_known else gone)


@converter("expand", "expand_copy", "expand_as", "broadcast_to")
def expand(cx: Context, x: Expr, *rest: Value) -> Expr:
    sizes, known = cx.result_shape(), cx.sizes(cx.operand_meta(0).shape)
    if any(k == 1 and not cx.is_size(s, 1) for k, s in zip(known, shape_of(x), strict=True)):
        x = cx.emit(reshaped(x, known))  # min(n, 1), which PyTorch knows by guards
    return x if _is_shape(cx, x, sizes) else R.broadcast_to(x, tuple(sizes))


@converter("repeat")
def repeat(cx: Context, x: Expr, repeats: Sequence[Size]) -> Expr:
    if all(isinstance(count, int) for count in repeats):
        return R.tile(x, list(repeats))
    old = [1] * (len(repeats) - rank_of(x)) + shape_of(x)
    apart = reshaped(x, [part for size in old for part in (1, size)])
    wide = [part for count, size in zip(repeats, old, strict=True) for part in (count, size)]
    return reshaped(R.broadcast_to(apart, tuple(wide)), cx.result_shape())


@converter("flip", "fliplr", "flipud")
def flip(cx: Context, x: Expr, axes: Sequence[int]) -> Expr:
    for axis in axes if rank_of(x) else ():
        x = R.flip(x, cx.axis(axis, x))
    return x


@converter("roll")
def roll(cx: Context, x: Expr, shifts: Any, axes: Sequence[int] = ()) -> Expr:
    if not rank_of(x):
        return x
    given = list(shifts) if isinstance(shifts, Sequence) else [shifts]
    if not axes:
        flat = _rolled(cx, reshaped(x, [product(shape_of(x))]), given[0], 0)
        return reshaped(flat, shape_of(x))
    for shift, axis in zip(given, axes, strict=True):
        x = _rolled(cx, x, shift, cx.axis(axis, x))
    return x


def _rolled(cx: Context, x: Expr, shift: Size, axis: int) -> Expr:
    if isinstance(shift, int):
        return R.roll(x, [shift], [axis])
    size = shape_of(x)[axis]
    sources = R.arange(0, size, 1, "int64") - cx.tensor(shift, "int64")
    return R.take(x, R.floor_mod(sources, cx.tensor(size, "int64")), axis)


def bounds(cx: Context, size: Size, start: Any, end: Any) -> tuple[Size, Size]:
    """The first and the last index of a slice with PyTorch's meaning, within 0 and the size."""
    found: list[Any] = []
    for value, default in ((start, 0), (end, size)):
        if value is None or (isinstance(value, int) and value == _END):
            found.append(default)
            continue
        if isinstance(value, int) and isinstance(size, int):
            found.append(min(max(value + size if value < 0 else value, 0), size))
            continue
        negative = value < 0 if isinstance(value, int) else _counts_from_end(cx, value)
        if negative is None:
            whole = if_then_else(value < 0, value + size, value)
        else:
            whole = value + size if negative else value
        found.append(cx.simplify(ops.minimum(ops.maximum(whole, ops.const(0, "int64")), size)))
    begin, stop = found
    if isinstance(begin, int) and isinstance(stop, int):
        return begin, max(begin, stop)
    return begin, stop


def _counts_from_end(cx: Context, value: Any) -> bool | None:
    """True if an operand that depends on sizes is negative for the example inputs, as PyTorch does.

    None is for numbers that depend on data.
    """
    for operand in cx.node.all_input_nodes:
        meta = operand.meta.get("val")
        if is_symbolic(meta) and cx.importer.env.get(operand) is value:
            expr, hint = sympy_of(meta), meta.node.hint
            if expr.is_negative or expr.is_nonnegative:
                return bool(expr.is_negative)
            return None if hint is None else bool(hint < 0)
    return False


@converter("slice.Tensor", "slice_copy.Tensor")
def slice_tensor(
    cx: Context, x: Expr, axis: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Expr:
    at = cx.axis(axis, x)
    size = shape_of(x)[at]
    begin, stop = bounds(cx, size, start, end)
    if cx.is_size(begin, 0) and cx.importer.symbols.equal(stop, size) and step == 1:
        return x
    part = R.strided_slice(x, [at], [begin], [stop], [step])
    symbols, meta = cx.importer.symbols, cx.meta()
    if not isinstance(start, PrimExpr) or any(map(symbols.unknown, meta.shape)):
        return part
    sizes = cx.result_shape()
    if all(map(symbols.equal, shape_of(part), sizes)):
        return part
    return cx.match(part, sizes, cx.result_dtype())


@converter("narrow", "narrow_copy")
def narrow(cx: Context, x: Expr, axis: int, start: Any, length: Any) -> Expr:
    if isinstance(start, Expr):
        start = cx.number_of(start, "start")
    at = cx.axis(axis, x)
    begin, _ = bounds(cx, shape_of(x)[at], start, None)
    return R.strided_slice(x, [at], [begin], [cx.simplify(begin + length)])


@converter("select.int", "select_copy.int")
def select(cx: Context, x: Expr, axis: int, index: Any) -> Expr:
    at = cx.axis(axis, x)
    size = shape_of(x)[at]
    place = index + size if isinstance(index, int) and index < 0 else index
    if not isinstance(index, int) and not cx.importer.symbols.analyzer.can_prove(index >= 0):
        place = if_then_else(index < 0, index + size, index)
    part = R.strided_slice(x, [at], [place], [cx.simplify(place + 1)])
    return reshaped(part, cx.result_shape())


@converter("cat", "concat", "concatenate")
def cat(cx: Context, parts: Sequence[Expr], axis: int = 0) -> Expr:
    dtype = cx.result_dtype()
    rank = len(cx.meta().shape)
    kept = [cx.tensor(part, dtype) for part in parts if rank == rank_of(part)]
    if rank > 1:
        kept = [part for part in kept if not (rank_of(part) == 1 and shape_of(part) == [0])]
    if not kept:
        return cx.tensor(parts[0], dtype)
    return kept[0] if len(kept) == 1 else R.concat(kept, axis % rank)


@converter("stack")
def stack(cx: Context, parts: Sequence[Expr], axis: int = 0) -> Expr:
    dtype = cx.result_dtype()
    return R.stack([cx.tensor(part, dtype) for part in parts], axis)


def sections(cx: Context, x: Expr, axis: int, sizes: Sequence[Size]) -> list[Expr]:
    """The parts of a tensor that have these sizes along an axis, one after the other."""
    if len(sizes) == 1:
        return [x]
    known = [size for size in sizes if isinstance(size, int)]
    ends = np.cumsum(known).tolist() if len(known) == len(sizes) else None
    if ends is not None and 0 not in sizes:
        whole = cx.emit(R.split(x, ends[:-1] if len(set(sizes)) > 1 else len(sizes), axis))
        return [cx.builder.emit(whole[k]) for k in range(len(sizes))]
    parts: list[Expr] = []
    begin: Any = 0
    for size in sizes:
        end = cx.simplify(begin + size)
        parts.append(R.strided_slice(x, [axis], [begin], [end]))
        begin = end
    return parts


@converter(
    *("split.Tensor", "split.sizes", "split_with_sizes", "chunk", "tensor_split.sections"),
    *("split_copy.Tensor", "split_with_sizes_copy", "unsafe_chunk", "unsafe_split.Tensor"),
)
def split(cx: Context, x: Expr, sizes: Value, axis: int = 0) -> list[Expr]:
    at = cx.axis(axis, x)
    return sections(cx, x, at, [cx.sizes(part.shape)[at] for part in cx.meta()])


@converter("unbind.int", "unbind_copy.int")
def unbind(cx: Context, x: Expr, axis: int = 0) -> list[Expr]:
    at, count = cx.axis(axis, x), len(cx.meta())
    if count == 1:
        return [R.squeeze(x, [at])]
    whole = cx.emit(R.split(x, count, at))
    return [cx.emit(R.squeeze(cx.emit(whole[k]), [at])) for k in range(count)]


@converter("diagonal", "diagonal_copy")
def diagonal(cx: Context, x: Expr, offset: int = 0, first: int = 0, second: int = 1) -> Expr:
    a, b = cx.axis(first, x), cx.axis(second, x)
    sizes = cx.result_shape()

    def diagonal(t: Tensor) -> Tensor:
        def element(*index: PrimExpr) -> Any:
            *others, place = index
            at: list[Any] = list(others)
            for axis in sorted((a, b)):
                at.insert(axis, place + (max(-offset, 0) if axis == a else max(offset, 0)))
            return t[tuple(at)]

        return compute(tuple(sizes), element)

    return cx.te(diagonal, x)


def first_of_strided(cx: Context, offset: Any) -> Any:
    """The first element of a view by strides, counted from that of the operand."""
    return (
        0
        if offset is None
        else offset - cx.importer.symbols.expr(cx.operand_meta(0).storage_offset())
    )


@converter("as_strided", "as_strided_copy")
def as_strided(
    cx: Context, x: Expr, size: Sequence[Any], stride: Sequence[Any], offset: Any = None
) -> Expr:
    meta = cx.operand_meta(0)
    order = sorted(range(rank_of(x)), key=lambda k: -meta.stride(k))
    dense = R.permute_dims(x, order) if order != list(range(rank_of(x))) else x
    if not meta.permute(order).is_contiguous():
        raise UnsupportedError("a view by strides of a tensor with gaps in memory")
    flat = reshaped(dense, [product(shape_of(x))])
    begin = first_of_strided(cx, offset)

    def as_strided(t: Tensor) -> Tensor:
        def element(*index: PrimExpr) -> Any:
            place: Any = begin
            for k, step in zip(index, stride, strict=True):
                place = place + k * step
            return t[place]

        return compute(tuple(size), element)

    return cx.te(as_strided, flat)


@converter("unfold", "unfold_copy")
def unfold(cx: Context, x: Expr, axis: int, size: int, step: int) -> Expr:
    if not rank_of(x):
        return reshaped(x, [size])
    at = cx.axis(axis, x)
    sizes = cx.result_shape()

    def unfold(t: Tensor) -> Tensor:
        def element(*index: PrimExpr) -> Any:
            *outer, inner = index
            return t[(*outer[:at], outer[at] * step + inner, *outer[at + 1 :])]

        return compute(tuple(sizes), element)

    return cx.te(unfold, x)


@converter("pad")
def pad(
    cx: Context, x: Expr, widths: Sequence[Any], mode: str = "constant", value: Value = None
) -> Expr:
    """Padded in front and behind; the widths are for the last axis first, negative ones crop."""
    rank = rank_of(x)
    pads: list[Any] = [0] * (2 * rank)
    for k, width in enumerate(widths):
        pads[(rank if k % 2 else 0) + rank - 1 - k // 2] = width
    if isinstance(value, int | float) and "float" not in dtype_of(x):
        value = int(bool(value) if dtype_of(x) == "bool" else value)
    elif value is not None and not isinstance(value, int | float):
        value = cx.tensor(value, dtype_of(x))
    return padded(cx, x, pads, mode, value)


@converter("pad_sequence")
def pad_sequence(
    cx: Context,
    sequences: Sequence[Expr],
    batch_first: bool = False,
    value: float = 0.0,
    side: str = "right",
) -> Expr:
    """Tensors padded to the length of the longest one, which may be known when it runs only."""
    lengths = [shape_of(x)[0] for x in sequences]
    longest = cx.simplify(functools.reduce(ops.maximum, map(as_size, lengths)))
    rows = []
    for x, length in zip(sequences, lengths, strict=True):
        more = cx.simplify(as_size(longest) - length)
        inner = [0] * (2 * rank_of(x) - 2)
        row = pad(cx, x, [*inner, *((more, 0) if side == "left" else (0, more))], "constant", value)
        rows.append(cx.match(row, [longest, *shape_of(x)[1:]], dtype_of(x)))
    return R.stack(rows, 0 if batch_first else 1)


@converter("constant_pad_nd")
def constant_pad(cx: Context, x: Expr, widths: Sequence[Any], value: Value = 0) -> Expr:
    return pad(cx, x, widths, "constant", value)


@converter("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(cx: Context, x: Expr, widths: Sequence[Any]) -> Expr:
    return pad(cx, x, widths, "reflect", 0)


@converter("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(cx: Context, x: Expr, widths: Sequence[Any]) -> Expr:
    return pad(cx, x, widths, "replicate", 0)


@converter("tril", "triu")
def triangle(cx: Context, x: Expr, k: Any = 0) -> Expr:
    return R.tril(x, k) if "tril" in str(cx.node.target) else R.triu(x, k)


@converter("pixel_shuffle")
def pixel_shuffle(cx: Context, x: Expr, factor: int) -> Expr:
    return R.nn.pixel_shuffle(x, factor)


@converter("meshgrid", "meshgrid.indexing")
def meshgrid(cx: Context, parts: Sequence[Expr], *, indexing: str = "ij") -> list[Expr]:
    vectors = [part if rank_of(part) else reshaped(part, [1]) for part in parts]
    grid = cx.emit(R.meshgrid(vectors, indexing))
    return [grid[k] for k in range(len(parts))]


@converter("tensor_split.indices", "tensor_split.tensor_indices_or_sections")
def tensor_split(cx: Context, x: Expr, places: Any, axis: int = 0) -> list[Expr]:
    at = cx.axis(axis, x)
    if isinstance(places, Expr):
        return _between(cx, x, at, places)
    size = tensors.shape_of(x)[at]
    edges = [0, *places, size]
    if isinstance(size, int):
        edges = [min(max(e + size if e < 0 else e, 0), size) for e in edges]
    return [
        R.strided_slice(x, [at], [low], [high if not _less(high, low) else low])
        for low, high in itertools.pairwise(edges)
    ]


def _between(cx: Context, x: Expr, axis: int, places: Expr) -> list[Expr]:
    """The parts between places that are known when it runs."""
    if not tensors.rank_of(places):
        raise UnsupportedError("the number of parts is not known")
    (count,) = tensors.sizes_known(places)
    size = cx.tensor(tensors.shape_of(x)[axis], "int64")
    zero = const(0, "int64")
    counted = R.where(places < zero, places + size, places)
    inside = R.minimum(R.maximum(counted, zero), size)
    edges = cx.emit(R.concat([R.zeros((1,), "int64"), inside, tensors.reshaped(size, [1])], 0))
    low = R.strided_slice(edges, [0], [0], [count + 1])
    high = cx.emit(R.maximum(R.strided_slice(edges, [0], [1], [count + 2]), low))
    parts = []
    for k in range(count + 1):
        ends = (R.take(edge, const(k, "int64"), 0) for edge in (edges, high))
        first, last = (cx.number_of(cx.emit(end), "end") for end in ends)
        parts.append(R.strided_slice(x, [axis], [first], [last]))
    return parts


def _less(a: Any, b: Any) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a < b


@converter("resize")
def resize(cx: Context, x: Expr, size: Any) -> Expr:
    old, new = tensors.product(tensors.shape_of(x)), tensors.product(cx.result_shape())
    flat = tensors.reshaped(x, [old])
    if cx.importer.symbols.equal(old, new):
        return tensors.reshaped(x, cx.result_shape())
    return tensors.reshaped(R.strided_slice(flat, [0], [0], [new]), cx.result_shape())


@converter("_cdist_forward", wide=True)
def cdist(cx: Context, a: Expr, b: Expr, p: float, mode: int | None) -> Expr:
    rows = R.expand_dims(a, tensors.rank_of(a) - 1)
    columns = R.expand_dims(b, tensors.rank_of(b) - 2)
    return norm(cx, R.abs(rows - columns), p)


@converter("_pdist_forward", wide=True)
def pdist(cx: Context, x: Expr, p: float = 2.0) -> Expr:
    """The distances of each row and those after it, for which columns are adjacent."""
    outputs = {"out": (cx.result_shape(), tensors.dtype_of(x))}
    inputs = {"x": x, "columns": cx.emit(R.permute_dims(x))}
    return tensors.kernel(cx, "pdist", outputs, inputs, _sum_distances, p=p)[0]


@kernel_text
def _sum_distances(x: Any, columns: Any, out: Any, p: float) -> None:
    rows, size = T.meta_var(x.shape)
    sums = T.decl_buffer((rows,), x.dtype)
    for i in T.serial(rows):
        left = rows - i - 1
        for j in T.serial(left):
            sums[j] = 0.0
        for n, j in T.grid(size, left):
            term = _distance(x[i, n] - columns[n, i + 1 + j], p)
            sums[j] = T.max(sums[j], term) if p == math.inf else sums[j] + term
        for j in T.serial(left):
            out[i * (rows + left) // 2 + j] = _root(sums[j], p)


def _distance(difference: Number, p: float) -> Number:
    """The power of a distance that is summed, or for p = inf the distance."""
    size = Select(difference < 0, -difference, difference)
    if p == 0:
        return Select(size > 0, ops.const(1.0, str(size.dtype)), size)
    if p == 2:
        return difference * difference
    return size if p in (1, math.inf) else pow(size, ops.const(p, str(size.dtype)))


def _root(total: Number, p: float) -> Number:
    if p in (0, 1, math.inf):
        return total
    return sqrt(total) if p == 2 else pow(total, ops.const(1 / p, str(total.dtype)))


def norm(cx: Context, size: Expr, p: float) -> Expr:
    """The norm along the last axis of numbers that are not negative."""
    last = tensors.rank_of(size) - 1
    zero = R.zeros((), tensors.dtype_of(size))
    if p == 0:
        return R.sum(R.astype(R.not_equal(size, zero), tensors.dtype_of(size)), [last])
    if p == float("inf"):
        return R.max(size, [last])
    if p == 1:
        return R.sum(size, [last])
    if p == 2:
        return R.sqrt(R.sum(size * size, [last]))
    power = cx.tensor(float(p), tensors.dtype_of(size))
    return R.sum(size**power, [last]) ** cx.tensor(1.0 / p, tensors.dtype_of(size))


@converter("_trilinear", wide=True)
def trilinear(
    cx: Context, a: Expr, b: Expr, c: Expr, first: Any, second: Any, third: Any, summed: Any,
    unroll: int = 1,
) -> Expr:  # fmt: skip
    parts = []
    for operand, axes in ((a, first), (b, second), (c, third)):
        for axis in axes:
            operand = R.expand_dims(operand, axis)
        parts.append(operand)
    return R.sum(parts[0] * parts[1] * parts[2], list(summed))
