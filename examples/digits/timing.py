"""Times of several functions, measured in turn so that a busy machine is fair to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from typing_extensions import override


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one call, sample by sample; it prints as the median."""

    samples: tuple[float, ...]

    def quartile(self, which: int) -> float:
        """Seconds that a quarter (1), half (2) or three quarters (3) of the samples stay below."""
        return float(np.percentile(self.samples, 25 * which))

    def ratio(self, other: Timing) -> float:
        """How many times as long as `other`: the median over the samples taken side by side."""
        return float(np.median(np.divide(self.samples, other.samples)))

    def _in_unit(self) -> list[str]:
        units = (("s", 1.0), ("ms", 1e3), ("us", 1e6))
        unit, scale = next((at for at in units if self.quartile(2) * at[1] >= 1), ("ns", 1e9))
        return [*(f"{self.quartile(which) * scale:.1f}" for which in (1, 2, 3)), unit]

    @override
    def __str__(self) -> str:
        _, median, _, unit = self._in_unit()
        return f"{median} {unit}"

    def spread(self) -> str:
        """The median with its unit, and the quartiles in the same."""
        low, median, high, unit = self._in_unit()
        return f"{median} {unit} ({low} to {high})"


def interleaved(
    calls: Sequence[Callable[[], object]], *, samples: int = 30, sample_seconds: float = 2e-3
) -> list[Timing]:
    """The time of each of `calls`: rounds of one sample of each, after some calls to warm up.

    A round has an order of its own, lest the turns of a scheduler always strike the same call.

    Units: a sample repeats its call for about `sample_seconds`, so that the clock is fine enough.
    """
    repeats = []
    for call in calls:
        call()
        start = perf_counter()
        call()
        repeats.append(max(1, round(sample_seconds / max(perf_counter() - start, 1e-7))))
    taken: list[list[float]] = [[] for _ in calls]
    rng = np.random.default_rng(0)
    for _ in range(samples):
        for at in rng.permutation(len(calls)):
            call, count = calls[at], repeats[at]
            start = perf_counter()
            for _ in range(count):
                call()
            taken[at].append((perf_counter() - start) / count)
    return [Timing(tuple(mine)) for mine in taken]
