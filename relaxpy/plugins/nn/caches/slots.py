"""The slots of pages that the tokens of sequences are in; sequences may share pages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.values import Array

Places: TypeAlias = "list[slice | Array]"
"""Slots of successive tokens: a slice for contiguous ones, or their numbers."""

_SLOTS_OF_A_RUN = 64
"""Runs of so many slots are read in place; a sequence of shorter ones is copied."""


@dataclass
class Sequence:
    """A sequence: the slots of its tokens, oldest first, and the position of the next one.

    A token is in the slot `page * page_size + offset`. Pages before `pages[-1]` are full, unless
    tokens were dropped from a window.
    """

    pages: list[int] = field(default_factory=list)
    slots: list[int] = field(default_factory=list)
    position: int = 0
    window: int | None = None
    sinks: int = 0
    tree: list[int] | None = None
    """The parents of the last tokens; not all of these are accepted yet."""
    _runs: list[list[int]] = field(default_factory=list)
    """The first slot of each run, and the one after the last, of those slots that were read."""
    _read: tuple[list[int], int] = ([], 0)

    def places(self) -> Places:
        """The locations of the tokens; only those that are new since the last call are read."""
        slots, (known, count) = self.slots, self._read
        if known is not slots or count > len(slots):
            self._runs, count = [], 0
        runs = self._runs
        for slot in slots[count:]:
            if runs and runs[-1][1] == slot:
                runs[-1][1] += 1
            else:
                runs.append([slot, slot + 1])
        self._read = slots, len(slots)
        if len(runs) > 1 + len(slots) // _SLOTS_OF_A_RUN:
            return [np.array(slots, np.int64)]
        return [slice(*run) for run in runs]

    def drop(self, count: int) -> None:
        """Drop the last tokens."""
        slots, (known, seen) = self.slots, self._read
        left = len(slots) - count
        del slots[left:]
        while known is slots and seen > left:
            run = self._runs[-1]
            size = min(seen - left, run[1] - run[0])
            run[1] -= size
            seen -= size
            if run[0] == run[1]:
                self._runs.pop()
        self._read = known, seen

    def copy(self) -> Sequence:
        """A sequence with the same tokens."""
        return Sequence(
            list(self.pages), list(self.slots), self.position, self.window, self.sinks, self.tree
        )


class Pages:
    """The pages of all layers, each of which sequences may share.

    A page has the same number in each layer. Shared pages are copied on write.
    """

    def __init__(self, count: int, size: int) -> None:
        self.count, self.size = count, size
        self.free = set(range(count))
        self.uses = [0] * count
        self.tensors: list[Array] = []
        """Keys, values or latent rows of layers, (layers, heads, count * size, d)."""

    def allocated(self, last: int) -> int:
        """A free page for a sequence whose last page is `last`, or -1 if it has none.

        Pages of a sequence tend to be contiguous: a page is the next one if that is free, otherwise
        far from those that other sequences will take next.

        Errors:
            RuntimeCheckError: there is none.
        """
        if not self.free:
            raise RuntimeCheckError(
                f"the cache is full: all of its {self.count} pages of {self.size} tokens are used",
                hint="remove a sequence, or create a cache for more tokens",
            )
        page = last + 1 if last + 1 in self.free else self._in_largest_gap()
        self.free.remove(page)
        self.uses[page] = 1
        return page

    def _in_largest_gap(self) -> int:
        """The middle of the longest run of free pages, as the page before it may go on there."""
        ordered = np.array(sorted(self.free))
        starts = np.flatnonzero(np.diff(ordered, prepend=-2) != 1)
        lengths = np.diff(starts, append=len(ordered))
        longest = int(lengths.argmax())
        return int(ordered[starts[longest] + lengths[longest] // 2])

    def release(self, page: int) -> None:
        """Give up one use of a page."""
        self.uses[page] -= 1
        if not self.uses[page]:
            self.free.add(page)

    def needed(self, seq: Sequence, count: int) -> int:
        """The number of pages to allocate before `count` tokens are appended."""
        shared = self._shares_last(seq)
        room = self._room(seq)
        return max(0, -(-(count - room) // self.size)) + (shared and count > 0)

    def _room(self, seq: Sequence) -> int:
        """The free slots in the last page."""
        return -(seq.slots[-1] + 1) % self.size if seq.slots else 0

    def _shares_last(self, seq: Sequence) -> bool:
        return bool(seq.slots) and self._room(seq) > 0 and self.uses[seq.pages[-1]] > 1

    def append(self, seq: Sequence, count: int) -> list[int]:
        """The slots of `count` new tokens, for which there must be enough pages."""
        if count and self._shares_last(seq):
            self._own_last(seq)
        new: list[int] = []
        for _ in range(count):
            last = (new or seq.slots or [-1])[-1] + 1
            if last % self.size == 0:
                seq.pages.append(self.allocated(seq.pages[-1] if seq.pages else -1))
                last = seq.pages[-1] * self.size
            new.append(last)
        seq.slots += new
        return new

    def _own_last(self, seq: Sequence) -> None:
        """Replace the last page, which is shared, by a copy."""
        old = seq.pages[-1]
        new = self.allocated(old)
        for tensor in self.tensors:
            pages = tensor.reshape(*tensor.shape[:2], self.count, self.size, -1)
            pages[:, :, new] = pages[:, :, old]
        self.release(old)
        seq.pages[-1] = new
        moved = (new - old) * self.size
        seq.slots = [s + moved if s // self.size == old else s for s in seq.slots]

    def drop(self, seq: Sequence, count: int) -> None:
        """Drop the last tokens of a sequence, and release the pages that only they used."""
        seq.drop(count)
        last = seq.slots[-1] // self.size if seq.slots else -1
        while seq.pages and seq.pages[-1] != last:
            self.release(seq.pages.pop())

    def keep(self, seq: Sequence, slots: list[int]) -> None:
        """Keep only these slots of a sequence, and release the pages of the others."""
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


def tokens_at(x: Array, place: slice | Array) -> Array:
    """The tokens of `x`, (heads, slots, d), in these slots: each head is contiguous."""
    return x[:, place] if isinstance(place, slice) else x.take(place, axis=1)
