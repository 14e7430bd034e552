"""Kernels of operators whose sizes depend on data, for programs without their implementation.

A kernel has memory for the largest result, and stores how many elements there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.ops.memory import view
from relaxpy.ir.ops.misc import tensor_to_shape
from relaxpy.ir.ops.selection import has_key, inside, merged_rows, order_key
from relaxpy.ir.relax.known import literal_shape, tensor_of
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, Tuple, TupleGetItem
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.text import T, kernel_text, written
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.te.topi.windows import number
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_LONGEST_STEP = 1 << 40
"""A stride after which no element follows."""


def _part(
    builder: BlockBuilder, data: Expr, most: Sequence[PrimExpr], sizes: Sequence[PrimExpr]
) -> Expr:
    """The tensor of these sizes in the first elements of `data`; `most` are the largest sizes."""
    whole = builder.emit(view(data, ShapeExpr(most)))
    return builder.emit(view(whole, ShapeExpr(sizes)))


def _found(builder: BlockBuilder, sizes: Expr, names: Sequence[str]) -> list[tir.Var]:
    """Variables whose values are the elements of a vector."""
    found = [tir.Var(name, INT64) for name in names]
    shape = builder.emit(tensor_to_shape(builder.emit(sizes)))
    builder.match_cast(shape, ShapeStructInfo(found))
    return found


def nonzero(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that counts the elements other than 0, and stores their indices."""
    [x] = call.args
    shape = literal_shape(tensor_of(builder.struct_info_of(x)))
    assert shape is not None
    both = builder.emit(rules.te_kernel(builder, _places, "nonzero", x))
    [count] = _found(builder, TupleGetItem(both, 1), ["found"])
    rank = number(max(len(shape), 1))
    return _part(builder, TupleGetItem(both, 0), [rank, product(shape)], [rank, count])


def _places(x: Tensor) -> Any:
    shape = ((max(len(x.shape), 1) * product(x.shape)),)
    outputs = {"places": (shape, "int64"), "total": ((1,), "int64")}
    return written("nonzero", outputs, {"x": x}, _nonzero, size=shape[0])


@kernel_text
def _nonzero(x: Any, places: Any, total: Any, size: PrimExpr) -> None:
    count = T.decl_buffer((2,), "int64")
    count[0] = 0
    for (*row,) in T.grid(*x.shape):
        count[0] += T.Cast("int64", x[*row] != 0)
    total[0] = count[0]
    count[1] = 0
    for (*row,) in T.grid(*x.shape):
        if x[*row] != 0:
            _store_index(places, row or [number(0)], count, size, 0)
            count[1] += 1


@kernel_text
def _store_index(places: Any, row: Any, count: Any, size: PrimExpr, axis: int) -> None:
    """Store the index along an axis, and along those after it."""
    if axis < len(row):
        places[inside(axis * count[0] + count[1], size)] = row[axis]
        _store_index(places, row, count, size, axis + 1)


def unique(builder: BlockBuilder, call: Call) -> Expr:
    """The kernels that sort the elements, and keep one of equal ones.

    Slices along an axis are not compared.
    """
    attrs: Any = call.attrs
    sinfo = tensor_of(builder.struct_info_of(call.args[0]))
    shape = literal_shape(sinfo)
    assert shape is not None
    if not has_key(sinfo.dtype) or (attrs["axis"] is not None and len(shape) != 1):
        return call
    size = product(shape)
    flat = builder.emit(R.reshape(call.args[0], ShapeExpr([size])))
    options = {"largest": False, "dtype": "int64"}
    rows = builder.emit(rules.te_kernel(builder, merged_rows, "merge_sort", flat, 0, 0, **options))
    operands = [builder.emit(TupleGetItem(rows, n)) for n in (0, 1)]
    kernel = rules.te_kernel(builder, _distinct, "unique", *operands, is_sorted=attrs["sorted"])
    all_fields = builder.emit(kernel)
    [count] = _found(builder, TupleGetItem(all_fields, 4), ["found"])
    fields: list[Expr] = []
    for n, name in enumerate(("", "return_index", "return_inverse", "return_counts")):
        if not name or attrs[name]:
            whole = builder.emit(TupleGetItem(all_fields, n))
            is_whole = name == "return_inverse"
            fields.append(whole if is_whole else builder.emit(view(whole, ShapeExpr([count]))))
    return fields[0] if len(fields) == 1 else Tuple(tuple(fields))


def _distinct(x: Tensor, places: Tensor, *, is_sorted: bool) -> Any:
    shape, kind = x.shape, "int64" if x.dtype.bits > 32 else "int32"
    outputs = {
        "values": (shape, str(x.dtype)),
        **dict.fromkeys(("indices", "inverse", "counts"), (shape, "int64")),
        "total": ((1,), "int64"),
    }
    options = {
        "size": shape[0],
        "key": lambda value: order_key(value, kind, largest=True),
        "is_sorted": is_sorted,
    }
    return written("unique", outputs, {"x": x, "places": places}, _unique, **options)


