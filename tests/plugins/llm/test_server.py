"""The server beside the openai client, and beside clients that leave or send nonsense."""

import asyncio
import gc
import json
import math
import random
import re
import socket
import time
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

from relaxpy.llm import ModelError, Request
from relaxpy.plugins.llm.config import ParameterError
from relaxpy.plugins.llm.openai_api import ApiError, asked, fields_of
from relaxpy.plugins.llm.server import application
from relaxpy.plugins.llm.template import ChatTemplate
from relaxpy.plugins.llm.worker import Job
from tests.plugins.llm.conftest import Running

httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai")
HELLO = [{"role": "user", "content": "hello cat"}]


def is_idle(lm: Any) -> bool:
    """True if nothing runs or waits, and the pages are free or those of kept sequences."""
    engine = lm.engine
    used = sum(len(sequence.pages) > 0 for sequence in engine.cache.sequences.values())
    kept = {prefix.sequence for prefix in engine.kept}
    return (
        not engine.running
        and not engine.waiting
        and set(engine.cache.sequences) == kept
        and used <= len(kept)
        and len(kept) + len(engine.free) == lm.decoder.sequences
        and engine.free_pages == lm.decoder.pages
    )


def requests_in_memory() -> int:
    """The number of requests that something refers to."""
    gc.collect()
    # `isinstance` asks some objects of PyTorch for their class, which warns.
    return sum(issubclass(type(found), (Request, Job)) for found in gc.get_objects())


def wait_until_idle(lm: Any) -> None:
    end = time.monotonic() + 20
    while not is_idle(lm):
        assert time.monotonic() < end, "requests have not ended"
        time.sleep(0.01)


def test_models(running: Running) -> None:
    client = running.client()
    [model] = client.models.list()
    assert model.id == "tiny"
    assert 0 <= time.time() - model.created < 3600
    assert client.models.retrieve("tiny").owned_by == "relaxpy"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_text_is_that_of_generate(running: Running, lm: Any) -> None:
    client = running.client()
    options = {"max_tokens": 12, "temperature": 0.8, "top_p": 0.9, "seed": 5}
    wanted = lm.generate("the cat", **options)
    answer = client.completions.create(model="tiny", prompt="the cat", **options)
    [choice] = answer.choices
    assert (choice.text, choice.finish_reason, choice.index) == (wanted, "length", 0)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 12)
    stream = client.completions.create(model="tiny", prompt="the cat", stream=True, **options)
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks) == wanted
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "length"
    assert len(chunks) > 1


def test_embeddings(running: Running, lm: Any) -> None:
    client = running.client()
    texts = ["the cat", "hello"]
    states = [lm.embed(text) for text in texts]
    wanted = [vector / np.linalg.norm(vector) for vector in states]  # as those of OpenAI
    for options in ({}, {"encoding_format": "float"}):  # the client asks for base64
        answer = client.embeddings.create(model="tiny", input=texts, **options)
        assert [entry.index for entry in answer.data] == [0, 1]
        for entry, vector in zip(answer.data, wanted, strict=True):
            np.testing.assert_allclose(entry.embedding, vector, rtol=1e-6)
        assert answer.usage.prompt_tokens == sum(len(lm.tokens(text)) for text in texts)
    [one] = client.embeddings.create(model="tiny", input=lm.tokens("hello")).data
    np.testing.assert_allclose(one.embedding, wanted[1], rtol=1e-6)
    wait_until_idle(lm)


def test_embeddings_are_computed_while_answers_are_written(running: Running, lm: Any) -> None:
    client = running.client()
    options = {"model": "tiny", "prompt": "the cat", "max_tokens": 100, "temperature": 0}
    stream = iter(client.completions.create(**options, stream=True))
    texts = [next(stream).choices[0].text]
    client.embeddings.create(model="tiny", input="hello")
    texts += [chunk.choices[0].text for chunk in stream]
    assert "".join(texts) == lm.generate("the cat", max_tokens=100)


