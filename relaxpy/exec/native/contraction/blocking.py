"""Cache blocking of contractions: block sizes, and when the second operand is packed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relaxpy.exec.machine.platforms import PAGE_BYTES
from relaxpy.exec.machine.tuning import Tiles
from relaxpy.exec.native.contraction.geometry import RegisterTile
from relaxpy.exec.native.contraction.operands import (
    Gemm,
    GemmAxis,
    Matrix,
    Size,
    combine,
    extents,
    load,
)
from relaxpy.exec.native.llvm.writer import Function, Type, Value
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """A block of columns: the first one, and the lanes and the mask of each of its vectors.

    `places` are the positions of the vectors in the second operand, counted from that of the block.
    If its columns are folded, the lanes of `beyond` are in the next row, `jump` elements later.
    """

    start: Size
    lanes: tuple[int, ...]
    masks: tuple[Value | None, ...]
    places: tuple[Size, ...]
    beyond: tuple[Value | None, ...]
    jump: int

    @property
    def offsets(self) -> list[int]:
        """The first column of each vector, counted from that of the block."""
        return _sums(self.lanes)

    def load(self, memory: Matrix, type: Type, number: int, exists: Value | None = None) -> Value:
        """The vector of that number from the second operand, where `memory` begins.

        It is 0 if a condition does not hold.
        """
        f, mask, beyond = memory.pointer.function, self.masks[number], self.beyond[number]
        if exists is not None:
            here = f.splat(exists, type.lanes)
            mask = here if mask is None else f.arithmetic("and", mask, here)
            beyond = None if beyond is None else f.arithmetic("and", beyond, here)
        values = load(f, memory, type, memory.pointer, mask)
        if beyond is None:
            return values
        return f.masked_load(type, f.element(memory.pointer, self.jump, type), beyond, values)


def columns_of(
    f: Function, contraction: Gemm, start: Size, lanes: tuple[int, ...], *, is_whole: bool = False
) -> Columns:
    """The block of columns from `start` on, without masks if it `is_whole`."""
    fold, extent, masks = contraction.fold, contraction.column.extent, list[Value | None]()
    for before, count in zip(_sums(lanes), lanes, strict=True):
        if is_whole:
            masks.append(None)
        elif isinstance(extent, Value):
            left = extent - f.index(start) - before
            masks.append(f.lanes_below(left, count))
        elif isinstance(start, Value) or extent - start - before >= count:
            masks.append(None)
        else:
            masks.append(f.lanes_below(f.index(extent - start - before), count))
    places: list[Size] = [*_sums(lanes)]
    beyond: list[Value | None] = [None] * len(lanes)
    if fold is not None:
        first = combine(f, "srem", start, fold.width)
        for n, (count, mask) in enumerate(zip(lanes, masks, strict=True)):
            column = combine(f, "add", first, places[n])
            rows = combine(f, "sdiv", column, fold.width)
            column = combine(f, "srem", column, fold.width)
            places[n] = combine(f, "add", places[n], combine(f, "mul", rows, fold.jump))
            if isinstance(column, Value) or column + count > fold.width:
                lane = f.iota(Type("i64", count)) + f.splat(f.index(column), count)
                later = f.compare("sge", lane, fold.width)
                beyond[n] = later if mask is None else f.arithmetic("and", later, mask)
    return Columns(
        start, lanes, tuple(masks), tuple(places), tuple(beyond), fold.jump if fold else 0
    )


def _sums(lanes: Sequence[int]) -> list[int]:
    """The lanes before each vector."""
    return [sum(lanes[:n]) for n in range(len(lanes))]


def divisor(extent: int, most: int) -> int:
    """A block size of about `most` or fewer iterations, if possible a divisor of `extent`."""
    for size in range(most * 5 // 4, max(0, (most - 1) // 2), -1):
        if extent % size == 0:
            return size
    return even(extent, most)


def even(extent: int, most: int) -> int:
    """The size of equal parts of an extent, at most `most`."""
    count = max(1, -(-extent // most))
    return max(1, -(-extent // count))


def cover(
    columns: int, lanes: int, most: int, *, scalars: bool
) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """The cost, full blocks and the last block of `columns` in blocks of `most` vectors.

    A last column is a scalar if `scalars`, else a vector with a mask.
    """
    width = lanes * most
    count, rest = divmod(columns, width)
    tail = [lanes] * (rest // lanes)
    if rest := rest % lanes:
        # Half a register costs less than a whole one.
        last = lanes
        while last > 4 and rest <= last // 2:
            last //= 2
        # Not a mask of one lane: LLVM 22 stores too many bytes of integers that are truncated.
        last = 1 if rest == 1 and scalars else last
        tail.append(last)
    # A tile of 8 rows loads 8 scalars, and as many vectors as it has.
    costs = [max(8 * v, 8 + v) for v in (most, sum(tail) / lanes)]
    cost = count * costs[0] + (costs[1] if tail else 0) + count / 8
    return cost, (lanes,) * most if count else (), tuple(tail)


def column_blocks(
    columns: Size, tile: RegisterTile, repeats: float, *, scalars: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The vectors of full blocks, and those of a smaller one at the end; () for none.

    Tasks compute all blocks `repeats` times. `scalars` are as those of `cover`.
    """
    lanes, most = tile.lanes, tile.vectors
    if isinstance(columns, Value):
        # Powers of two are the most likely extents.
        return (lanes,) * (2 if tile.rows >= 8 else most), ()
    candidates = [
        cover(columns, lanes, n, scalars=scalars) for n in range(most, max(0, most - 2), -1)
    ]
    _, full, tail = min(candidates, key=lambda c: c[0] * imbalance(columns, c[1], c[2], repeats))
    return full, tail


