"""How well a model foresees a text, counted as llama.cpp's tool does, and how two models agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxpy.plugins.llm.config import ModelError, ParameterError, integer_of
from relaxpy.plugins.llm.sampling import log_probabilities
from relaxpy.support.dataclass import dataclass
from relaxpy.support.progress import long_work

if TYPE_CHECKING:
    from relaxpy.plugins.llm.language_model import LanguageModel

DEFAULT_CHUNK: Final = 512
"""The tokens of a chunk of a text."""
_LEAST: Final = 4
"""The fewest tokens of a chunk, one of which counts."""
_SCORES: Final = 1 << 25
"""The scores in memory at a time, if those of a token are not more."""
_ROWS: Final = 32
"""The tokens whose probabilities are in memory at a time."""


@dataclass(frozen=True)
class Perplexity:
    """How well a model foresees the tokens of a text."""

    value: float
    """exp of the mean of -log p over the tokens."""
    error: float
    """Its standard error; NaN for a single token."""
    tokens: int
    """The tokens that count: those of the second half of each chunk."""
    same_best: float | None = None
    """The share of them before which both models have the same best token."""
    divergence: float | None = None
    """The mean of the Kullback-Leibler divergences of the probabilities from the other model's."""


class _Sums:
    """The sums over the tokens so far."""

    def __init__(self) -> None:
        self.count, self.same = 0, 0
        self.loss = self.square = self.divergence = 0.0

    def add(self, scores: Any, others: Any | None, targets: Any) -> None:
        """Count tokens by the scores before them, and those of another model."""
        for start in range(0, len(targets), _ROWS):
            part = slice(start, start + _ROWS)
            logs = log_probabilities(scores[part])
            losses = -logs[np.arange(len(logs)), targets[part]]
            self.count += len(losses)
            self.loss += float(losses.sum())
            self.square += float((losses**2).sum())
            if others is None:
                continue
            wanted = log_probabilities(others[part])
            shares = np.exp(wanted)
            difference = np.subtract(wanted, logs, out=np.zeros_like(logs), where=shares > 0)
            self.divergence += float((shares * difference).sum())
            self.same += int((logs.argmax(-1) == wanted.argmax(-1)).sum())

    def result(self, *, compared: bool) -> Perplexity:
        """The result of the sums."""
        mean, count = self.loss / self.count, self.count
        value, error = float(np.exp(mean)), math.nan
        if count > 1:
            error = value * math.sqrt(max(0.0, self.square / count - mean**2) / (count - 1))
        if not compared:
            return Perplexity(value, error, count)
        return Perplexity(value, error, count, self.same / count, self.divergence / count)


def perplexity(
    lm: LanguageModel,
    text: str,
    context: int | None,
    chunks: int | None,
    against: LanguageModel | None,
) -> Perplexity:
    """That of `LanguageModel.perplexity`."""
    if not isinstance(text, str):
        raise ParameterError.of("text", text, "a text")
    models = [lm] if against is None else [lm, against]
    most = min(model.decoder.context for model in models)
    wanted = min(DEFAULT_CHUNK, most) if context is None else context
    size = integer_of("context", wanted, _LEAST, most)
    words = lm.decoder.config.vocabulary
    if (found := models[-1].decoder.config.vocabulary) != words:
        raise ModelError(f"{lm.name} has {words} tokens, and {models[-1].name} {found}")
    if models[-1].token_names != lm.token_names:
        raise ModelError(f"{models[-1].name} has other tokens than {lm.name}")
    most_chunks = math.inf if chunks is None else integer_of("chunks", chunks, 1)
    tokens = lm.tokenizer.encode(text)
    if unknown := [token for token in tokens if token >= words]:
        raise ModelError(f"the model has the tokens 0 to {words - 1}, found {unknown[0]}")
    count = int(min(len(tokens) // size, most_chunks))
    if not count:
        hint = "take a longer text, or a smaller context"
        raise ModelError(f"the text has {len(tokens)} tokens, and a chunk {size}", hint=hint)
    begin = lm.tokenizer.encode("")[:1]
    parts = [tokens[number * size : (number + 1) * size] for number in range(count)]
    if begin == tokens[:1]:
        parts = [[*begin, *part[1:]] for part in parts]
    room = min(model.decoder.chunk for model in models)
    together = max(1, min(count, room // size, _SCORES // (words * size)))
    readers = [_Reader(model, together, size) for model in models]
    sums = _Sums()
    with long_work("perplexity", count) as work:
        for start in range(0, count, together):
            batch = parts[start : start + together]
            for step in _steps(size, size // 2, room // together, max(1, _SCORES // words)):
                rows = [reader.read(batch, step, size // 2) for reader in readers]
                places = range(max(step.start, size // 2), step.stop)
                targets = np.array([part[at + 1] for part in batch for at in places], int)
                sums.add(rows[0], rows[1] if len(rows) > 1 else None, targets)
            for reader in readers:
                reader.end(len(batch))
            for _ in batch:
                work.advance(f"{math.exp(min(sums.loss / sums.count, 700)):.4f}")
    return sums.result(compared=against is not None)


def _steps(size: int, first: int, room: int, scored: int) -> Iterator[range]:
    """The places of the tokens of each call: at most `scored` of them from `first` on."""
    start = 0
    while start < size - 1:  # nothing comes after the last token
        stop = min(start + room, max(start, first) + scored, size - 1)
        yield range(start, stop)
        start = stop


class _Reader:
    """Reads chunks by a model, in a cache of its own."""

    def __init__(self, lm: LanguageModel, sequences: int, size: int) -> None:
        self.lm = lm
        self.cache = lm.decoder.cache_for(sequences, size)

    def read(self, chunks: Sequence[Sequence[int]], step: range, first: int) -> Any:
        """The scores after the tokens of a step from the place `first` on, chunk by chunk."""
        decoder, count = self.lm.decoder, len(step)
        sequences = range(len(chunks))
        rows = [
            number * count + place - step.start
            for number in sequences
            for place in range(max(step.start, first), step.stop)
        ]
        ids = [chunk[step.start : step.stop] for chunk in chunks]
        with self.lm.turn:
            if step.start == 0:
                for number in sequences:
                    decoder.state("add_sequence", self.cache, number)
            own = [self.lm._adapter] * len(chunks), [self.lm._hooks] * len(chunks)
            return decoder.run(self.cache, sequences, ids, rows, *own)

    def end(self, count: int) -> None:
        """Forget the chunks."""
        with self.lm.turn:
            for number in range(count):
                self.lm.decoder.state("remove_sequence", self.cache, number)
