"""Thoughts and calls of tools: in each way in which models write them, and through the server."""

import json
import re
from typing import Any

import pytest

from relaxpy.plugins.llm.answer_parts import Layout, Part, Splitter, Style, Thoughts
from relaxpy.support.dataclass import replace
from tests.plugins.llm import tiny
from tests.plugins.llm.parts import ASK, CALLS, NAMES, ONE, SHOWN, TEMPLATES, THINKS, TOOLS, TWO


def parts_of(layout: Layout, pieces: list[str], *, is_cut: bool = False) -> list[Part]:
    """The parts of an answer, whose neighbours of one kind are joined."""
    splitter, found = Splitter(layout), []
    added = [part for piece in pieces for part in splitter.add(piece)]
    for part in added + splitter.end(is_cut=is_cut):
        if found and part.kind == found[-1].kind != "call":
            part = Part(part.kind, found.pop().text + part.text)
        found.append(part)
    return found


WRITTEN: list[tuple[str, str, list[Part]]] = [
    (
        "hermes",
        f"I look.\n\n<tool_call>\n{ONE}\n</tool_call>\n<tool_call>{TWO}</tool_call>",
        [Part("content", "I look."), *CALLS],
    ),
    ("hermes", f"<tool_call>\n{ONE}\n", CALLS[:1]),  # cut off after it
    ("hermes", "<tool_call>\n{not json}</tool_call>", []),
    ("hermes", '<tool_call>{"name": "rm", "arguments": {}}</tool_call>', []),
    ("hermes", "a < b, and <tool is no mark", []),
    ("mistral", f"[TOOL_CALLS] [{ONE}, {TWO}]", CALLS),
    ("mistral", f"Well. [TOOL_CALLS][{ONE}]", [Part("content", "Well."), CALLS[0]]),
    (
        "mistral by names",
        '[TOOL_CALLS]weather[ARGS]{"city": "Rome", "days": 1}[TOOL_CALLS]get-time[ARGS]{}',
        CALLS,
    ),
    ("llama", f"{ONE}; {TWO}".replace("arguments", "parameters"), CALLS),
    ("llama", f"<|python_tag|>{ONE}", CALLS[:1]),
    ("llama", '{"answer": 42}', []),
    ("llama", "The answer is {42}.", []),
    ("phi", f"<|tool_call|>[{ONE}, {TWO}]<|/tool_call|>", CALLS),
    ("phi", f"functools[{ONE},{TWO}]", CALLS),
    ("phi", "functools.cache is a decorator", []),
    ("json", f"[{ONE}, {TWO}]", CALLS),
    ("json", '{"type": "function", "function": ' + ONE + "}", CALLS[:1]),
    ("json", ONE.replace('{"city": "Rome", "days": 1}', json.dumps(CALLS[0].text)), CALLS[:1]),
    ("json", "[1, 2]", []),
]


@pytest.mark.parametrize(("name", "text", "wanted"), WRITTEN)
def test_calls_are_found_wherever_their_text_is_cut(
    name: str, text: str, wanted: list[Part]
) -> None:
    layout = Layout(None, Style.of(TEMPLATES[name]), NAMES)
    wanted = wanted or [Part("content", text)]
    assert parts_of(layout, [text]) == wanted
    assert parts_of(layout, list(text)) == wanted
    for cut in range(len(text)):
        assert parts_of(layout, [text[:cut], text[cut:]]) == wanted


@pytest.mark.parametrize(("name", "text", "wanted"), [row for row in WRITTEN if row[2]][:-2])
def test_calls_that_are_cut_off_have_their_arguments_so_far(
    name: str, text: str, wanted: list[Part]
) -> None:
    layout = Layout(None, Style.of(TEMPLATES[name]), NAMES)
    calls = [part for part in wanted if part.kind == "call"]
    for cut in range(text.index("weather"), len(text)):
        found = parts_of(layout, [text[:cut]], is_cut=True)
        own = [part for part in found if part.kind == "call"]
        for part, whole in zip(own, calls, strict=False):
            assert part.name == whole.name
            assert whole.text.startswith(part.text)
        assert own[:-1] == calls[: max(len(own) - 1, 0)]
        assert own or cut <= text.index('{"city')
        if cut < text.index("}"):  # what begins a call is no content
            assert [part for part in found if part not in own] == wanted[: -len(calls)]
    assert parts_of(layout, ['{"title": "cu'], is_cut=True) == [Part("content", '{"title": "cu')]


