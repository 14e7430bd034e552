"""The choice of the next token from its scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import numpy as np

from relaxpy.plugins.llm.config import ModelError, ParameterError, is_integer, is_number
from relaxpy.support.dataclass import dataclass

_CHECKS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "temperature": (lambda v: is_number(v) and v >= 0, "a number that is not negative"),
    "top_k": (
        lambda v: v is None or (is_integer(v) and v >= -1),
        "a positive integer, or 0 or -1 for all tokens",
    ),
    "top_p": (lambda v: is_number(v) and 0 <= v <= 1, "a number from 0 to 1"),
    "min_p": (lambda v: is_number(v) and 0 <= v <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda v: is_number(v) and v > 0, "a positive number"),
    "presence_penalty": (lambda v: is_number(v) and abs(v) <= 2, "a number from -2 to 2"),
    "frequency_penalty": (lambda v: is_number(v) and abs(v) <= 2, "a number from -2 to 2"),
    "seed": (lambda v: v is None or (is_integer(v) and 0 <= v < 1 << 64), "an integer of 64 bits"),
    "logit_bias": (
        lambda v: (
            isinstance(v, Mapping)
            and all(is_integer(t) and t >= 0 and is_number(b) for t, b in v.items())
        ),
        "a table of tokens and numbers",
    ),
}
"""The values that each option may have."""


_FEW: Final = 1024


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen; a temperature of 0 takes the token with the best score."""

    temperature: float = 0.0
    top_k: int | None = None
    """Only the tokens with the k best scores; all of them for 0 and -1."""
    top_p: float = 1.0
    """Only the fewest tokens whose probabilities sum to p, at least one."""
    min_p: float = 0.0
    """Only the tokens with this share of the best probability."""
    repetition_penalty: float = 1.0
    """Divides the scores of tokens that were there before."""
    seed: int | None = None
    presence_penalty: float = 0.0
    """Subtracted from the scores of tokens that were chosen before."""
    frequency_penalty: float = 0.0
    """Subtracted from them for each time that they were chosen."""
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    """Added to the scores of tokens."""

    def __post_init__(self) -> None:
        for name, (is_right, expected) in _CHECKS.items():
            value = getattr(self, name)
            if not is_right(value):
                raise ParameterError.of(name, value, expected)

    @property
    def _changes_nothing(self) -> bool:
        penalties = self.presence_penalty or self.frequency_penalty
        return self.repetition_penalty == 1 and not penalties and not self.logit_bias

    def adjusted(
        self, scores: Any, before: Sequence[int], chosen: Sequence[int], allowed: Any = None
    ) -> Any:
        """The scores, float64, after penalties for tokens of the text, the last ones `chosen`.

        Those that are not `allowed`, if that is not None, have none.

        Errors:
            ModelError: a score is NaN, or the best one is infinite.
        """
        scores = np.array(scores, np.float64)
        best = scores.max(initial=-np.inf)
        if not np.isfinite(best):
            raise _no_choice(best)
        for token, bias in self.logit_bias.items():
            if token < len(scores):
                scores[token] += bias
        if self.repetition_penalty != 1.0 and len(before):
            seen = np.unique(before)
            old = scores[seen]
            factor = np.where(old > 0, 1 / self.repetition_penalty, self.repetition_penalty)
            with np.errstate(over="ignore"):
                scores[seen] = np.clip(old * factor, -1e300, 1e300)
        if (self.presence_penalty or self.frequency_penalty) and len(chosen):
            seen, counts = np.unique(chosen, return_counts=True)
            scores[seen] -= self.presence_penalty + self.frequency_penalty * counts
        if allowed is not None:
            scores[~allowed] = -np.inf
            if (best := scores.max()) == -np.inf:
                raise _no_choice(best)
        return scores

    def probabilities(
        self,
        scores: Any,
        before: Sequence[int] = (),
        chosen: Sequence[int] = (),
        allowed: Any = None,
    ) -> Any:
        """The probabilities of all tokens, float64, by their scores; those left out have 0.

        Errors:
            ModelError: as of `adjusted`.
        """
        scores = self.adjusted(scores, before, chosen, allowed)
        if self.temperature == 0:
            return np.eye(1, len(scores), int(scores.argmax()))[0]
        with np.errstate(over="ignore"):
            scores = (scores - scores.max()) / self.temperature
        if self.top_k is not None and 0 < self.top_k < len(scores):
            least = np.partition(scores, -self.top_k)[-self.top_k]
            scores[scores < least] = -np.inf
        shares = np.exp(scores)
        shares /= shares.sum()
        if self.top_p < 1:
            order, sums = _most_probable(shares, self.top_p)
            is_kept = sums - shares[order] < self.top_p
            is_kept[0] = True
            kept = order[is_kept]
            others, shares = shares, np.zeros_like(shares)
            shares[kept] = others[kept]
            shares /= shares.sum()
        if self.min_p:
            shares[shares < self.min_p * shares.max()] = 0
            shares /= shares.sum()
        return shares

    def choose(
        self,
        scores: Any,
        before: Sequence[int],
        random: np.random.Generator | None,
        chosen: Sequence[int] = (),
        allowed: Any = None,
    ) -> int:
        """A token; a temperature of 0 draws nothing. Errors: ModelError, as of `adjusted`."""
        if self.temperature == 0:
            if not self._changes_nothing:
                changed = self.adjusted(scores, before, chosen, allowed)
            else:
                changed = scores if allowed is None else np.where(allowed, scores, -np.inf)
            best = int(changed.argmax())  # the first NaN, if there is one
            if not math.isfinite(changed[best]):
                raise _no_choice(changed[best])
            return best
        shares = self.probabilities(scores, before, chosen, allowed)
        assert random is not None
        return int(random.choice(len(shares), p=shares))


def _no_choice(best: Any) -> ModelError:
    return ModelError(f"no token can be chosen: the best score is {best}")


def _most_probable(shares: Any, p: float) -> tuple[Any, Any]:
    """The tokens that have `p` of all probability, best ones first, and the sums of theirs."""
    if len(shares) > 4 * _FEW:  # sorting few of many takes less time than sorting all
        few = np.flatnonzero(shares)
        if len(few) > _FEW:
            few = np.flatnonzero(shares > np.partition(shares, -_FEW)[-_FEW])
        few = few[np.argsort(-shares[few], kind="stable")]
        sums = np.cumsum(shares[few])
        if len(few) and sums[-1] >= p:
            return few, sums
    order = np.argsort(-shares, kind="stable")
    return order, np.cumsum(shares[order])


def log_probabilities(scores: Any) -> Any:
    """The logarithms of the probabilities of all tokens, as the model gives them, float64."""
    scores = np.array(scores, np.float64)
    scores -= scores.max(-1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(-1, keepdims=True))
