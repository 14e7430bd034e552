"""Repeated layers, and many parameters of one operation, become groups."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from relaxpy.plugins.pictures.model import MAX_ABOUT, SOURCES, Change, Picture, printable

#: Layers of more operations are not found.
MAX_PERIOD: Final = 2_000
#: A repetition is folded if this many operations are no longer seen.
MIN_SAVED: Final = 6
#: More parameters and constants with the same users are one box.
MAX_SOURCES: Final = 8
_NEVER: Final = frozenset((*SOURCES, "result", "fault"))
#: The first position, the number of operations in a layer, and the number of layers.
_Run: TypeAlias = tuple[int, int, int]


def fold_repeats(picture: Picture) -> None:
    """Group layers that are repeated one after the other, and layers inside these.

    Parameters and constants move into the innermost layer or block that has all their uses. The
    operand of a first layer stays outside, if the other layers have a result of the one before.
    """
    folder = _Folder(picture)
    for members in list(picture.members().values()):
        sequence = [n for n in members if picture.items[n].kind not in _NEVER]
        if len(sequence) > MIN_SAVED:
            folder.fold(sequence)
    users: dict[int, list[int]] = {}
    for value, user in picture.uses:
        users.setdefault(value, []).append(user)
    for item in picture.items:
        if item.kind in SOURCES and all(
            folder.is_in_every_layer(item.number, user) for user in users.get(item.number, ())
        ):
            item.parent = _common_group(picture, item.parent, users.get(item.number, ()))


def bundle_sources(picture: Picture) -> None:
    """Group many parameters and constants of the same group that have the same users there."""
    users: dict[int, set[int]] = {}
    for value, user in picture.uses:
        item = picture.items[value]
        path = picture.enclosing(user)
        if item.kind in SOURCES and item.parent in path[1:]:
            users.setdefault(value, set()).add(path[path.index(item.parent) - 1])
    bundles: dict[tuple[int, frozenset[int]], list[int]] = {}
    for number, used_by in users.items():
        key = picture.items[number].parent, frozenset(used_by)
        bundles.setdefault(key, []).append(number)
    for (parent, _), numbers in bundles.items():
        if len(numbers) > MAX_SOURCES:
            names = ", ".join(picture.items[number].label for number in numbers)
            group = picture.add("bundle", f"{len(numbers)} parameters and constants", parent)
            group.detail, group.about = printable(names), printable(names, MAX_ABOUT)
            group.order = picture.items[numbers[0]].order
            group.change = _change(picture, numbers)
            for number in numbers:
                picture.items[number].parent = group.number


def _change(picture: Picture, numbers: Iterable[int]) -> Change:
    """The change that all of the items have in common; empty if they differ."""
    changes = {picture.items[number].change for number in numbers}
    return changes.pop() if len(changes) == 1 else ""


def _common_group(picture: Picture, group: int, users: Sequence[int]) -> int:
    """The innermost group with all users that is inside `group` and part of the same function."""
    common: list[int] | None = None
    for user in users:
        path = picture.enclosing(user)[1:]
        inside = path[: path.index(group)] if group in path else []
        inside.reverse()
        common = (
            inside
            if common is None
            else [a for a, b in zip(common, inside, strict=False) if a == b]
        )
    for inner in common or ():
        if picture.items[inner].kind not in ("block", "repeat", "instance"):
            break
        group = inner
    return group


def _keys(picture: Picture) -> list[int]:
    """A number for each item, which is equal for items that look the same, without their names."""
    numbers: dict[object, int] = {}
    members = picture.members()
    keys = [0] * len(picture.items)
    for number in reversed([*picture.groups(), *range(len(picture.items))]):
        item = picture.items[number]
        inside = tuple(keys[n] for n in members.get(number, ()))
        sinfo = item.detail.partition(": ")[2]
        key = (item.kind, item.label, sinfo, item.change, item.fault[:1], inside)
        keys[number] = numbers.setdefault(key, len(numbers))
    return keys


class _Folder:
    """Finds and groups the repetitions in sequences of items.

    `twins` has for each item in a layer the one that corresponds to it in the next.
    """

    def __init__(self, picture: Picture) -> None:
        self.picture, self.keys = picture, _keys(picture)
        self.twins: dict[int, int] = {}
        self.operands: dict[int, list[int]] = {}
        for value, user in picture.uses:
            self.operands.setdefault(user, []).append(value)

    def is_in_every_layer(self, value: int, user: int) -> bool:
        """True if the next layer also has a parameter or a constant where this one has `value`."""
        twin = self.twins.get(user, user)
        other = self.operands[twin][self.operands[user].index(value)]
        return self.picture.items[other].kind in SOURCES

    def fold(self, sequence: Sequence[int]) -> None:
        waiting = [list(sequence)]
        while waiting:
            items = waiting.pop()
            run = self.best_run(items)
            if run is None:
                continue
            start, period, count = run
            stop = start + period * count
            layers = [items[i : i + period] for i in range(start, stop, period)]
            self.group(layers)
            waiting += [part for part in (items[:start], items[stop:], *layers) if part]

    def group(self, layers: Sequence[Sequence[int]]) -> None:
        """Make a group of layers, each of which is a group."""
        first = self.picture.items[layers[0][0]]
        names = [self.picture.items[n].label.partition("(")[0] for n in layers[0]]
        detail = printable(" ".join(names))
        outer = self.picture.add(
            "repeat", f"{len(layers)} x {len(layers[0])} operations", first.parent, detail=detail
        )
        outer.about, outer.order = printable(", ".join(names), MAX_ABOUT), first.order
        outer.change = _change(self.picture, layers[0])
        for index, layer in enumerate(layers):
            head = self.picture.items[layer[0]]
            inner = self.picture.add("instance", f"{index + 1} of {len(layers)}", outer.number)
            inner.detail, inner.about, inner.order = detail, outer.about, head.order
            inner.change = outer.change
            for number, twin in zip(layer, layers[(index + 1) % len(layers)], strict=True):
                self.picture.items[number].parent = inner.number
                self.twins.setdefault(number, twin)

    def best_run(self, items: Sequence[int]) -> _Run | None:
        """The repetition that hides most operations."""
        keys = np.array([self.keys[n] for n in items])
        best: _Run | None = None
        saved = MIN_SAVED - 1
        for period in range(1, min(len(items) // 2, MAX_PERIOD) + 1):
            for start, length in _runs(keys[:-period] == keys[period:], period):
                if length <= saved:
                    continue
                found = self.aligned(items, start, length + period, period)
                if found is not None and period * (found[2] - 1) > saved:
                    best, saved = found, period * (found[2] - 1)
        return best

    def aligned(self, items: Sequence[int], start: int, length: int, period: int) -> _Run | None:
        """The longest repetition within a range whose layers use values in the same way."""
        places = {n: i for i, n in enumerate(items[start : start + length])}
        crossing = self.crossing(items[start : start + length], places)
        spare = length % period if length // period > 1 else 0
        shift = min(
            range(spare + 1), key=lambda s: crossing[s + period] if s + period < length else 0
        )
        first = start + shift
        count = (length - shift) // period
        shapes = [
            self.wiring(items[i : i + period]) for i in range(first, first + count * period, period)
        ]
        longest = (0, 0)
        begin = 0
        for i in range(1, count + 1):
            if i == count or shapes[i] != shapes[begin]:
                longest = max(longest, (i - begin, -begin))
                begin = i
        layers, begin = longest[0], -longest[1]
        return (first + begin * period, period, layers) if layers > 1 else None

    def crossing(self, items: Sequence[int], places: dict[int, int]) -> list[int]:
        """For each position, how many values from before it are used at or after it."""
        change = [0] * (len(items) + 1)
        last: dict[int, int] = {}
        for place, number in enumerate(items):
            for value in self.operands.get(number, ()):
                if value in places and places[value] < place:
                    last[value] = max(last.get(value, 0), place)
        for value, place in last.items():
            change[places[value] + 1] += 1
            change[place + 1 if place < len(items) else place] -= 1
        total, counts = 0, []
        for step in change:
            total += step
            counts.append(total)
        return counts

    def wiring(self, layer: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """For each item, the positions in its layer of the values that it uses; -1 outside."""
        places = {n: i for i, n in enumerate(layer)}
        return tuple(
            tuple(places.get(value, -1) for value in self.operands.get(number, ()))
            for number in layer
        )


def _runs(
    same: np.ndarray[tuple[int], np.dtype[np.bool_]], at_least: int
) -> Iterator[tuple[int, int]]:
    """The first positions and lengths of sections that are true throughout, and long enough."""
    stops = np.flatnonzero(np.concatenate(([True], ~same, [True])))
    lengths = np.diff(stops) - 1
    for index in np.flatnonzero(lengths >= at_least):
        yield int(stops[index]), int(lengths[index])
