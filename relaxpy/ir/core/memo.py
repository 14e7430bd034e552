"""Caches of values by node, whose entries are dropped together with their nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Generic, TypeVar
from weakref import ref

from relaxpy.ir.core.node import Node

N = TypeVar("N", bound=Node)
V = TypeVar("V")


class _NodeRef(ref[Node]):
    """A weak reference to a node, with its identity, by which tables know it."""

    __slots__ = ("key",)
    key: int


class NodeTable(Generic[V]):
    """A weak mapping from nodes, by identity, to values; an entry is dropped with its node.

    A value must not refer to its node, since it would keep the node alive.
    """

    def __init__(self) -> None:
        self._entries: dict[int, tuple[_NodeRef, V]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, node: Node) -> V | None:
        """Return the value for a node, or None."""
        entry = self._entries.get(id(node))
        return None if entry is None else entry[1]

    def __setitem__(self, node: Node, value: V) -> None:
        entry = _NodeRef(node, self._drop)
        entry.key = id(node)
        self._entries[entry.key] = entry, value

    def _drop(self, entry: _NodeRef) -> None:
        # Nodes may die after Python has cleared this module: no global name is used here.
        self._entries.pop(entry.key, None)


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