def imbalance(columns: int, full: Sequence[int], tail: Sequence[int], repeats: float) -> float:
    """The load imbalance: the time of the busiest thread divided by the average, at worst.

    Each of the threads takes the next block of `columns`; all blocks run `repeats` times.
    """
    count = columns // sum(full) if full else 0
    if not 0 < repeats * (count + bool(tail)) <= Tiles.MANY_TASKS:
        return 1.0
    widths = [sum(full)] * count + [sum(tail)] * bool(tail)
    worst = 1.0
    for threads in Tiles.THREADS:
        busy = [0] * threads
        for width in widths * int(repeats):
            busy[busy.index(min(busy))] += width
        worst = max(worst, max(busy) * threads / sum(busy))
    return worst


def is_near(axes: Sequence[GemmAxis], size: int) -> bool:
    """True if rows of the second operand along `axes` are near enough to read in place.

    An element has `size` bytes.
    """
    spread, pages, rows = size, 1, 1
    for axis in axes:
        if isinstance(axis.b, Value) or isinstance(axis.extent, Value):
            return False
        length = abs(axis.b) * max(0, axis.extent - 1) * size
        spread, rows = spread + length, rows * axis.extent
        pages *= min(axis.extent, length // PAGE_BYTES + 1)
    # The windows of an image are on few pages.
    in_windows = pages <= Tiles.PLACE_PAGES and rows >= Tiles.PAGE_ROWS * pages
    return spread <= Tiles.PLACE_BYTES or in_windows


def merged_strides(f: Function, axes: Sequence[GemmAxis]) -> list[GemmAxis]:
    """The axes, with adjacent ones of proportional strides in `b` joined."""
    result: list[GemmAxis] = []
    for axis in axes:
        last = result[-1] if result else None
        known = isinstance(axis.extent, int) and isinstance(axis.b, int)
        if last is not None and known and last.b == combine(f, "mul", axis.b, axis.extent):
            result[-1] = GemmAxis(combine(f, "mul", last.extent, axis.extent), 0, axis.b)
        else:
            result.append(axis)
    return result


def packed(axes: Sequence[GemmAxis]) -> list[int]:
    """The strides of axes in a copy, in which the last one is adjacent."""
    return [int(math.prod(extents(axes[n + 1 :]))) for n in range(len(axes))]


def each(
    f: Function,
    axes: Sequence[GemmAxis],
    source: Sequence[Size],
    target: Sequence[Size],
    body: Callable[[Size, Size], None],
    at: Size = 0,
    there: Size = 0,
) -> None:
    """Call `body` with the offsets of source and target in each iteration of the axes."""
    if not axes:
        body(at, there)
        return

    def iteration(index: Value) -> None:
        ahead = combine(f, "add", at, combine(f, "mul", index, source[0]))
        place = combine(f, "add", there, combine(f, "mul", index, target[0]))
        each(f, axes[1:], source[1:], target[1:], body, ahead, place)

    f.loop(0, axes[0].extent, 1, [], iteration)


def up(size: int, multiple: int) -> int:
    """`size` rounded up to a multiple."""
    return -(-size // multiple) * multiple
