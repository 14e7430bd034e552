"""Elements at indices that tensors hold: gathered from a tensor, or stored in a copy of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import accumulator, as_dtype, computed
from relaxpy.ir.te.topi.shapes import broadcast_index, broadcast_shapes, normal_axis
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, Stmt, stmt_seq

__all__ = [
    "adv_index",
    "gather",
    "gather_nd",
    "index_put",
    "index_tensor",
    "scatter_elements",
    "scatter_nd",
    "slice_scatter",
    "take_grad",
]

INJECTIVE = "injective"
Index: TypeAlias = Sequence[PrimExpr]
Combine: TypeAlias = Callable[[PrimExpr, PrimExpr], PrimExpr]

#: What is stored from the element there and the update.
REDUCTIONS: dict[str, Combine] = {
    "update": lambda old, new: new,
    "add": ops.add,
    "mul": ops.mul,
    "min": ops.minimum,
    "max": ops.maximum,
}


def _from_start(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """An index, of which negative ones count from the end, as int64."""
    place = ops.cast_to(index, "int64")
    if str(index.dtype).startswith("uint"):
        return place
    below = ops.compare(tir.LT, place, ops.const(0, "int64"))
    return intrin.if_then_else(below, ops.add(place, ops.cast_to(size, "int64")), place)


def gather(data: Tensor, axis: int, indices: Tensor) -> Tensor:
    """The elements of data at `indices` along an axis, each in its own line along that axis."""
    place = normal_axis(axis, data.ndim)

    def element(*index: PrimExpr) -> PrimExpr:
        chosen = ops.cast_to(indices(*index), "int64")
        return data(*index[:place], chosen, *index[place + 1 :])

    return computed(indices.shape, element, "T_gather", INJECTIVE)


def gather_nd(a: Tensor, indices: Tensor, batch_dims: int = 0) -> Tensor:
    """The slices of a at the positions along the first axis of indices.

    The first `batch_dims` axes of both, after that axis, belong together.
    """
    count = _positions(indices, 0)
    outer = indices.ndim - 1
    shape = (*indices.shape[1:], *a.shape[batch_dims + count :])

    def element(*index: PrimExpr) -> PrimExpr:
        before, after = index[:outer], index[outer:]
        places = (
            ops.cast_to(indices(ops.const(k, "int64"), *before), "int64") for k in range(count)
        )
        return a(*index[:batch_dims], *places, *after)

    return computed(shape, element, "T_gather_nd", INJECTIVE)


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
    for position in indices:
        shape = tuple(broadcast_shapes(shape, position.shape))
    rest = data.shape[len(indices) :]

    def element(*index: PrimExpr) -> PrimExpr:
        outer, inner = index[: len(shape)], index[len(shape) :]
        places = (
            _from_start(position(*broadcast_index(position.shape, outer, shape)), size)
            for position, size in zip(indices, data.shape, strict=False)
        )
        return data(*places, *inner)

    return computed((*shape, *rest), element, "advanced_index", INJECTIVE)


def adv_index(data: Tensor, indices: Sequence[Tensor]) -> Tensor:
    """As `index_tensor`."""
    return index_tensor(data, indices)


def load(buffer: Buffer, index: Sequence[PrimExpr]) -> PrimExpr:
    """The element of a buffer at an index."""
    return BufferLoad(buffer, tuple(index))


def loops(shape: Sequence[PrimExpr], body: Callable[[list[PrimExpr]], Stmt]) -> Stmt:
    """Nested loops over all indices of a shape."""
    index = [tir.Var(f"i{k}", size.dtype) for k, size in enumerate(shape)]
    nest = body(list(index))
    for var, size in zip(reversed(index), reversed(shape), strict=True):
        nest = For(var, ops.const(0, size.dtype), size, ForKind.SERIAL, nest)
    return nest


def stored(
    shape: Sequence[PrimExpr],
    dtype: str,
    inputs: Sequence[Tensor],
    name: str,
    store: Callable[[list[Buffer], Buffer], Stmt],
) -> Tensor:
    """The tensor that a statement stores, built from the buffers of the inputs and its own."""
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
    """A copy of data, or zeros, in which a statement over buffers stores elements."""
    copied = [] if data is None else [data]

    def statement(ins: list[Buffer], out: Buffer) -> Stmt:
        def first(index: list[PrimExpr]) -> Stmt:
            value = load(ins[0], index) if copied else ops.const(0, dtype)
            return BufferStore(out, value, tuple(index))

        return stmt_seq(loops(shape, first), store(ins[len(copied) :], out))

    return stored(shape, dtype, [*copied, *inputs], name, statement)


def _scattered(
    data: Tensor,
    updates: Tensor,
    indices: Sequence[Tensor],
    reduction: str,
    name: str,
    place_of: Callable[[list[Buffer], list[PrimExpr]], list[PrimExpr]],
) -> Tensor:
    """A copy of data whose elements at the places of updates are combined with them."""
    if reduction == "mean":
        return _mean_scattered(data, updates, indices, name, place_of)
    if reduction not in REDUCTIONS:
        known = ", ".join([*REDUCTIONS, "mean"])
        raise MisuseError(f"{name}: the reduction is one of {known}, found {reduction!r}")
    combine = REDUCTIONS[reduction]
    wide = accumulator(data.dtype) if reduction in ("add", "mul") else data.dtype

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def one(index: list[PrimExpr]) -> Stmt:
            place = tuple(place_of(ins[1:], index))
            value = combine(load(out, place), ops.cast_to(load(ins[0], tuple(index)), wide))
            return BufferStore(out, value, place)

        return loops(updates.shape, one)

    whole = as_dtype(data, wide)
    out = stored_in_copy(whole, data.shape, str(wide), [updates, *indices], name, store)
    return as_dtype(out, data.dtype)


def _mean_scattered(
    data: Tensor,
    updates: Tensor,
    indices: Sequence[Tensor],
    name: str,
    place_of: Callable[[list[Buffer], list[PrimExpr]], list[PrimExpr]],
) -> Tensor:
    """The mean of each element and all updates of it."""
    wide = accumulator(data.dtype)
    total = _scattered(
        as_dtype(data, wide), as_dtype(updates, wide), indices, "add", name, place_of
    )
    one = ops.const(1, wide)
    ones = te.compute(data.shape, lambda *i: one, name="ones")
    more = te.compute(updates.shape, lambda *i: one, name="ones")
    count = _scattered(ones, more, indices, "add", name, place_of)

    def element(*index: PrimExpr) -> PrimExpr:
        quotient = ops.floordiv if wide.is_int else ops.div
        return ops.cast_to(quotient(total(*index), count(*index)), data.dtype)

    return computed(data.shape, element, "mean")


def scatter_elements(
    data: Tensor, indices: Tensor, updates: Tensor, axis: int = 0, reduction: str = "update"
) -> Tensor:
    """A copy of data with updates stored at `indices` along an axis, each in its own line.

    Negative indices count from the end. Of several updates of an element, "update" keeps the last
    one; "add", "mul", "min" and "max" combine them with the element, "mean" takes the mean of all.

    Errors:
        MisuseError: there is no such reduction.
    """
    place = normal_axis(axis, data.ndim)

    def place_of(ins: list[Buffer], index: list[PrimExpr]) -> list[PrimExpr]:
        chosen = _from_start(load(ins[0], tuple(index)), data.shape[place])
        return [
            *(ops.cast_to(i, "int64") for i in index[:place]),
            chosen,
            *(ops.cast_to(i, "int64") for i in index[place + 1 :]),
        ]

    return _scattered(data, updates, [indices], reduction, "scatter_elements", place_of)


def scatter_nd(data: Tensor, indices: Tensor, updates: Tensor, mode: str = "update") -> Tensor:
    """A copy of data with slices of updates at the positions along the first axis of indices.

    Negative positions count from the end; `mode` is a reduction of `scatter_elements`.

    Errors:
        MisuseError: there is no such reduction.
    """
    count, outer = _positions(indices, 0), indices.ndim - 1

    def place_of(ins: list[Buffer], index: list[PrimExpr]) -> list[PrimExpr]:
        return [
            *(
                _from_start(load(ins[0], (ops.const(k, "int64"), *index[:outer])), data.shape[k])
                for k in range(count)
            ),
            *(ops.cast_to(i, "int64") for i in index[outer:]),
        ]

    return _scattered(data, updates, [indices], mode, "scatter_nd", place_of)


def index_put(
    data: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of data with values stored, or added, at indices, one for each axis.

    The indices broadcast, and the values broadcast to their shape and the remaining axes. Negative
    indices count from the end.
    """
    shape: tuple[PrimExpr, ...] = ()
    for position in indices:
        shape = tuple(broadcast_shapes(shape, position.shape))
    whole = (*shape, *data.shape[len(indices) :])
    spread = te.compute(
        whole, lambda *i: values(*broadcast_index(values.shape, i, whole)), name="values"
    )

    def place_of(ins: list[Buffer], index: list[PrimExpr]) -> list[PrimExpr]:
        outer = index[: len(shape)]
        return [
            *(
                _from_start(
                    load(ins[k], tuple(broadcast_index(position.shape, outer, shape))), size
                )
                for k, (position, size) in enumerate(zip(indices, data.shape, strict=False))
            ),
            *(ops.cast_to(i, "int64") for i in index[len(shape) :]),
        ]

    mode = "add" if accumulate else "update"
    return _scattered(data, spread, list(indices), mode, "index_put", place_of)


