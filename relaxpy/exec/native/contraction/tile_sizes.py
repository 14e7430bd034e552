"""The sizes of register tiles."""

from __future__ import annotations

from relaxpy.exec.native.contraction.operands import Size
from relaxpy.exec.native.llvm.function import Type
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The size of a tile of accumulators in registers: rows, and vectors of `lanes` columns."""

    rows: int
    vectors: int
    lanes: int


def tile_of(
    accumulator: Type, rows: Size, columns: Size, vector_bits: int, registers: int
) -> RegisterTile:
    """The largest tile that fits into registers; few rows leave room for more columns."""
    lanes = vector_bits // accumulator.bits
    height, vectors = (8, 3) if registers >= 32 else (4, 3)
    while isinstance(rows, int) and rows <= height // 2:
        height, vectors = height // 2, min(8, 2 * vectors)
    if height == 8 and isinstance(rows, int) and rows % height:
        # Tiles of one height have half the code. They are as fast, unless these are few of many.
        heights = (7, 6, 5) if rows <= _FEW else (7,)
        height = next((n for n in heights if rows % n == 0), height)
    tile = RegisterTile(height, vectors, lanes)
    if height != 4:
        return tile
    # Six rows read fewer bytes of the second operand for each sum.
    wide = RegisterTile(6, 2, lanes)
    return wide if _steps(wide, rows, columns) <= _steps(tile, rows, columns) else tile


_FEW = 128
"""The number of rows up to which the last tile, which has fewer, takes a part of the time."""
_MANY = 480
"""The assumed value of a dynamic extent, most likely a multiple of powers of two."""
_LATENCY = 8
"""The number of independent sums that hides the latency of an addition."""


def _steps(tile: RegisterTile, rows: Size, columns: Size) -> int:
    """The time of a matmul in tiles, in vector additions, for each step of the sum."""
    rows, columns = (n if isinstance(n, int) else _MANY for n in (rows, columns))
    high, low = divmod(rows, tile.rows)
    wide, narrow = divmod(-(-columns // tile.lanes), tile.vectors)
    heights, widths = {tile.rows: high, low: 1}, {tile.vectors: wide, narrow: 1}
    return sum(
        max(h * w, _LATENCY) * n * m for h, n in heights.items() for w, m in widths.items() if h * w
    )
