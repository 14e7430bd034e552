"""Times of several functions, measured in turn so that a busy machine is fair to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call: the median of the samples, and the quartiles on either side of it."""

    median: float
    low: float
    high: float

    @staticmethod
    def of(samples: Sequence[float]) -> Timing:
        """What `samples`, in seconds, come to."""
        low, median, high = np.percentile(samples, [25, 50, 75])
        return Timing(float(median), float(low), float(high))

    def _in_unit(self) -> list[str]:
        units = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
        unit, scale = next((at for at in units if self.median * at[1] >= 1), ("ns", 1e9))
        return [*(f"{time * scale:.1f}" for time in (self.median, self.low, self.high)), unit]

    def __str__(self) -> str:
        median, _, _, unit = self._in_unit()
        return f"{median} {unit}"

    def spread(self) -> str:
        """The median with its unit, and the quartiles in the same."""
        median, low, high, unit = self._in_unit()
        return f"{median} {unit} ({low} to {high})"


def interleaved(
    calls: Sequence[Callable[[], object]], *, samples: int = 30, sample_seconds: float = 2e-3
) -> list[Timing]:
    """The time of each of `calls`, taken a sample at a time in turn, after one round to warm up.

    Units: a sample repeats its call for about `sample_seconds`, so that the clock is fine enough.
    """
    repeats = []
    for call in calls:
        call()
        start = perf_counter()
        call()
        repeats.append(max(1, round(sample_seconds / max(perf_counter() - start, 1e-7))))
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(samples):
        for call, count, mine in zip(calls, repeats, taken, strict=True):
            start = perf_counter()
            for _ in range(count):
                call()
            mine.append((perf_counter() - start) / count)
    return [Timing.of(mine) for mine in taken]