def slice_scatter(
    input_tensor: Tensor, src: Tensor, start: ExprLike, end: ExprLike, step: ExprLike, axis: int
) -> Tensor:
    """A copy of a tensor with `src` stored at `start:end:step` along an axis."""
    place = normal_axis(axis, input_tensor.ndim)
    first, by = (ops.cast_to(ops.convert(v), "int64") for v in (start, step))

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def one(index: list[PrimExpr]) -> Stmt:
            target = [ops.cast_to(i, "int64") for i in index]
            target[place] = ops.add(first, ops.mul(target[place], by))
            return BufferStore(out, load(ins[0], tuple(index)), tuple(target))

        return loops(src.shape, one)

    dtype = str(input_tensor.dtype)
    return stored_in_copy(input_tensor, input_tensor.shape, dtype, [src], "slice_scatter", store)


def take_grad(output_grad: Tensor, x: Tensor, indices: Tensor, axis: int | None) -> Tensor:
    """The gradient of x in `take(x, indices, axis)`: the sum of what was taken of each element."""
    place = normal_axis(axis or 0, x.ndim)
    wide = accumulator(x.dtype)

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        def one(index: list[PrimExpr]) -> Stmt:
            inner = index[place : place + indices.ndim]
            chosen = ops.cast_to(load(ins[1], tuple(inner)), "int64")
            before, after = index[:place], index[place + indices.ndim :]
            target = (
                *(ops.cast_to(i, "int64") for i in before),
                chosen,
                *(ops.cast_to(i, "int64") for i in after),
            )
            value = ops.add(load(out, target), ops.cast_to(load(ins[0], tuple(index)), wide))
            return BufferStore(out, value, target)

        return loops(output_grad.shape, one)

    out = stored_in_copy(None, x.shape, str(wide), [output_grad, indices], "take_backward", store)
    return as_dtype(out, x.dtype)