@pytest.mark.parametrize("is_open", [False, True])
def test_thoughts_are_found_wherever_their_text_is_cut(is_open: bool) -> None:
    thoughts, style = Thoughts("<think>", "</think>", is_open), Style.of(TEMPLATES["hermes"])
    text = f"a < b\nso </thin \n</think>\n\n  Yes.\n<tool_call>{ONE}</tool_call>"
    wanted = [Part("reasoning", "a < b\nso </thin"), Part("content", "Yes."), CALLS[0]]
    for whole, found in ((text, wanted), (text[:9], [Part("reasoning", text[:9])])):
        for cut in range(len(whole)):
            pieces = [("" if is_open else "<think>\n") + whole[:cut], whole[cut:]]
            assert parts_of(Layout(thoughts, style, NAMES), pieces) == found
    if not is_open:
        assert parts_of(Layout(thoughts, style, NAMES), ["No </think>"]) == [
            Part("content", "No </think>")
        ]


def test_streams_hold_back_no_more_than_a_mark_needs() -> None:
    splitter = Splitter(Layout(None, Style.of(TEMPLATES["hermes"]), NAMES))
    assert splitter.add("ab <") == [Part("content", "ab")]
    assert splitter.add("b ") == [Part("content", " <b")]
    assert splitter.add("c") == [Part("content", " c")]


def test_a_template_tells_what_answers_have() -> None:
    found = {name: Style.of(template) for name, template in TEMPLATES.items()}
    assert {name: style and style.begin for name, style in found.items()} == {
        "hermes": "<tool_call>",
        "mistral": "[TOOL_CALLS]",
        "mistral by names": "[TOOL_CALLS]",
        "llama": "",
        "phi": "<|tool_call|>",
        "json": "",
    }
    assert Style.of(tiny.TEMPLATE) is None
    assert Style.of(TEMPLATES["hermes"] + "<function=x>") is None
    assert Style.of("{{ tools }}<|tool_call|>") == replace(found["phi"], end="")
    assert Thoughts.of(tiny.TEMPLATE, "<think>\n") is None
    for prompt, is_open in (("a", False), ("<think>\n", True), ("<think>a</think> b", False)):
        assert Thoughts.of(THINKS, prompt) == Thoughts("<think>", "</think>", is_open)
    assert Thoughts.of(THINKS, "a\n<think>\n\n</think>\n\n") is None


# --- through the server


def joined(stream: Any) -> tuple[str, str, list[tuple[str, str]], str | None]:
    """The content, thoughts, calls and reason of a stream."""
    content = thoughts = ""
    calls: dict[int, list[str]] = {}
    reason = None
    for chunk in stream:
        [choice] = chunk.choices
        content += choice.delta.content or ""
        thoughts += getattr(choice.delta, "reasoning_content", None) or ""
        for call in choice.delta.tool_calls or []:
            own = calls.setdefault(call.index, ["", ""])
            own[0] += call.function.name or ""
            own[1] += call.function.arguments or ""
        reason = choice.finish_reason or reason
    return content, thoughts, [(name, text) for name, text in calls.values()], reason


@pytest.mark.parametrize("name", TEMPLATES)
def test_models_call_tools_as_their_templates_have_it(
    name: str, models: Any, serve: Any, writes: Any
) -> None:
    """What a template writes of calls in a conversation is what is read as calls."""
    lm, client = models[name], serve(name)
    call = {"name": "weather", "arguments": CALLS[0].text}
    asked = [*ASK, {"role": "assistant", "content": None}]
    asked[1]["tool_calls"] = [{"id": "123456789", "type": "function", "function": call}]
    _, text = lm.conversation(asked, {"tools": TOOLS})
    [written] = re.findall(r"assistant\n(.+?)<\|im_end\|>", text, re.DOTALL)
    writes(lm, written)
    options: dict[str, Any] = {"model": "tiny", "messages": ASK, "tools": TOOLS}
    [choice] = client.chat.completions.create(**options).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    [found] = choice.message.tool_calls
    assert (found.type, found.function.name) == ("function", "weather")
    assert json.loads(found.function.arguments) == {"city": "Rome", "days": 1}
    assert re.fullmatch(r"\w{9}", found.id)
    stream = joined(client.chat.completions.create(stream=True, **options))
    assert stream == ("", "", [("weather", CALLS[0].text)], "tool_calls")
    # The history of an agent, as the client has it.
    message = choice.message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": found.id, "content": "sunny"}
    options["messages"] = [*ASK, message, result]
    assert client.chat.completions.create(**options).choices[0].finish_reason == "tool_calls"
    # Without tools, or if none may be called, the text is that of the model.
    plain = lm.tokenizer.decode(lm.tokenizer.encode(written, is_rendered=True))
    for others in ({"tools": []}, {"tool_choice": "none"}):
        [choice] = client.chat.completions.create(**{**options, **others}).choices
        assert (choice.message.content, choice.message.tool_calls) == (plain, None)


