"""Operators of sparse matrices in compressed rows, of sparse positions, and of distinct elements.

Sparse matrices become dense ones, which the products of Relax take.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import Args, define, dims, dtype_of, known_shape, listed, number
from relaxpy.ir.relay.op.relations import RelationError


def _rows(indptr: rx.Expr, count: int) -> rx.Expr:
    """Return the row of each of `count` elements, from the positions at which rows begin."""
    ends = R.strided_slice(indptr, [0], [1], [known_shape(indptr)[0]], [1])
    places = rx.Constant(np.arange(count, dtype="int64"))
    return R.bucketize(places, R.astype(ends, "int64"), right=True)


def _dense(data: rx.Expr, indices: rx.Expr, indptr: rx.Expr, columns: int) -> rx.Expr:
    """Return the matrix of elements, or of blocks (count, height, width), in compressed rows."""
    count, *block = known_shape(data)
    height, width = block or (1, 1)
    rows = known_shape(indptr)[0] - 1
    place = R.stack([_rows(indptr, count), R.astype(indices, "int64")], 1)
    whole = R.zeros((rows, columns // width, height, width), dtype_of(data))
    blocks = R.scatter_nd(whole, place, R.reshape(data, (count, height, width)), "add")
    return R.reshape(R.permute_dims(blocks, [0, 2, 1, 3]), (rows * height, columns))


def _sparse_dense(args: Args, attrs: Any) -> rx.Expr:
    dense, data, indices, indptr = args
    matrix = _dense(data, indices, indptr, known_shape(dense)[1])
    if attrs["sparse_lhs"]:
        return R.matmul(matrix, R.permute_dims(dense))
    return R.matmul(dense, R.permute_dims(matrix))


for _name in ("nn.sparse_dense", "nn.internal.sparse_dense_padded"):
    define(
        _name,
        "dense_mat sparse_data sparse_indices sparse_indptr",
        _sparse_dense,
        {"sparse_lhs": False},
    )


def _sparse_conv2d(args: Args, attrs: Any) -> rx.Expr:
    """The convolution with a matrix of blocks: a row for each channel of the result."""
    data, values, indices, indptr = args
    layout, sizes = attrs["layout"], tuple(listed(attrs["kernel_size"]))
    if layout not in ("NHWC", "NCHW") or sizes not in ((1, 1), (3, 3)):
        raise RelationError(
            "the layout is NHWC or NCHW, and kernel_size [1, 1] or [3, 3], "
            f"found {layout!r} and {list(sizes)}"
        )
    block, size = known_shape(values), sizes[0]
    if len(block) not in (2, 3) or len(dims(data)) != 4:
        raise RelationError(
            f"data has 4 dimensions, and the blocks 2 or 3, found {data.struct_info} and "
            f"{values.struct_info}"
        )
    values = R.reshape(values, (*block, 1)) if len(block) == 2 else values
    channels = known_shape(data)[layout.index("C")]
    matrix = _dense(values, indices, indptr, size * size * channels)
    shape = (-1, size, size, channels) if layout == "NHWC" else (-1, channels, size, size)
    weight = R.reshape(matrix, shape)
    if layout == "NHWC":
        weight = R.permute_dims(weight, [1, 2, 3, 0])
    return R.nn.conv2d(  # type: ignore[no-any-return]
        data,
        weight,
        padding=[size // 2] * 2,
        data_layout=layout,
        kernel_layout="HWIO" if layout == "NHWC" else "OIHW",
    )


define(
    "nn.sparse_conv2d",
    "dense_data sparse_data sparse_indices sparse_indptr",
    _sparse_conv2d,
    {"layout": "NHWC", "kernel_size": (1, 1)},
)


def _sparse_add(args: Args, attrs: Any) -> rx.Expr:
    dense, data, indices, indptr = args
    return R.add(dense, _dense(data, indices, indptr, known_shape(dense)[1]))


define("nn.sparse_add", "dense_mat sparse_data sparse_indices sparse_indptr", _sparse_add)


def _sparse_transpose(args: Args, attrs: Any) -> rx.Expr:
    """The transpose of a square matrix: its elements in the order of their columns."""
    data, indices, indptr = args
    dtype, size = dtype_of(indices), known_shape(indptr)[0]
    order = R.argsort(indices, 0, False, "int64")
    rows = R.astype(_rows(indptr, known_shape(data)[0]), dtype)
    starts = rx.Constant(np.arange(size, dtype=dtype))
    begin = R.bucketize(starts, R.take(indices, order, 0), out_int32=True)
    return rx.Tuple((
        R.take(data, order, 0),
        R.take(rows, order, 0),
        R.astype(begin, dtype_of(indptr)),
    ))  # fmt: skip


define(
    "nn.sparse_transpose",
    "sparse_data sparse_indices sparse_indptr",
    _sparse_transpose,
    results=3,
)


def _weights(shape: rx.Expr) -> rx.Expr:
    """Return the number of elements that each dimension of a shape steps over."""
    reversed_ = R.cumprod(R.flip(shape, 0), 0, exclusive=True)
    return R.flip(reversed_, 0)


def _sparse_reshape(args: Args, attrs: Any) -> rx.Expr:
    indices, before, after = (R.astype(arg, "int64") for arg in args)
    one = number(1, "int64")
    given = R.where(R.less(after, number(0, "int64")), one, after)
    rest = R.floor_divide(R.prod(before), R.prod(given))
    shape = R.where(R.less(after, number(0, "int64")), rest, after)
    place = R.sum(R.multiply(indices, _weights(before)), [1], True)
    new = R.mod(R.floor_divide(place, _weights(shape)), shape)
    return rx.Tuple((R.astype(new, dtype_of(args[0])), R.astype(shape, dtype_of(args[2]))))


define("sparse_reshape", "sparse_indices prev_shape new_shape", _sparse_reshape, results=2)


def _sparse_fill_empty_rows(args: Args, attrs: Any) -> rx.Expr:
    """Positions and values with one more, of column 0, for each row that has none; these rows."""
    indices, values, shape, default = (
        R.astype(arg, "int64") if k in (0, 2) else arg for k, arg in enumerate(args)
    )
    ranks = [len(dims(arg)) for arg in args]
    if ranks[:3] != [2, 1, 1] or ranks[3] > 1:
        raise RelationError(
            "indices have 2 dimensions, values and the shape 1, and the default value none"
        )
    rank = known_shape(args[2])[0]
    if known_shape(args[0])[1] != rank:
        raise RelationError(f"positions have {rank} coordinates, found {args[0].struct_info}")
    zero = number(0, "int64")
    rows = R.squeeze(R.strided_slice(indices, [1], [0], [1], [1]), [1])
    counts = R.tensor_to_shape(R.strided_slice(shape, [0], [0], [1], [1]))
    marked = R.scatter_elements(R.ones(counts, "int64"), rows, R.multiply(rows, zero), 0)
    added = R.squeeze(R.nonzero(marked), [0])
    first = rx.Constant(np.eye(1, rank, dtype="int64"))
    places = R.concat([indices, R.multiply(R.expand_dims(added, 1), first)], 0)
    defaults = R.take(R.reshape(default, (1,)), R.multiply(added, zero), 0)
    order = R.argsort(R.concat([rows, added], 0), 0, False, "int64")  # stable
    return rx.Tuple((
        R.take(places, order, 0),
        R.take(R.concat([values, defaults], 0), order, 0),
        marked,
    ))  # fmt: skip


define(
    "sparse_fill_empty_rows",
    "sparse_indices sparse_values dense_shape default_value",
    _sparse_fill_empty_rows,
    results=3,
    known_dims=lambda args, attrs: [[None, dims(args[0])[1]], [None], [None]],
)


def _unique(args: Args, attrs: Any) -> rx.Expr:
    """The distinct elements, where they are first, where each element is among them, their number.

    All but the number have the size of the operand; what follows the distinct elements is 0.
    """
    data = args[0]
    if len(dims(data)) != 1:
        raise RelationError(f"expected a vector, found {data.struct_info}")
    size = known_shape(data)[0]
    if size == 0:
        raise RelationError("expected at least one element")
    zeros = R.zeros((size,), "int32")
    order = R.argsort(data, 0, False, "int32")  # equal elements in their order
    ordered = R.take(data, order, 0)
    first, rest = (R.strided_slice(ordered, [0], [i], [size - 1 + i], [1]) for i in (0, 1))
    starts = R.astype(R.not_equal(first, rest), "int32")
    group = R.cumsum(R.concat([R.zeros((1,), "int32"), starts], 0), 0)
    count = R.add(R.strided_slice(group, [0], [size - 1], [size], [1]), number(1, "int32"))
    inverse = R.scatter_elements(zeros, order, group, 0)
    last = R.full((size,), number(size, "int32"), "int32")
    where = R.scatter_elements(last, group, order, 0, "min")
    counts = R.scatter_elements(zeros, group, R.ones((size,), "int32"), 0, "add")
    if not attrs["sorted"]:
        new = R.argsort(where, 0, False, "int32")
        where, counts = R.take(where, new, 0), R.take(counts, new, 0)
        inverse = R.take(R.argsort(new, 0, False, "int32"), inverse, 0)
    used = R.less(rx.Constant(np.arange(size, dtype="int32")), count)
    values = R.take(data, R.minimum(where, number(size - 1, "int32")), 0)
    results = [
        R.where(used, values, number(0, dtype_of(data))),
        R.where(used, where, number(0, "int32")),
        inverse,
        count,
    ]
    return rx.Tuple(tuple([*results, counts] if attrs["return_counts"] else results))


define(
    "unique",
    "data",
    _unique,
    {"sorted": True, "return_counts": False},
    results=lambda _, attrs: 5 if attrs["return_counts"] else 4,
)
