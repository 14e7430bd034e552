"""The orders in which trees and graphs are visited, and cycles, given what lies below each item."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


def preorder(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Visit trees from the left, each item before those below it; a shared item at each use."""
    stack = [*roots][::-1]
    while stack:
        item = stack.pop()
        yield item
        stack += [*below(item)][::-1]


def reached(roots: Iterable[K], below: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Visit the roots of a graph and all that it leads to, each item once, as `preorder` does."""
    visited: set[K] = set()
    stack = [*roots][::-1]
    while stack:
        item = stack.pop()
        if item not in visited:
            visited.add(item)
            yield item
            stack += [*below(item)][::-1]


def postorder(roots: Iterable[K], below: Callable[[K], Iterable[K]]) -> Iterator[K]:
    """Visit what `reached` does, each item after those below it that do not lead back to it."""
    visited: set[K] = set()
    stack = [(root, False) for root in roots][::-1]
    while stack:
        item, is_entered = stack.pop()
        if is_entered:
            yield item
        elif item not in visited:
            visited.add(item)
            stack.append((item, True))
            stack += [(inner, False) for inner in below(item)][::-1]


def strongly_connected(graph: Mapping[K, Iterable[K]]) -> list[tuple[K, ...]]:
    """The strongly connected components, each after the components that it points to.

    Rule:
        Tarjan, SIAM J. Comput. 1(2), 1972, with an explicit stack.
    """
    index: dict[K, int] = {}
    low: dict[K, int] = {}
    open_nodes: dict[K, None] = {}
    groups: list[tuple[K, ...]] = []
    for root in graph:
        if root in index:
            continue
        work = [(root, iter(graph[root]))]
        index[root] = low[root] = len(index)
        open_nodes[root] = None
        while work:
            node, successors = work[-1]
            step = next((s for s in successors if s in graph and s not in index), None)
            if step is not None:
                index[step] = low[step] = len(index)
                open_nodes[step] = None
                work.append((step, iter(graph[step])))
                continue
            work.pop()
            low[node] = min([low[node], *(low[s] for s in graph[node] if s in open_nodes)])
            if low[node] == index[node]:
                group = []
                while True:
                    member, _ = open_nodes.popitem()
                    group.append(member)
                    if member == node:
                        break
                groups.append(tuple(reversed(group)))
    return groups
