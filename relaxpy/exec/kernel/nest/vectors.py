"""Vector expressions lane by lane: what each member of a vector is as a scalar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import (
    Broadcast,
    Call,
    Cast,
    IntImm,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Var,
)


def lane_of(value: PrimExpr, lane: PrimExpr) -> PrimExpr:
    """Member `lane` of a vector expression; a scalar is each of its lanes."""
    if value.dtype.lanes == 1 and not isinstance(value, Shuffle):
        return value
    match value:
        case Ramp(base=base, stride=stride):
            return ops.add(base, ops.mul(ops.cast_to(lane, stride.dtype), stride))
        case Broadcast(value=scalar):
            return scalar
        case Cast(dtype=dtype, value=inner):
            return Cast(dtype.element, lane_of(inner, lane))
        case Call(dtype=dtype, op=op, args=args):
            return Call(dtype.element, op, [lane_of(a, lane) for a in args])
        case BufferLoad(buffer=buffer, indices=indices, predicate=predicate):
            held = None if predicate is None else lane_of(predicate, lane)
            return BufferLoad(buffer, tuple(lane_of(i, lane) for i in indices), held)
        case Shuffle(vectors=vectors, indices=indices):
            return _shuffled(vectors, indices, lane)
        case _:
            part: Callable[[Node], Node] = lambda inner: lane_of(cast("PrimExpr", inner), lane)  # noqa: E731
            return map_children(part, value)


def _shuffled(vectors: Sequence[PrimExpr], indices: Sequence[PrimExpr], lane: PrimExpr) -> PrimExpr:
    """Of the lanes at `indices` in all vectors, one after the other, number `lane`."""
    chosen = [_pooled(vectors, index) for index in indices]
    return _one_of(chosen, lane)


def _pooled(vectors: Sequence[PrimExpr], index: PrimExpr) -> PrimExpr:
    members = [
        lane_of(vector, ops.const(number, "int32"))
        for vector in vectors
        for number in range(vector.dtype.lanes)
    ]
    return _one_of(members, index)


def _one_of(values: Sequence[PrimExpr], place: PrimExpr) -> PrimExpr:
    """The value at `place`; which, is asked from the first to the last but one."""
    if isinstance(place, IntImm):
        return values[place.value]
    *others, found = values
    for number, value in reversed(list(enumerate(others))):
        here = ops.convert(place.equal(ops.const(number, place.dtype)))
        found = Select(here, value, found)
    return found


def vector_of(lanes: Sequence[Var]) -> PrimExpr:
    """The vector of these scalars."""
    return Shuffle(lanes, [ops.const(number, "int32") for number in range(len(lanes))])
