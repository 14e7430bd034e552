"""The table of fields in the documents beside those that the server knows."""

import re
from pathlib import Path

from relaxpy.plugins.llm import ollama_api, openai_api, responses_api

PAGE = Path(__file__).parents[3] / "docs" / "llm.md"


def test_the_documented_fields_are_those_of_the_server() -> None:
    section = (
        PAGE.read_text("utf-8").split("## Fields of requests to the server")[1].split("\n## ")[0]
    )
    rows = re.findall(r"^\| (`.*?) \| (.*) \|$", section, re.MULTILINE)
    known, ignored, refused = set(), set(), set()
    for names, meaning in rows:
        kind = refused if meaning.startswith("400") else ignored if "ignored" in meaning else known
        kind |= set(re.findall(r"`(\w+)`", names))
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
    [names] = re.findall(r"as\nOllama has it\. (.*?) have no effect", section, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", names)) == ollama_api.IGNORED
