"""Parts of the operators that choose boxes one after the other.

They are tensor expressions. What depends on the order is one kernel, `survivors`: a loop over the
boxes of a row, each of which removes later ones, all in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.indexing import load, loops
from relaxpy.ir.te.topi.shapes import is_const
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, Stmt, stmt_seq

Element: TypeAlias = Callable[[PrimExpr, int], PrimExpr]
"""A field of a box: of its position in its row and the number of the field."""
Overlap: TypeAlias = Callable[[Element, PrimExpr, PrimExpr, PrimExpr], PrimExpr]
"""Whether a box removes a later one: of the fields, the two positions and the threshold."""
Sides: TypeAlias = list[tuple[PrimExpr, PrimExpr]]
"""The least and the greatest coordinate of a box on each axis."""


def survivors(
    candidates: Tensor, boxes: Tensor, limit: Tensor, threshold: Tensor, overlap: Overlap
) -> list[Tensor]:
    """Return which candidates are chosen (1, otherwise 0), and how many: each removes later ones.

    Of each row, at most `limit` are chosen, or any number if that is negative.

    Shapes:
        candidates  (rows, count), int32: 1 for boxes that may be chosen, otherwise 0
        boxes       (rows, count, fields)
        limit       one int32
        threshold   one number, which `overlap` receives
        result      (rows, count) and (rows,), int32
    """
    rows, count = candidates.shape
    zero, one = ops.const(0, "int32"), ops.const(1, "int32")

    def store(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        states, fields = ins[:2]
        chosen, totals, left = outs
        most, least = (load(b, [ops.const(0, "int64")] * len(b.shape)) for b in ins[2:])

        def of_row(row: PrimExpr) -> Stmt:
            def field(position: PrimExpr, number: int) -> PrimExpr:
                return load(fields, (row, position, ops.const(number, "int64")))

            def of_box(j: PrimExpr) -> Stmt:
                is_left = ops.compare(tir.EQ, load(left, (row, j)), one)
                is_room = ops.compare(tir.NE, load(totals, (row,)), most)
                taken = intrin.if_then_else(ops.all_of(is_left, is_room), one, zero)

                def kept(k: PrimExpr) -> Stmt:
                    is_taken = ops.compare(tir.EQ, load(chosen, (row, j)), one)
                    is_later = ops.compare(tir.GT, k, j)
                    hit = ops.all_of(is_taken, is_later, overlap(field, j, k, least))
                    value = intrin.if_then_else(hit, zero, load(left, (row, k)))
                    return BufferStore(left, value, (row, k))

                total = ops.add(load(totals, (row,)), load(chosen, (row, j)))
                return stmt_seq(
                    BufferStore(chosen, taken, (row, j)),
                    BufferStore(totals, total, (row,)),
                    loops([count], lambda index: kept(*index)),
                )

            boxes_in_order = loops([count], lambda index: of_box(*index))
            return stmt_seq(BufferStore(totals, zero, (row,)), boxes_in_order)

        copied = loops(
            [rows, count], lambda index: BufferStore(left, load(states, index), tuple(index))
        )
        return stmt_seq(copied, loops([rows], lambda index: of_row(*index)))

    shapes = [(rows, count), (rows,), (rows, count)]
    inputs = [candidates, boxes, limit, threshold]
    outputs: Sequence[Tensor] = te.extern(shapes, inputs, store, "survivors", ["int32"] * 3)
    return list(outputs[:2])


def require_rank(tensor: Tensor, name: str, rank: int) -> None:
    """Check the number of dimensions; raise RelationError."""
    if tensor.ndim != rank:
        raise RelationError(f"{name} has {rank} dimensions, found {tensor.ndim}")


def require_size(tensor: Tensor, name: str, axis: int, expected: PrimExpr | int) -> None:
    """Check a size of a tensor, unless it is not known."""
    size = tensor.shape[axis]
    wanted = expected.value if isinstance(expected, tir.IntImm) else expected
    if isinstance(size, tir.IntImm) and isinstance(wanted, int) and size.value != wanted:
        raise RelationError(f"dimension {axis} of {name} is {wanted}, found {size.value}")


def as_vector(tensor: Tensor, name: str) -> Tensor:
    """Return a scalar tensor as a vector of one element."""
    if tensor.ndim and not (tensor.ndim == 1 and is_const(tensor.shape[0], 1)):
        raise RelationError(f"{name} is one number, found a tensor of {tensor.ndim} dimensions")
    zeros = [ops.const(0, "int64")] * tensor.ndim
    return te.compute((1,), lambda i: tensor(*zeros), name)  # type: ignore[no-any-return]


def at(tensor: Tensor, *index: PrimExpr | int) -> PrimExpr:
    """Return an element; numbers are converted."""
    return tensor(*(ops.const(i, "int64") if isinstance(i, int) else i for i in index))


def constant_of(value: float, like: Tensor) -> PrimExpr:
    """Return a number of the datatype of a tensor."""
    return ops.const(value, str(like.dtype))


def flag(condition: PrimExpr) -> PrimExpr:
    """Return 1 where a condition holds, otherwise 0, as int32."""
    return intrin.if_then_else(condition, ops.const(1, "int32"), ops.const(0, "int32"))


def computed(shape: Sequence[PrimExpr], element: Callable[..., PrimExpr], name: str) -> Tensor:
    """Return the tensor of elements that a function of the index returns."""
    return te.compute(tuple(shape), element, name)  # type: ignore[no-any-return]


def below(index: PrimExpr, count: PrimExpr) -> PrimExpr:
    """Return whether an index is below a count, both as int32."""
    return ops.compare(tir.LT, ops.cast_to(index, "int32"), ops.cast_to(count, "int32"))


def is_set(value: PrimExpr) -> PrimExpr:
    """Return whether a flag is set."""
    return ops.compare(tir.EQ, value, ops.const(1, "int32"))


def emit_tensors(
    builder: BlockBuilder, name: str, function: Callable[..., Any], *args: rx.Expr
) -> rx.Var:
    """Emit the tensors that a function computes of tensors."""
    return builder.emit(builder.call_te(function, *args, primfunc_name_hint=name))


def best_first(builder: BlockBuilder, scores: rx.Expr) -> rx.Var:
    """Emit the positions of the elements of each row, the greatest first, equal ones in order.

    Sorting is an operator of its own, so that the kernels between are machine code.
    """
    return builder.emit(R.argsort(scores, 1, True, "int32"))


def number_tensor(value: float, dtype: str) -> Tensor:
    """Return a vector of one number."""
    return te.compute((1,), lambda i: ops.const(value, dtype), "number")  # type: ignore[no-any-return]


# Intersections over unions


def corners(field: Element, position: PrimExpr, first: int = 0) -> Sides:
    """Return the coordinates of two corners of a box, which begin at a field."""
    return [(field(position, first + axis), field(position, first + 2 + axis)) for axis in (0, 1)]


def ordered(sides: Sides) -> Sides:
    """Return the sides of a box whose corners are in any order."""
    return [(ops.minimum(a, b), ops.maximum(a, b)) for a, b in sides]


def areas(one: Sides, other: Sides, border: int = 0) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Return the areas of an intersection and of both boxes, whose sides are `border` longer."""
    kind = str(one[0][0].dtype)

    def extent(low: PrimExpr, high: PrimExpr) -> PrimExpr:
        return ops.add(ops.sub(high, low), ops.const(border, kind))

    def area(box: Sides) -> PrimExpr:
        return ops.mul(extent(*box[0]), extent(*box[1]))

    shared = [
        ops.maximum(ops.const(0, kind), extent(ops.maximum(low, low2), ops.minimum(high, high2)))
        for (low, high), (low2, high2) in zip(one, other, strict=True)
    ]
    return ops.mul(*shared), area(one), area(other)


def ratio(shared: PrimExpr, one: PrimExpr, other: PrimExpr, is_empty: PrimExpr) -> PrimExpr:
    """Return an intersection over the union; 0 where that is empty."""
    zero = ops.const(0, str(shared.dtype))
    union = ops.sub(ops.add(one, other), shared)
    return intrin.if_then_else(is_empty, zero, ops.div(shared, union))
