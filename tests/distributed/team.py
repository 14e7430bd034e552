"""Workers in threads of this process, for tests that need no MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from relaxpy import distributed


class Member(distributed.Workers):
    """A worker in a thread of this process."""

    def __init__(self, team: Team, rank: int) -> None:
        self.team, self.rank, self.size = team, rank, team.count

    def among(self, size: int, stride: int) -> Member:
        """One team for each group, which all members of the group share."""
        block, place = divmod(self.rank, size * stride)
        team = self.team.part(size, stride, block * stride + place % stride)
        return Member(team, place // stride)

    def collected(self, x: Any) -> Any:
        self.team.slots[self.rank] = x.copy()
        self.team.barrier.wait()
        everything = np.stack(self.team.slots)
        self.team.barrier.wait()
        return everything

    def collected_on_first(self, x: Any) -> Any:
        everything = self.collected(x)
        return everything if self.rank == 0 else None

    def combined(self, x: Any, how: str) -> Any:
        return getattr(self.collected(x), {"avg": "mean"}.get(how, how))(axis=0)

    def combined_on_first(self, x: Any) -> Any:
        total = self.combined(x, "sum")
        return total if self.rank == 0 else None

    def combined_parts(self, parts: Any) -> Any:
        return self.combined(parts, "sum")[self.rank]

    def of_first(self, x: Any) -> Any:
        return self.collected(x)[0]

    def part_of_first(self, parts: Any) -> Any:
        return self.of_first(parts)[self.rank]


class Team:
    """Workers in threads of this process."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.barrier = threading.Barrier(count, timeout=60)
        self.slots: list[Any] = [None] * count
        self._parts: dict[tuple[int, int, int], Team] = {}
        self._lock = threading.Lock()

    def part(self, size: int, stride: int, number: int) -> Team:
        with self._lock:
            return self._parts.setdefault((size, stride, number), Team(size))

    def run(self, program: Callable[..., Any], *operands: list[Any]) -> list[Any]:
        """The results of all workers, each with its own element of the lists of operands."""

        def work(rank: int) -> Any:
            with distributed.use(Member(self, rank)):
                return program(*(values[rank] for values in operands))

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(work, range(self.count)))
