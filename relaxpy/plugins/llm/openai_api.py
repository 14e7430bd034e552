"""OpenAI's HTTP API as data: what a request asks for, and the bodies of answers and errors."""

from __future__ import annotations

import json
import math
import re
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import uuid4

import numpy as np

from relaxpy.plugins.llm.answer_parts import (
    Layout,
    Splitter,
    Style,
    Thoughts,
    Tool,
    chosen_tools,
    tools_of,
)
from relaxpy.plugins.llm.config import ContextError, ModelError, ParameterError, integer_of
from relaxpy.plugins.llm.continuation import Continuation
from relaxpy.plugins.llm.cross_encoder import CrossEncoder
from relaxpy.plugins.llm.language_model import LanguageModel
from relaxpy.plugins.llm.structured import Form
from relaxpy.plugins.llm.tokens import TextStream
from relaxpy.plugins.llm.worker import Piece
from relaxpy.support.dataclass import dataclass
from relaxpy.support.missing import nearest

_T = TypeVar("_T")
Kind: TypeAlias = Literal["chat", "text"]
_MOST_CHOICES, _MOST_LOGPROBS = 16, 20
_SILENT = 10
"""The seconds without news after which an event tells that an answer goes on."""
_LEAST = -9999.0
"""The logprob of what is impossible, as JSON has no infinity."""


class ApiError(Exception):
    """An answer that is an error, with its status of HTTP."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code = status, param, code
        self.retry_after = 1 if retry_after is None and status == 429 else retry_after

    @property
    def headers(self) -> dict[str, str]:
        """The seconds after which clients should ask again, where another try may succeed."""
        return {} if self.retry_after is None else {"retry-after": f"{self.retry_after}"}

    @property
    def message(self) -> str:
        """The message, as a text that can be written."""
        return _encodable(str(self))

    def body(self, path: str = "") -> dict[str, Any]:
        """The body for a request to a path: as Ollama has it below /api, else as OpenAI."""
        if path.startswith("/api/"):
            return {"error": self.message}
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        param = None if self.param is None else _encodable(self.param)
        return {"error": {"message": self.message, "type": kind, "param": param, "code": self.code}}


def _encodable(text: str) -> str:
    """A text whose halves of characters, which JSON of a request may have, are written out."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_of(error: Exception) -> ApiError:
    """The answer for an error of a request."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, ParameterError):
        return ApiError(400, str(error), param=error.param)
    if isinstance(error, ContextError):
        return ApiError(400, f"{error}", code=_TOO_LONG)
    if isinstance(error, ModelError):
        return ApiError(400, str(error))
    if isinstance(error, RecursionError):
        return ApiError(400, "the body is nested too deeply")
    return ApiError(500, f"the request failed: {type(error).__name__}: {error}")


def _error_of_field(name: str, error: ModelError) -> ApiError:
    """The answer for an error about a field, unless it names another one."""
    found = error_of(error)
    found.param = found.param or name
    return found


@dataclass(frozen=True)
class Asked:
    """The contents of a request: prompts, the choices for each, and their options."""

    kind: Kind
    prompts: list[list[int]]
    choices: int
    options: Mapping[str, Any]
    """The options of `LanguageModel.start`."""
    stream: bool
    with_usage: bool
    with_logprobs: bool
    seed: int | None
    ignored: list[str]
    """The names of fields that nobody knows."""
    layout: Layout | None = None
    """The parts of the answer, if it may have others than its text."""
    kept: int = 1
    """How many of the choices for each prompt are returned: the most probable ones."""
    echo: bool = False
    """True if the prompt is a part of the text."""

    def begin(self, model: LanguageModel) -> list[Continuation]:
        """Start all choices. Errors: ModelError; then none is started."""
        started: list[Continuation] = []
        try:
            for prompt in self.prompts:
                for choice in range(self.choices):
                    seed = None if self.seed is None else (self.seed + choice) % (1 << 64)
                    started.append(model.start(prompt, seed=seed, **self.options))
        except BaseException:
            for continuation in started:
                model.cancel(continuation.request)
            raise
        return started


_SAMPLING: Final[Mapping[str, str]] = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "repetition_penalty": "repetition_penalty",
    "repeat_penalty": "repetition_penalty",
    "stop": "stop",
}
"""Fields that are options of `LanguageModel.start`, and their names there."""
_IGNORED: Final = {
    *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"),
    *("prompt_cache_retention", "cache_prompt", "id_slot", "slot_id", "priority"),
    *("prompt_cache_options", "request_id", "timings_per_token", "return_progress"),
}
"""Fields that have no effect on an answer."""
_ONLY: Final[Mapping[str, tuple[object, ...]]] = {
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "functions": ([],),
    "function_call": ("none", "auto"),
    "parallel_tool_calls": (True, False),
    "modalities": (["text"],),
    "verbosity": ("medium",),
    "suffix": ("",),
    **dict.fromkeys(("typical_p", "tfs_z", "length_penalty"), (1,)),
    **dict.fromkeys(("mirostat", "top_a", "xtc_probability", "dry_multiplier"), (0,)),
    **dict.fromkeys(("dynatemp_range", "min_tokens", "n_probs", "prompt_logprobs"), (0,)),
    **dict.fromkeys(("continue_final_message", "use_beam_search"), (False,)),
    **dict.fromkeys(("skip_special_tokens", "add_generation_prompt"), (True,)),
    **dict.fromkeys(("bad_words", "images", "documents"), ([],)),
    **dict.fromkeys(("format", "template", "chat_template", "system"), ("",)),
    **dict.fromkeys(("n_predict", "max_new_tokens", "truncate_prompt_tokens"), (-1,)),
    **dict.fromkeys(("audio", "prediction", "web_search_options", "lora", "adapter"), ()),
    "moderation": (),
    "thinking": (),
}
"""Fields that change an answer, and their only supported values, which change nothing.