@kernel_text
def _unique(
    x: Any,
    places: Any,
    values: Any,
    indices: Any,
    inverse: Any,
    counts: Any,
    total: Any,
    size: PrimExpr,
    key: Any,
    is_sorted: bool,
) -> None:
    """The elements x are in order, and `places` are where they were.

    Without `is_sorted`, a value has the number of those that occur first before it does.
    """
    count, rank = T.decl_buffer((1,), "int64"), T.decl_buffer((size,), "int64")
    last = T.meta_var(lambda n: inside(n - 1, size))
    is_new = T.meta_var(lambda n: (n == 0) | (key(x[n]) != key(x[last(n)])))
    if not is_sorted:
        for n in T.serial(size):
            rank[n] = 0
        for n in T.serial(size):
            if is_new(n):
                rank[inside(places[n], size)] = 1
    count[0] = 0
    if not is_sorted:
        for n in T.serial(size):
            count[0] += rank[n]
            rank[n] = count[0]
        total[0] = count[0]
        count[0] = 0
    for n in T.serial(size):
        if is_new(n):
            if is_sorted:
                count[0] += 1
            else:
                count[0] = rank[inside(places[n], size)]
            values[last(count[0])] = x[n]
            indices[last(count[0])] = places[n]
            counts[last(count[0])] = 0
        counts[last(count[0])] += 1
        inverse[inside(places[n], size)] = count[0] - 1
    if is_sorted:
        total[0] = count[0]


def dynamic_strided_slice(builder: BlockBuilder, call: Call) -> Expr:
    """The kernel that copies the elements of a slice, and stores its shape."""
    shape = literal_shape(tensor_of(builder.struct_info_of(call.args[0])))
    assert shape is not None
    if not shape:
        return call.args[0]
    both = builder.emit(rules.te_kernel(builder, _slice, "dynamic_strided_slice", *call.args))
    names = [f"found{axis}" for axis in range(len(shape))]
    return _part(
        builder, TupleGetItem(both, 0), shape, _found(builder, TupleGetItem(both, 1), names)
    )


def _slice(x: Tensor, begin: Tensor, end: Tensor, strides: Tensor) -> Any:
    outputs = {"result": ((product(x.shape),), str(x.dtype)), "sizes": ((len(x.shape),), "int64")}
    inputs = {"x": x, "begin": begin, "end": end, "strides": strides}
    return written("dynamic_strided_slice", outputs, inputs, _sliced, size=product(x.shape))


@kernel_text
def _sliced(
    x: Any, begin: Any, end: Any, strides: Any, result: Any, sizes: Any, size: PrimExpr
) -> None:
    first, step = [T.decl_buffer(sizes.shape, "int64") for _ in range(2)]
    place = T.decl_buffer((1,), "int64")
    _bounds(x.shape, begin, end, strides, first, step, sizes, 0)
    place[0] = 0
    for (*row,) in T.grid(*x.shape):
        if ops.all_of(*(index < sizes[axis] for axis, index in enumerate(row))):
            result[inside(place[0], size)] = x[_places_of(row, first, step, x.shape)]
            place[0] += 1


@kernel_text
def _bounds(
    shape: Any, begin: Any, end: Any, strides: Any, first: Any, step: Any, sizes: Any, axis: int
) -> None:
    """The first place, the stride and the number of elements along an axis, and those after it."""
    if axis < len(shape):
        assert strides[axis] != 0, "dynamic_strided_slice: strides are other than 0"
        most = T.meta_var(T.int64(_LONGEST_STEP))
        step[axis] = T.max(T.min(strides[axis], most), -most)
        is_up = T.meta_var(step[axis] > 0)
        low = T.meta_var(T.Select(is_up, T.int64(0), T.int64(-1)))
        extent = T.meta_var(T.Cast("int64", shape[axis]))
        inside = T.meta_var(
            lambda n: T.max(T.min(n + T.Select(n < 0, extent, T.int64(0)), extent + low), low)
        )
        first[axis] = inside(begin[axis])
        span = T.meta_var(
            T.Select(is_up, inside(end[axis]) - first[axis], first[axis] - inside(end[axis]))
        )
        width = T.meta_var(T.Select(is_up, step[axis], -step[axis]))
        sizes[axis] = T.max(T.floordiv(span + width - 1, width), 0)
        _bounds(shape, begin, end, strides, first, step, sizes, axis + 1)


def _places_of(row: Sequence[PrimExpr], first: Any, step: Any, shape: Any) -> Any:
    places = (first[axis] + index * step[axis] for axis, index in enumerate(row))
    return tuple(inside(place, size) for place, size in zip(places, shape, strict=True))
