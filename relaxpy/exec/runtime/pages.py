"""The pages of a cache of keys and values, and the sequences that they belong to."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from relaxpy.errors import RuntimeCheckError

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass
class Sequence:
    """A sequence: the slots of its tokens, oldest first, and where the next one stands.

    A token is in the slot `page * page_size + offset`. Pages before `pages[-1]` are full, unless
    tokens were dropped from a window.
    """

    pages: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    position: int = 0
    window: int | None = None
    sinks: int = 0
    tree: list[int] | None = None
    """The parents of the last tokens, of which not all are accepted yet."""

    def copy(self) -> Sequence:
        """A sequence with the same tokens."""
        return Sequence(
            list(self.pages), list(self.slots), self.position, self.window, self.sinks, self.tree
        )


class Pages:
    """The pages of all layers, each of which sequences may share.

    A page has the same number in each layer. Tokens are written to pages of one sequence only: a
    page that is shared is copied before that.
    """

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.free = list(range(count))
        self.uses = [0] * count
        self.tensors: list[Array] = []
        """The keys and the values of each layer, (count * size, heads, d)."""

    def allocated(self) -> int:
        """A free page, the lowest, so that the tokens of a sequence tend to lie together.

        Errors:
            RuntimeCheckError: there is none.
        """
        if not self.free:
            raise RuntimeCheckError(
                f"the cache is full: all of its {self.count} pages of {self.size} tokens are used",
                hint="remove a sequence, or create a cache for more tokens",
            )
        page = heapq.heappop(self.free)
        self.uses[page] = 1
        return page

    def release(self, page: int) -> None:
        """Give up one use of a page."""
        self.uses[page] -= 1
        if not self.uses[page]:
            heapq.heappush(self.free, page)

    def needed(self, seq: Sequence, count: int) -> int:
        """How many pages have to be allocated before `count` tokens are appended."""
        shared = self._shares_last(seq)
        room = self._room(seq)
        return max(0, -(-(count - room) // self.size)) + (shared and count > 0)

    def _room(self, seq: Sequence) -> int:
        """The free slots in the last page."""
        return -(seq.slots[-1] + 1) % self.size if seq.slots else 0

    def _shares_last(self, seq: Sequence) -> bool:
        return bool(seq.slots) and self._room(seq) > 0 and self.uses[seq.pages[-1]] > 1

    def append(self, seq: Sequence, count: int) -> list[int]:
        """The slots of `count` new tokens, for which there are pages enough."""
        if count and self._shares_last(seq):
            self._own_last(seq)
        new: list[int] = []
        for _ in range(count):
            last = (new or seq.slots or [-1])[-1] + 1
            if last % self.size == 0:
                seq.pages.append(self.allocated())
                last = seq.pages[-1] * self.size
            new.append(last)
        seq.slots += new
        return new

    def _own_last(self, seq: Sequence) -> None:
        """Replace the last page, which is shared, by a copy."""
        old, new = seq.pages[-1], self.allocated()
        for tensor in self.tensors:
            tensor[new * self.size : (new + 1) * self.size] = tensor[
                old * self.size : (old + 1) * self.size
            ]
        self.release(old)
        seq.pages[-1] = new
        moved = (new - old) * self.size
        seq.slots = [s + moved if s // self.size == old else s for s in seq.slots]

    def keep(self, seq: Sequence, slots: list[int]) -> None:
        """Let a sequence have only these of its slots, and give up the pages of the others."""
        used = {slot // self.size for slot in slots}
        for page in seq.pages:
            if page not in used:
                self.release(page)
        seq.pages = [page for page in seq.pages if page in used]
        seq.slots = slots

    def forked(self, parent: Sequence, count: int) -> Sequence:
        """A sequence that shares the first `count` tokens of another."""
        child = parent.copy()
        child.tree = None
        for page in child.pages:
            self.uses[page] += 1
        self.keep(child, child.slots[:count])
        return child


def rows_at(tensor: Array, slots: Array) -> Array:
    """The rows in these slots: a view if they lie together, else a copy."""
    if slots.size and int(slots[-1]) - int(slots[0]) + 1 == slots.size:
        first = int(slots[0])
        if slots.size < 3 or bool((slots[1:] - slots[:-1] == 1).all()):
            return tensor[first : first + slots.size]
    return tensor[slots]
