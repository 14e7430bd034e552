"""Caches of values by node, limits on shared nodes, and arrays that can be computed again."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Final, Generic, TypeVar
from weakref import ref

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import Array
from relaxpy.ir.core.fork_lock import ForkLock
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.core.traverse import children, walk

N = TypeVar("N", bound=Node)
V = TypeVar("V")


class NodeTable(Generic[V]):
    """A weak mapping from nodes, by identity, to values; an entry is dropped with its node.

    A value must not refer to its node, since it would keep the node alive.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[ref[Node], V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, node: Node) -> V | None:
        """The value for a node, or None."""
        entry = self._entries.get(id(node))
        return None if entry is None else entry[1]

    def __setitem__(self, node: Node, value: V) -> None:
        # The callback that removes the entry is not a Python function: a signal handler could raise
        # in it, and the next node with this identity would get the value of this one.
        drop = partial(self._entries.pop, id(node))
        self._entries[id(node)] = ref(node, drop), value


def memoised(analysis: Callable[[N], V]) -> Callable[[N], V]:
    """Cache the results of `analysis` by node.

    Callers must not change a result, and a result must not refer to its node.
    """
    cache: NodeTable[V] = NodeTable()
    entries = cache._entries

    @wraps(analysis)
    def cached(node: N) -> V:
        entry = entries.get(id(node))
        if entry is not None:
            return entry[1]
        result = cache[node] = analysis(node)
        return result

    return cached


MANY: Final = 1 << 18
"""The number of visits that is always allowed."""
_MAX_USES: Final = 64
"""The number of uses that a node may have on average."""


class VisitBudget:
    """Counts the visits of a traversal of `root` that visits a shared node once per use."""

    __slots__ = ("_left", "_root")

    def __init__(self, root: Node) -> None:
        self._root = root
        self._left = MANY

    def spend(self, weight: int = 1) -> None:
        """Count one visit, or one that takes as long as `weight` visits.

        Errors:
            MisuseError (also TypeError): the traversal would not end in reasonable time.
        """
        if self._left > 0:
            self._left -= weight
            if self._left <= 0:
                check_unshared_size(self._root)


def unshared_size(root: Node) -> tuple[int, int]:
    """The number of nodes if shared ones were copied for each use, and the number of nodes."""
    sizes: dict[int, int] = {}
    for node in walk(root):
        sizes[id(node)] = 1 + sum(sizes.get(id(child), 1) for child in children(node))
    return sizes[id(root)], len(sizes)


def check_unshared_size(root: Node) -> None:
    """Refuse a node that would be too large if shared nodes were copied for each use.

    Errors:
        MisuseError (also TypeError): its nodes have more than 64 uses on average.
    """
    total, nodes = unshared_size(root)
    if total > max(MANY, _MAX_USES * nodes):
        raise MisuseError(
            f"a {type(root).__name__} of {nodes} nodes, many of them shared, has more than "
            f"2**{total.bit_length() - 1} uses, too many to visit",
            hint="bind what is used several times to a variable, as bb.emit and Normalize do",
            about=root,
        )


class Elements:
    """The elements of a literal: an array, or after `release` what `restore` computes at each read.

    Those who read it at the same time share one array, which is read-only. An array whose address
    does not fit its datatype is replaced by a copy when it is first read.
    """

    __slots__ = ("__weakref__", "_kept", "_last", "_lock", "_restore", "dtype", "shape")

    def __init__(self, array: Tensor) -> None:
        self.shape: Final = array.shape
        self.dtype: Final = array.dtype
        self._lock = ForkLock()
        self._kept: Tensor | None = array
        self._restore: Callable[[], Array] | None = None
        self._last: ref[Tensor] | None = None

    def __call__(self) -> Tensor:
        """The array, aligned; the current `noted_reads` have its elements."""
        note(self)
        return self.aligned()

    def aligned(self) -> Tensor:
        """The array, aligned."""
        array = self.anywhere()
        if array.flags.aligned:
            return array
        with self._lock:
            copy = np.frombuffer(array.tobytes(), self.dtype).reshape(self.shape).view(Tensor)
            self._kept = copy if self._kept is array else self._kept
            return copy

    def anywhere(self) -> Tensor:
        """The array, at any address."""
        kept = self._kept
        if kept is not None:
            return kept
        with self._lock:
            array = None if self._last is None else self._last()
            if array is None:
                assert self._restore is not None
                elements = self._restore()
                elements.flags.writeable = False
                array = elements.view(Tensor)
                self._last = self._shared(array)
            return array

    @property
    def beginning(self) -> bytes:
        """The first `BEGINNING` bytes in row-major order; reading these is not noted."""
        return self.anywhere().flat[: BEGINNING // self.dtype.itemsize].tobytes()

    def release(self, restore: Callable[[], Array]) -> None:
        """Release the array; `restore` recomputes it, bit for bit."""
        with self._lock:
            if self._kept is not None:
                self._restore, self._last = restore, self._shared(self._kept)
                self._kept = None

    def _shared(self, array: Tensor) -> ref[Tensor]:
        """A reference to an array, which others may read here after it."""
        array.released = self
        return ref(array)


LARGE: Final = 1 << 20
"""Bytes of a literal from which its reads are noted."""
BEGINNING: Final = 1 << 12
_NOTED: Final[list[set[Hashable]]] = []


def note(reading: Hashable) -> None:
    """Add something on which results depend to the current `noted_reads`."""
    for reads in tuple(_NOTED):
        reads.add(reading)


@contextmanager
def noted_reads() -> Iterator[set[Hashable]]:
    """A set of all that is read in the context, by any thread, besides nodes.

    These are the elements of literals, and the answers of the registry of packed functions.
    """
    reads: set[Hashable] = set()
    _NOTED.append(reads)
    try:
        yield reads
    finally:
        _NOTED[:] = [other for other in _NOTED if other is not reads]