Tools are supported in conversations.
"""
_FORMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("json_schema", "guided_json"), "schema"),
    **dict.fromkeys(("grammar", "guided_grammar"), "grammar"),
    "guided_regex": "regex",
    "guided_choice": "choice",
}
"""Fields with the form of an answer, and the options of `LanguageModel.start` that they are."""
_STRUCTURED: Final = {"json": "schema", "regex": "regex", "choice": "choice", "grammar": "grammar"}
"""The same of the entries of the field `structured_outputs`."""
_TOOLS: Final = ("tools", "tool_choice", "parallel_tool_calls")
_OWN: Final = {
    *("response_format", "structured_outputs"),
    *("model", "stream", "stream_options", "n", "seed", "logit_bias", "logprobs", "top_logprobs"),
    *("max_tokens", "max_completion_tokens", "stop_token_ids", "ignore_eos", "keep_alive"),
}
_COMPLETIONS: Final = ("echo", "best_of")
"""Fields of texts alone."""
_VARIABLES: Final = ("chat_template_kwargs", "enable_thinking", "reasoning_effort")
"""Fields with variables of chat templates: a table of them, and single ones."""
_PROMPTS: Final = {"messages", "prompt", "input"}


def asked(kind: Kind, fields: Mapping[str, Any], model: LanguageModel, most_tokens: int) -> Asked:
    """The contents of a request with these fields for a model.

    Errors:
        ApiError: it asks for what is not supported.
        ModelError: the prompt or an option is not such.
    """
    prompt_name = "messages" if kind == "chat" else "prompt"
    known = {prompt_name, *_SAMPLING, *_OWN, *_FORMS}
    known |= {*_VARIABLES, *_TOOLS} if kind == "chat" else {*_COMPLETIONS}
    ignored = _ignored(fields, known)
    require(fields, prompt_name)
    form = _form(fields)
    tools: list[Tool] = []
    has_to, layout = False, None
    if kind == "chat":
        listed = tools_of(fields.get("tools", []))
        tools, has_to = chosen_tools(fields.get("tool_choice"), listed)
        tokens, layout = _conversation(fields, model, tools)
        prompts = [tokens]
    else:
        prompts = _prompts(fields[prompt_name], model)
    kept = _count(fields, "n", 1, 1, _MOST_CHOICES)
    choices = _count(fields, "best_of", kept, 1, _MOST_CHOICES)
    stream = taken(fields, "stream", bool, False)
    if choices < kept or (choices > kept and stream):
        raise ParameterError.of("best_of", choices, "at least n, which it is for streams")
    if choices * len(prompts) > _MOST_CHOICES:
        raise ApiError(400, f"a request has at most {_MOST_CHOICES} choices", param="n")
    options: dict[str, Any] = {
        own: fields[name] for name, own in _SAMPLING.items() if name in fields
    }
    options.setdefault("temperature", 1.0)
    if isinstance(stop := options.get("stop"), list):
        options["stop"] = [text for text in stop if text != ""]
    elif stop == "":  # as clients send it that have none
        del options["stop"]
    seed = _count(fields, "seed", None, -(1 << 63), (1 << 64) - 1)
    options["logit_bias"] = _bias(fields)
    options["ignore_eos"] = taken(fields, "ignore_eos", bool, False)
    options["stop_token_ids"] = taken(fields, "stop_token_ids", list, [])
    options["shown"] = () if layout is None else layout.marks
    if form or has_to:
        options["form"] = _compiled(form, model, layout, tools)
    top = _logprobs(kind, fields)
    options["logprobs"] = 0 if top is None and choices > kept else top  # by which it is the best
    options["max_tokens"] = _room(kind, fields, prompts, model.decoder.context, most_tokens)
    stream_options = taken(fields, "stream_options", dict, {})
    return Asked(
        kind,
        prompts,
        choices,
        options,
        stream,
        stream_options.get("include_usage") is True,
        top is not None,
        seed,
        ignored,
        layout,
        kept,
        taken(fields, "echo", bool, False),
    )


def _ignored(fields: Mapping[str, Any], known: Collection[str]) -> list[str]:
    """The names of fields that nobody knows, which change nothing."""
    ignored = []
    for name, value in fields.items():
        if name in known or name in _IGNORED:
            continue
        if name in _ONLY:
            if value in _ONLY[name]:
                continue
            raise _not_supported(name)
        near = nearest(name, known)
        if near or name in {*_PROMPTS, *_COMPLETIONS}:  # nobody sends those for nothing
            meant = f", did you mean {' or '.join(near)}?" if near else " here"
            raise ApiError(400, f"there is no parameter {name!r:.60}{meant}", param=name[:60])
        ignored.append(name[:60])
    return ignored


_MOST_INPUTS: Final = 256
_OF_EMBEDDINGS: Final = {"input", "model", "encoding_format", "dimensions", "keep_alive"}


def asked_embeddings(
    fields: Mapping[str, Any], model: LanguageModel, *, cuts: bool = False
) -> tuple[list[list[int]], bool, int, list[str]]:
    """The contents of a request for embeddings, whose inputs are cut to fit the context if `cuts`.

    These are the tokens of each input, whether embeddings are written in base64, the numbers of
    each that are returned, and the names of fields that nobody knows.

    Errors: as of `asked`.
    """
    ignored = _ignored(fields, _OF_EMBEDDINGS)
    require(fields, "input")
    prompts = _prompts(fields["input"], model, "input", _MOST_INPUTS, cuts=cuts)
    encoding = fields.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise ParameterError.of("encoding_format", encoding, "float or base64")
    width = model.decoder.config.width
    dimensions = _count(fields, "dimensions", width, 1, width)
    return prompts, encoding == "base64", dimensions, ignored


def embeddings_body(
    model: LanguageModel, found: Sequence[Any], tokens: int, *, is_base64: bool
) -> dict[str, Any]:
    """The body of an answer with embeddings, arrays of float32."""

    def written(array: Any) -> Any:
        return b64encode(array.astype("<f4").tobytes()).decode() if is_base64 else array.tolist()

    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": index, "embedding": written(array)}
            for index, array in enumerate(found)
        ],
        "model": model.name,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }


def unit(array: Any) -> Any:
    """An array with the norm 1, unless it is 0."""
    return array / max(float(np.linalg.norm(array)), _TINY)


_TINY: Final = 1e-30
"""The least norm by which a vector is divided."""
OF_RERANKING: Final = {"query", "documents", "top_n", "return_documents", "model", "keep_alive"}


@dataclass(frozen=True)
class AskedOrder:
    """A request to order documents by what they have to do with a query."""

    inputs: Sequence[Any]
    """The tokens of the query, and of the documents; for a cross-encoder the pairs of both."""
    documents: list[str]
    count: int
    """How many of them are returned."""
    with_texts: bool
    ignored: list[str]


def asked_reranking(fields: Mapping[str, Any], model: LanguageModel | CrossEncoder) -> AskedOrder:
    """The contents of a request with these fields. Errors: as of `asked`."""
    ignored = _ignored(fields, OF_RERANKING)
    require(fields, "query", "documents")
    query, given = taken(fields, "query", str, ""), taken(fields, "documents", list, [])
    texts = [one["text"] if isinstance(one, dict) and "text" in one else one for one in given]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise ParameterError.of("documents", given, "texts")
    most = _count(fields, "top_n", len(texts), 1)
    inputs: Sequence[Any]
    if isinstance(model, CrossEncoder):
        _check_count(texts, "documents", _MOST_INPUTS)
        try:
            inputs = model.pairs(query, texts)
        except ModelError as error:
            raise _error_of_field("documents", error) from None
    else:
        own = _prompts(query, model, "query")
        inputs = [*own, *_prompts(texts, model, "documents", _MOST_INPUTS)]
    with_texts = taken(fields, "return_documents", bool, False)
    return AskedOrder(inputs, texts, most, with_texts, ignored)


def reranking_body(
    model: LanguageModel | CrossEncoder, what: AskedOrder, found: Sequence[Any], tokens: int
) -> dict[str, Any]:
    """The body of an answer: documents by their scores.

    These are between 0 and 1 for those of a cross-encoder, else the cosines of embeddings with the
    query's.
    """
    if isinstance(model, CrossEncoder):
        scores = [0.5 * (1 + math.tanh(score / 2)) for score in found]
    else:
        query, *others = map(unit, found)
        scores = [float(np.dot(query, other)) for other in others]
    order = sorted(range(len(scores)), key=lambda k: -scores[k])[: what.count]
    results: list[dict[str, Any]] = [{"index": k, "relevance_score": scores[k]} for k in order]
    if what.with_texts:
        for result in results:
            result["document"] = {"text": what.documents[result["index"]]}
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"id": f"rerank-{uuid4().hex}", "model": model.name, "results": results, "usage": usage}


_MOST_VALUES, _MOST_CONTAINERS, _LONGEST_NUMBER = 1 << 18, 1 << 14, 1000
_VALUES: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?|[,\[{]', re.DOTALL)
"""The strings of JSON, and what stands before other values; an open string is one, too."""


def _check_size(body: bytes) -> None:
    """Bound what the parser of JSON does, in which no other thread runs.

    It takes a second for a million lists or objects, which the collector of garbage visits, too.
    """
    containers = body.count(b"[") + body.count(b"{")
    values = containers + body.count(b'"') + body.count(b",")
    if values <= _MOST_VALUES and containers <= _MOST_CONTAINERS:
        return
    containers = 0
    for values, match in enumerate(_VALUES.finditer(body), 1):  # without those that are in strings
        containers += match[0] in (b"[", b"{")
        if values > _MOST_VALUES or containers > _MOST_CONTAINERS:
            most = f"{_MOST_VALUES} values, and {_MOST_CONTAINERS} lists and objects"
            raise ApiError(413, f"a request has at most {most}")


def _number(text: str, kind: Callable[[str], Any] = int) -> Any:
    """A number of JSON, read here so that other threads run, and never in quadratic time."""
    if len(text) > _LONGEST_NUMBER:
        raise ValueError(f"a number has more than {_LONGEST_NUMBER} characters")
    return kind(text)


def fields_of(body: bytes) -> dict[str, Any]:
    """The fields of a body that are not null. Errors: ApiError."""

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not a number of JSON")

    _check_size(body)
    try:
        found = json.loads(
            body.decode("utf-8-sig"),
            parse_constant=refuse,
            parse_int=_number,
            parse_float=partial(_number, kind=float),
        )
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is not a JSON object")
    return {name: value for name, value in found.items() if value is not None}


def require(fields: Mapping[str, Any], *names: str) -> None:
    """Errors: ApiError if a field is missing."""
    for name in names:
        if name not in fields:
            raise ApiError(400, f"{name} is missing", param=name)


def refuse(fields: Mapping[str, Any], names: Iterable[str]) -> None:
    """Errors: ApiError if there is a field of these names that is not empty or false."""
    for name in names:
        if fields.get(name):
            raise _not_supported(name)


def _not_supported(name: str) -> ApiError:
    return ApiError(400, f"{name} is not supported", param=name, code="unsupported_value")


def taken(fields: Mapping[str, Any], name: str, kind: type, default: Any) -> Any:
    """A field. Errors: ParameterError if it is of another type."""
    value: Any = fields.get(name, default)
    if type(value) is not kind:
        raise ParameterError.of(name, value, _TYPES[kind])
    return value


def _count(
    fields: Mapping[str, Any], name: str, default: _T, least: int, most: int | None = None
) -> int | _T:
    """An integer field, or the default. Errors: ParameterError if it is not within these."""
    return integer_of(name, fields[name], least, most) if name in fields else default


_TYPES: Final = {bool: "true or false", dict: "an object", list: "a list", str: "a text"}


def _form(fields: Mapping[str, Any]) -> tuple[str, str, Any] | None:
    """The field that asks for the form of an answer, that option and its value, if there is one."""
    found: list[tuple[str, str, Any]] = []
    match fields.get("response_format"):
        case None | {"type": "text"}:
            pass
        case (
            {"type": "json_schema", "json_schema": {"schema": schema}}
            | {"type": "json_schema" | "json_object", "schema": schema}  # of llama.cpp
        ):
            found.append(("response_format", "schema", schema))
        case {"type": "json_object"}:
            found.append(("response_format", "schema", {"type": "object"}))
        case other:
            own = '{"type": "json_schema", "json_schema": {"name": "...", "schema": {...}}}'
            expected = f"the type text or json_object, or {own}"
            raise ParameterError.of("response_format", other, expected)
    for name, kind in _FORMS.items():
        if fields.get(name, "") != "":
            found.append((name, kind, fields[name]))
    for name, value in taken(fields, "structured_outputs", dict, {}).items():
        if name not in _STRUCTURED:
            raise ParameterError.of("structured_outputs", name, f"one of {', '.join(_STRUCTURED)}")
        found.append(("structured_outputs", _STRUCTURED[name], value))
    if len(found) > 1:
        names = [name for name, _, _ in found]
        raise ParameterError.of(names[1], names, "a single form of an answer")
    return found[0] if found else None


def _compiled(
    form: tuple[str, str, Any] | None,
    model: LanguageModel,
    layout: Layout | None,
    tools: Sequence[Tool],
) -> Form:
    """The form of an answer, or of calls of tools. Errors: ParameterError."""
    name, given = ("tools", {}) if form is None else (form[0], {form[1]: form[2]})
    calls = thoughts = None
    if layout is not None:
        thoughts = layout.thoughts
        if layout.style is not None:
            calls = partial(layout.style.lark, tools, several=layout.most > 1)
    try:
        return model.forms.form(given, thoughts, calls)
    except ParameterError as error:
        found = error
        for tool in () if calls is None else tools:
            try:
                model.forms.form({"schema": tool.parameters})
            except ParameterError as own:  # which names the place in the schema
                found = ParameterError(f"the parameters of {tool.name}: {own}")
                break
        found.param = name
        raise found from None


def _conversation(
    fields: Mapping[str, Any], model: LanguageModel, tools: Sequence[Tool]
) -> tuple[list[int], Layout | None]:
    """The tokens of a conversation, and the parts that its answer may have, if it has others."""
    messages = fields["messages"]
    if not isinstance(messages, list) or not messages:
        raise ParameterError.of("messages", messages, "a list of at least one message")
    variables = dict(taken(fields, "chat_template_kwargs", dict, {}))
    for name in ("enable_thinking", "reasoning_effort"):
        if name in fields:
            variables.setdefault(name, fields[name])
    style = Style.of(model.template.text) if tools else None
    if tools:
        if style is None:
            message = (
                f"the chat template of {model.name} takes no tools, or writes no JSON for them"
            )
            raise ApiError(400, message, param="tools", code="unsupported_value")
        variables["tools"] = fields["tools"]
    several = taken(fields, "parallel_tool_calls", bool, True)
    try:
        tokens, text = model.conversation(messages, variables)
        thoughts = Thoughts.of(model.template.text, text)
        if thoughts is None and style is None:
            return tokens, None
        names = frozenset(tool.name for tool in tools)
        return tokens, Layout(thoughts, style, names, 1 << 30 if several else 1)
    except ModelError as error:
        raise _error_of_field("messages", error) from None


def _check_count(listed: Sequence[Any], name: str, most: int) -> None:
    if len(listed) > most:
        raise ApiError(400, f"a request has at most {most} {name.removesuffix('s')}s", param=name)


def _prompts(
    prompt: Any,
    model: LanguageModel,
    name: str = "prompt",
    most: int = _MOST_CHOICES,
    *,
    cuts: bool = False,
) -> list[list[int]]:
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        listed = prompt
    else:
        listed = [prompt]
    _check_count(listed, name, most)
    for one in listed:
        is_tokens = isinstance(one, list) and one and all(type(token) is int for token in one)
        if not isinstance(one, str) and not is_tokens:
            raise ParameterError.of(name, one, "texts, or lists of tokens")
    found = []
    for one in listed:
        try:
            found.append(model.tokens(one)[: model.decoder.context if cuts else None])
        except ContextError as error:
            raise ApiError(400, f"{error}", param=name, code=_TOO_LONG) from None
        if len(found[-1]) > model.decoder.context:  # before all others are read
            raise _too_long(model.decoder.context, f"{len(found[-1])} in one {name}", name)
    return found


def _bias(fields: Mapping[str, Any]) -> dict[int, Any]:
    given = taken(fields, "logit_bias", dict, {})
    if len(given) > 1024 or not all(token.isdecimal() and len(token) < 10 for token in given):
        raise ParameterError.of("logit_bias", given, "a table of tokens and numbers")
    return {int(token): bias for token, bias in given.items()}


def _logprobs(kind: Kind, fields: Mapping[str, Any]) -> int | None:
    """Of how many tokens logprobs are returned; None for no logprobs."""
    if kind == "text":
        return _count(fields, "logprobs", None, 0, _MOST_LOGPROBS)
    top = _count(fields, "top_logprobs", 0, 0, _MOST_LOGPROBS)
    return top if taken(fields, "logprobs", bool, False) else None


def _room(
    kind: Kind, fields: Mapping[str, Any], prompts: Sequence[Sequence[int]], context: int, most: int
) -> int:
    """The most tokens of an answer: the context may have room for less than what is wanted."""
    longest = max(map(len, prompts))
    name = "max_completion_tokens" if "max_completion_tokens" in fields else "max_tokens"
    wanted = 16 if kind == "text" else most
    if name in fields:  # -1 is no bound, as llama.cpp has it
        wanted = most if fields[name] == -1 else _count(fields, name, most, 1)
    if longest >= context:
        found = f"{longest} in the prompt and 1 for the answer"
        raise _too_long(context, found, "messages" if kind == "chat" else "prompt")
    return min(wanted, most, context - longest)


_TOO_LONG: Final = "context_length_exceeded"


def _too_long(context: int, found: str, param: str) -> ApiError:
    message = f"this model's maximum context length is {context} tokens; the request has {found}"
    return ApiError(400, message, param=param, code=_TOO_LONG)


# --- answers


class Answer:
    """The bodies of an answer: one in the end, or events for its pieces."""

    media_type = "text/event-stream; charset=utf-8"
    """The type of the pieces."""

    def __init__(self, what: Asked, model: LanguageModel, started: Sequence[Continuation]) -> None:
        self.what, self.model, self.started = what, model, started
        chunk = ".chunk" if what.stream else ""
        layout = what.layout
        self._splitters = [None if layout is None else Splitter(layout) for _ in started]
        self.scores: list[Any] = []
        """For each prompt the logprobs of its tokens, if they are returned."""
        self._calls = [0] * len(started)
        """How many calls of tools each choice has."""
        self._told_at = time.monotonic()
        """When the last event was sent."""
        self._lengths = [0] * len(started)
        """How many characters the tokens of each choice have whose logprobs were returned."""
        self._streams: dict[int, TextStream] = {}
        """The texts of these tokens."""
        prefix = "chatcmpl" if what.kind == "chat" else "cmpl"
        fields = {
            "id": f"{prefix}-{uuid4().hex}",
            "object": f"chat.completion{chunk}" if what.kind == "chat" else "text_completion",
            "created": int(time.time()),
            "model": model.name,
        }
        self._head = json.dumps(fields)[:-1] + ', "choices": ['
        """The fields that begin all bodies."""

    def usage(self) -> dict[str, Any]:
        """How many tokens were read and chosen; those of prompts may have been in the cache."""
        first = self.started[:: self.what.choices]  # of each prompt
        cached = sum(continuation.request.shared for continuation in first)
        read = sum(map(len, self.what.prompts))
        chosen = sum(continuation.read for continuation in self.started)
        return {
            "prompt_tokens": read,
            "completion_tokens": chosen,
            "total_tokens": read + chosen,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def received(self) -> None:
        """Note new tokens."""

    def whole(self, texts: Sequence[str], reasons: Sequence[str | None]) -> str:
        """The body of an answer that is not streamed."""
        choices: list[str] = []
        for index in self._best():
            text, reason = texts[index], reasons[index]
            choice: dict[str, Any] = {"index": len(choices)}
            tokens = range(self.started[index].read)
            if self.what.kind == "chat":
                own = self._parts(index, text, is_last=True, is_cut=reason == "length")
                for call in own.get("tool_calls", ()):
                    del call["index"]
                own.setdefault("content", None if "tool_calls" in own else "")
                choice["message"] = {"role": "assistant", "refusal": None, **own}
            else:
                choice["text"] = self._echoed(index) + text
            choice["finish_reason"] = self._reason(index, reason)
            choice["logprobs"] = self._logprobs(index, tokens)
            choices.append(json.dumps(choice))
        return f'{self._head}{", ".join(choices)}], "usage": {json.dumps(self.usage())}}}'

    def _best(self) -> list[int]:
        """The numbers of the choices that are returned."""
        what, count = self.what, len(self.started)
        if what.kept == what.choices:
            return list(range(count))

        def mean(index: int) -> float:
            choice = self.started[index]
            own = choice.request.logprobs[: choice.read]  # guesses may go on after a stop text
            return sum(logprob for logprob, _ in own) / max(1, len(own))

        groups = (range(first, first + what.choices) for first in range(0, count, what.choices))
        return [k for group in groups for k in sorted(group, key=mean, reverse=True)[: what.kept]]

    def _echoed(self, index: int) -> str:
        """The text of the prompt of a choice, if it is a part of that."""
        prompt = self.what.prompts[index // self.what.choices]
        return self.model.tokenizer.decode(prompt) if self.what.echo else ""

    def first(self) -> str:
        """The events before the text, which name the role, or have the prompt."""
        if self.what.kind == "text":
            count = len(self.started) if self.what.echo else 0
            return "".join(
                self._event(
                    k,
                    f'"text": {json.dumps(self._echoed(k))}, '
                    f'"logprobs": {json.dumps(self._logprobs(k, range(0)))}',
                )
                for k in range(count)
            )
        own = '"delta": {"role": "assistant", "content": ""}'
        return "".join(self._event(index, own) for index in range(len(self.started)))

    def chunk(self, piece: Piece) -> str:
        """The event of a piece of a choice; none if it tells nothing, unless the last is long ago.

        A call of a tool may take long, and a proxy closes a connection that is silent.
        """
        parts: dict[str, Any] = {"text": piece.text}
        is_cut = piece.reason == "length"
        if self.what.kind == "chat":
            parts = self._parts(piece.index, piece.text, is_last=piece.is_last, is_cut=is_cut)
        now, is_told = time.monotonic(), any(parts.values()) or self.what.with_logprobs
        if not is_told and piece.reason is None and now < self._told_at + _SILENT:
            return ""
        self._told_at = now
        own = json.dumps(parts)
        own = f'"delta": {own}' if self.what.kind == "chat" else own[1:-1]
        logprobs = self._logprobs(piece.index, piece.tokens)
        own += ', "logprobs": ' + ("null" if logprobs is None else json.dumps(logprobs))
        return self._event(piece.index, own, self._reason(piece.index, piece.reason))

    def _parts(
        self, index: int, text: str, *, is_last: bool, is_cut: bool = False
    ) -> dict[str, Any]:
        """The fields of a message with the next piece of its text.

        Where that is cut off, so may be the arguments of the last call.
        """
        splitter = self._splitters[index]
        if splitter is None:
            return {"content": text} if text else {}
        found: dict[str, Any] = {}
        for part in [*splitter.add(text), *(splitter.end(is_cut=is_cut) if is_last else ())]:
            if part.kind == "call":
                call = {
                    "index": self._calls[index],
                    "id": uuid4().hex[:9],  # of nine letters, as templates of Mistral want it
                    "type": "function",
                    "function": {"name": part.name, "arguments": part.text},
                }
                found.setdefault("tool_calls", []).append(call)
                self._calls[index] += 1
            else:
                name = "content" if part.kind == "content" else "reasoning_content"
                found[name] = found.get(name, "") + part.text
        return found

    def _reason(self, index: int, reason: str | None) -> str | None:
        return "tool_calls" if reason == "stop" and self._calls[index] else reason

    def last(self) -> str:
        """The events after the text: the usage, if it was requested, and the end."""
        usage = f'data: {self._head}], "usage": {json.dumps(self.usage())}}}\n\n'
        return f"{usage if self.what.with_usage else ''}data: [DONE]\n\n"

    def failed(self, error: ApiError) -> str:
        """The event after the text if the answer ends with an error."""
        return f"data: {json.dumps(error.body())}\n\n"

    def _event(self, index: int, own: str, reason: str | None = None) -> str:
        """An event of a choice with its own fields, written directly: each token has one."""
        ended = "null" if reason is None else f'"{reason}"'
        usage = ', "usage": null' if self.what.with_usage else ""
        choice = f'{{"index": {index}, "finish_reason": {ended}, {own}}}'
        return f"data: {self._head}{choice}]{usage}}}\n\n"

    def _logprobs(self, index: int, tokens: range) -> dict[str, Any] | None:
        if not self.what.with_logprobs:
            return None
        if self.what.kind == "chat":
            return {"content": self._entries(index, tokens), "refusal": None}
        request, piece = self.started[index].request, self.model.tokenizer.piece
        rows: list[Any] = [(request.tokens[k], *request.logprobs[k]) for k in tokens]
        rows = [(t, max(p, _LEAST), [(o, max(q, _LEAST)) for o, q in top]) for t, p, top in rows]
        if index not in self._streams:
            prompt = self.what.prompts[index // self.what.choices]
            before = () if self.what.echo else prompt
            self._streams[index] = TextStream(self.model.tokenizer, before)
            if self.what.echo:
                scores = self.scores[index // self.what.choices]
                found = [(t, *row) for t, row in zip(prompt[1:], scores, strict=True)]
                rows = [(prompt[0], None, []), *found, *rows]
        offsets = []
        for token, _, _ in rows:
            offsets.append(self._lengths[index])
            self._lengths[index] += len(self._streams[index].add(token))
        return {
            "tokens": [piece(token) for token, _, _ in rows],
            "token_logprobs": [logprob for _, logprob, _ in rows],
            "top_logprobs": [
                None if logprob is None else _first_by_text(piece, top) for _, logprob, top in rows
            ],
            "text_offset": offsets,
        }

    def _entries(self, index: int, tokens: range) -> list[dict[str, Any]]:
        """The logprobs of tokens of a choice, each with those of the likeliest ones."""

        def entry(token: int, logprob: float) -> dict[str, Any]:
            text = self.model.tokenizer.piece(token)
            # A token may be a part of a character, whose bytes the tokenizer does not tell.
            own = None if "\N{REPLACEMENT CHARACTER}" in text else list(text.encode())
            return {"token": text, "logprob": max(logprob, _LEAST), "bytes": own}

        request, found = self.started[index].request, []
        for k in tokens if self.what.with_logprobs else ():
            logprob, top = request.logprobs[k]
            one = entry(request.tokens[k], logprob)
            found.append({**one, "top_logprobs": [entry(*other) for other in top]})
        return found


def _first_by_text(
    piece: Callable[[int], str], top: Sequence[tuple[int, float]]
) -> dict[str, float]:
    """The logprobs of tokens by their texts: of tokens with one text that of the first."""
    found: dict[str, float] = {}
    for token, logprob in top:
        found.setdefault(piece(token), logprob)
    return found
