"""Detection of the combiner and the source of reductions from their blocks."""

from __future__ import annotations

from collections.abc import Callable

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.core.traverse import occurrences
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.stmt import Block, BufferStore
from relaxpy.support.dataclass import dataclass

_COMBINERS: dict[type[PrimExpr], Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    tir.Add: ops.add,
    tir.Mul: ops.mul,
    tir.Min: ops.minimum,
    tir.Max: ops.maximum,
    tir.And: ops.all_of,
    tir.Or: ops.any_of,
}


#: Idempotent combiners.
IDEMPOTENT = frozenset((tir.Min, tir.Max, tir.And, tir.Or))


@dataclass(frozen=True, slots=True)
class Reduction:
    """`store.buffer[store.indices] = combine(its value, source)`."""

    kind: type[PrimExpr]
    store: BufferStore
    source: PrimExpr

    @property
    def buffer(self) -> Buffer:
        """The buffer of the result."""
        return self.store.buffer

    def combine(self, old: PrimExpr, new: PrimExpr) -> PrimExpr:
        """Return the combination of two values."""
        return _COMBINERS[self.kind](old, new)


def reduction_of(block: Block) -> Reduction | None:
    """Return the reduction whose updates are the body of `block`, or None if it is not known."""
    store = block.body
    if not isinstance(store, BufferStore) or store.predicate is not None:
        return None
    value, kind = store.value, type(store.value)
    if kind not in _COMBINERS or not isinstance(value, (tir.BinaryOpExpr, tir.Junction)):
        return None
    for old, new in ((value.a, value.b), (value.b, value.a)):
        if _is_old(old, store) and not any(
            load.buffer is store.buffer for load in occurrences(new, BufferLoad)
        ):
            return Reduction(kind, store, new)
    return None


def _is_old(value: PrimExpr, store: BufferStore) -> bool:
    return (
        isinstance(value, BufferLoad)
        and value.buffer is store.buffer
        and len(value.indices) == len(store.indices)
        and all(map(PrimExpr.same_as, value.indices, store.indices))
    )


def is_commutative(block: Block) -> bool:
    """Return whether the updates of `block` are those of a known commutative reduction."""
    return reduction_of(block) is not None


def identity_of(kind: type[PrimExpr], dtype: DataType) -> PrimExpr:
    """Return the identity element."""
    return ops.const(1 if kind is tir.Mul else 0, dtype)
