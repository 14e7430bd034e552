"""Gathers and scatters at indices that tensors contain, and sequences of different lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import always, simplify
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed, injective
from relaxpy.ir.te.topi.shapes import (
    as_sizes,
    broadcast_index,
    broadcast_shapes,
    normal_axis,
    product,
    shape_text,
)
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.stmt import AssertStmt, BufferStore, Stmt, serial_loops, stmt_seq

__all__: list[str] = [
    "adv_index",
    "dynamic_strided_slice",
    "gather",
    "gather_nd",
    "index_put",
    "index_tensor",
    "reverse_sequence",
    "scatter_elements",
    "scatter_nd",
    "shape",
    "slice_scatter",
    "take_grad",
    "tensor_size",
    "unravel_index",
]

Index: TypeAlias = Sequence[PrimExpr]
Combine: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]

#: The stored value as a function of the old element and the update.
REDUCTIONS: dict[str, Combine] = {
    "update": lambda old, new: new,
    "add": ops.add,
    "mul": ops.mul,
    "min": ops.minimum,
    "max": ops.maximum,
}


def _from_start(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """Convert an index to int64; those from -size to -1 count from the end.

    Others are unchanged, so that errors name the index that was stated.
    """
    position = ops.cast_to(index, "int64")
    if str(index.dtype).startswith("uint"):
        return position
    length = ops.cast_to(size, "int64")
    return intrin.if_then_else(ops.is_from_end(position, length), position + length, position)


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Gather the elements of data at `indices` along an axis, within the same line of that axis."""
    axis = normal_axis(axis, data.ndim)

    def element(*index: PrimExpr) -> PrimExpr:
        position = ops.cast_to(indices(*index), "int64")
        return data(*index[:axis], position, *index[axis + 1 :])

    return injective(indices.shape, element, "T_gather")


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """The slices of a at the positions along the first axis of indices.

    The first `batch_dims` axes of both, after that axis, correspond to each other.
    """
    count = _positions(indices, 0)
    outer = indices.ndim - 1
    shape = (*indices.shape[1:], *a.shape[batch_dims + count :])

    def element(*index: PrimExpr) -> PrimExpr:
        before, after = index[:outer], index[outer:]
        positions = (
            ops.cast_to(indices(ops.const(k, "int64"), *before), "int64") for k in range(count)
        )
        return a(*index[:batch_dims], *positions, *after)

    return injective(shape, element, "T_gather_nd")


def _positions(indices: Tensor, axis: int) -> int:
    size = indices.shape[axis]
    if not isinstance(size, tir.IntImm):
        raise MisuseError("the number of positions along the axis of indices is a literal")
    return size.value


