"""Caches of values by node, whose entries are dropped together with their nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Generic, TypeVar
from weakref import ref

from relaxpy.ir.core.node import Node

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
        """Return the value for a node, or None."""
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

    @wraps(analysis)
    def cached(node: N) -> V:
        result = cache.get(node)
        if result is None:
            result = cache[node] = analysis(node)
        return result

    return cached
