"""Sets of keys that are joined step by step (union-find)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Groups(Generic[K]):
    """Disjoint sets of keys; a key that was never joined is alone in its set."""

    def __init__(self) -> None:
        self._above: dict[K, K] = {}

    def find(self, key: K) -> K:
        """The representative of the set of `key`, until that set is joined with another one."""
        path = []
        while (above := self._above.get(key)) is not None:
            path.append(key)
            key = above
        for below in path[:-1]:
            self._above[below] = key
        return key

    def join(self, first: K, second: K) -> None:
        """Join the sets of two keys."""
        one, other = self.find(first), self.find(second)
        if other not in {one: None}:  # scalar expressions have no plain ==
            self._above[other] = one