def index_tensor(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """The slices of data at indices that broadcast, one for each leading axis.

    Negative indices count from the end.
    """
    shape: tuple[PrimExpr, ...] = ()
    for tensor in indices:
        shape = tuple(broadcast_shapes(shape, tensor.shape))
    trailing = data.shape[len(indices) :]

    def element(*index: PrimExpr) -> PrimExpr:
        outer, slice_index = index[: len(shape)], index[len(shape) :]
        positions = (
            _from_start(tensor(*broadcast_index(tensor.shape, outer, shape)), size)
            for tensor, size in zip(indices, data.shape, strict=False)
        )
        return data(*positions, *slice_index)

    return injective((*shape, *trailing), element, "advanced_index")


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """As `index_tensor`."""
    return index_tensor(data, indices)


def load(buffer: Buffer, index: Sequence[PrimExpr]) -> PrimExpr:
    """The element of a buffer at an index."""
    return BufferLoad(buffer, tuple(index))


def loops(shape: Sequence[PrimExpr], body: Callable[[list[PrimExpr]], Stmt]) -> Stmt:
    """Nested loops over all indices of a shape."""
    index = [tir.Var(f"i{k}", size.dtype) for k, size in enumerate(shape)]
    return serial_loops(index, shape, body(list(index)))


def stored(
    shape: Sequence[PrimExpr],
    dtype: str,
    inputs: Sequence[Tensor],
    name: str,
    store: Callable[[list[Buffer], Buffer], Stmt],
) -> Tensor:
    """The tensor that a statement stores; `store` builds it from the input and output buffers."""
    buffers = [decl_buffer(x.shape, str(x.dtype), x.name) for x in inputs]
    target = decl_buffer(shape, dtype, name)
    made: Tensor = te.extern(
        tuple(shape),
        list(inputs),
        lambda ins, outs: store(ins, outs[0]),
        name,
        dtype,
        in_buffers=buffers,
        out_buffers=[target],
    )
    return made


def stored_in_copy(
    data: Tensor | None,
    shape: Sequence[PrimExpr],
    dtype: str,
    inputs: Sequence[Tensor],
    name: str,
    store: Callable[[list[Buffer], Buffer], Stmt],
) -> Tensor:
    """A copy of data, or zeros, into which a statement over buffers stores elements."""
    copied = [] if data is None else [data]

    def statement(ins: list[Buffer], out: Buffer) -> Stmt:
        def initialise(index: list[PrimExpr]) -> Stmt:
            value = load(ins[0], index) if copied else ops.const(0, dtype)
            return BufferStore(out, value, tuple(index))

        return stmt_seq(loops(shape, initialise), store(ins[len(copied) :], out))

    return stored(shape, dtype, [*copied, *inputs], name, statement)


def _scattered(
    data: Tensor,
    updates: Tensor,
    indices: Sequence[Tensor],
    reduction: str,
    name: str,
    target_of: Callable[[list[Buffer], list[PrimExpr]], list[PrimExpr]],
) -> Tensor:
    """A copy of data whose elements at the positions `target_of` are combined with the updates."""
    if reduction == "mean":
        return _mean_scattered(data, updates, indices, name, target_of)
    if reduction not in REDUCTIONS:
        names = ", ".join([*REDUCTIONS, "mean"])
        raise unexpected(reduction, f"{name}: the reduction is one of {names}")
    # A sum of bools is true if one is, as with `add`; their sum modulo 2 is another operation.
    is_any = reduction == "add" and data.dtype.is_bool
    combine = REDUCTIONS["max" if is_any else reduction]
    wide = accumulator(data.dtype) if reduction in ("add", "mul") else data.dtype

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def update(index: list[PrimExpr]) -> Stmt:
            target = tuple(target_of(ins[1:], index))
            value = combine(load(out, target), ops.cast_to(load(ins[0], tuple(index)), wide))
            return BufferStore(out, value, target)

        return loops(updates.shape, update)

    wide_data = as_dtype(data, wide)
    out = stored_in_copy(wide_data, data.shape, str(wide), [updates, *indices], name, store)
    return as_dtype(out, data.dtype)


def _mean_scattered(
    data: Tensor,
    updates: Tensor,
    indices: Sequence[Tensor],
    name: str,
    target_of: Callable[[list[Buffer], list[PrimExpr]], list[PrimExpr]],
) -> Tensor:
    """The mean of each element and all updates of it."""
    wide = accumulator(data.dtype)
    total = _scattered(
        as_dtype(data, wide), as_dtype(updates, wide), indices, "add", name, target_of
    )
    one = ops.const(1, wide)
    ones = te.compute(data.shape, lambda *i: one, name="ones")
    counted = te.compute(updates.shape, lambda *i: one, name="ones")
    count = _scattered(ones, counted, indices, "add", name, target_of)

    def element(*index: PrimExpr) -> PrimExpr:
        quotient = ops.floordiv if wide.is_int else ops.div
        return ops.cast_to(quotient(total(*index), count(*index)), data.dtype)

    return computed(data.shape, element, "mean")


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """A copy of data with updates stored at `indices` along an axis, within the same line.

    Negative indices count from the end. Of several updates of an element, "update" keeps the last
    one; "add", "mul", "min" and "max" combine them with the element, "mean" takes the mean of all.

    Errors:
        MisuseError: there is no such reduction.
    """
    axis = normal_axis(axis, data.ndim)

    def target_of(ins: list[Buffer], index: list[PrimExpr]) -> list[PrimExpr]:
        position = _from_start(load(ins[0], tuple(index)), data.shape[axis])
        return [
            *(ops.cast_to(i, "int64") for i in index[:axis]),
            position,
            *(ops.cast_to(i, "int64") for i in index[axis + 1 :]),
        ]

    return _scattered(data, updates, [indices], reduction, "scatter_elements", target_of)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update") -> Tensor:
    """A copy of data with slices of updates at the positions along the first axis of indices.

    Negative positions count from the end; `mode` is a reduction of `scatter_elements`.

    Errors:
        MisuseError: there is no such reduction; positions have more axes than data.
    """
    count, outer = _positions(indices, 0), indices.ndim - 1
    if count > data.ndim:
        raise MisuseError(
            f"scatter_nd: positions have at most {data.ndim} axes, found {count}", about=indices
        )

    def target_of(ins: list[Buffer], index: list[PrimExpr]) -> list[PrimExpr]:
        return [
            *(
                _from_start(load(ins[0], (ops.const(k, "int64"), *index[:outer])), data.shape[k])
                for k in range(count)
            ),
            *(ops.cast_to(i, "int64") for i in index[outer:]),
        ]

    return _scattered(data, updates, [indices], mode, "scatter_nd", target_of)


def index_put(
    data: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of data with values stored, or added, at indices, one for each axis.

    The indices broadcast, and the values broadcast to their shape and the remaining axes. Negative
    indices count from the end.
    """
    shape: tuple[PrimExpr, ...] = ()
    for tensor in indices:
        shape = tuple(broadcast_shapes(shape, tensor.shape))
    full_shape = (*shape, *data.shape[len(indices) :])
    full_values = te.compute(
        full_shape, lambda *i: values(*broadcast_index(values.shape, i, full_shape)), name="values"
    )

    def target_of(ins: list[Buffer], index: list[PrimExpr]) -> list[PrimExpr]:
        outer = index[: len(shape)]
        return [
            *(
                _from_start(load(ins[k], tuple(broadcast_index(tensor.shape, outer, shape))), size)
                for k, (tensor, size) in enumerate(zip(indices, data.shape, strict=False))
            ),
            *(ops.cast_to(i, "int64") for i in index[len(shape) :]),
        ]

    mode = "add" if accumulate else "update"
    return _scattered(data, full_values, list(indices), mode, "index_put", target_of)


def _slice_checks(
    data: Tensor, src: Tensor, bounds: tuple[PrimExpr, PrimExpr, PrimExpr], axis: int
) -> Iterator[tuple[PrimExpr, str]]:
    """Unproved conditions on the bounds of a slice and the shape of src, with their messages."""
    start, end, step = bounds
    one, size = ops.const(1, "int64"), ops.cast_to(data.shape[axis], "int64")
    shape = [ops.cast_to(n, "int64") for n in data.shape]
    shape[axis] = simplify((end + (step - one) - start) // step)
    conditions = [
        (step >= one, "step is positive"),
        (start >= ops.const(0, "int64"), "start is at least 0"),
        (start <= end, "end is not before start"),
        (end <= size, f"end is at most the size of axis {axis}"),
    ]
    for k, (n, expected) in enumerate(zip(src.shape, shape, strict=True)):
        is_equal = ops.compare(tir.EQ, ops.cast_to(n, "int64"), expected)
        conditions.append((is_equal, f"dimension {k} of src is that of the slice"))
    for condition, message in conditions:
        if not always(condition):
            yield condition, message


def slice_scatter(
    input_tensor: Tensor, src: Tensor, start: ExprLike, end: ExprLike, step: ExprLike, axis: int
) -> Tensor:
    """A copy of a tensor with `src` stored at `start:end:step` along an axis.

    The kernel checks the bounds and sizes that are not known to fit.
    """
    axis = normal_axis(axis, input_tensor.ndim)
    first, last, by = (ops.cast_to(ops.convert(v), "int64") for v in (start, end, step))
    checks = list(_slice_checks(input_tensor, src, (first, last, by), axis))

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def update(index: list[PrimExpr]) -> Stmt:
            target = [ops.cast_to(i, "int64") for i in index]
            target[axis] = first + target[axis] * by
            return BufferStore(out, load(ins[0], tuple(index)), tuple(target))

        body: Stmt = loops(src.shape, update)
        for condition, message in reversed(checks):
            body = AssertStmt(condition, tir.StringImm(message), body)
        return body

    dtype = str(input_tensor.dtype)
    return stored_in_copy(input_tensor, input_tensor.shape, dtype, [src], "slice_scatter", store)


def take_grad(output_grad: Tensor, x: Tensor, indices: Tensor, axis: int | None) -> Tensor:
    """The gradient of x in `take(x, indices, axis)`: elements sum the gradients of their uses."""
    position = normal_axis(axis or 0, x.ndim)
    wide = accumulator(x.dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def update(index: list[PrimExpr]) -> Stmt:
            taken_index = index[position : position + indices.ndim]
            taken = ops.cast_to(load(ins[1], tuple(taken_index)), "int64")
            before, after = index[:position], index[position + indices.ndim :]
            target = (
                *(ops.cast_to(i, "int64") for i in before),
                taken,
                *(ops.cast_to(i, "int64") for i in after),
            )
            value = load(out, target) + ops.cast_to(load(ins[0], tuple(index)), wide)
            return BufferStore(out, value, target)

        return loops(output_grad.shape, update)

    out = stored_in_copy(None, x.shape, str(wide), [output_grad, indices], "take_backward", store)
    return as_dtype(out, x.dtype)


def _index(value: ExprLike) -> PrimExpr:
    return ops.cast_to(value, "int64")


def reverse_sequence(
    a: Tensor, seq_lengths: Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> Tensor:
    """Reverse the first elements of each sequence; its length says how many.

    A length that exceeds the size counts as the size; one below 1 reverses nothing.

    Errors:
        MisuseError: the lengths are not a vector, or an axis is out of range or used twice.
    """
    along, batch = normal_axis(seq_axis, a.ndim), normal_axis(batch_axis, a.ndim)
    if seq_lengths.ndim != 1 or along == batch:
        raise MisuseError(
            f"reverse_sequence takes a vector of lengths and two axes, found rank "
            f"{seq_lengths.ndim} and axes {seq_axis} and {batch_axis}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        i, one = _index(index[along]), ops.const(1, "int64")
        length = ops.minimum(_index(seq_lengths(index[batch])), _index(a.shape[along]))
        is_reversed = i < length
        source = intrin.if_then_else(is_reversed, length - one - i, i)
        return a(*index[:along], source, *index[along + 1 :])

    return injective(a.shape, element, "T_reverse_sequence")


def dynamic_strided_slice(
    a: Tensor, begin: Tensor, end: Tensor, strides: Tensor, output_shape: Sequence[ExprLike]
) -> Tensor:
    """Every stride-th element along each axis from `begin` on, of shape `output_shape`.

    A first index past the end of an axis is clamped to its last element; `end` is not used.

    Errors:
        MisuseError: there is not one bound and size for each axis.
    """
    sizes = as_sizes(output_shape)
    if len(sizes) != a.ndim or any(bound.ndim != 1 for bound in (begin, end, strides)):
        raise MisuseError(
            f"dynamic_strided_slice takes vectors of bounds and {a.ndim} sizes, found ranks "
            f"{begin.ndim}, {end.ndim} and {strides.ndim} and shape {shape_text(sizes)}"
        )

    def element(*index: PrimExpr) -> PrimExpr:
        source = []
        for axis, (i, size) in enumerate(zip(index, a.shape, strict=True)):
            k = ops.const(axis, "int64")
            first = ops.minimum(_index(begin(k)), size - _index(1))
            source.append(first + i * _index(strides(k)))
        return a(*source)

    return injective(sizes, element, "T_dynamic_strided_slice")


def unravel_index(indices: Tensor, shape: Tensor) -> Tensor:
    """The index of the element at each row-major position in a shape, along the first axis.

    Errors:
        MisuseError: the indices have rank 2 or more, or the shape is not a vector of known length.
    """
    if indices.ndim > 1 or shape.ndim != 1 or not isinstance(shape.shape[0], tir.IntImm):
        raise MisuseError(
            f"unravel_index takes a scalar or vector and a vector of known length, found shapes "
            f"{shape_text(indices.shape)} and {shape_text(shape.shape)}"
        )
    rank = shape.shape[0].value

    def element(*index: PrimExpr) -> PrimExpr:
        position: PrimExpr = indices(*index[1:])
        digits: list[PrimExpr] = []
        for axis in range(rank - 1, -1, -1):
            size = ops.cast_to(shape(ops.const(axis, "int64")), position.dtype)
            digits.append(position % size)
            position = position // size
        value = digits[-1]
        for axis, digit in enumerate(reversed(digits[:-1]), start=1):
            is_axis = ops.compare(tir.EQ, index[0], ops.const(axis, "int64"))
            value = intrin.if_then_else(is_axis, digit, value)
        return value

    return injective((shape.shape[0], *indices.shape), element, "T_unravel")


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The shape of a tensor as a vector."""

    def element(i: PrimExpr) -> PrimExpr:
        value: PrimExpr = ops.const(0, dtype)
        for axis, size in enumerate(array.shape):
            is_axis = ops.compare(tir.EQ, i, ops.const(axis, "int64"))
            value = intrin.if_then_else(is_axis, ops.cast_to(size, dtype), value)
        return value

    return injective((ops.const(array.ndim, "int64"),), element, "T_shape")


def tensor_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements of a tensor, as a tensor of rank 0."""
    count = ops.cast_to(product(array.shape), DataType(dtype))
    return injective((), lambda: count, "ndarray_size")
