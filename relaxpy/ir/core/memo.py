"""What is known of nodes, remembered for as long as they are alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Generic, TypeVar
from weakref import ref

from relaxpy.ir.core.node import Node

N = TypeVar("N", bound=Node)
V = TypeVar("V")


class NodeTable(Generic[V]):
    """A value for each of some nodes, by identity, dropped with the node.

    A value must not refer to its node, which it would keep alive.
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
        entries, key = self._entries, id(node)
        entries[key] = ref(node, lambda _: entries.pop(key, None)), value


def memoised(analysis: Callable[[N], V]) -> Callable[[N], V]:
    """`analysis`, done once for each node.

    The node is immutable, and nobody changes the result, which does not refer to the node.
    """
    known: NodeTable[V] = NodeTable()

    @wraps(analysis)
    def remembered(node: N) -> V:
        found = known.get(node)
        if found is None:
            found = known[node] = analysis(node)
        return found

    return remembered