def test_embeddings_end_with_the_client_that_waits_for_them(
    running: Running, lm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, embed = [], Event(), type(lm).embed

    def counted(lm: Any, tokens: Any) -> Any:
        begun.append(tokens)
        assert goes_on.wait(60)
        return embed(lm, tokens)

    monkeypatch.setattr(type(lm), "embed", counted)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{running.url}/v1/embeddings", json={"input": [[1]] * 9}, timeout=1)
    httpx.get(f"{running.url}/health")  # the server has seen that the client is gone
    goes_on.set()
    httpx.post(f"{running.url}/v1/embeddings", json={"input": [[2], [3]]}).raise_for_status()
    assert begun[-1] == [3]
    assert len(begun) <= 5, "texts of the client that has left"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": ["a", 1]}, "input"),
        ({"input": ["a"] * 257}, "input"),
        ({"input": [1] * 5000}, "input"),
        ({"input": [10**9]}, None),
        ({"input": "a", "encoding_format": "text"}, "encoding_format"),
        ({"input": "a", "dimensions": 500}, "dimensions"),
        ({"input": "a", "prompt": "a"}, "prompt"),
    ],
)
def test_requests_for_embeddings_that_are_none(
    running: Running, body: dict[str, Any], param: str | None
) -> None:
    answer = httpx.post(f"{running.url}/v1/embeddings", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_several_prompts_and_choices(running: Running, lm: Any) -> None:
    prompts = ["the cat", "hello"]
    answer = running.client().completions.create(
        model="tiny", prompt=prompts, n=2, max_tokens=6, temperature=1.0, seed=3
    )
    wanted = [
        lm.generate(prompt, max_tokens=6, temperature=1.0, seed=seed)
        for prompt in prompts
        for seed in (3, 4)
    ]
    assert [(c.index, c.text) for c in answer.choices] == list(enumerate(wanted))
    tokens = [lm.tokens(prompt) for prompt in prompts]
    by_tokens = running.client().completions.create(
        model="tiny", prompt=tokens, max_tokens=6, temperature=0
    )
    assert [c.text for c in by_tokens.choices] == lm.generate(prompts, max_tokens=6)
    assert answer.usage.total_tokens == 2 * 2 * 6 + sum(map(len, tokens))


def test_a_conversation(running: Running, lm: Any) -> None:
    client = running.client()
    options = {"model": "tiny", "messages": HELLO, "max_tokens": 9, "temperature": 0}
    wanted = lm.generate(HELLO, max_tokens=9)
    answer = client.chat.completions.create(**options)
    assert answer.choices[0].message.content == wanted
    assert answer.choices[0].message.role == "assistant"
    stream = client.chat.completions.create(
        **options, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = stream
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == wanted
    assert last.choices == []
    assert last.usage == answer.usage
    parts = [{"type": "text", "text": "hello "}, {"type": "text", "text": "cat"}]
    of_parts = [{"role": "user", "content": parts}]
    found = client.chat.completions.create(**{**options, "messages": of_parts})
    assert found.choices[0].message.content == wanted
    longest = client.chat.completions.create(**{**options, "max_tokens": openai.NOT_GIVEN})
    assert longest.usage.completion_tokens == 100  # the limit of the server


def test_stop_texts_and_tokens(running: Running, lm: Any) -> None:
    whole = lm.generate("the cat", max_tokens=20, temperature=1.0, seed=3)
    stop = whole[7:9]
    for stream in (False, True):
        answer = running.client().completions.create(
            model="tiny",
            prompt="the cat",
            max_tokens=20,
            temperature=1.0,
            seed=3,
            stop=["~~~", stop],
            stream=stream,
        )
        choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
        assert "".join(choice.text for choice in choices) == whole[: whole.index(stop)]
        assert choices[-1].finish_reason == "stop"
    ended = running.client().completions.create(
        model="tiny", prompt="a", temperature=0, logit_bias={"1": 100}, max_tokens=5
    )
    assert (ended.choices[0].text, ended.choices[0].finish_reason) == ("", "stop")


def test_seeds_are_integers_of_64_bits(running: Running, lm: Any) -> None:
    options = {"prompt": "the cat", "max_tokens": 5, "temperature": 1.0}
    for seed in (-1, 2**64 - 1):
        answer = running.client().completions.create(model="tiny", seed=seed, n=2, **options)
        wanted = [
            lm.generate("the cat", max_tokens=5, temperature=1.0, seed=s) for s in (2**64 - 1, 0)
        ]
        assert [choice.text for choice in answer.choices] == wanted


def test_logprobs(running: Running, lm: Any) -> None:
    client = running.client()
    prompt = lm.tokens(HELLO)
    options = {"model": "tiny", "temperature": 0, "max_tokens": 4}
    text = client.completions.create(prompt=prompt, logprobs=3, **options).choices[0].logprobs
    chat = client.chat.completions.create(
        messages=HELLO, logprobs=True, top_logprobs=3, **options
    ).choices[0]
    stream = client.completions.create(prompt=prompt, logprobs=3, stream=True, **options)
    streamed = [chunk.choices[0].logprobs for chunk in stream]
    assert [token for part in streamed for token in part.tokens] == text.tokens
    # Also of characters that are held back as they are not complete.
    assert [place for part in streamed for place in part.text_offset] == text.text_offset
    rows = [*prompt]
    for k, entry in enumerate(chat.logprobs.content):
        scores = lm.logits(rows)[-1].astype("float64")
        logs = scores - scores.max() - math.log(np.exp(scores - scores.max()).sum())
        best = np.argsort(-logs)[:3]
        np.testing.assert_allclose(entry.logprob, logs[best[0]], rtol=1e-4)
        found = [(top.token, top.logprob) for top in entry.top_logprobs]
        assert [token for token, _ in found] == [lm.tokenizer.piece(int(t)) for t in best]
        np.testing.assert_allclose([p for _, p in found], logs[best], rtol=1e-4, atol=1e-5)
        assert text.tokens[k] == entry.token
        np.testing.assert_allclose(text.token_logprobs[k], entry.logprob, rtol=1e-4)
        rows.append(int(best[0]))
    streamed = client.chat.completions.create(messages=HELLO, logprobs=True, stream=True, **options)
    parts = [c.choices[0].logprobs for c in streamed]
    joined = [entry.token for part in parts if part is not None for entry in part.content]
    assert joined == [entry.token for entry in chat.logprobs.content]


def test_logprobs_of_tokens_with_the_same_text(running: Running, lm: Any) -> None:
    """Bytes of characters are tokens whose texts are alike: the most probable one counts."""
    bias = {str(token): 50 for token in range(130, 230)}
    body = {"prompt": "the cat", "logprobs": 20, "max_tokens": 9, "logit_bias": bias}
    options = {"max_tokens": 9, "logprobs": 20, "logit_bias": {int(t): b for t, b in bias.items()}}
    answer = httpx.post(f"{running.url}/v1/completions", json={**body, "temperature": 0}).json()
    found = answer["choices"][0]["logprobs"]["top_logprobs"]
    same = lm.start(lm.tokens("the cat"), **options).request
    while not same.done:
        lm.step()
    assert any(len(row) < 20 for row in found)
    for row, (_, top) in zip(found, same.logprobs, strict=True):
        assert list(row) == list(dict.fromkeys(lm.tokenizer.piece(token) for token, _ in top))
        assert list(row.values()) == sorted(row.values(), reverse=True)


def test_answers_have_the_form_that_is_asked_for(running: Running, lm: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    pytest.importorskip("llguidance")
    closed = pydantic.ConfigDict(extra="forbid")
    person = pydantic.create_model("Person", age=(int, ...), is_cat=(bool, ...), __config__=closed)
    client = running.client()
    asked: dict[str, Any] = {"model": "tiny", "messages": HELLO, "seed": 4}
    answer = client.chat.completions.parse(response_format=person, **asked)
    assert isinstance(answer.choices[0].message.parsed, person)
    assert answer.choices[0].finish_reason == "stop"
    form = {
        "type": "json_schema",
        "json_schema": {"name": "x", "schema": person.model_json_schema()},
    }
    stream = client.chat.completions.create(response_format=form, stream=True, **asked)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert person.model_validate_json(text) == answer.choices[0].message.parsed
    assert text == lm.generate(HELLO, schema=person, temperature=1, seed=4, max_tokens=100)
    schema, grammar = {"enum": ["a", [1]]}, 'root ::= "a" [bc]+ "d"'
    for fields, pattern in (
        ({"response_format": {"type": "json_object", "schema": schema}}, r'"a"|\[\s*1\s*\]'),
        ({"json_schema": schema}, r'"a"|\[\s*1\s*\]'),
        ({"guided_json": json.dumps(schema)}, r'"a"|\[\s*1\s*\]'),
        ({"structured_outputs": {"json": schema}}, r'"a"|\[\s*1\s*\]'),
        ({"grammar": grammar}, "a[bc]+d"),
        ({"guided_grammar": grammar}, "a[bc]+d"),
        ({"structured_outputs": {"grammar": grammar}}, "a[bc]+d"),
        ({"guided_regex": "a[bc]+d"}, "a[bc]+d"),
        ({"structured_outputs": {"regex": "a[bc]+d"}}, "a[bc]+d"),
        ({"guided_choice": ["yes", "no"]}, "yes|no"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
    ):
        for path in ("completions", "chat/completions"):
            prompt = {"prompt": "the cat"} if path == "completions" else {"messages": HELLO}
            body = {**prompt, **fields, "n": 2, "max_tokens": 50, "seed": 1}
            found = httpx.post(f"{running.url}/v1/{path}", json=body).json()["choices"]
            for choice in found:
                text = choice["text"] if path == "completions" else choice["message"]["content"]
                assert re.fullmatch(pattern, text), fields
                assert choice["finish_reason"] == "stop"
    [choice] = client.chat.completions.create(
        response_format={"type": "json_object"}, max_tokens=2, **asked
    ).choices
    assert (choice.finish_reason, choice.message.content[0]) == ("length", "{")
    wait_until_idle(lm)


def test_answers_end_at_the_tokens_that_requests_name(running: Running, lm: Any) -> None:
    body: dict[str, Any] = {"prompt": "the cat", "temperature": 0, "max_tokens": 12}

    def ask(**fields: Any) -> tuple[str, str, int]:
        answer = httpx.post(f"{running.url}/v1/completions", json={**body, **fields}).json()
        [choice] = answer["choices"]
        return choice["text"], choice["finish_reason"], answer["usage"]["completion_tokens"]

    whole = lm.start(lm.tokens("the cat"), max_tokens=12).request
    while not whole.done:
        lm.step()
    third = whole.tokens[2]
    text, reason, count = ask(stop_token_ids=[third])
    place = whole.tokens.index(third)
    assert (text, reason, count) == (lm.tokenizer.decode(whole.tokens[:place]), "stop", place + 1)
    assert text == lm.generate("the cat", max_tokens=12, stop_token_ids=[third])
    bias = {"1": 100}  # the end that the model has
    assert ask(logit_bias=bias) == ("", "stop", 1)
    assert ask(logit_bias=bias, ignore_eos=True)[1:] == ("length", 12)
    wait_until_idle(lm)


def test_prompts_may_be_a_part_of_the_text(running: Running, lm: Any) -> None:
    client, texts = running.client(), ["the cat sat on the mat" * 4, "hello", "é🎉 cat"]
    options = {"model": "tiny", "prompt": texts, "max_tokens": 3, "temperature": 0, "echo": True}
    plain = client.completions.create(**options)
    assert [choice.text for choice in plain.choices] == [
        text + lm.generate(text, max_tokens=3) for text in texts
    ]
    answer = client.completions.create(logprobs=2, **options)
    streamed: dict[int, list[Any]] = {0: [], 1: [], 2: []}
    for chunk in client.completions.create(logprobs=2, stream=True, **options):
        streamed[chunk.choices[0].index].append(chunk.choices[0])
    for text, choice in zip(texts, answer.choices, strict=True):
        tokens, own = lm.tokens(text), choice.logprobs
        scores = lm.logits(tokens).astype("float64")
        logs = scores - scores.max(1, keepdims=True)
        logs -= np.log(np.exp(logs).sum(1, keepdims=True))
        assert (own.token_logprobs[0], own.top_logprobs[0]) == (None, None)
        wanted = [logs[k, token] for k, token in enumerate(tokens[1:])]
        np.testing.assert_allclose(
            own.token_logprobs[1 : len(tokens)], wanted, rtol=1e-4, atol=1e-4
        )
        assert own.tokens[: len(tokens)] == [lm.tokenizer.piece(token) for token in tokens]
        assert len(own.tokens) == len(tokens) + 3
        best = [lm.tokenizer.piece(int(row.argmax())) for row in logs[:-1]]
        assert [next(iter(top)) for top in own.top_logprobs[1 : len(tokens)]] == best
        places = dict(zip(own.text_offset[1:], own.tokens[1:], strict=True))
        whole = {place: piece for place, piece in places.items() if piece.isascii()}
        assert " cat" in whole.values() or text == "hello"
        assert all(choice.text.startswith(piece, place) for place, piece in whole.items())
        pieces = streamed[choice.index]
        assert "".join(piece.text for piece in pieces) == choice.text
        for name in ("tokens", "text_offset"):
            joined = [entry for piece in pieces for entry in getattr(piece.logprobs, name)]
            assert joined == getattr(own, name)


def test_the_best_of_several_choices_are_returned(running: Running, lm: Any) -> None:
    body = {"prompt": ["the cat", "hello"], "max_tokens": 6, "seed": 3, "temperature": 1.5}

    def ask(**fields: Any) -> Any:
        return httpx.post(f"{running.url}/v1/completions", json={**body, **fields}).json()

    every, best = ask(n=5, logprobs=0)["choices"], ask(n=2, best_of=5)
    ranked = [
        sorted(
            every[first : first + 5],
            key=lambda choice: -np.mean(choice["logprobs"]["token_logprobs"]),
        )
        for first in (0, 5)
    ]
    wanted = [choice["text"] for group in ranked for choice in group[:2]]
    assert [choice["text"] for choice in best["choices"]] == wanted
    assert [choice["index"] for choice in best["choices"]] == [0, 1, 2, 3]
    assert best["choices"][0]["logprobs"] is None
    assert best["usage"]["completion_tokens"] == 60
    for fields in ({"n": 3, "best_of": 2}, {"best_of": 2, "stream": True}, {"best_of": 0}):
        assert ask(**fields)["error"]["param"] == "best_of"
    found = httpx.post(f"{running.url}/v1/chat/completions", json={"messages": HELLO, "best_of": 2})
    assert found.status_code == 400


def test_embeddings_have_the_dimensions_that_are_wanted(running: Running, lm: Any) -> None:
    client = running.client()
    wanted = lm.embed("the cat")[:10]
    [one] = client.embeddings.create(model="tiny", input="the cat", dimensions=10).data
    np.testing.assert_allclose(one.embedding, wanted / np.linalg.norm(wanted), rtol=1e-6)
    for bad in (0, 65, "x"):
        with pytest.raises(openai.BadRequestError, match="dimensions cannot be"):
            client.post("/embeddings", body={"input": "a", "dimensions": bad}, cast_to=object)


def test_usage_tells_which_tokens_were_in_the_cache(running: Running, lm: Any) -> None:
    client, prompt = running.client(), [5 + k % 50 for k in range(120)]
    options = {"model": "tiny", "prompt": prompt, "max_tokens": 3}
    found = [client.completions.create(**options).usage for _ in range(2)]
    assert [usage.prompt_tokens_details.cached_tokens for usage in found] == [0, 119]
    stream = client.completions.create(
        stream=True, stream_options={"include_usage": True}, n=2, **options
    )
    assert [*stream][-1].usage.prompt_tokens_details.cached_tokens == 119


def test_pages_of_named_origins_may_use_the_server(lm: Any) -> None:
    origin = "http://localhost:3000"
    server = Running(lm, cors=[origin])
    ask = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type,x-stainless-os",
    }
    try:
        for own, is_let in ((origin, True), ("http://evil.example", False)):
            headers = {"origin": own}
            for found in (
                httpx.get(f"{server.url}/v1/models", headers=headers),
                httpx.options(f"{server.url}/v1/chat/completions", headers=headers | ask),
            ):
                let = found.headers.get("access-control-allow-origin")
                assert (let == own) == is_let
                assert found.status_code == 200 or not is_let
    finally:
        server.stop()


def test_each_request_has_a_line_in_the_log(lm: Any) -> None:
    lines: list[str] = []
    server = Running(lm, log=lines.append)
    try:
        httpx.get(f"{server.url}/v1/models")
        httpx.post(f"{server.url}/v1/completions", json={"prompt": "a", "stream": True})
        httpx.get(f"{server.url}/no%1B[31m%0Athing")
    finally:
        server.stop()
    wanted = ["GET /v1/models 200", "POST /v1/completions 200", r"GET /no\x1b[31m\nthing 404"]
    assert len(lines) == len(wanted)
    for line, part in zip(lines, wanted, strict=True):
        assert re.fullmatch(rf"127\.0\.0\.1 {re.escape(part)} \d+\.\d{{3}} s", line)


JSON = {"type": "json_schema"}
NUMBERS = ("temperature", "top_p", "repetition_penalty", "presence_penalty")


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"temperature": -1}, 400, "temperature cannot be -1"),
        ({"temperature": "hot"}, 400, "temperature cannot be 'hot'"),
        ({"top_p": -1}, 400, "top_p cannot be -1"),
        ({"top_k": -2}, 400, "top_k cannot be -2"),
        ({"min_p": 2}, 400, "min_p cannot be 2"),
        ({"n": 0}, 400, "n cannot be 0, expected an integer from 1 to 16"),
        ({"n": 99}, 400, "n cannot be 99"),
        ({"stream": 1}, 400, "stream cannot be 1, expected true or false"),
        ({"seed": "x"}, 400, "seed cannot be 'x'"),
        ({"stop": [1]}, 400, r"stop cannot be \[1\]"),
        ({"max_tokens": 0}, 400, "max_tokens cannot be 0"),
        ({"max_tokens": -2}, 400, "max_tokens cannot be -2"),
        ({"messages": []}, 400, r"messages cannot be \[\]"),
        ({"messages": "hi"}, 400, "messages cannot be 'hi'"),
        ({"messages": [{"role": "x", "content": ""}]}, 400, "a message has a role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "are texts"),
        ({"stop": "x" * 1001}, 400, "stop cannot be 'x"),
        ({"seed": 1 << 64}, 400, "seed cannot be 18446744073709551616"),
        ({"messages": [{"role": "user", "content": "a" * 999}]}, 400, "context length"),
        ({"response_format": {"type": "xml"}}, 400, "response_format cannot be {'type': 'xml'}"),
        ({"response_format": JSON | {"json_schema": {"schema": 1}}}, 400, "schema cannot be 1"),
        ({"structured_outputs": {"xml": 1}}, 400, "structured_outputs cannot be 'xml', expected"),
        ({"guided_regex": "a", "response_format": JSON}, 400, "response_format cannot be"),
        ({"guided_regex": "a", "grammar": "b"}, 400, "expected a single form of an answer"),
        ({"guided_regex": "a("}, 400, "unclosed group"),
        ({"grammar": "root ::= b"}, 400, "grammar: line 1, column 10: there is no rule 'b'"),
        ({"json_schema": {"type": "strin"}}, 400, "schema cannot be followed at #: Invalid"),
        ({"tools": [{"type": "function"}]}, 400, "tools cannot be"),
        ({"logit_bias": {"x": 1}}, 400, "logit_bias cannot be"),
        ({"top_logprobs": 99, "logprobs": True}, 400, "top_logprobs cannot be 99"),
        ({"messages": [{"role": "assistant", "content": None}]}, 400, "content of a message is a"),
        ({"temprature": 1}, 400, "there is no parameter 'temprature', did you mean temperature"),
        ({"prompt": "a"}, 400, "there is no parameter 'prompt' here"),
        ({"typical_p": 0.5}, 400, "typical_p is not supported"),
        ({"guided_json": []}, 400, "schema cannot be"),
        ({"chat_template_kwargs": 1}, 400, "chat_template_kwargs cannot be 1, expected an object"),
        ({"logit_bias": {"286": 1}}, 400, "logit_bias cannot be 286, expected tokens from 0 to 2"),
        *(({name: 10**400}, 400, f"{name} cannot be 1000") for name in NUMBERS),
        ({"logit_bias": {"5": 10**400}}, 400, "logit_bias cannot be"),
        ({"model": "gpt"}, 404, "there is no model 'gpt', this server has 'tiny'"),
    ],
)
def test_parameters_that_make_no_sense(running, fields, status, message) -> None:
    client = running.client()
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 4, **fields}
    with pytest.raises(openai.APIStatusError, match=message) as caught:
        client.post("/chat/completions", body=body, cast_to=object)
    assert caught.value.status_code == status
    assert caught.value.body.keys() == {"message", "type", "param", "code"}
    assert caught.value.body["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "fields",
    [
        {"nonsense": 1, "cache_prompt": True, "keep_alive": "5m", "reasoning_effort": "low"},
        {"top_p": 0, "temperature": 1},
        {"top_k": 0, "min_p": 0, "repeat_penalty": 1},
        {"top_k": -1, "stop": "", "typical_p": 1.0, "mirostat": 0, "ignore_eos": False},
        {"stop": ["", "never"]},
        {"top_k": 1, "temperature": 1},
        {"min_p": 1, "temperature": 1},
        {"temperature": 1, "logit_bias": None},
    ],
)
def test_values_that_clients_send(running: Running, lm: Any, fields: dict[str, Any]) -> None:
    body = {"messages": HELLO, "max_tokens": 6, "temperature": 0, **fields}
    answer = httpx.post(f"{running.url}/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if fields.get("temperature", 0) == 0 or (len(fields) < 3 and "logit_bias" not in fields):
        text = answer.json()["choices"][0]["message"]["content"]
        assert text == lm.generate(HELLO, max_tokens=6)


def test_answers_end_where_the_context_or_the_server_ends_them(running: Running, lm: Any) -> None:
    body = {"prompt": "the cat", "temperature": 0, "logit_bias": {"1": -100}}
    for wanted, read in ((240, 100), (100_000, 100), (99, 99), (-1, 100)):
        answer = httpx.post(f"{running.url}/v1/completions", json={**body, "max_tokens": wanted})
        assert answer.json()["usage"]["completion_tokens"] == read
    body |= {"prompt": [5] * 250, "max_tokens": 90}
    answer = httpx.post(f"{running.url}/v1/completions", json=body).json()
    assert answer["usage"]["completion_tokens"] == 6
    assert answer["choices"][0]["finish_reason"] == "length"


def test_histories_of_agents_and_variables_reach_the_template(lm: Any, monkeypatch: Any) -> None:
    text = (
        "{% for m in messages %}{{ m.role }}:{{ m.content | tojson }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments.place }}{% endfor %};{% endfor %}"
        "{{ enable_thinking }}{{ reasoning_effort }}{{ bos_token }}"
    )
    monkeypatch.setattr(lm, "template", ChatTemplate(text, {"bos_token": "<s>"}), raising=False)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"place": 7}'}}
    odd = {**call, "function": {"name": "f", "arguments": "{"}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call, odd]},
        {"role": "tool", "content": "a", "tool_call_id": "1"},
        {"role": "function", "content": "b", "name": "f"},
    ]
    body = {
        "messages": messages,
        "chat_template_kwargs": {"enable_thinking": False, "messages": [], "bos_token": "no"},
        "reasoning_effort": "low",
    }
    [tokens] = asked("chat", body, lm, 100).prompts
    wanted = 'user:"hello cat";assistant:""7;tool:"a";function:"b";Falselow<s>'
    assert tokens == lm.tokenizer.encode(wanted, is_rendered=True)


