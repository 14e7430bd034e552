"""The perplexity of a text, by its definition."""

import math
from typing import Any

import numpy as np
import pytest

from relaxpy.llm import LanguageModel, ModelError
from relaxpy.plugins.llm import perplexity as module
from relaxpy.plugins.llm.tokens import Tokenizer
from tests.plugins.llm import tiny

TEXT = " ".join(tiny.TEXTS) * 2


def logs(lm: Any, size: int, count: int, begin: int | None) -> tuple[Any, Any]:
    """Logarithms of all probabilities before the tokens that count, and these tokens."""
    tokens, rows, targets = lm.tokenizer.encode(TEXT), [], []
    for number in range(count):
        chunk = tokens[number * size : (number + 1) * size]
        read = chunk if begin is None else [begin, *chunk[1:]]
        for place in range(size // 2, size - 1):
            rows.append(lm.logits(read)[place].astype(np.float64))
            targets.append(chunk[place + 1])
    found = np.stack(rows)
    return found - np.log(np.exp(found).sum(-1, keepdims=True)), np.array(targets)


@pytest.mark.parametrize("begins", [True, False])
@pytest.mark.parametrize(
    ("size", "chunks", "room", "scores"),
    [(64, None, 512, 1 << 25), (33, 3, 512, 2000), (50, 2, 7, 900)],
)
def test_perplexity_is_that_of_the_second_halves(
    lm, begins: bool, size: int, chunks: int | None, room: int, scores: int, monkeypatch
) -> None:
    if not begins:
        own = tiny.tokenizer()
        own.post_processor = None
        lm = LanguageModel(lm._files, lm.decoder)
        lm.tokenizer = Tokenizer(own)
    count = len(lm.tokenizer.encode(TEXT)) // size if chunks is None else chunks
    known, targets = logs(lm, size, count, 0 if begins else None)
    losses = -known[np.arange(len(targets)), targets]
    monkeypatch.setattr(lm.decoder, "chunk", room)
    monkeypatch.setattr(module, "_SCORES", scores)
    found = lm.perplexity(TEXT, context=size, chunks=chunks)
    assert found.tokens == len(targets) == count * (size - size // 2 - 1)
    np.testing.assert_allclose(found.value, math.exp(losses.mean()), rtol=1e-4)
    error = losses.std(ddof=1) / math.sqrt(len(losses)) * found.value
    np.testing.assert_allclose(found.error, error, rtol=1e-3)
    assert (found.same_best, found.divergence) == (None, None)


def test_models_are_compared_token_by_token(lm, tmp_path) -> None:
    from relaxpy.llm import load

    raw = tiny.config()
    noise = tiny.weights(raw, seed=1)
    values = {name: value + noise[name] / 50 for name, value in tiny.weights(raw).items()}
    other = load(tiny.write_folder(tmp_path, raw, values))
    p, q = (logs(model, 64, 2, 0)[0] for model in (lm, other))
    found = other.perplexity(TEXT, context=64, chunks=2, against=lm)
    assert found.same_best == (p.argmax(-1) == q.argmax(-1)).mean() < 1
    np.testing.assert_allclose(found.divergence, (np.exp(p) * (p - q)).sum(-1).mean(), rtol=1e-3)
    itself = lm.perplexity(TEXT, context=64, chunks=2, against=lm)
    assert (itself.same_best, itself.divergence) == (1, 0)
    np.testing.assert_allclose(itself.value, lm.perplexity(TEXT, context=64, chunks=2).value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({"context": n}, f"context cannot be {n!r}, .* from 4 to 256")
            for n in (3, 257, "9", True)
        ),
        ({"chunks": 0}, "chunks cannot be 0, expected an integer from 1"),
        ({"context": 256, "text": "the cat"}, "the text has 3 tokens, and a chunk 256"),
        ({"text": 3}, "text cannot be 3, expected a text"),
        ({"against": "tiny"}, "against cannot be 'tiny', expected a language model"),
    ],
)
def test_perplexities_that_cannot_be(lm, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        lm.perplexity(**{"text": TEXT, **options})


def test_models_of_other_tokens_are_not_compared(lm) -> None:
    own, other = tiny.tokenizer(), LanguageModel(lm._files, lm.decoder)
    own.add_tokens(["more"])
    other.tokenizer = Tokenizer(own)
    with pytest.raises(ModelError, match="tiny has other tokens than tiny"):
        lm.perplexity(TEXT, context=64, against=other)
