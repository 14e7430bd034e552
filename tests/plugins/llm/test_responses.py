"""OpenAI's API of responses beside its client."""

import json
from typing import Any

import pytest

from tests.plugins.llm.conftest import Running
from tests.plugins.llm.parts import ASK, CALLS, ONE, TOOLS

openai = pytest.importorskip("openai")
FLAT = [{"type": "function", **tool["function"]} for tool in TOOLS]


def test_texts_are_those_of_conversations(running: Running, lm: Any) -> None:
    client = running.client()
    messages = [
        {"role": "system", "content": "a dog"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "the cat"},
        {"role": "user", "content": "sat"},
    ]
    wanted = lm.generate(messages, max_tokens=8)
    parts = [{"type": "input_text", "text": "sat"}]
    listed = [*messages[1:3], {"type": "message", "role": "user", "content": parts}]
    options: dict[str, Any] = {"model": "tiny", "temperature": 0, "max_output_tokens": 8}
    answer = client.responses.create(input=listed, instructions="a dog", **options)
    assert (answer.output_text, answer.status) == (wanted, "incomplete")
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.input_tokens == len(lm.tokens(messages))
    assert answer.usage.output_tokens == 8
    with client.responses.stream(input=listed, instructions="a dog", **options) as stream:
        events = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == wanted
    assert events[0].type == "response.created"
    assert (events[-1].type, events[-1].response.output_text) == ("response.incomplete", wanted)
    wanted = lm.generate([{"role": "user", "content": "hello"}], max_tokens=8)
    assert client.responses.create(input="hello", **options).output_text == wanted


def test_logprobs_are_those_of_conversations(running: Running) -> None:
    client, options = running.client(), {"model": "tiny", "temperature": 0}
    chat = client.chat.completions.create(
        messages=ASK, max_tokens=6, logprobs=True, top_logprobs=2, **options
    )
    wanted = chat.choices[0].logprobs.content
    include = ["message.output_text.logprobs"]
    options |= {"input": ASK, "max_output_tokens": 6, "include": include, "top_logprobs": 2}
    with client.responses.stream(**options) as stream:
        events = list(stream)
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    whole = client.responses.create(**options).output[0].content[0].logprobs
    assert len(whole) == 6
    told = [one for delta in deltas for one in delta.logprobs]
    for found in (whole, events[-1].response.output[0].content[0].logprobs, told):
        # The text of the last tokens may not come, if they end within a character.
        for one, other in zip(found, wanted, strict=found is not told):
            assert one.token == other.token
            assert one.logprob == pytest.approx(other.logprob, rel=1e-4)
            assert [top.token for top in one.top_logprobs] == [
                top.token for top in other.top_logprobs
            ]


def test_answers_repeat_fields(running: Running) -> None:
    fields: dict[str, Any] = {"instructions": "a dog", "metadata": {"a": "b"}, "user": "c"}
    answer = running.client().responses.create(
        model="tiny", input="hello", max_output_tokens=2, **fields
    )
    assert fields.items() <= answer.model_dump().items()
    assert answer.max_output_tokens == 2


def test_answers_have_forms(running: Running) -> None:
    pydantic = pytest.importorskip("pydantic")
    pytest.importorskip("llguidance")
    closed = pydantic.ConfigDict(extra="forbid")
    person = pydantic.create_model("Person", age=(int, ...), is_cat=(bool, ...), __config__=closed)
    client = running.client()
    answer = client.responses.parse(
        model="tiny", input="a cat", text_format=person, extra_body={"seed": 4}
    )
    assert isinstance(answer.output_parsed, person)
    assert answer.status == "completed"


def test_tools_and_thoughts(models: Any, serve: Any, writes: Any) -> None:
    lm, client = models["thinks"], serve("thinks")
    writes(lm, f"<think>\nthe cat\n</think>\n\nhello<tool_call>{ONE}</tool_call>")
    options: dict[str, Any] = {"model": "tiny", "tools": FLAT}
    answer = client.responses.create(input=ASK, **options)
    with client.responses.stream(input=ASK, **options) as stream:
        streamed = stream.get_final_response()
    for found in (answer, streamed):
        thoughts, message, call = found.output
        assert thoughts.content[0].text == "the cat"
        assert message.content[0].text == "hello"
        assert (call.type, call.name) == ("function_call", "weather")
        assert json.loads(call.arguments) == json.loads(CALLS[0].text)
        assert found.status == "completed"
    # What an agent sends next.
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    history = [*ASK, *(item.model_dump(exclude_none=True) for item in answer.output), result]
    assert client.responses.create(input=history, **options).output_text == "hello"
    sent = {"name": "weather", "arguments": call.arguments}
    alike = [
        *ASK,
        {"role": "assistant", "content": "hello", "tool_calls": [{"function": sent}]},
        {"role": "tool", "content": "sunny"},
    ]
    read = client.responses.create(input=history, **options).usage.input_tokens
    assert read == len(lm.tokens(alike, variables={"tools": TOOLS}))


@pytest.mark.parametrize("several", [True, False])
def test_a_named_tool_is_called(serve: Any, several: bool) -> None:
    choice: dict[str, Any] = {"type": "function", "name": "weather"}
    if several:
        choice = {"type": "allowed_tools", "mode": "required", "tools": [choice]}
    answer = serve("hermes").responses.create(
        model="tiny", input="a", tools=FLAT, tool_choice=choice, parallel_tool_calls=False
    )
    [call] = answer.output
    assert json.loads(call.arguments).keys() == {"city", "days"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "x"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [3]}, "input"),
        ({"input": [{"role": "x", "content": "a"}]}, "messages"),
        ({"text": 1}, "text"),
        ({"text": {"verbosity": "low"}}, "verbosity"),
        ({"include": 1}, "include"),
        ({"text": {"format": {"type": "x"}}}, "response_format"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"max_output_tokens": 0}, "max_completion_tokens"),
        ({"temperature": -1}, "temperature"),
    ],
)
def test_requests_that_make_no_sense(running: Running, fields: Any, param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        running.client().post("/responses", body={"input": "a", **fields}, cast_to=object)
    assert caught.value.body["param"] == param
