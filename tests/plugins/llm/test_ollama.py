"""Ollama's API beside its own client."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.plugins.llm.conftest import Running
from tests.plugins.llm.parts import ASK, CALLS, ONE, TOOLS

ollama = pytest.importorskip("ollama")
httpx = pytest.importorskip("httpx")
OPTIONS = {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "seed": 3, "num_predict": 12}
ALIKE = {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "seed": 3, "max_tokens": 12}


@pytest.fixture
def client(running: Running) -> Iterator[Any]:
    own = ollama.Client(host=running.url)
    yield own
    own._client.close()


def test_texts_are_those_of_generate(client: Any, running: Running, lm: Any) -> None:
    messages = [{"role": "user", "content": "the cat"}]
    raw = lm.generate("the cat", **ALIKE)
    answer = client.generate("tiny", "the cat", raw=True, options=OPTIONS)
    assert (answer.response, answer.done, answer.done_reason) == (raw, True, "length")
    assert (answer.prompt_eval_count, answer.eval_count) == (3, 12)
    assert answer.total_duration == answer.prompt_eval_duration + answer.eval_duration
    assert answer.prompt_eval_duration > 0 <= answer.eval_duration
    assert client.generate("tiny:latest", "the cat", options=OPTIONS).response == lm.generate(
        messages, **ALIKE
    )
    own = running.client().completions.create(model="tiny:latest", prompt="a", max_tokens=1)
    assert own.model == "tiny"
    system = [{"role": "system", "content": "a dog"}, *messages]
    wanted = lm.generate(system, **ALIKE)
    assert client.generate("tiny", "the cat", system="a dog", options=OPTIONS).response == wanted
    assert client.chat("tiny", system, options=OPTIONS).message.content == wanted
    pieces = list(client.chat("tiny", system, options=OPTIONS, stream=True))
    assert "".join(piece.message.content for piece in pieces) == wanted
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert (pieces[-1].done_reason, pieces[-1].eval_count) == ("length", 12)
    pieces = list(client.generate("tiny", "the cat", raw=True, options=OPTIONS, stream=True))
    assert "".join(piece.response for piece in pieces) == raw
    # Ollama's own defaults.
    wanted = lm.generate(messages, temperature=0.8, top_k=40, top_p=0.9, seed=1, max_tokens=100)
    for own in ({}, {"num_predict": 0}, {"num_predict": -2}):  # as no bound
        answer = client.chat("tiny", messages, options={"seed": 1, **own})
        assert answer.message.content == wanted
    # What has no effect here, and what loads the model.
    others = {**OPTIONS, "num_ctx": 2048, "num_gpu": 0, "repeat_last_n": 64, "mirostat": 0}
    answer = client.generate("tiny", "the cat", raw=True, options=others, keep_alive="5m")
    assert answer.response == raw
    assert client.generate("tiny").done_reason == client.chat("tiny", []).done_reason == "load"


def test_a_model_without_a_template_continues_prompts(
    client: Any, lm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lm, "_files", replace(lm._files, template=None))
    monkeypatch.delitem(lm.__dict__, "template", raising=False)
    wanted = lm.generate("the cat", **ALIKE)
    assert client.generate("tiny", "the cat", options=OPTIONS).response == wanted
    for call in (
        lambda: client.generate("tiny", "the cat", system="a dog"),
        lambda: client.chat("tiny", ASK),
    ):
        with pytest.raises(ollama.ResponseError, match="has no chat template"):
            call()


def test_answers_have_forms(client: Any) -> None:
    pytest.importorskip("llguidance")
    schema = {"enum": ["a", [1]]}
    text = client.chat("tiny", ASK, format=schema).message.content
    assert json.loads(text) in ("a", [1])
    assert client.generate("tiny", "cat", format="json", options=OPTIONS).response[0] == "{"


@pytest.mark.parametrize("raw", [True, False])
def test_logprobs(client: Any, lm: Any, raw: bool) -> None:
    own = lm.tokens("the cat" if raw else [{"role": "user", "content": "the cat"}])
    scores = lm.logits(own)[-1].astype("float64")
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    options = {"temperature": 0, "num_predict": 3}
    call = {"raw": raw, "options": options, "logprobs": True, "top_logprobs": 2}
    answer = client.generate("tiny", "the cat", **call)
    assert len(answer.logprobs) == 3
    best = [(one.token, one.logprob) for one in answer.logprobs[0].top_logprobs]
    assert [token for token, _ in best] == [
        lm.tokenizer.piece(int(token)) for token in scores.argsort()[-2:][::-1]
    ]
    assert [score for _, score in best] == pytest.approx(list(np.sort(scores)[-2:][::-1]), rel=1e-4)
    assert (answer.logprobs[0].token, answer.logprobs[0].logprob) == best[0]
    pieces = client.generate("tiny", "the cat", stream=True, **call)
    told = [one for piece in pieces for one in piece.logprobs or ()]
    for one, other in zip(told, answer.logprobs, strict=True):
        assert one.token == other.token
        assert one.logprob == pytest.approx(other.logprob, rel=1e-4)
    assert client.generate("tiny", "the cat", raw=raw, options=options).logprobs is None


def test_embeddings(client: Any, lm: Any) -> None:
    found = client.embed("tiny", ["the cat", "hello"])
    assert found.prompt_eval_count == sum(len(lm.tokens(text)) for text in ("the cat", "hello"))
    for text, vector in zip(("the cat", "hello"), found.embeddings, strict=True):
        wanted = lm.embed(text)
        assert vector == pytest.approx(wanted / (wanted**2).sum() ** 0.5, rel=1e-5)
    wanted = lm.embed("the cat")[:8]
    for vector in (
        client.embed("tiny", "the cat", dimensions=8).embeddings[0],
        client.embeddings("tiny", "the cat").embedding[:8],
    ):
        scale = sum(x * x for x in vector) ** 0.5
        assert [x / scale for x in vector] == pytest.approx(
            list(wanted / (wanted**2).sum() ** 0.5), rel=1e-5
        )
    # A text that is too long is cut, unless that is not wanted.
    long = "the cat " * lm.decoder.context
    wanted = lm.embed(lm.tokens(long)[: lm.decoder.context])
    [found] = client.embed("tiny", long).embeddings
    assert found == pytest.approx(list(wanted / (wanted**2).sum() ** 0.5), rel=1e-5)
    with pytest.raises(ollama.ResponseError, match="maximum context length"):
        client.embed("tiny", long, truncate=False)
    assert sum(x * x for x in client.embed("tiny", "a", dimensions=8).embeddings[0]) == (
        pytest.approx(1)
    )


def test_the_model_is_described(client: Any, lm: Any, running: Running) -> None:
    [model] = client.list().models
    assert model.model == "tiny:latest"
    assert model.size == sum(value.nbytes for value in lm.decoder.values.values())
    assert model.details.family == "llama"
    [loaded] = client.ps().models
    assert (loaded.model, loaded.size) == (model.model, model.size)
    assert loaded.context_length == lm.decoder.context
    shown = client.show("tiny")
    assert shown.modelinfo["llama.context_length"] == lm.decoder.context
    assert (shown.capabilities, shown.template) == (["completion", "embedding"], lm.template.text)
    assert re.fullmatch(r"[\d.]+\w*", httpx.get(f"{running.url}/api/version").json()["version"])


def test_errors_are_as_ollama_has_them(client: Any, running: Running) -> None:
    for call, status, message in (
        (lambda: client.chat("gpt", ASK), 404, "there is no model 'gpt'"),
        (lambda: client.show("gpt"), 404, "there is no model 'gpt'"),
        (lambda: client.embed("gpt", "a"), 404, "there is no model 'gpt'"),
        (lambda: client.generate("tiny", "a", suffix="b"), 400, "suffix is not supported"),
        (lambda: client.generate("tiny", "a", options={"mirostat": 2}), 400, "mirostat is not"),
        (lambda: client.generate("tiny", "a", options={"top_p": 3}), 400, "top_p cannot be 3"),
        (lambda: client.chat("tiny", ASK, tools=TOOLS), 400, "takes no tools"),
        (lambda: client.chat("tiny", ASK, format={"type": "x"}), 400, "Invalid type: x"),
        (lambda: client.pull("tiny"), 404, "^there is no path '/api/pull'"),
    ):
        with pytest.raises(ollama.ResponseError, match=message) as caught:
            call()
        assert caught.value.status_code == status
    bad: tuple[Any, ...] = ({}, {"model": 1}, [], {"model": "tiny", "options": 1})
    for body in bad:
        answer = httpx.post(f"{running.url}/api/chat", json=body)
        assert answer.status_code in (400, 404)
        assert answer.json().keys() == {"error"}
    for path in ("generate", "embeddings"):  # of OpenAI's fields these may be lists
        for given in (["a", "b"], [1, 2]):
            body = {"model": "tiny", "raw": True, "prompt": given}
            answer = httpx.post(f"{running.url}/api/{path}", json=body)
            assert answer.status_code == 400
            assert "prompt cannot be" in answer.json()["error"]


def test_tools_and_thoughts(models: Any, serve: Any, writes: Any) -> None:
    lm, base = models["thinks"], str(serve("thinks").base_url).removesuffix("/v1/")
    own = ollama.Client(host=base)
    writes(lm, f"<think>\nthe cat\n</think>\n\nhello<tool_call>{ONE}</tool_call>")
    assert own.show("tiny").capabilities == ["completion", "tools", "thinking", "embedding"]
    message = own.chat("tiny", ASK, tools=TOOLS).message
    assert (message.content, message.thinking) == ("hello", "the cat")
    [call] = message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", json.loads(CALLS[0].text))
    pieces = [piece.message for piece in own.chat("tiny", ASK, tools=TOOLS, stream=True)]
    assert "".join(piece.thinking or "" for piece in pieces) == "the cat"
    assert [piece.tool_calls for piece in pieces if piece.tool_calls] == [[call]]
    history = [*ASK, message, {"role": "tool", "tool_name": "weather", "content": "sunny"}]
    assert own.chat("tiny", history, tools=TOOLS).message.content == "hello"
    writes(lm, "hello")
    assert own.chat("tiny", ASK, think=False).message.thinking is None
    assert own.generate("tiny", "a", think=False).response == "hello"
    own._client.close()
