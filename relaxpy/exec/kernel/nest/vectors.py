"""The lanes of vector expressions as scalar expressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad
from relaxpy.ir.tir.expr import Broadcast, Call, Cast, IntImm, PrimExpr, Ramp, Select, Shuffle, Var


def lane_of(value: PrimExpr, lane: PrimExpr) -> PrimExpr:
    """Lane `lane` of a vector expression; every lane of a scalar is the scalar."""
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
            guard = None if predicate is None else lane_of(predicate, lane)
            return BufferLoad(buffer, tuple(lane_of(i, lane) for i in indices), guard)
        case Shuffle(vectors=vectors, indices=indices):
            return _shuffle_lane(vectors, indices, lane)
        case _:
            change: Callable[[Node], Node] = lambda child: lane_of(cast("PrimExpr", child), lane)  # noqa: E731
            return map_children(change, value)


def _shuffle_lane(
    vectors: Sequence[PrimExpr], indices: Sequence[PrimExpr], lane: PrimExpr
) -> PrimExpr:
    """Lane `lane` of a shuffle: the lane at `indices[lane]` of the concatenated vectors."""
    return _select_lane([_concatenated_lane(vectors, index) for index in indices], lane)


def _concatenated_lane(vectors: Sequence[PrimExpr], index: PrimExpr) -> PrimExpr:
    lanes = [
        lane_of(vector, ops.const(number, "int32"))
        for vector in vectors
        for number in range(vector.dtype.lanes)
    ]
    return _select_lane(lanes, index)


def _select_lane(values: Sequence[PrimExpr], index: PrimExpr) -> PrimExpr:
    """The value at `index`, by comparisons with all positions but the last."""
    if isinstance(index, IntImm):
        return values[index.value]
    *others, result = values
    for number, value in reversed(list(enumerate(others))):
        here = ops.convert(index.equal(ops.const(number, index.dtype)))
        result = Select(here, value, result)
    return result


def vector_of(lanes: Sequence[Var]) -> PrimExpr:
    """The vector of these scalars."""
    return Shuffle(lanes, [ops.const(number, "int32") for number in range(len(lanes))])