@pytest.mark.parametrize("name", TEMPLATES)
def test_required_calls_are_of_the_schemas_of_tools(name: str, serve: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    client = serve(name)
    schemas = {"weather": TOOLS[0]["function"]["parameters"], "get-time": {"type": "object"}}
    options: dict[str, Any] = {"model": "tiny", "messages": ASK, "tools": TOOLS, "temperature": 1}
    only = {"type": "function", "function": {"name": "weather"}}
    for seed, choice in enumerate(("required", only, only, only)):
        [answer] = client.chat.completions.create(
            tool_choice=choice, parallel_tool_calls=False, seed=seed, **options
        ).choices
        if answer.finish_reason == "length":  # the arguments of get-time may be anything
            continue
        [call] = answer.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
        assert choice == "required" or call.function.name == "weather"
        assert answer.message.content is None
        stream = client.chat.completions.create(
            tool_choice=choice, parallel_tool_calls=False, seed=seed, stream=True, **options
        )
        assert joined(stream)[2] == [(call.function.name, call.function.arguments)]


@pytest.mark.parametrize("name", ["hermes", "mistral", "mistral by names", "llama", "phi"])
def test_several_calls_may_be_required(name: str, serve: Any) -> None:
    client, found = serve(name), set()
    only = {"type": "function", "function": {"name": "weather"}}
    for seed in range(8):
        [answer] = client.chat.completions.create(
            model="tiny", messages=ASK, tools=TOOLS, tool_choice=only, temperature=1.5, seed=seed
        ).choices
        found.add(len(answer.message.tool_calls or []))
    assert max(found) > 1


def test_a_call_that_is_cut_off_ends_by_its_length(models: Any, serve: Any, writes: Any) -> None:
    lm, client = models["hermes"], serve("hermes")
    text = f"<tool_call>\n{ONE}"
    most = len(lm.tokenizer.encode(text[: text.index("Rome") + 2], is_rendered=True))
    writes(lm, text)
    only = {"type": "function", "function": {"name": "weather"}}
    options: dict[str, Any] = {"model": "tiny", "messages": ASK, "tools": TOOLS}
    options |= {"tool_choice": only, "max_tokens": most}
    [choice] = client.chat.completions.create(**options).choices
    assert (choice.finish_reason, choice.message.content) == ("length", None)
    [call] = choice.message.tool_calls
    assert (call.function.name, call.function.arguments[:11]) == ("weather", '{"city": "R')
    chunks = list(client.chat.completions.create(stream=True, **options))
    assert joined(chunks) == ("", "", [("weather", call.function.arguments)], "length")
    assert len(chunks) == 2  # the role and the call: what is held back makes no event
    tool = {"type": "function", **TOOLS[0]["function"], "strict": False}
    answer = client.responses.create(
        model="tiny",
        input="hello cat",
        tools=[tool],
        tool_choice={"type": "function", "name": "weather"},
        max_output_tokens=most,
    )
    [item] = answer.output
    assert (answer.status, item.type, item.status) == ("incomplete", "function_call", "incomplete")
    assert item.arguments == call.function.arguments


def test_calls_beyond_the_first_are_left_out_if_they_are_not_wanted(
    models: Any, serve: Any, writes: Any
) -> None:
    client = serve("mistral")
    writes(models["mistral"], f"[TOOL_CALLS] [{ONE}, {TWO}]")
    options: dict[str, Any] = {"model": "tiny", "messages": ASK, "tools": TOOLS}
    for several, count in ((True, 2), (False, 1)):
        answer = client.chat.completions.create(parallel_tool_calls=several, **options)
        assert len(answer.choices[0].message.tool_calls) == count


def test_thoughts_are_apart_from_the_answer(models: Any, serve: Any, writes: Any) -> None:
    lm, client = models["thinks"], serve("thinks")
    options: dict[str, Any] = {"model": "tiny", "messages": ASK}
    answer = "<think>\nthe cat sat\n</think>\n\nhello"
    for text, fields, wanted in (
        (answer, {}, ("hello", "the cat sat")),
        (answer[8:], {"enable_thinking": True}, ("hello", "the cat sat")),
        ("hello", {"chat_template_kwargs": {"enable_thinking": False}}, ("hello", "")),
        ("hello", {}, ("hello", "")),
    ):
        writes(lm, text)
        own = {**options, "extra_body": fields}
        message = client.chat.completions.create(**own).choices[0].message
        assert (message.content, getattr(message, "reasoning_content", "")) == wanted
        found = joined(client.chat.completions.create(stream=True, **own))
        assert found == (*wanted, [], "stop")
    writes(lm, f"{answer}<tool_call>{ONE}</tool_call>")
    found = joined(client.chat.completions.create(tools=TOOLS, stream=True, **options))
    assert found == ("hello", "the cat sat", [("weather", CALLS[0].text)], "tool_calls")


def test_texts_of_a_model_follow_from_variables_of_the_template(models: Any) -> None:
    lm, variables = models["thinks"], {"enable_thinking": False, "tools": TOOLS}
    tokens, text = lm.conversation(ASK, variables)
    assert text.endswith("<think>\n</think>\n\n")
    assert "Tells the weather." in text
    wanted = lm.generate(tokens, max_tokens=9)
    assert lm.generate(ASK, variables=variables, max_tokens=9) == wanted
    assert "".join(lm.stream(ASK, variables=variables, max_tokens=9)) == wanted
    assert lm.generate([ASK], variables=variables, max_tokens=9) == [wanted]


@pytest.mark.parametrize("thinking", [None, True, False])
def test_thoughts_come_before_answers_of_a_form(
    thinking: bool | None, models: Any, serve: Any
) -> None:
    client, found = serve("thinks"), []
    fields: dict[str, Any] = {"guided_choice": ["yes", "no"]}
    if thinking is not None:
        fields["chat_template_kwargs"] = {"enable_thinking": thinking}
    begin, end = (models["thinks"].tokenizer.own.token_to_id(mark) for mark in SHOWN[:2])
    bias = {str(begin): 6, str(end): 6}  # thoughts are likely to begin, and to end
    for seed in range(12):
        message = (
            client.chat.completions.create(
                model="tiny", messages=ASK, seed=seed, logit_bias=bias, extra_body=fields
            )
            .choices[0]
            .message
        )
        assert message.content in ("yes", "no")
        found.append(hasattr(message, "reasoning_content"))
    # Thoughts that begin in the prompt may be empty.
    assert set(found) == ({False} if thinking is False else {True, False})


def test_an_answer_has_a_form_or_calls_tools(models: Any, serve: Any) -> None:
    client, token = serve("hermes"), models["hermes"].tokenizer.own.token_to_id("<tool_call>")
    only = [TOOLS[0]]
    for bias, has_calls in ((100, True), (-100, False)):
        [choice] = client.chat.completions.create(
            model="tiny",
            messages=ASK,
            tools=only,
            logit_bias={str(token): bias},
            parallel_tool_calls=False,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "x", "schema": {"const": 1}},
            },
        ).choices
        assert bool(choice.message.tool_calls) == has_calls
        assert (choice.message.content == "1") != has_calls


