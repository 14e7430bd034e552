"""Workers in threads of this process, for tests that need no MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from relaxpy import distributed

METHODS = {"avg": "mean"}


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
        total = getattr(self.collected(x), METHODS.get(how, how))(axis=0)
        return np.asarray(total, x.dtype)

    def combined_on_first(self, x: Any) -> Any:
        total = self.combined(x, "sum")
        return total if self.rank == 0 else None

    def combined_parts(self, parts: Any) -> Any:
        return self.combined(parts, "sum")[self.rank]

    def of_first(self, x: Any) -> Any:
        return self.collected(x)[0, ...]

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
        return self.run_as([Member(self, rank) for rank in range(self.count)], program, *operands)

    def run_as(
        self, members: Sequence[Member], program: Callable[..., Any], *operands: list[Any]
    ) -> list[Any]:
        """What `run` returns, with these members."""

        def work(rank: int) -> Any:
            with distributed.use(members[rank]):
                return program(*(values[rank] for values in operands))

        with ThreadPoolExecutor(self.count) as pool:
            return list(pool.map(work, range(self.count)))


class Counter(Member):
    """A worker that sends parts to each other one, and counts the bytes that it sends and gets."""

    def __init__(self, team: Team, rank: int, counts: list[int] | None = None) -> None:
        Member.__init__(self, team, rank)
        self.counts = [0, 0] if counts is None else counts

    def among(self, size: int, stride: int) -> Counter:
        member = Member.among(self, size, stride)
        return Counter(member.team, member.rank, self.counts)

    def exchanged(self, parts: list[Any]) -> list[Any]:
        """What the others send to this worker, for its own parts, of which None is not sent."""
        self.team.slots[self.rank] = parts
        self.team.barrier.wait()
        received = [sent[self.rank] for sent in self.team.slots]
        self.team.barrier.wait()
        for k, way in enumerate((parts, received)):
            others = (part for number, part in enumerate(way) if number != self.rank)
            self.counts[k] += sum(0 if part is None else part.nbytes for part in others)
        return received

    def parts(self, x: Any) -> list[Any]:
        return np.array_split(x.reshape(-1), self.size)

    def sum_of_part(self, x: Any, how: str) -> Any:
        return getattr(np.stack(self.exchanged(self.parts(x))), METHODS.get(how, how))(axis=0)

    def collected(self, x: Any) -> Any:
        return np.stack(self.exchanged([x.copy()] * self.size))

    def collected_on_first(self, x: Any) -> Any:
        found = self.exchanged([x.copy()] + [None] * (self.size - 1))
        return np.stack(found) if self.rank == 0 else None

    def combined(self, x: Any, how: str) -> Any:
        part = self.sum_of_part(x, how)
        return np.concatenate(self.exchanged([part] * self.size)).reshape(x.shape)

    def combined_on_first(self, x: Any) -> Any:
        found = self.exchanged([self.sum_of_part(x, "sum")] + [None] * (self.size - 1))
        return np.concatenate(found).reshape(x.shape) if self.rank == 0 else None

    def combined_parts(self, parts: Any) -> Any:
        return np.sum(self.exchanged(list(parts)), axis=0)

    def of_first(self, x: Any) -> Any:
        part = self.part_of_first(self.parts(x))
        return np.concatenate(self.exchanged([part] * self.size)).reshape(x.shape)

    def part_of_first(self, parts: Any) -> Any:
        return self.exchanged(list(parts) if self.rank == 0 else [None] * self.size)[0]
