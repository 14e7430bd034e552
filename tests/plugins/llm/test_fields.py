"""The table of fields in the documents beside those that the server and its clients know."""

import re
import typing
from pathlib import Path
from typing import Any

import pytest

from relaxpy.plugins.llm import ollama_api, openai_api, responses_api
from tests.plugins.llm.conftest import Running
from tests.plugins.llm.parts import ASK

PAGE = Path(__file__).parents[3] / "docs" / "llm.md"


def documented() -> tuple[set[str], set[str], set[str]]:
    """The fields that are obeyed, ignored and refused."""
    section = (
        PAGE.read_text("utf-8").split("## Fields of requests to the server")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    known, ignored, refused = set[str](), set[str](), set[str]()
    for names, meaning in rows:
        kind = refused if meaning.startswith("400") else ignored if "ignored" in meaning else known
        kind |= set(re.findall(r"`(\w+)`", names))
    return known, ignored, refused


def test_the_documented_fields_are_those_of_the_server() -> None:
    known, ignored, refused = documented()
    own = {*openai_api._OWN, *openai_api._SAMPLING, *openai_api._VARIABLES, *openai_api._PROMPTS}
    own |= {*openai_api._FORMS, "structured_outputs", *openai_api._TOOLS, *openai_api._COMPLETIONS}
    assert known == own | openai_api._OF_EMBEDDINGS
    assert ignored == openai_api._IGNORED
    # Those of conversations are refused elsewhere.
    assert refused == openai_api._ONLY.keys() - own


def test_the_documented_fields_of_reranking_are_those_of_the_server() -> None:
    section = PAGE.read_text("utf-8").split("`/v1/rerank` has ")[1].split("\n\n")[0]
    names = set(re.findall(r"`(\w+)`", section)) - {"text"}
    assert names | {"model", "keep_alive"} == openai_api.OF_RERANKING


def test_the_documented_fields_of_responses_are_those_of_the_server() -> None:
    section = PAGE.read_text("utf-8").split("`/v1/responses` reads these")[1].split("\n\n")[0]
    names = [
        set(re.findall(r"`(\w+)`", part)) for part in re.split(r"as OpenAI's|have no", section)
    ]
    wanted = (responses_api.OWN, responses_api.IGNORED, responses_api.REFUSED)
    assert names == [set(group) for group in wanted]


def test_the_documented_options_of_ollama_are_those_of_the_server() -> None:
    section = PAGE.read_text("utf-8").split("Ollama's requests have the same fields")[1]
    section = section.split("\n\n")[0]
    [names] = re.findall(r"as\nOllama has it\. (.*?) have no effect", section, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", names)) == ollama_api.IGNORED
    _, drawn, refused = re.split(r"have no effect|;(?=.* 400\.)", section, flags=re.DOTALL)
    assert set(re.findall(r"`(\w+)`", drawn)) == set(ollama_api.IMAGES)
    assert set(re.findall(r"`(\w+)`", refused.split(" 400.")[0])) == set(ollama_api.REFUSED)


def test_no_field_of_the_clients_is_unknown() -> None:
    openai, ollama = pytest.importorskip("openai"), pytest.importorskip("ollama")
    types, common = openai.types, set().union(*documented())
    texts = openai_api._COMPLETIONS
    responses = {*responses_api.OWN, *responses_api.IGNORED, *responses_api.REFUSED}
    responses |= common.difference(texts, openai_api._PROMPTS)
    # Options of requests are fields of OpenAI's, by the names of these.
    fields = {*ollama_api.OWN, *ollama_api.REFUSED, *ollama_api.IMAGES, "stream", "keep_alive"}
    fields |= {"tools"}
    of_ollama = ollama._types
    create = "CreateParamsBase"
    for params, known in (
        (getattr(types.chat.completion_create_params, f"Completion{create}"), common - {*texts}),
        (getattr(types.completion_create_params, f"Completion{create}"), common),
        (getattr(types.responses.response_create_params, f"Response{create}"), responses),
        (types.EmbeddingCreateParams, openai_api._OF_EMBEDDINGS | openai_api._IGNORED),
        (of_ollama.GenerateRequest, fields),
        (of_ollama.ChatRequest, fields),
        (of_ollama.EmbedRequest, ollama_api.OF_EMBEDDINGS),
        (of_ollama.EmbeddingsRequest, ollama_api.OF_EMBEDDINGS | {"prompt"}),
        (of_ollama.Options, common | ollama_api.IGNORED | {"num_predict"}),
    ):
        names = getattr(params, "model_fields", None) or typing.get_type_hints(params)
        assert not set(names) - known, params


def test_fields_are_ignored_and_refused_as_documented(running: Running, caplog: Any) -> None:
    openai, client = pytest.importorskip("openai"), running.client()
    _, ignored, refused = documented()

    def answer(**fields: Any) -> str:
        own: Any = {"model": "tiny", "seed": 3, "max_tokens": 4, "messages": ASK}
        return str(client.chat.completions.create(**own, extra_body=fields).choices[0].message)

    assert answer(**dict.fromkeys(ignored, "x")) == answer()
    assert not caplog.records
    for name in refused:
        with pytest.raises(openai.BadRequestError) as caught:
            answer(**{name: "x"})
        assert caught.value.param == name
