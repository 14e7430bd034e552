"""Operators of sparse matrices in compressed rows, of sparse positions, and of distinct elements.

Sparse matrices become dense ones, which the products of Relax take.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import define, dims, dtype_of
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.relay.op.signal import known_shape, number

Args = tuple[rx.Expr, ...]


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
    blocks = R.scatter_nd(whole, place, R.reshape(data, (count, height, width)))
    return R.reshape(R.permute_dims(blocks, [0, 2, 1, 3]), (rows * height, columns))


def _sparse_dense(args: Args, attrs: Any) -> rx.Expr:
    dense, data, indices, indptr = args
    matrix = _dense(data, indices, indptr, known_shape(dense)[1])
    if attrs["sparse_lhs"]:
        return R.matmul(matrix, R.permute_dims(dense))
    return R.matmul(dense, R.permute_dims(matrix))


define(
    "nn.sparse_dense",
    "dense_mat sparse_data sparse_indices sparse_indptr",
    _sparse_dense,
    {"sparse_lhs": False},
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


define("nn.sparse_transpose", "sparse_data sparse_indices sparse_indptr", _sparse_transpose)


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


define("sparse_reshape", "sparse_indices prev_shape new_shape", _sparse_reshape)


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


define("unique", "data", _unique, {"sorted": True, "return_counts": False})
