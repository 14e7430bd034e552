"""The choice of the next token from its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType
from typing import Any

import numpy as np
from config import ModelError


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; a temperature of 0 takes the token with the best score."""

    temperature: float = 0.0
    top_k: int | None = None
    """Only the tokens with the k best scores."""
    top_p: float = 1.0
    """Only the fewest tokens whose probabilities sum to p."""
    repetition_penalty: float = 1.0
    """What the scores of tokens that were there before are divided by."""
    seed: int | None = None

    def __post_init__(self) -> None:
        checks: dict[str, tuple[Any, Callable[[Any], bool]]] = {
            "temperature": (Real, lambda value: value >= 0),
            "top_k": ((Integral, NoneType), lambda value: value is None or value >= 1),
            "top_p": (Real, lambda value: 0 < value <= 1),
            "repetition_penalty": (Real, lambda value: value > 0),
            "seed": ((Integral, NoneType), lambda value: value is None or value >= 0),
        }
        for name, (kind, is_right) in checks.items():
            value = getattr(self, name)
            if not isinstance(value, kind) or not is_right(value):
                raise ValueError(f"{name} cannot be {value!r}")

    def probabilities(self, scores: Any, before: Sequence[int] = ()) -> Any:
        """The probabilities of all tokens, float64, by their scores; those left out have 0.

        Errors:
            ModelError: a score is NaN, or the best one is infinite.
        """
        scores = np.array(scores, np.float64)
        if not np.isfinite(scores.max(initial=-np.inf)):
            raise ModelError(
                f"no token can be chosen: the best score is {scores.max(initial=-np.inf)}"
            )
        if self.repetition_penalty != 1.0 and len(before):
            seen = np.unique(before)
            old = scores[seen]
            factor = np.where(old > 0, 1 / self.repetition_penalty, self.repetition_penalty)
            scores[seen] = old * factor
        if self.temperature == 0:
            return np.eye(1, len(scores), int(scores.argmax()))[0]
        with np.errstate(over="ignore"):
            scores = (scores - scores.max()) / self.temperature
        if self.top_k is not None and self.top_k < len(scores):
            least = np.partition(scores, -self.top_k)[-self.top_k]
            scores[scores < least] = -np.inf
        shares = np.exp(scores)
        shares /= shares.sum()
        if self.top_p < 1:
            order = np.argsort(-shares, kind="stable")
            before_each = np.cumsum(shares[order]) - shares[order]
            shares[order[before_each >= self.top_p]] = 0
            shares /= shares.sum()
        return shares

    def choose(self, scores: Any, before: Sequence[int], random: np.random.Generator) -> int:
        shares = self.probabilities(scores, before)
        if self.temperature == 0:
            return int(shares.argmax())
        return int(random.choice(len(shares), p=shares))
