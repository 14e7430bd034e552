"""A picture with every group arranged, and the groups that are open at first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from relaxpy.ir.core.traverse import preorder
from relaxpy.plugins.pictures.layout import Arrangement, Box, Size, arrange, place
from relaxpy.plugins.pictures.model import FOLDED, MODULE, SOURCES, Item, Picture

#: Groups are opened until this many items are seen.
MAX_SEEN: Final = 600
CHARACTER: Final = 7.3
SMALL_CHARACTER: Final = 6.1
SMALL_LINE: Final = 13.0
HEAD: Final = 26.0
MARGIN: Final = 14.0


class Scene:
    """The members of each group with their sizes, and where they are.

    A group has an input for each value outside that is used inside.
    """

    def __init__(self, picture: Picture, fold: bool | None) -> None:
        self.picture = picture
        self.inputs: dict[tuple[int, int], Item] = {}
        self.uses = self._uses()
        self.members = picture.members()
        self.open = self._opened(fold)
        self.arrangements: dict[int, Arrangement] = {}
        self.boxes: dict[int, dict[int, Box]] = {}
        self.open_sizes: dict[int, Size] = {}
        for group in reversed([*picture.groups()]):
            self._arrange(group)

    def _uses(self) -> dict[int, dict[tuple[int, int], None]]:
        """The uses among the members of each group."""
        picture, found = self.picture, dict[int, dict[tuple[int, int], None]]()
        for value, user in list(picture.uses):
            containers = picture.enclosing(value)
            child = user
            group = picture.items[user].parent
            while group not in containers[1:]:
                port = self._input(value, group)
                found.setdefault(group, {})[port, child] = None
                child, group = group, picture.items[group].parent
            source = containers[containers.index(group) - 1]
            if source != child:
                found.setdefault(group, {})[source, child] = None
        return found

    def _input(self, value: int, group: int) -> int:
        """The input of a group for a value."""
        if (value, group) not in self.inputs:
            of = self.picture.items[value]
            item = self.picture.add("input", of.name or of.label, group)
            item.detail, item.about, item.span = "", of.about, of.span
            self.inputs[value, group] = item
        return self.inputs[value, group].number

    def is_group(self, number: int) -> bool:
        """True if an item can be opened."""
        return number in self.members or bool(self.picture.items[number].program)

    def _opened(self, fold: bool | None) -> set[int]:
        """The groups that are open at first: the outer ones, within a bound on what is seen."""
        opened, seen = {MODULE}, len(self.members.get(MODULE, ()))
        waiting = deque(self.members.get(MODULE, ()) if fold is not True else ())
        while waiting:
            number = waiting.popleft()
            members = self.members.get(number, ())
            if fold is None:
                if self.picture.items[number].kind in FOLDED or seen + len(members) > MAX_SEEN:
                    continue
                seen += len(members)
            if members:
                opened.add(number)
            waiting.extend(members)
        return opened

    def seen(self) -> Iterator[int]:
        """The items that are seen at first, each group before its members."""
        top = self.members.get(MODULE, ())
        return preorder(top, lambda number: self.members[number] if number in self.open else ())

    def closed_size(self, number: int) -> Size:
        """The size of an item that is not open, or of a reference to `~number`."""
        if number < 0:
            return len(self.reference_text(~number)) * CHARACTER + 20, 22
        item = self.picture.items[number]
        label = len(item.label) + (2 if self.is_group(number) else 0)
        width = max(label * CHARACTER, len(item.detail) * SMALL_CHARACTER)
        width = max(width, len(item.fault[0]) * SMALL_CHARACTER if item.fault else 0)
        lines = (1 if item.detail else 0) + (1 if item.fault or item.omitted else 0)
        return width + 20, 22 + SMALL_LINE * lines

    def size(self, number: int) -> Size:
        """The initial size of an item."""
        return self.open_sizes[number] if number in self.open else self.closed_size(number)

    def reference_text(self, value: int) -> str:
        """The label of a reference to a value."""
        item = self.picture.items[value]
        return item.name or item.label

    def program_size(self, number: int) -> Size:
        """The size of an item whose program is seen."""
        lines = self.picture.items[number].program.split("\n")
        width, _ = self.closed_size(number)
        inside = max(map(len, lines)) * SMALL_CHARACTER + 2 * MARGIN
        return max(width, inside), HEAD + len(lines) * SMALL_LINE + MARGIN

    def _arrange(self, group: int) -> None:
        members = self.members[group]
        sources = {n for n in members if self.picture.items[n].kind in SOURCES}
        arrangement = arrange(members, self.uses.get(group, {}), self.size, sources)
        boxes, (width, height) = place(arrangement, self.size)
        self.arrangements[group], self.boxes[group] = arrangement, dict(boxes)
        least, _ = self.closed_size(group)
        self.open_sizes[group] = max(width + 2 * MARGIN, least), height + HEAD + MARGIN