@pytest.mark.parametrize(
    ("name", "fields", "message", "param"),
    [
        ("plain", {"tools": TOOLS}, "the chat template of tiny takes no tools", "tools"),
        ("json", {"tools": 1}, "tools cannot be 1, expected a list", "tools"),
        ("json", {"tools": [{"type": "function"}]}, "tools cannot be", "tools"),
        ("json", {"tools": [{"type": "x", "function": {"name": "a"}}]}, "tools cannot be", "tools"),
        (
            "json",
            {"tools": [{"function": {"name": "a b"}}]},
            "cannot be 'a b', expected names",
            "tools",
        ),
        ("json", {"tools": TOOLS + TOOLS}, "expected names that differ", "tools"),
        ("json", {"tools": TOOLS * 99}, "of at most 128", "tools"),
        ("json", {"tools": TOOLS, "tool_choice": "x"}, "tool_choice cannot be 'x'", "tool_choice"),
        ("json", {"tool_choice": "required"}, "tool_choice cannot be 'required'", "tool_choice"),
        *(
            (
                "json",
                {"tools": TOOLS, "tool_choice": choice},
                "tool_choice cannot be",
                "tool_choice",
            )
            for choice in (
                {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": only}}
                for mode, only in (("x", TOOLS), ("auto", [{"type": "function"}]), ("auto", []))
            )
        ),
        (
            "json",
            {"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "rm"}}},
            "tool_choice cannot be 'rm', expected the name of one of the tools",
            "tool_choice",
        ),
        (
            "json",
            {
                "tools": [{"function": {"name": "a", "parameters": {"type": "objec"}}}],
                "tool_choice": "required",
            },
            "parameters of a: schema cannot be followed at #: Invalid type: objec",
            "tools",
        ),
        (
            "hermes",
            {
                "tools": [
                    TOOLS[0],
                    {"function": {"name": "b", "parameters": {"properties": {"x": {"not": {}}}}}},
                ],
                "tool_choice": "required",
            },
            "parameters of b: schema cannot be followed at #/properties/x: Unimplemented keys",
            "tools",
        ),
    ],
)
def test_tools_that_make_no_sense(
    name: str, fields: Any, message: str, param: str, serve: Any
) -> None:
    openai = pytest.importorskip("openai")
    body = {"messages": ASK, **fields}
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        serve(name).post("/chat/completions", body=body, cast_to=object)
    assert caught.value.body["param"] == param
