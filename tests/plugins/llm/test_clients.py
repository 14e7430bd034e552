"""Clients of others, as they are: LangChain, LlamaIndex and Cohere."""

import asyncio
import json
from typing import Any

import pytest

from tests.plugins.llm.conftest import Running
from tests.plugins.llm.parts import CALLS, ONE, TOOLS

HELLO = [{"role": "user", "content": "hello cat"}]


@pytest.fixture
def langchain(running: Running) -> Any:
    openai = pytest.importorskip("langchain_openai")
    options: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_tokens": 9}
    return openai.ChatOpenAI(base_url=f"{running.url}/v1", api_key="none", **options)


def test_langchain_has_the_answers_of_generate(langchain: Any, lm: Any) -> None:
    wanted = lm.generate(HELLO, max_tokens=9)
    answer = langchain.invoke("hello cat")
    assert answer.content == wanted
    assert answer.usage_metadata["input_tokens"] == len(lm.tokens(HELLO))
    assert "".join(piece.content for piece in langchain.stream("hello cat")) == wanted
    talk = [("system", "a dog"), ("human", "hello"), ("ai", "the cat"), ("human", "sat")]
    roles = {"human": "user", "ai": "assistant"}
    messages = [{"role": roles.get(role, role), "content": text} for role, text in talk]
    assert langchain.invoke(talk).content == lm.generate(messages, max_tokens=9)
    found = langchain.batch(["hello cat", "the dog"])
    assert [one.content for one in found] == [
        lm.generate([{"role": "user", "content": text}], max_tokens=9)
        for text in ("hello cat", "the dog")
    ]
    assert asyncio.run(langchain.ainvoke("hello cat")).content == wanted


def test_langchain_reads_answers_of_a_form(langchain: Any) -> None:
    pydantic = pytest.importorskip("pydantic")
    pytest.importorskip("llguidance")
    closed = pydantic.ConfigDict(extra="forbid")
    person = pydantic.create_model("Person", age=(int, ...), is_cat=(bool, ...), __config__=closed)
    own = langchain.model_copy(update={"max_tokens": 100, "seed": 4, "temperature": 1})
    assert isinstance(own.with_structured_output(person).invoke("a cat"), person)


def test_langchain_calls_tools(models: Any, serve: Any, writes: Any) -> None:
    openai = pytest.importorskip("langchain_openai")
    url = str(serve("thinks").base_url)
    lm = openai.ChatOpenAI(base_url=url, api_key="none", model="tiny", max_tokens=200)
    writes(models["thinks"], f"hello<tool_call>{ONE}</tool_call>")
    answer = lm.bind_tools(TOOLS).invoke("is it warm?")
    [call] = answer.tool_calls
    assert (call["name"], call["args"]) == (CALLS[0].name, json.loads(CALLS[0].text))
    pieces = list(lm.bind_tools(TOOLS).stream("is it warm?"))
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert [(c["name"], c["args"]) for c in whole.tool_calls] == [(call["name"], call["args"])]
    history = [("human", "is it warm?"), answer, {"role": "tool", "content": "20", **_id(call)}]
    writes(models["thinks"], "it is")
    assert lm.bind_tools(TOOLS).invoke(history).content == "it is"


def _id(call: Any) -> dict[str, str]:
    return {"tool_call_id": call["id"]}


def test_langchain_embeds_texts(running: Running, lm: Any) -> None:
    openai = pytest.importorskip("langchain_openai")
    own = openai.OpenAIEmbeddings(
        base_url=f"{running.url}/v1", api_key="none", model="tiny", check_embedding_ctx_length=False
    )
    found = own.embed_documents(["the cat", "hello"])
    for text, vector in zip(("the cat", "hello"), found, strict=True):
        wanted = lm.embed(text)
        assert vector == pytest.approx(list(wanted / (wanted**2).sum() ** 0.5), rel=1e-5)


def test_langchain_of_ollama(running: Running, lm: Any) -> None:
    ollama = pytest.importorskip("langchain_ollama")
    own = ollama.ChatOllama(base_url=running.url, model="tiny", temperature=0, num_predict=9)
    wanted = lm.generate(HELLO, max_tokens=9)
    assert own.invoke("hello cat").content == wanted
    assert "".join(piece.content for piece in own.stream("hello cat")) == wanted


@pytest.mark.parametrize("client", ["Client", "ClientV2"])
def test_cohere_orders_documents(running: Running, lm: Any, client: str) -> None:
    kind = getattr(pytest.importorskip("cohere"), client)
    texts = ["the dog sat", "hello cat", "hello"]
    query, *others = (lm.embed(text) for text in ("hello", *texts))
    cosines = [one @ query / ((one @ one) * (query @ query)) ** 0.5 for one in others]
    with pytest.importorskip("httpx").Client() as http:
        own = kind("none", base_url=running.url, httpx_client=http)
        found = own.rerank(model="tiny", query="hello", documents=texts, top_n=2).results
    assert [one.index for one in found] == sorted(range(3), key=lambda k: -cosines[k])[:2]
    assert [one.relevance_score for one in found] == pytest.approx(sorted(cosines)[:0:-1], rel=1e-5)


def test_llama_index_has_the_answers_of_generate(running: Running, lm: Any) -> None:
    like = pytest.importorskip("llama_index.llms.openai_like")
    from llama_index.core.llms import ChatMessage

    options: dict[str, Any] = {"api_key": "none", "context_window": 256, "max_tokens": 9}
    options |= {"api_base": f"{running.url}/v1", "temperature": 0, "model": "tiny"}
    own = like.OpenAILike(is_chat_model=True, **options)
    wanted, messages = lm.generate(HELLO, max_tokens=9), [ChatMessage(content="hello cat")]
    assert own.chat(messages).message.content == wanted
    assert "".join(piece.delta or "" for piece in own.stream_chat(messages)) == wanted
    plain = like.OpenAILike(is_chat_model=False, **options)
    assert plain.complete("the cat").text == lm.generate("the cat", max_tokens=9)
