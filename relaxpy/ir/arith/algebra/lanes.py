"""Ramps and broadcasts: vectors with known lanes."""

from __future__ import annotations

from typing import TypeGuard

from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass

_DIVISIONS = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod)


@dataclass(frozen=True, slots=True)
class Lanes:
    """The vector base, base + stride, …; `stride` is None for a broadcast."""

    base: PrimExpr
    stride: PrimExpr | None
    count: int | PrimExpr

    @staticmethod
    def of(expr: PrimExpr) -> Lanes | None:
        """The lanes of a Ramp or a Broadcast; None for any other vector."""
        match expr:
            case tir.Ramp(base=base, stride=stride, lanes=count):
                return Lanes(base, stride, count)
            case tir.Broadcast(value=value, lanes=count):
                return Lanes(value, None, count)
            case _:
                return None

    @property
    def last(self) -> PrimExpr | None:
        """The last lane, where that is a known multiple of the stride after the first."""
        if self.step is None or not isinstance(self.count, int):
            return None
        dtype, length = self.base.dtype, self.step * (self.count - 1)
        low, high = ops.int_range(dtype)
        return tir.Add(self.base, tir.IntImm(dtype, length)) if low <= length <= high else None

    @property
    def step(self) -> int | None:
        """The stride, if it is a literal."""
        if self.stride is None:
            return 0
        return self.stride.value if isinstance(self.stride, tir.IntImm) else None


def divides_by_zero(expr: PrimExpr) -> TypeGuard[tir.BinaryOpExpr]:
    """True if `expr` divides every lane of a vector by a literal 0, which has no value (PX-3)."""
    if not isinstance(expr, _DIVISIONS):
        return False
    lanes = Lanes.of(expr.b)
    if lanes is None or lanes.stride is not None:
        return False
    return isinstance(lanes.base, tir.IntImm) and lanes.base.value == 0
