"""The sizes of register tiles, and the rows of an image as one axis, so that tiles are full.

An image that is convolved has a border, so its rows are not adjacent where those of the result are.
A vector that continues in the next row is loaded twice, with a mask the second time; a tile has the
address of each of its rows.
"""

from __future__ import annotations

import math

from relaxpy.exec.machine.tuning import Tiles
from relaxpy.exec.native.contraction.operands import Fold, Size, combine
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import Function, Type
from relaxpy.exec.native.trees.product import TARGET, A, B, Dimension, Product, with_column
from relaxpy.support.dataclass import dataclass, replace


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
    if registers == 14 and isinstance(rows, int) and rows == 3:
        registers = 15  # these have the same blocks of columns for all numbers of rows
    height, vectors = Tiles.SIZES[registers]
    while isinstance(rows, int) and rows <= height // 2:
        height, vectors = height // 2, min(8, 2 * vectors)
    if height == 8 and isinstance(rows, int) and rows % height:
        # Tiles of one height have half the code. They are as fast, unless these are few of many.
        heights = (7, 6, 5) if rows <= Tiles.FEW_ROWS else (7,)
        height = next((n for n in heights if rows % n == 0), height)
    tile = RegisterTile(height, vectors, lanes)
    if height != 4:
        return tile
    # Six rows read fewer bytes of the second operand for each sum.
    wide = RegisterTile(6, 2, lanes)
    return wide if _steps(wide, rows, columns) <= _steps(tile, rows, columns) else tile


def _steps(tile: RegisterTile, rows: Size, columns: Size) -> int:
    """The time of a matmul in tiles, in vector additions, for each step of the sum."""
    rows, columns = (n if isinstance(n, int) else Tiles.DYNAMIC_EXTENT for n in (rows, columns))
    high, low = divmod(rows, tile.rows)
    wide, narrow = divmod(-(-columns // tile.lanes), tile.vectors)
    heights, widths = {tile.rows: high, low: 1}, {tile.vectors: wide, narrow: 1}
    return sum(
        max(h * w, Tiles.LATENCY) * n * m
        for h, n in heights.items()
        for w, m in widths.items()
        if h * w
    )


def folded(product: Product, module: Module) -> tuple[Product, Fold | None]:
    """The product, with two axes folded into its columns if only that fills its vectors.

    256-bit vectors are not folded: there a mask takes a register that tiles need.
    """
    bits = product.member.target.dtype.bits
    if not module.has_avx512 or bits < 32:
        return product, None
    found = _folded(product, module.vector_bits // bits)
    if found is None and product.column.strides[TARGET].constant != 1:
        rows = [d for d in (product.row, *product.outer) if d is not None]
        column = next((d for d in rows if d.has(A) and not d.has(B) and _is_adjacent(d, A)), None)
        if column is not None:
            found = _folded(with_column(product, column), module.vector_bits // bits)
    return found or (product, None)


def _folded(product: Product, lanes: int) -> tuple[Product, Fold] | None:
    """The product with folded columns, or None if they cannot be."""
    column, row = product.column, product.row
    width = column.extent.constant
    if row is None or row.extent.constant is None or row.extent.constant <= Tiles.REUSED_ROWS:
        return None
    if width is None or width % lanes == 0 or not _is_adjacent(column, B):
        return None
    if width - math.gcd(width, lanes) + lanes > 2 * width:
        return None  # a vector would have elements of three rows
    for axis in product.outer:
        start = axis.strides[B].constant
        if start is None or start < width or axis.extent.constant is None:
            continue
        pairs = enumerate(zip(axis.strides, column.strides, strict=True))
        if all(a.same(b * width) for n, (a, b) in pairs if n != B):
            whole = Dimension(axis.extent * width, column.strides)
            outer = tuple(d for d in product.outer if d is not axis)
            return replace(product, outer=outer, column=whole), Fold(width, start - width)
    return None


def with_folded_rows(product: Product) -> tuple[Product, Fold | None]:
    """The product, with two axes of the first operand folded into its rows, if it has two.

    The innermost two that can be folded are those of an image, whose windows overlap.
    """
    rows = [d for d in product.outer if d.has(A) and not d.has(B)]
    rows += [] if product.row is None else [product.row]
    rows.sort(key=lambda d: d.strides[A].constant or math.inf)
    for inner in rows:
        for outer in rows:
            sizes = outer.extent, inner.extent, outer.strides[A], inner.strides[A]
            count, width, start, step = (size.constant for size in sizes)
            if outer is inner or count is None or width is None or start is None or step is None:
                continue
            pairs = enumerate(zip(outer.strides, inner.strides, strict=True))
            if all(a.same(b * width) for n, (a, b) in pairs if n != A):
                whole = Dimension(outer.extent * width, inner.strides)
                every = (*product.outer, *(() if product.row is None else (product.row,)))
                others = tuple(d for d in every if d is not outer and d is not inner)
                return replace(product, outer=others, row=whole), Fold(width, start - width * step)
    return product, None


def _is_adjacent(dimension: Dimension, operand: int) -> bool:
    return dimension.strides[TARGET].constant == dimension.strides[operand].constant == 1


def folded_rows(f: Function, fold: Fold, first: Size, rows: int, stride: Size) -> list[Size]:
    """The positions of folded rows; `first` is the number of the first one."""
    places: list[Size] = []
    for number in range(rows):
        there = combine(f, "add", first, number)
        jumps = combine(f, "mul", combine(f, "sdiv", there, fold.width), fold.jump)
        places.append(combine(f, "add", combine(f, "mul", there, stride), jumps))
    return places
