"""Interleaved and strided vectors: shuffles that combine and separate columns."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.exec.native.llvm.writer import Function, Type, Value


def interleaved(f: Function, columns: Sequence[Sequence[Value]]) -> list[Value]:
    """The columns interleaved: the first element of each column, then the second ones."""
    count = len(columns)
    if count == 1:
        return list(columns[0])
    if count % 2 == 0:
        half = count // 2
        pairs = zip(columns[:half], columns[half:], strict=True)
        return interleaved(
            f, [[v for a, b in zip(*p, strict=True) for v in _zipped(f, a, b)] for p in pairs]
        )
    result = []
    for parts in zip(*columns, strict=True):
        lanes = parts[0].type.lanes
        for first in range(0, lanes * count, lanes):
            sources = [divmod(first + n, count) for n in range(lanes)]
            vector = parts[0]
            for number, part in enumerate(parts[1:], 1):
                old = [lane if number == 1 else n for n, (lane, _) in enumerate(sources)]
                order = [
                    lanes + lane if column == number else kept
                    for (lane, column), kept in zip(sources, old, strict=True)
                ]
                vector = f.shuffle(vector, part, order)
            result.append(vector)
    return result


def load_every(f: Function, type: Type, step: int, at: Value, mask: Value | None = None) -> Value:
    """Elements at multiples of `step`; 0 in the last lanes, where the mask does not hold.

    No element after the last is read: a vector begins with the last element of the previous one.
    """
    lanes = type.lanes

    def vector(start: int) -> Value:
        if mask is None:
            return f.load(type, f.element(at, start, type))
        needed = f.shuffle(mask, None, [-(-(start + n) // step) for n in range(lanes)])
        return f.masked_load(type, f.element(at, start, type), needed)

    result = vector(0)
    for k in range(1, step):
        kept = [min(n * step, lanes - 1) if k == 1 else n for n in range(lanes)]
        new = [n * step - k * (lanes - 1) for n in range(lanes)]
        order = [lanes + m if 0 < m < lanes else n for n, m in zip(kept, new, strict=True)]
        result = f.shuffle(result, vector(k * (lanes - 1)), order)
    return result


def _zipped(f: Function, a: Value, b: Value) -> tuple[Value, Value]:
    lanes = a.type.lanes
    low, high = (
        [n // 2 + lanes * (n % 2) for n in part] for part in (range(lanes), range(lanes, 2 * lanes))
    )
    return f.shuffle(a, b, low), f.shuffle(a, b, high)


def parted(f: Function, vectors: Sequence[Value], count: int) -> list[list[Value]]:
    """The columns that are interleaved in `vectors`, a multiple of `count` of them."""
    if count == 1:
        return [list(vectors)]
    lanes = vectors[0].type.lanes
    if count % 2 == 0:
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        halves = (
            parted(f, [f.shuffle(a, b, range(first, 2 * lanes, 2)) for a, b in pairs], count // 2)
            for first in (0, 1)
        )
        return [column for both in zip(*halves, strict=True) for column in both]
    return [
        [
            _picked(f, vectors[first : first + count], [n * count + column for n in range(lanes)])
            for first in range(0, len(vectors), count)
        ]
        for column in range(count)
    ]


def columns_of(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The columns of a matrix of 2**k rows, which have 2**n elements each."""
    lanes, count = rows[0].type.lanes, len(rows)
    if lanes == 1:
        return [f.joined(rows)]
    for size in (lanes << n for n in range((count // lanes).bit_length() - 1)):
        pairs = zip(rows[::2], rows[1::2], strict=True)
        rows = [f.shuffle(a, b, range(2 * size)) for a, b in pairs]
    if lanes > count:
        starts = range(0, lanes, count)
        rows = [f.shuffle(x, None, range(n, n + count)) for x in rows for n in starts]
    return [column for [column] in parted(f, rows, lanes)]


def _picked(f: Function, vectors: Sequence[Value], places: Sequence[int]) -> Value:
    """The elements at ascending `places` of concatenated vectors."""
    lanes = vectors[0].type.lanes
    result = vectors[0]
    for number, vector in enumerate(vectors[1:], 1):
        order = []
        for lane, place in enumerate(places):
            at, rest = divmod(place, lanes)
            kept = min(place, lanes - 1) if number == 1 else lane
            order.append(lanes + rest if at == number else kept)
        result = f.shuffle(result, vector, order)
    return result


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The transpose of a square of 2**k rows with as many lanes."""
    rows, count = list(rows), len(rows)
    distance = count // 2
    while distance:
        for n in (n for n in range(count) if not n & distance):
            a, b = rows[n], rows[n + distance]
            low = [k if not k & distance else count + k - distance for k in range(count)]
            high = [k + distance if not k & distance else count + k for k in range(count)]
            rows[n], rows[n + distance] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        distance //= 2
    return rows
