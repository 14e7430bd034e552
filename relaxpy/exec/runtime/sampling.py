"""The packed functions that sample the next token of a text from a model's logits."""

from __future__ import annotations

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.sequences import check_tensor
from relaxpy.exec.runtime.values import Array


def _row(name: str, x: Array) -> Array:
    """The logits of one text, over the same memory."""
    leading = max(np.ndim(x) - 1, 0)
    check_tensor(name, x, (*[1] * leading, None), np.dtype("float32"))
    return x[(0,) * leading]  # type: ignore[no-any-return]


def _tokens(ids: Array, row: Array) -> list[int]:
    check_tensor("token_ids", ids, ids.shape, np.dtype("int32"))
    outside = ids[(ids < 0) | (ids >= len(row))]
    if outside.size:
        raise RuntimeCheckError(f"tokens are from 0 to {len(row) - 1}, found {outside[0]}")
    return list(map(int, ids.flat))


def _require_positive(name: str, value: float) -> None:
    if not value > 0:
        raise RuntimeCheckError(f"the {name} is positive, found {value}")


def _softmax(row: Array, temperature: float) -> Array:
    weights = np.exp((row.astype("float64") - row.max()) / temperature)
    return weights / weights.sum()  # type: ignore[no-any-return]


@provided("vm.builtin.sample_top_p_from_prob", pure=True)
def sample_top_p_from_prob(prob: Array, top_p: float, uniform_sample: float) -> int:
    """Nucleus sampling: one of the most probable tokens with total probability `top_p` or more.

    It is the first of them, in descending order, whose cumulative probability, normalised over all
    of them, exceeds the sample.

    Errors:
        RuntimeCheckError: `prob` is not one row of float32, or has no number.
    """
    return _chosen(_row("prob", prob), top_p, uniform_sample)


def _chosen(row: Array, top_p: float, uniform_sample: float) -> int:
    kept = np.flatnonzero(row >= 0)
    if not kept.size:
        raise RuntimeCheckError("no probability is a number, so there is no token to choose")
    kept = kept[np.argsort(-row[kept], kind="stable")]
    sums = np.cumsum(row[kept], dtype="float64")
    sums = sums[: np.searchsorted(sums, top_p) + 1]
    place = np.searchsorted(sums, uniform_sample * sums[-1], side="right")
    return int(kept[min(place, len(sums) - 1)])


@provided("vm.builtin.sample_top_p_from_logits", pure=True)
def sample_top_p_from_logits(
    logits: Array, temperature: float, top_p: float, uniform_sample: float
) -> int:
    """As `sample_top_p_from_prob` of their softmax; a temperature below 1e-6 takes the largest."""
    row = _row("logits", logits)
    if temperature < 1e-6:
        return int(row.argmax())
    return _chosen(_softmax(row, temperature), top_p, uniform_sample)


@provided("vm.builtin.apply_repetition_penalty")
def apply_repetition_penalty(logits: Array, token_ids: Array, penalty: float) -> None:
    """Divide positive logits of tokens by the penalty, and multiply others by it."""
    row = _row("logits", logits)
    _require_positive("penalty", penalty)
    for token in _tokens(token_ids, row):
        row[token] *= penalty if row[token] <= 0 else 1 / penalty


@provided("vm.builtin.apply_presence_and_frequency_penalty")
def apply_presence_and_frequency_penalty(
    logits: Array,
    token_ids: Array,
    token_freqs: Array,
    presence_penalty: float,
    frequency_penalty: float,
) -> None:
    """Lower the logits of tokens by a penalty, and by another one for each occurrence."""
    row = _row("logits", logits)
    tokens = _tokens(token_ids, row)
    check_tensor("token_freqs", token_freqs, token_ids.shape, np.dtype("int32"))
    penalties = token_freqs.ravel() * frequency_penalty + presence_penalty
    np.subtract.at(row, tokens, penalties.astype("float32"))


@provided("vm.builtin.apply_softmax_with_temperature")
def apply_softmax_with_temperature(logits: Array, temperature: float) -> None:
    """Replace logits by their softmax."""
    row = _row("logits", logits)
    _require_positive("temperature", temperature)
    row[...] = _softmax(row, temperature)
