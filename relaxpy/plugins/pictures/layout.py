"""Layered drawing: items in rows such that uses run downward, with few crossings.

The rows follow from longest paths, the order in a row from barycentres, and the positions from
least squares without overlap. The time is linear in the items and uses, but for sorting.

Rule:
    Sugiyama, Tagawa & Toda, IEEE Trans. SMC 11(2), 1981; positions by isotonic regression.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Final, TypeAlias

from relaxpy.support.dataclass import dataclass, replace

#: A use over more rows is drawn as a named reference beside the user.
FAR: Final = 8
GAP: Final = 14.0
ROW_GAP: Final = 26.0
#: Items without uses among them fill rows of this width.
FLOW_WIDTH: Final = 900.0
#: So many items are drawn above the others if nothing uses them, and they nothing.
_MANY: Final = 4
_SWEEPS: Final = 4
_BEND_WEIGHT: Final = 4.0
Size: TypeAlias = tuple[float, float]


@dataclass(slots=True)
class Arrangement:
    """The items of a group in rows, from the left; negative numbers are not items.

    Fields:
        centres: the horizontal centre of each entry of a row.
        paths: for each use that is drawn, the entries that it passes, from the value to the user.
        references: the entries that stand for a value in another row, far above.
    """

    rows: list[list[int]] = field(default_factory=list)
    centres: dict[int, float] = field(default_factory=dict)
    paths: list[tuple[int, ...]] = field(default_factory=list)
    references: dict[int, int] = field(default_factory=dict)


def arrange(
    items: Sequence[int],
    uses: Collection[tuple[int, int]],
    size: Callable[[int], Size],
    sources: Collection[int] = (),
) -> Arrangement:
    """Arrange items that use each other; `size` takes `~value` for a reference to it."""
    used = {item for use in uses for item in use}
    unused = [item for item in items if item not in used]
    alone = _flow(unused if not uses or len(unused) > _MANY else (), size)
    if not uses:
        return alone
    items = [item for item in items if item not in alone.centres]
    ranks = _ranks(items, uses, sources)
    result = Arrangement([[] for _ in range(max(ranks.values()) + 1)])
    links = _route(items, uses, ranks, result)
    _order(result.rows, links)
    widths = {entry: _size(result, entry, size)[0] for row in result.rows for entry in row}
    _centre(result, links, widths)
    result.rows[:0] = alone.rows
    result.centres |= alone.centres
    return result


def _size(arrangement: Arrangement, entry: int, size: Callable[[int], Size]) -> Size:
    """The size of an entry; a bend has none."""
    if entry in arrangement.references:
        return size(~arrangement.references[entry])
    return size(entry) if entry >= 0 else (0.0, 0.0)


def _flow(items: Sequence[int], size: Callable[[int], Size]) -> Arrangement:
    """Fill rows with items that do not use each other."""
    result = Arrangement()
    right = FLOW_WIDTH / 2
    for item in items:
        width = size(item)[0]
        if right + width > FLOW_WIDTH / 2:
            result.rows.append([])
            right = -FLOW_WIDTH / 2
        result.rows[-1].append(item)
        result.centres[item] = right + width / 2
        right += width + GAP
    return result


def _ranks(
    items: Sequence[int], uses: Collection[tuple[int, int]], sources: Collection[int]
) -> dict[int, int]:
    """The row of each item: below its operands, and directly above its user if possible.

    This can be for sources, and for what uses values that nothing else uses. Where items use each
    other in turn, the first of them does not wait for the others.
    """
    users: dict[int, list[int]] = {item: [] for item in items}
    values: dict[int, list[int]] = {item: [] for item in items}
    missing = dict.fromkeys(items, 0)
    for value, user in uses:
        users[value].append(user)
        values[user].append(value)
        missing[user] += 1
    ranks: dict[int, int] = {}
    least = dict.fromkeys(items, 0)
    ready = deque(item for item in items if not missing[item])
    unplaced = iter(items)
    while len(ranks) < len(items):
        item = ready.popleft() if ready else next(i for i in unplaced if i not in ranks)
        if item in ranks:
            continue
        ranks[item] = least[item]
        for user in users[item]:
            missing[user] -= 1
            if user not in ranks:
                least[user] = max(least[user], least[item] + 1)
                if not missing[user]:
                    ready.append(user)
    movable: set[int] = set()
    for item in ranks:
        if all(value in movable and len(users[value]) == 1 for value in values[item]):
            movable.add(item)
    for item in reversed([*ranks]):
        below = [ranks[user] for user in users[item] if ranks[user] > ranks[item]]
        if below and (item in sources or item in movable):
            ranks[item] = min(below) - 1
    # Where items use each other in turn, a reference to a later value may need a row on top.
    top = min(ranks.values())
    first = int(any(ranks[user] == top for _, user in uses))
    dense = {rank: row for row, rank in enumerate(sorted(set(ranks.values())), first)}
    return {item: dense[rank] for item, rank in ranks.items()}


def _route(
    items: Sequence[int],
    uses: Collection[tuple[int, int]],
    ranks: Mapping[int, int],
    result: Arrangement,
) -> list[tuple[int, int]]:
    """Enter the items in their rows, and what uses pass between; returns neighbours in rows.

    All uses of a value share what they pass.
    """
    for item in items:
        result.rows[ranks[item]].append(item)
    links: dict[tuple[int, int], None] = {}
    bends: dict[tuple[int, int], int] = {}
    entry = 0
    for value, user in uses:
        top, bottom = ranks[value], ranks[user]
        if bottom <= top or bottom - top > FAR:
            entry -= 1
            result.references[entry] = value
            result.rows[bottom - 1].append(entry)
            path: tuple[int, ...] = (entry, user)
        else:
            for row in range(top + 1, bottom):
                if (value, row) not in bends:
                    entry -= 1
                    bends[value, row] = entry
                    result.rows[row].append(entry)
            path = (value, *(bends[value, row] for row in range(top + 1, bottom)), user)
        result.paths.append(path)
        links.update(dict.fromkeys(pairwise(path)))
    return list(links)


def _neighbours(
    links: Sequence[tuple[int, int]],
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for value, user in links:
        above.setdefault(user, []).append(value)
        below.setdefault(value, []).append(user)
    return above, below


def _order(rows: list[list[int]], links: Sequence[tuple[int, int]]) -> None:
    """Sort each row by the mean position of its neighbours, downward and upward in turn."""
    above, below = _neighbours(links)
    place = {}
    for row in rows:
        for index, entry in enumerate(row):
            place[entry] = index / max(len(row) - 1, 1)
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 else above
        for row in reversed(rows) if sweep % 2 else rows:
            means = {}
            for entry in row:
                others = near.get(entry)
                means[entry] = (
                    sum(map(place.__getitem__, others)) / len(others) if others else place[entry]
                )
            row.sort(key=means.__getitem__)
            for index, entry in enumerate(row):
                place[entry] = index / max(len(row) - 1, 1)


def _centre(
    result: Arrangement, links: Sequence[tuple[int, int]], widths: Mapping[int, float]
) -> None:
    """Set the centres: near those of the neighbours, in order and without overlap."""
    above, below = _neighbours(links)
    centres = result.centres
    for row in result.rows:
        right = -sum(widths[entry] + GAP for entry in row) / 2
        for entry in row:
            centres[entry] = right + widths[entry] / 2
            right += widths[entry] + GAP
    for sweep in range(_SWEEPS):
        near = below if sweep % 2 == 0 else above
        for row in reversed(result.rows) if sweep % 2 == 0 else result.rows:
            wanted = []
            for entry in row:
                others = near.get(entry)
                wanted.append(
                    sum(map(centres.__getitem__, others)) / len(others)
                    if others
                    else centres[entry]
                )
            for entry, centre in zip(row, separated(row, wanted, widths), strict=True):
                centres[entry] = centre


def separated(
    row: Sequence[int], wanted: Sequence[float], widths: Mapping[int, float]
) -> list[float]:
    """The centres nearest to the wanted ones, by least squares, that keep order and gaps.

    Rule:
        Isotonic regression by pooling adjacent violators (Kruskal, Psychometrika 29, 1964).
    """
    offsets = [0.0]
    for one, other in pairwise(row):
        offsets.append(offsets[-1] + (widths[one] + widths[other]) / 2 + GAP)
    pools: list[tuple[float, float, int]] = []
    for entry, centre, offset in zip(row, wanted, offsets, strict=True):
        weight = _BEND_WEIGHT if widths[entry] == 0 else 1.0
        total, count = (centre - offset) * weight, 1
        while pools and pools[-1][0] * weight >= total * pools[-1][1]:
            before_total, before_weight, before_count = pools.pop()
            total, weight, count = (
                total + before_total,
                weight + before_weight,
                count + before_count,
            )
        pools.append((total, weight, count))
    values = [total / weight for total, weight, count in pools for _ in range(count)]
    return [value + offset for value, offset in zip(values, offsets, strict=True)]


@dataclass(frozen=True, slots=True)
class Box:
    """Where an entry is: its corner and size, and the top and bottom of its row."""

    x: float
    y: float
    width: float
    height: float
    row_top: float
    row_bottom: float

    @property
    def centre(self) -> float:
        """The horizontal centre."""
        return self.x + self.width / 2


def place(arrangement: Arrangement, size: Callable[[int], Size]) -> tuple[Mapping[int, Box], Size]:
    """The boxes of the entries for these sizes, and the size of all; bends have none.

    Entries that have grown push others in their row aside. The script of a picture does the same.
    """
    found: dict[int, Box] = {}
    y, left, right = 0.0, float("inf"), float("-inf")
    for row in arrangement.rows:
        sizes = [_size(arrangement, entry, size) for entry in row]
        bound, shift, corners = float("-inf"), 0.0, []
        for entry, (width, _) in zip(row, sizes, strict=True):
            x = max(arrangement.centres[entry] - width / 2, bound)
            bound = x + width + GAP
            shift += (x + width / 2 - arrangement.centres[entry]) / len(row)
            corners.append(x)
        height = max(h for _, h in sizes)
        for entry, x, (width, own) in zip(row, corners, sizes, strict=True):
            found[entry] = Box(x - shift, y, width, own, y, y + height)
            left, right = min(left, x - shift), max(right, x - shift + width)
        y += height + ROW_GAP
    boxes = {entry: replace(box, x=box.x - left) for entry, box in found.items()}
    return boxes, (right - left, y - ROW_GAP)


def curve(path: Sequence[int], boxes: Mapping[int, Box]) -> str:
    """The data of an SVG path through the entries of a use."""
    first = boxes[path[0]]
    data = [f"M{first.centre:.0f} {first.y + first.height:.0f}"]
    for one, other in pairwise(path):
        above, below = boxes[one], boxes[other]
        middle = (above.row_bottom + below.row_top) / 2
        end = below.y if other == path[-1] else below.row_bottom
        data.append(
            f"V{above.row_bottom:.0f}C{above.centre:.0f} {middle:.0f} {below.centre:.0f} "
            f"{middle:.0f} {below.centre:.0f} {below.row_top:.0f}"
        )
        if end > below.row_top:
            data.append(f"V{end:.0f}")
    return "".join(data)
