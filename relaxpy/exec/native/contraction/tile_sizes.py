"""The sizes of tiles of accumulators in registers."""

from __future__ import annotations

from relaxpy.dataclass import dataclass
from relaxpy.exec.native.contraction.operands import Size
from relaxpy.exec.native.llvm.function import Type


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The size of a tile of accumulators in registers: rows, and vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int


def tile_of(accumulator: Type, rows: Size, vector_bits: int, registers: int) -> RegisterTile:
    """The tile that a processor has registers for; few rows leave room for more columns."""
    height, vectors = (8, 3) if registers >= 32 else (4, 3)
    while isinstance(rows, int) and rows <= height // 2:
        height, vectors = height // 2, min(8, 2 * vectors)
    return RegisterTile(height, vectors, vector_bits // accumulator.bits)
