"""The orders in which trees and graphs are visited, given what lies below each item."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
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