def test_unknown_fields_are_in_the_log_once(running: Running, caplog: Any) -> None:
    for _ in range(2):
        fields = {"prompt": "a", "max_tokens": 1, "some_field": 1, "cache_prompt": True}
        httpx.post(f"{running.url}/v1/completions", json=fields).raise_for_status()
    assert [r.getMessage() for r in caplog.records if "some_field" in r.getMessage()] == [
        "requests have the field 'some_field', which is not known and ignored"
    ]
    assert "cache_prompt" not in caplog.text


@pytest.mark.parametrize("path", ["completions", "chat/completions", "embeddings"])
def test_a_text_that_cannot_fit_is_refused_unread(
    running: Running, lm: Any, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = []
    monkeypatch.setattr(lm.tokenizer, "encode", lambda text, **_: read.append(text) or [1] * 999)
    name = {"completions": "prompt", "embeddings": "input"}.get(path, "messages")
    for length, is_read in ((40_000, False), (20_000, True)):
        text = "ab " * (length // 3)
        given = [{"role": "user", "content": text}] if name == "messages" else text
        answer = httpx.post(f"{running.url}/v1/{path}", json={name: given})
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "context_length_exceeded"
        assert answer.json()["error"]["param"] == name
        assert bool(read) == is_read


def test_few_requests_are_read_at_a_time(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that large ones take the memory of few, and as many bodies wait as have room."""
    server, running, most = Running(lm, max_body=1000), [0], [0]
    encode = lm.tokenizer.encode

    def slow(text: str, **options: Any) -> list[int]:
        running[0] += 1
        most[0] = max(most[0], running[0])
        time.sleep(0.05)
        running[0] -= 1
        return encode(text, **options)

    monkeypatch.setattr(lm.tokenizer, "encode", slow)
    body = json.dumps({"prompt": "the", "max_tokens": 1, "user": "x" * 800})

    async def run() -> list[int]:
        limits = httpx.Limits(max_connections=40)
        headers = {"content-type": "application/json"}
        async with httpx.AsyncClient(limits=limits, timeout=60, headers=headers) as client:
            url = f"{server.url}/v1/completions"
            asking = (client.post(url, content=body) for _ in range(40))
            return [answer.status_code for answer in await asyncio.gather(*asking)]

    try:
        found = asyncio.run(run())
        assert most == [2]
        assert set(found) == {200, 429}
        assert 17 <= found.count(200) <= 30
        again = httpx.post(f"{server.url}/v1/completions", json={"prompt": "a", "max_tokens": 1})
        assert again.status_code == 200
    finally:
        server.stop()


JUNK = [
    None,
    0,
    -1,
    2**70,
    10**400,
    3.5,
    "x",
    "\ud800",
    True,
    [],
    ["a"],
    [1, [2]],
    [[]],
    [{}],
    {},
    {"1": "x"},
]


@pytest.mark.parametrize(("kind", "prompt"), [("chat", HELLO), ("text", "x")])
def test_fields_of_any_kind_are_requests_or_errors(lm: Any, kind: Any, prompt: Any) -> None:
    rng = random.Random(kind)
    name = "messages" if kind == "chat" else "prompt"
    fields = [name, "model", "stream", "stream_options", "n", "seed", "logit_bias", "logprobs"]
    fields += ["top_logprobs", "max_tokens", "temperature", "top_k", "stop", "tools", "best_of"]
    for _ in range(500):
        body = {name: prompt, **{rng.choice(fields): rng.choice(JUNK) for _ in range(2)}}
        with suppress(ApiError, ModelError):
            for continuation in asked(kind, fields_of(json.dumps(body).encode()), lm, 100).begin(
                lm
            ):
                lm.cancel(continuation.request)
    assert is_idle(lm)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b"[" * 10_000, "application/json", 400),
        (b"[" * 100_000, "application/json", 413),
        (b'{"prompt": [%s[]]}' % (b"[]," * 20_000), "application/json", 413),
        (b'{"prompt": [%s{}]}' % (b'{"a":1},' * 20_000), "application/json", 413),
        (b'{"prompt": [%s]}' % (b"1" * 1001), "application/json", 400),
        (b'{"prompt": "a", "seed": 1.%s}' % (b"1" * 1001), "application/json", 400),
        (b"[1]", "application/json", 400),
        (b'{"prompt": NaN}', "application/json", 400),
        (b'{"model": "tiny"}', "application/json", 400),
        (b'{"prompt": {"a": 1}}', "application/json", 400),
        (b'{"prompt": [1.5]}', "application/json", 400),
        (b'{"prompt": [99999999]}', "application/json", 400),
        (b'{"prompt": "\\ud800"}', "application/json", 400),
        (b'{"prompt": "a", "\\ud800": 1, "n": 0}', "application/json", 400),
        (b'{"prompt": ["a"%s]}' % (b', "a"' * 99), "application/json", 400),
        *(
            (b'{"prompt": "a", "stop": %s}' % (b"[" * n + b"]" * n), "application/json", 400)
            for n in range(940, 1000, 4)
        ),
        (b"\xff\xfe", "application/json", 400),
        ('{"prompt": "a"}'.encode("utf-16"), "application/json", 400),
        (b'{"prompt": [%s[]]}' % (b"[]," * 150_000), "application/json", 413),
        (b'{"prompt": [1%s]}' % (b",1" * 300_000), "application/json", 413),
        (b'{"prompt": "%s' % (rb"\"[" * 900_000), "application/json", 400),
        (b" " * 5_000_000, "application/json", 413),
    ],
)
def test_bodies_that_are_none(running: Running, body: bytes, kind: str, status: int) -> None:
    answer = httpx.post(
        f"{running.url}/v1/completions", content=body, headers={"content-type": kind}
    )
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/completions", "/api/generate", "/api/show"])
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
@pytest.mark.parametrize(
    ("origin", "status"), [(None, 200), ("http://evil.example", 415), ("null", 415)]
)
def test_only_pages_have_to_name_the_type(
    running: Running, path: str, kind: str | None, origin: str | None, status: int
) -> None:
    """A browser sends other types of any page without asking, always with an origin."""
    headers = {"content-type": kind, "origin": origin}
    answer = httpx.post(
        f"{running.url}{path}",
        content=b'{"model": "tiny", "prompt": "a", "stream": false, "max_tokens": 1}',
        headers={name: value for name, value in headers.items() if value is not None},
    )
    assert answer.status_code == status, answer.text


class Listed:
    """A value whose representations are counted."""

    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        self.count += 1
        return "value"


@pytest.mark.parametrize("nested", [False, True])
def test_a_message_shows_the_first_of_a_large_value_and_computes_no_more(nested: bool) -> None:
    value = Listed()
    listed: list[Any] = [[value] * 100_000] * 100_000 if nested else [value] * 100_000
    with pytest.raises(ParameterError, match=r"seed cannot be \[+value, value, .*, expected none"):
        raise ParameterError.of("seed", listed, "none")
    assert value.count < 1000
    many = dict.fromkeys(range(100_000), value)
    assert str(ParameterError.of("seed", many, "none")).startswith("seed cannot be {0: value, 1: v")
    assert value.count < 2000


def test_a_text_may_have_many_brackets_and_commas(running: Running) -> None:
    """Only those outside of strings are of lists and objects."""
    text = rb"\\\"[{," * 200_000
    answer = httpx.post(
        f"{running.url}/v1/completions",
        content=b'{"prompt": "a", "stop": "%s"}' % text,
        headers={"content-type": "application/json"},
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "stop"


def test_other_addresses(running: Running) -> None:
    get = lambda path, **headers: httpx.get(f"{running.url}{path}", headers=headers)  # noqa: E731
    assert get("/health").json() == {"status": "ok"}
    page = get("/")
    assert "<textarea" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("https://", "http://").split("<script>")[0]
    for path, host, status, message in (
        ("/nothing", "localhost", 404, "there is no path '/nothing'"),
        ("/../../etc/passwd", "localhost", 404, "there is no path '/etc/passwd'"),
        ("/responses", "localhost", 404, "did you mean /v1/responses?"),
        ("/embeddings", "localhost", 404, "did you mean /v1/embeddings or /api/embeddings?"),
        ("/v1/v1/models", "localhost", 404, "did you mean /v1/models?"),
        ("/v1/completions", "localhost", 405, "/v1/completions expects POST"),
        ("/health", "elsewhere.example", 400, "found 'elsewhere.example'"),
        ("/health", "localhost.evil.example:80", 400, "found 'localhost.evil.example:80'"),
        ("/health", "[::1]x", 400, "found '[::1]x'"),
    ):
        answer = get(path, host=host)
        assert answer.status_code == status
        assert message in answer.json()["error"]["message"]
        assert answer.headers.get("allow") == ("POST" if status == 405 else None)
    for host in ("LocalHost", "localhost:99", "127.0.0.1:8000", "[::1]:8000", "[::1]"):
        assert get("/health", host=host).status_code == 200
    names = re.findall(r"^# TYPE (\w+) (\w+)", get("/metrics").text, re.MULTILINE)
    page = Path(__file__).parents[3] / "docs" / "how-to" / "talk-to-a-language-model.md"
    rows = re.findall(r"^\| (`relaxpy_.*`) \| (\w+) \|", page.read_text("utf-8"), re.MULTILINE)
    described = [(name, kind) for row, kind in rows for name in re.findall(r"`(\w+)", row)]
    assert described == names


def test_a_key_that_requests_have_to_name(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_API_KEY", "sesame")
    server = Running(lm)
    try:
        for key in ("x", "sesam", "sesame2", "ü"):
            headers = {"authorization": f"Bearer {key}".encode()}
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 401
        for scheme, status in (("bearer", 200), ("BEARER ", 200), ("Basic", 401), ("", 401)):
            headers = {"authorization": f"{scheme} sesame".strip().encode()}
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == status
        assert httpx.get(f"{server.url}/v1/models").status_code == 401
        assert len(server.client("sesame").models.list().data) == 1
        assert httpx.get(f"{server.url}/health").status_code == 200
    finally:
        server.stop()


def test_a_key_may_have_any_characters(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXPY_API_KEY", "Schlüssel")
    server = Running(lm)
    try:
        for key, status in (("Schlüssel", 200), ("Schlussel", 401)):
            headers = {"authorization": f"Bearer {key}".encode()}
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == status
    finally:
        server.stop()


def test_a_client_that_leaves_in_its_request_is_no_failure_of_the_server(running: Running) -> None:
    def count() -> int:
        found = re.search('status="499"} (\\d+)', httpx.get(f"{running.url}/metrics").text)
        return 0 if found is None else int(found[1])

    before = count()
    with socket.create_connection(("127.0.0.1", running.port)) as client:
        lines = ("POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Length: 99")
        lines += ("Content-Type: application/json", "", '{"prompt')
        client.sendall("\r\n".join(lines).encode())
    while count() == before:
        time.sleep(0.01)


def test_a_tokenizer_that_fails_ends_one_answer_and_not_the_server(lm, monkeypatch) -> None:
    def fails(_: Any) -> str:
        raise ModelError("the tokenizer cannot write tokens")

    server = Running(lm)
    body = {"prompt": "the cat", "max_tokens": 3}
    try:
        with monkeypatch.context() as patch:
            patch.setattr(lm.tokenizer, "decode", fails, raising=False)
            answer = httpx.post(f"{server.url}/v1/completions", json=body)
        assert answer.status_code == 500
        assert "the tokenizer cannot write tokens" in answer.json()["error"]["message"]
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 200
    finally:
        server.stop()
    wait_until_idle(lm)


def test_requests_end_with_their_server(lm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run, server = lm.decoder.run, Running(lm, max_tokens=250)

    def stops(*args: Any) -> Any:
        server.server.should_exit = server.server.force_exit = True
        server.thread.join(1)  # it ends while the model runs
        return run(*args)

    monkeypatch.setattr(lm.decoder, "run", stops)
    with suppress(httpx.TransportError):
        httpx.post(f"{server.url}/v1/completions", json={"prompt": "the cat", "max_tokens": 250})
    server.stop()
    assert is_idle(lm)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_has_left_before_its_answer_begins(lm, stream, monkeypatch) -> None:
    run = lm.decoder.run

    def slow(*args: Any) -> Any:
        time.sleep(0.05)
        return run(*args)

    monkeypatch.setattr(lm.decoder, "run", slow)
    app = application(lm)
    fields = {"prompt": "the cat", "max_tokens": 250, "stream": stream, "logit_bias": {"1": -100}}
    body = {"type": "http.request", "body": json.dumps(fields).encode(), "more_body": False}
    messages = [body] + [{"type": "http.disconnect"}] * 9
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "asgi": {"version": "3.0", "spec_version": "2.3"},
    }

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        await asyncio.sleep(0)

    async def ask() -> int:
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
            for turn in range(40):
                if is_idle(lm):
                    return turn
                await asyncio.sleep(0.05)
        return 40

    assert asyncio.run(ask()) < 40


def test_a_full_queue_refuses(lm: Any) -> None:
    server = Running(lm, queue=1, max_tokens=200)
    body = {"prompt": "the cat", "max_tokens": 200, "temperature": 0, "logit_bias": {"1": -100}}

    async def ask(client: Any) -> int:
        answer = await client.post(f"{server.url}/v1/completions", json=body)
        assert ("retry-after" in answer.headers) == (answer.status_code == 429)
        return answer.status_code

    async def run() -> list[int]:
        limits = httpx.Limits(max_connections=20)
        async with httpx.AsyncClient(limits=limits, timeout=60) as client:
            return await asyncio.gather(*(ask(client) for _ in range(12)))

    try:
        found = asyncio.run(run())
        assert set(found) == {200, 429}
        assert found.count(200) >= lm.decoder.sequences
        wait_until_idle(lm)
    finally:
        server.stop()


def test_requests_that_come_and_go_get_the_answers_that_they_get_alone(running, lm) -> None:
    rng = random.Random(0)
    words = ["the", "cat", "sat", "on", "log", "hello", "world", "ünï", "🎉"]

    def request() -> dict[str, Any]:
        text = " ".join(rng.choice(words) for _ in range(rng.randint(1, 25)))
        return {
            "prompt": rng.choice(["the cat sat on ", ""]) + text,
            "max_tokens": rng.randint(1, 30),
            "temperature": rng.choice([0, 0.9]),
            "seed": rng.randrange(1000),
        }

    async def ask(client: Any, body: dict[str, Any], way: str, after: float) -> str | None:
        url = f"{running.url}/v1/completions"
        if way == "whole":
            answer = await client.post(url, json=body)
            return str(answer.json()["choices"][0]["text"])
        if way == "leave":  # mostly before the answer
            with suppress(httpx.TimeoutException):
                await client.post(url, json={**body, "max_tokens": 100}, timeout=after / 20)
            return None
        if way == "bad":
            answer = await client.post(url, json={**body, "temperature": -1})
            assert answer.status_code == 400
            return None
        text, left = "", rng.randint(1, 4)
        async with client.stream("POST", url, json={**body, "stream": True}) as events:
            async for line in events.aiter_lines():
                if line.startswith("data: {"):
                    text += json.loads(line[6:])["choices"][0]["text"]
                    left -= 1
                    if way == "break" and not left:
                        return None
        return text

    bodies = [request() for _ in range(200)]
    ways = [rng.choice(["whole", "stream", "stream", "break", "leave", "bad"]) for _ in bodies]

    async def run() -> list[str | None]:
        gate = asyncio.Semaphore(16)

        async def one(client: Any, body: Any, way: str) -> str | None:
            async with gate:
                return await ask(client, body, way, rng.random())

        async with httpx.AsyncClient(timeout=60) as client:
            return await asyncio.gather(*map(lambda b, w: one(client, b, w), bodies, ways))

    before = requests_in_memory()
    found = asyncio.run(run())
    wait_until_idle(lm)
    assert requests_in_memory() <= before
    names = ("max_tokens", "temperature", "seed")
    for body, text in zip(bodies, found, strict=True):
        if text is not None:
            options = {name: body[name] for name in names}
            assert text == lm.generate(body["prompt"], **options)
    assert sum(text is not None for text in found) > 60
    assert is_idle(lm)


def test_a_request_whose_scores_are_not_numbers_ends_alone(running, lm, monkeypatch) -> None:
    run, failing = lm.decoder.run, [0]

    def odd(cache: Any, sequences: Any, ids: Any, rows: Any) -> Any:
        scores = np.array(run(cache, sequences, ids, rows))
        if any(request.max_tokens == 33 for request in lm.engine.running):
            scores[:] = math.nan
            failing[0] += 1
        return scores

    client = running.client()
    monkeypatch.setattr(lm.decoder, "run", odd)
    with pytest.raises(openai.InternalServerError, match="the best score is nan"):
        client.completions.create(model="tiny", prompt="a", max_tokens=33)
    with pytest.raises(openai.APIError, match="the best score is nan"):
        list(client.completions.create(model="tiny", prompt="a", max_tokens=33, stream=True))
    assert failing[0] == 2
    assert len(client.completions.create(model="tiny", prompt="a", max_tokens=3).choices) == 1

    def broken(*args: Any) -> Any:
        raise MemoryError("no memory for a call")

    monkeypatch.setattr(lm.decoder, "run", broken)
    with pytest.raises(openai.InternalServerError, match="no memory for a call"):
        client.completions.create(model="tiny", prompt="a", max_tokens=3)
    monkeypatch.setattr(lm.decoder, "run", run)
    assert client.completions.create(model="tiny", prompt="a", max_tokens=3).usage is not None
    wait_until_idle(lm)
