"""OpenAI's API of responses as data: its requests as conversations, and the bodies of answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from typing_extensions import override

from relaxpy.plugins.llm.config import ParameterError
from relaxpy.plugins.llm.continuation import Continuation
from relaxpy.plugins.llm.language_model import LanguageModel
from relaxpy.plugins.llm.openai_api import Answer, ApiError, Asked, asked, refuse, require, taken
from relaxpy.plugins.llm.worker import Piece

REFUSED: Final = ("previous_response_id", "conversation", "background", "prompt", "max_tool_calls")
"""Fields that need what the server does not keep, unless they are false."""
IGNORED: Final = (
    *("truncation", "stream_options", "context_management", "background_options", "image"),
    "access_programs",
)
"""Fields that have no effect here."""
OWN: Final = ("input", "instructions", "max_output_tokens", "reasoning", "text", "include")
"""Fields that conversations have by other names."""
_TOLD: Final = (
    *("instructions", "max_output_tokens", "metadata", "reasoning", "text", "tool_choice", "tools"),
    *("top_logprobs", "truncation", "user", "safety_identifier", "prompt_cache_key"),
)
"""Fields that an answer repeats."""
_LOGPROBS: Final = "message.output_text.logprobs"
"""The entry of `include` for logprobs; its others are of tools that are not supported."""


def asked_response(fields: Mapping[str, Any], model: LanguageModel, most_tokens: int) -> Asked:
    """The contents of a request with these fields. Errors: as of `asked`."""
    refuse(fields, REFUSED)
    require(fields, "input")
    other = {*REFUSED, *IGNORED, *OWN}
    own = {name: value for name, value in fields.items() if name not in other}
    own["messages"] = _messages(fields)
    own["n"] = 1
    if "max_output_tokens" in fields:
        own["max_completion_tokens"] = fields["max_output_tokens"]
    for name, entry in (("reasoning", "effort"), ("text", "format")):
        value = taken(fields, name, dict, {})
        if value.get(entry) is not None:
            own["reasoning_effort" if name == "reasoning" else "response_format"] = value[entry]
        if value.get("verbosity") is not None:
            own["verbosity"] = value["verbosity"]
    if _LOGPROBS in taken(fields, "include", list, []):
        own["logprobs"] = True
    own |= {name: _nested(own[name]) for name in ("tools", "tool_choice") if name in own}
    return asked("chat", own, model, most_tokens)


def _nested(value: Any) -> Any:
    """A function whose entries are in an object of their own, as conversations have it."""
    if isinstance(value, list):
        return [_nested(one) for one in value]
    if isinstance(value, dict) and value.get("type") == "allowed_tools":
        own = {name: _nested(entry) for name, entry in value.items() if name != "type"}
        return {"type": "allowed_tools", "allowed_tools": own}
    if not isinstance(value, dict) or value.get("type") != "function" or "function" in value:
        return value
    own = {name: entry for name, entry in value.items() if name != "type" and entry is not None}
    return {"type": "function", "function": own}


def _messages(fields: Mapping[str, Any]) -> list[Any]:
    """The messages of a conversation, whose items may also be calls of tools and their results."""
    given, first = fields["input"], fields.get("instructions")
    found: list[Any] = [{"role": "system", "content": first}] if first else []
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise ParameterError.of("input", given, "a text, or a list of items")
    for item in given:
        match item:
            case {"role": role, "content": content}:
                found.append({"role": role, "content": content})
            case {"type": "function_call", "name": name, "arguments": arguments}:
                own = {"name": name, "arguments": arguments}
                call = {"id": item.get("call_id"), "type": "function", "function": own}
                if found and isinstance(found[-1], dict) and found[-1].get("role") == "assistant":
                    found[-1].setdefault("tool_calls", []).append(call)
                else:
                    found.append({"role": "assistant", "content": "", "tool_calls": [call]})
            case {"type": "function_call_output", "output": output}:
                own = {"role": "tool", "tool_call_id": item.get("call_id"), "content": output}
                found.append(own)
            case {"type": "reasoning"}:
                pass
            case _:
                expected = "messages, function_call and function_call_output as items"
                raise ParameterError.of("input", item, expected)
    return found


class ResponsesAnswer(Answer):
    """The bodies of an answer: one in the end, or events for its pieces."""

    def __init__(
        self,
        fields: Mapping[str, Any],
        what: Asked,
        model: LanguageModel,
        started: Sequence[Continuation],
    ) -> None:
        super().__init__(what, model, started)
        self._told_again = {name: fields[name] for name in _TOLD if name in fields}
        self._scores: list[Any] = []
        """The logprobs of tokens whose text has not come yet."""
        self._items: list[dict[str, Any]] = []
        self._open = ""
        """The type of the last item, if it goes on."""
        self._events, self._ended = 0, "stop"
        self._own = {"id": _new("resp"), "object": "response", "created_at": int(time.time())}

    @override
    def whole(self, texts: Sequence[str], reasons: Sequence[str | None]) -> str:
        self._ended = reasons[0] or "stop"
        parts = self._parts(0, texts[0], is_last=True, is_cut=self._ended == "length")
        self._added(parts, range(self.started[0].read))
        self._closed()
        return json.dumps(self._response(is_done=True))

    @override
    def first(self) -> str:
        response = self._response(is_done=False)
        kinds = ("response.created", "response.in_progress")
        return "".join(self._told(kind, response=response) for kind in kinds)

    @override
    def chunk(self, piece: Piece) -> str:
        self._ended = piece.reason or "stop"
        is_cut = self._ended == "length"
        parts = self._parts(0, piece.text, is_last=piece.is_last, is_cut=is_cut)
        return self._added(parts, piece.tokens)

    @override
    def last(self) -> str:
        events, response = self._closed(), self._response(is_done=True)
        return events + self._told(f"response.{response['status']}", response=response)

    @override
    def failed(self, error: ApiError) -> str:
        own = {"code": "server_error", "message": error.message}
        response = {**self._response(is_done=False), "status": "failed", "error": own}
        return self._closed() + self._told("response.failed", response=response)

    def _told(self, kind: str, **fields: Any) -> str:
        """An event."""
        own = {"type": kind, "sequence_number": self._events, **fields}
        self._events += 1
        return f"event: {kind}\ndata: {json.dumps(own)}\n\n"

    def _of_item(self, kind: str, **fields: Any) -> str:
        """An event of the last item."""
        own = {"output_index": len(self._items) - 1, **fields}
        return self._told(f"response.{kind}", **own)

    def _of_text(self, kind: str, **fields: Any) -> str:
        """An event of the text of the last item."""
        return self._of_item(kind, item_id=self._items[-1]["id"], content_index=0, **fields)

    def _added(self, parts: Mapping[str, Any], tokens: range) -> str:
        """Add the fields of a message to the items; the events that say so."""
        events = ""
        self._scores += self._entries(0, tokens)
        for name, kind in (("reasoning_content", "reasoning"), ("content", "message")):
            if text := parts.get(name):
                if self._open != kind:
                    events += self._closed() + self._begun(kind)
                part, more = self._items[-1]["content"][0], dict[str, Any]()
                part["text"] += text
                if kind == "message":
                    more["logprobs"], self._scores = self._scores, []
                    part["logprobs"] += more["logprobs"]
                events += self._of_text(f"{_TEXTS[kind]}.delta", delta=text, **more)
        for call in parts.get("tool_calls", ()):
            own, arguments = call["function"], call["function"]["arguments"]
            item = {"id": _new("fc"), "type": "function_call", "call_id": call["id"], **own}
            events += self._closed()
            self._items.append({**item, "arguments": "", "status": "in_progress"})
            events += self._of_item("output_item.added", item=self._items[-1])
            which = {"item_id": item["id"]}
            kind = "function_call_arguments"
            events += self._of_item(f"{kind}.delta", delta=arguments, **which)
            events += self._of_item(f"{kind}.done", arguments=arguments, name=own["name"], **which)
            status = "completed" if _is_whole(arguments) else "incomplete"
            self._items[-1] |= {"arguments": arguments, "status": status}
            events += self._of_item("output_item.done", item=self._items[-1])
        return events

    def _begun(self, kind: str) -> str:
        """Begin an item of text."""
        part: dict[str, Any] = {"type": _TEXTS[kind], "text": ""}
        item: dict[str, Any] = {"id": _new("msg"), "type": kind, "status": "in_progress"}
        if kind == "message":
            item["role"] = "assistant"
            part |= {"annotations": [], "logprobs": []}
        else:
            item["summary"] = []
        self._items.append({**item, "content": []})
        events = self._of_item("output_item.added", item=self._items[-1])
        self._items[-1]["content"] = [part]
        self._open = kind
        return events + self._of_text("content_part.added", part=part)

    def _closed(self) -> str:
        """End the item of text that goes on, if one does."""
        if not self._open:
            return ""
        kind, item, self._open = self._open, self._items[-1], ""
        [part] = item["content"]
        item["status"] = "incomplete" if self._ended == "length" else "completed"
        more = {}
        if kind == "message":
            part["logprobs"] += self._scores
            more["logprobs"], self._scores = part["logprobs"], []
        events = self._of_text(f"{_TEXTS[kind]}.done", text=part["text"], **more)
        events += self._of_text("content_part.done", part=part)
        return events + self._of_item("output_item.done", item=item)

    def _response(self, *, is_done: bool) -> dict[str, Any]:
        """The body of the answer so far."""
        is_cut, usage = self._ended == "length", self.usage()
        status = ("incomplete" if is_cut else "completed") if is_done else "in_progress"
        read, chosen = usage["prompt_tokens"], usage["completion_tokens"]
        return {
            **self._own,
            "status": status,
            "model": self.model.name,
            "output": self._items if is_done else [],
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_done and is_cut else None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": self.what.layout is None or self.what.layout.most > 1,
            "temperature": self.what.options["temperature"],
            "top_p": self.what.options.get("top_p", 1),
            "tool_choice": "auto",
            "tools": [],
            **self._told_again,
            "usage": {
                "input_tokens": read,
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": chosen,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": read + chosen,
            }
            if is_done
            else None,
        }


_TEXTS: Final = {"message": "output_text", "reasoning": "reasoning_text"}
"""The types of texts of items, by those of these."""


def _is_whole(arguments: str) -> bool:
    """False for JSON that is cut off."""
    try:
        json.loads(arguments)
    except (ValueError, RecursionError):
        return False
    return True


def _new(kind: str) -> str:
    return f"{kind}_{uuid4().hex}"
