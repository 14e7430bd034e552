"""Tokens that are guessed change the number of calls, and nothing else."""

from collections.abc import Sequence
from copy import copy
from threading import Event, RLock, Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from relaxpy.llm import Engine, LanguageModel, ModelError, Request, Sampling
from relaxpy.plugins.llm.drafts import Draft, Lookup, draft_of
from relaxpy.plugins.llm.tokens import Tokenizer
from tests.plugins.llm import tiny
from tests.plugins.llm.conftest import Running

WORDS = 4


class Chain:
    """A model whose scores depend on the last two tokens of the sequence in its cache."""

    def __init__(self, seed: int, spread: float = 1.5, chunk: int = 32) -> None:
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0, spread, (WORDS, WORDS, WORDS))
        self.config = SimpleNamespace(vocabulary=WORDS)
        self.context = self.tokens = 400
        self.sequences, self.chunk, self.page, self.pages = 3, chunk, 4, 203
        self.calls: list[int] = []

    def near(self) -> "Chain":
        """A model that is nearly the same."""
        found = Chain(0)
        noise = np.random.default_rng(99).normal(0, 0.3, self.table.shape)
        found.table = self.table + noise
        return found

    def new_cache(self) -> Any:
        return {}

    def check_free(self) -> None:
        pass

    def pages_for(self, tokens: int) -> int:
        return -(-tokens // self.page) + 1

    def state(self, name: str, cache: Any, number: int, *more: int) -> None:
        if name == "add_sequence":
            cache[number] = []
        elif name == "fork_sequence":
            child, length = more
            assert length <= len(cache[number])
            cache[child] = cache[number][:length]
        elif name == "remove_sequence":
            del cache[number]
        else:
            assert name == "popn"
            assert 0 < more[0] < len(cache[number])
            del cache[number][-more[0] :]

    def run(self, cache: Any, sequences: Any, ids: Any, rows: Sequence[int], *more: Any) -> Any:
        found = []
        for number, own in zip(sequences, ids, strict=True):
            for token in own:
                cache[number].append(token)
                found.append(self.table[tuple(([0, *cache[number]])[-2:])])
        assert len(found) <= self.chunk
        self.calls.append(len(rows))
        return np.array([found[row] for row in rows]).reshape(-1, WORDS)


class Small:
    """What of a language model guesses."""

    def __init__(self, model: Chain) -> None:
        self.engine, self.turn, self.decoder = Engine(model), RLock(), model  # type: ignore[arg-type]
        self._adapter, self._hooks = None, ()


def draft(model: Chain) -> Draft:
    return Draft(Small(model), WORDS)  # type: ignore[arg-type]


OPTIONS = [
    Sampling(),
    Sampling(0.8, seed=5),
    Sampling(1.0, seed=6, repetition_penalty=1.3, frequency_penalty=0.4, presence_penalty=0.2),
    Sampling(1.2, seed=7, top_p=0.8, top_k=3, logit_bias={1: 0.5}),
    Sampling(frequency_penalty=0.5),
]


def ask(engine: Engine, number: int, **guesses: Any) -> Request:
    rng = np.random.default_rng(number)
    prompt = rng.integers(0, WORDS, rng.integers(1, 60)).tolist()
    most, ends = int(rng.integers(1, 40)), [[], [3]][number % 2]
    return engine.add(prompt, OPTIONS[number % len(OPTIONS)], most, ends, logprobs=2, **guesses)


@pytest.mark.parametrize("kind", ["lookup", "draft", "both", "bad draft"])
@pytest.mark.parametrize("chunk", [5, 32])
def test_guesses_change_neither_tokens_nor_probabilities(kind: str, chunk: int) -> None:
    """Some requests of a batch have them; the cache has what the requests have read."""
    wanted, model = Engine(Chain(1, chunk=chunk)), Chain(1, chunk=chunk)  # type: ignore[arg-type]
    engine, own = Engine(model), draft(Chain(7) if kind == "bad draft" else Chain(1).near())  # type: ignore[arg-type]
    guesses = {"lookup": 6 * (kind in {"lookup", "both"}), "draft": own}
    if kind == "lookup":
        del guesses["draft"]
    numbers = range(20)
    plain = [ask(wanted, number) for number in numbers]
    found = [ask(engine, number, **(guesses if number % 3 else {})) for number in numbers]
    wanted.run()
    while any(not request.done for request in found):
        engine.step()
        for request in engine.running:
            assert engine.cache[request.sequence] == request.all_tokens[: request.read]
    assert [(r.tokens, r.logprobs, r.error) for r in found] == [
        (r.tokens, r.logprobs, r.error) for r in plain
    ]
    assert {p.sequence: p.tokens for p in engine.kept} == {
        number: tuple(tokens) for number, tokens in engine.cache.items()
    }
    if kind != "bad draft" and chunk > 5:
        assert len(model.calls) < len(wanted.model.calls)  # type: ignore[attr-defined]


def test_more_sequences_may_choose_than_a_call_takes() -> None:
    model, wanted = Chain(1, chunk=4), Engine(Chain(1))  # type: ignore[arg-type]
    model.sequences = 12
    prompts = [[0, 1, 2, 3] * 5, *([k % WORDS] for k in range(10)), [3, 2, 1] * 5]
    texts = []
    for engine in (Engine(model), wanted):  # type: ignore[arg-type]
        requests = [engine.add(prompt, max_tokens=6) for prompt in prompts]
        engine.run()
        texts.append([request.tokens for request in requests])
    assert texts[0] == texts[1]


def test_a_draft_that_is_always_wrong_is_seldom_asked() -> None:
    model, wrong = Chain(1), Chain(1)
    wrong.table = -model.table
    engine = Engine(model)  # type: ignore[arg-type]
    request = engine.add([1, 2], Sampling(), 300, [], draft=draft(wrong))
    engine.run()
    assert len(request.tokens) == len(model.calls) == 300
    assert len(wrong.calls) < 50


def test_guessed_tokens_have_the_distribution_of_the_model() -> None:
    """A test of chi-square over the two tokens after a prompt, at the level of 0.001."""
    model, count = Chain(2, spread=0.5), 600
    engine, own = Engine(model), draft(model.near())  # type: ignore[arg-type]
    found = np.zeros((WORDS,) * 2)
    for seed in range(count):
        request = engine.add([0, 1], Sampling(1.0, seed=seed), 2, draft=own)
        while not request.done:
            engine.step()
        found[tuple(request.tokens)] += 1

    def wanted(table: Any) -> Any:
        shares = np.exp(table) / np.exp(table).sum(-1, keepdims=True)
        return shares[0, 1][:, None] * shares[1] * count

    def distance(table: Any) -> float:
        return float(((found - wanted(table)) ** 2 / wanted(table)).sum())

    assert wanted(model.table).min() > 5
    assert distance(model.table) < 37.7  # 15 degrees of freedom
    assert distance(own.model.decoder.table) > 37.7  # type: ignore[attr-defined]  # of the draft
    assert len(model.calls) < 1.5 * count


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_step_that_is_interrupted_goes_on(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, choose, left = Engine(Chain(1)), Request.choose, [at]  # type: ignore[arg-type]
    wanted = ask(Engine(Chain(1)), 4)  # type: ignore[arg-type]
    wanted.engine.run()
    request = ask(engine, 4, draft=draft(Chain(1)))

    def interrupted(self: Request) -> int:
        if self is request:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
        return choose(self)

    monkeypatch.setattr(Request, "choose", interrupted)
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert len(request.guesses) == 8 + 1 - at
    other = ask(engine, 4)
    other.cancel()
    engine.run()
    assert request.tokens == wanted.tokens
    cancelled = ask(engine, 4, draft=draft(Chain(1)))
    left[0], monkeypatched = 2, cancelled
    request = monkeypatched
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    cancelled.cancel()
    [kept] = [p for p in engine.kept if p.sequence == cancelled.sequence]
    assert engine.cache[cancelled.sequence] == list(kept.tokens)


def test_a_lookup_guesses_what_came_after_the_last_tokens() -> None:
    def guess(text: str, most: int = 4) -> str:
        return "".join(map(chr, Lookup(9).guess([*map(ord, text)], most)))

    assert guess("one two one ") == "two "
    assert guess("abXabYab", 1) == "Y"  # the last time
    assert guess("abcX bcY abc", 1) == "X"  # more tokens count first
    assert guess("abcabc", 7) == "abcabca"  # what is repeated goes on
    assert guess("abcdef") == guess("a") == ""
    lookup, text = Lookup(2), "to be or not to be"
    found = [lookup.guess([*map(ord, text[:n])], 5) for n in range(1, len(text) + 1)]
    assert found == [[*map(ord, guess(text[:n], 2))] for n in range(1, len(text) + 1)]


# --- of language models


@pytest.fixture
def same(lm: Any) -> LanguageModel:
    """Another model with the same weights, whose guesses are right."""
    return LanguageModel(lm._files, lm.decoder)


@pytest.fixture
def calls(lm: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The caches of the calls of the decoder."""
    run, found = lm.decoder.run, []

    def watched(cache: Any, *args: Any) -> Any:
        found.append(id(cache))
        return run(cache, *args)

    monkeypatch.setattr(lm.decoder, "run", watched)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.9, "seed": 3},
        {"temperature": 0.7, "seed": 4, "repetition_penalty": 1.2},
        {"stop": "q"},
        {"temperature": 0.7, "seed": 2, "regex": "[a-z]{30}"},
    ],
)
def test_a_draft_saves_calls_and_changes_no_text(lm, same, calls, options) -> None:
    if "regex" in options:
        pytest.importorskip("llguidance")
    prompts = ["the cat", "hello"]
    wanted = [lm.generate(prompts, max_tokens=24, **options)]
    before = len(calls)
    calls.clear()
    assert [lm.generate(prompts, max_tokens=24, draft=same, **options)] == wanted
    assert calls.count(id(lm.engine.cache)) <= before // (1 if "regex" in options else 3)


def test_two_models_draft_each_other(lm, same) -> None:
    """Neither begins a step of the other within one of its own."""
    options = {"max_tokens": 30, "ignore_eos": True}
    wanted = [lm.generate(text, **options) for text in ("the cat", "hello")]
    streams = [lm.stream("the cat", draft=same, **options)]
    streams.append(same.stream("hello", draft=lm, **options))
    found = ["", ""]
    for _ in range(30):
        for k, stream in enumerate(streams):
            found[k] += next(stream, "")
    assert found == wanted


def test_a_draft_that_another_thread_uses_guesses_nothing(lm, same) -> None:
    """It may wait for the model that asks, which would wait for it."""
    wanted, taken, done = lm.generate("the cat", max_tokens=9), Event(), Event()

    def use() -> None:
        with same.turn:
            taken.set()
            done.wait(20)

    user = Thread(target=use)
    user.start()
    taken.wait()
    try:
        assert lm.generate("the cat", max_tokens=9, draft=same) == wanted
        assert user.is_alive()
    finally:
        done.set()
        user.join()


def test_a_draft_has_its_hooks(lm, same) -> None:
    wanted, seen = lm.generate("the cat", max_tokens=9), list[Any]()
    assert lm.generate("the cat", max_tokens=9, draft=same.hook(1, seen.append)) == wanted
    assert seen


def test_a_lookup_saves_calls_where_a_text_repeats_itself(lm, calls) -> None:
    options = {"max_tokens": 40, "logit_bias": {10: 100.0}}
    wanted = lm.generate("the cat", **options)
    calls.clear()
    assert lm.generate("the cat", lookup=12, **options) == wanted
    assert len(calls) < 10


def test_a_draft_that_fails_ends_its_requests_alone(lm, same, monkeypatch) -> None:
    wanted = lm.generate("the cat", max_tokens=9)

    def fails(**_: Any) -> None:
        raise MemoryError("no memory for a draft")

    monkeypatch.setattr(same.engine, "step", fails)
    plain = lm.start(lm.tokens("the cat"), max_tokens=9)
    with pytest.raises(MemoryError, match="no memory for a draft"):
        lm.generate("the dog", max_tokens=9, draft=same)
    text = ""
    while not plain.request.done:
        lm.step()
        text += plain.take()
    assert text == wanted
    assert not same.engine.running
    assert not same.engine.waiting


def test_guesses_that_cannot_be(lm, same) -> None:
    for value in (-1, 65, True, 1.5, "4"):
        with pytest.raises(
            ModelError, match=r"lookup cannot be .*, expected an integer from 0 to 6"
        ):
            lm.generate("x", lookup=value)
    with pytest.raises(ModelError, match="draft cannot be 'x', expected a language model"):
        lm.generate("x", draft="x")
    with pytest.raises(ModelError, match="tiny cannot draft its own answers"):
        lm.generate("x", draft=lm)
    own = tiny.tokenizer()
    own.add_tokens(["more"])
    same.tokenizer = Tokenizer(own)
    with pytest.raises(ModelError, match="tiny has other tokens than tiny, so cannot draft it"):
        lm.generate("x", draft=same)


def test_a_model_is_loaded_with_its_guesses(folder, lm) -> None:
    from relaxpy.llm import load
    from relaxpy.plugins.llm.language_model import memory_needed

    options = {"sequences": 2, "draft": folder, "lookup": 5}
    loaded = load(folder, **options)
    assert loaded.memory == memory_needed(folder, **options)
    assert loaded.memory == 2 * memory_needed(folder, sequences=2)
    assert loaded.generate("the cat", max_tokens=9) == lm.generate("the cat", max_tokens=9)
    request = loaded.start(loaded.tokens("the cat"), max_tokens=5).request
    assert (request.draft.model.name, request.lookup.most) == ("tiny", 5)
    request.cancel()
    with pytest.raises(ModelError, match="tiny is drafted itself, so it cannot draft answers"):
        lm.generate("x", draft=loaded)


REQUESTS: list[dict[str, Any]] = [
    {"n": 3, "temperature": 0.9, "logprobs": 2},
    {"n": 1, "best_of": 4, "temperature": 1.2, "stop": ["a", "e"], "logprobs": 0},
    {"n": 2, "best_of": 6, "temperature": 1.5, "stop": ["t", "o", "\N{REPLACEMENT CHARACTER}"]},
    {"guided_regex": "[a-z é]{20}", "stop": "b", "n": 3, "temperature": 1.0, "logprobs": 1},
    {"echo": True, "logprobs": 1, "stop_token_ids": [7], "frequency_penalty": 1.5},
]


def test_answers_of_a_server_are_those_without_guesses(lm, same) -> None:
    for package in ("starlette", "uvicorn", "httpx", "llguidance"):
        pytest.importorskip(package)
    import httpx

    drafted, answers = copy(lm), []
    drafted.draft, drafted.lookup = draft_of(same, lm), 5
    for model in (lm, drafted):
        server = Running(model)
        try:
            for fields in REQUESTS:
                body = {"prompt": ["the cat", "hello"], "max_tokens": 24, "seed": 4, **fields}
                answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
                answers.append((answer["choices"], answer["usage"]["completion_tokens"]))
        finally:
            server.stop()
    for (plain, count), (found, own) in zip(answers[:5], answers[5:], strict=True):
        assert count == own
        for choice, wanted in zip(found, plain, strict=True):
            (one, other) = (of.pop("logprobs") or {} for of in (choice, wanted))
            assert choice == wanted
            assert one.get("tokens") == other.get("tokens")
            rows = ([x or 0 for x in of.get("token_logprobs", [])] for of in (one, other))
            np.testing.assert_allclose(*rows, atol=1e-3)  # a batch may differ in the last bits
