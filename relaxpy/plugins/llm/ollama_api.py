"""Ollama's HTTP API as data: its requests as those of OpenAI's, and the bodies of its answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias

from typing_extensions import override

from relaxpy.plugins.llm.answer_parts import Style, Thoughts
from relaxpy.plugins.llm.config import Config
from relaxpy.plugins.llm.continuation import Continuation
from relaxpy.plugins.llm.language_model import LanguageModel
from relaxpy.plugins.llm.openai_api import (
    Answer,
    ApiError,
    Asked,
    asked,
    asked_embeddings,
    refuse,
    require,
    taken,
)
from relaxpy.plugins.llm.worker import Piece

Path: TypeAlias = Literal["generate", "chat"]
DEFAULTS: Final[Mapping[str, Any]] = {"temperature": 0.8, "top_k": 40, "top_p": 0.9}
"""The options of Ollama that differ from those of OpenAI, where a request names none."""
IGNORED: Final = {
    *("numa", "num_ctx", "num_batch", "num_gpu", "main_gpu", "low_vram", "f16_kv", "logits_all"),
    *("vocab_only", "use_mmap", "use_mlock", "embedding_only", "num_thread", "num_keep"),
    *("repeat_last_n", "mirostat_tau", "mirostat_eta", "penalize_newline"),
}
"""Options that have no effect here."""
REFUSED: Final = ("suffix", "context", "template", "images")
"""Fields that change answers in ways that are not supported, unless they are empty."""
IMAGES: Final = ("width", "height", "steps")
"""Fields of models that draw, which have no effect here."""
OWN: Final = {
    *("model", "name", "options", "format", "think", "raw", "system", "prompt", "messages"),
    *("logprobs", "top_logprobs"),
}
OF_EMBEDDINGS: Final = {"input", "dimensions", "truncate", "model", "name", "options", "keep_alive"}
"""Those of requests for embeddings, whose options have no effect."""


def named_model(fields: Mapping[str, Any]) -> Any:
    """The name of the model of a request. Errors: ApiError if it has none."""
    own = {"model": fields["name"], **fields} if "name" in fields else fields
    require(own, "model")
    return own["model"]


def is_empty(fields: Mapping[str, Any]) -> bool:
    """True for a request without a prompt, as clients send it to load a model, or to unload it."""
    return not (fields.get("prompt") or fields.get("messages"))


def asked_ollama(
    path: Path, fields: Mapping[str, Any], model: LanguageModel, most_tokens: int
) -> Asked | None:
    """The contents of a request; None if it has none, as clients send it to load a model.

    Errors: as of `asked`.
    """
    refuse(fields, REFUSED)
    prompt, options = taken(fields, "prompt", str, ""), taken(fields, "options", dict, {})
    chosen = {name: v for name, v in options.items() if v is not None and name not in IGNORED}
    own: dict[str, Any] = {**DEFAULTS, **chosen}
    known = {*OWN, *REFUSED, *IMAGES}
    own |= {name: value for name, value in fields.items() if name not in known}
    most = own.pop("num_predict", -1)
    own["max_tokens"] = most_tokens if type(most) is int and most < 1 else most
    form = fields.get("format", "")
    if form == "json":
        own["response_format"] = {"type": "json_object"}
    elif form != "":
        own["json_schema"] = form
    own |= {"stream": fields.get("stream", True), "n": 1}
    is_raw = fields.get("raw") is True or not (model.template_text or fields.get("system"))
    kind: Any = "text" if path == "generate" and is_raw else "chat"
    if kind == "text":
        own["prompt"] = prompt
        if fields.get("logprobs"):
            own["logprobs"] = fields.get("top_logprobs", 0)
    else:
        own |= {name: fields[name] for name in ("logprobs", "top_logprobs") if name in fields}
        own["messages"] = _messages(path, fields)
        think = fields.get("think")
        if think is not None:
            own["reasoning_effort" if isinstance(think, str) else "enable_thinking"] = think
    if not own.get("prompt", own.get("messages")):
        return None
    return asked(kind, own, model, most_tokens)


def asked_ollama_embeddings(
    path: str, fields: Mapping[str, Any], model: LanguageModel
) -> tuple[list[list[int]], bool, int, list[str]]:
    """The contents of a request for embeddings, as those of `asked_embeddings`."""
    others = OF_EMBEDDINGS - {"input", "dimensions"}
    own = {name: value for name, value in fields.items() if name not in others}
    if path == "embeddings":
        own["input"] = taken(own, "prompt", str, "")
        own.pop("prompt", None)
    return asked_embeddings(own, model, cuts=taken(fields, "truncate", bool, True))


def _messages(path: Path, fields: Mapping[str, Any]) -> Any:
    """The messages of a conversation, with the names that OpenAI has for their entries."""
    if path == "generate":
        prompt, system = fields.get("prompt", ""), fields.get("system", "")
        first = [{"role": "system", "content": system}] if system else []
        return [*first, {"role": "user", "content": prompt}] if prompt else []
    messages = fields.get("messages", [])
    if not isinstance(messages, list):
        return messages
    names = {"thinking": "reasoning_content", "tool_name": "name"}
    found: list[Any] = []
    for message in messages:
        if isinstance(message, dict):
            refuse(message, ("images",))
            message = {names.get(name, name): value for name, value in message.items()}
        found.append(message)
    return found


class OllamaAnswer(Answer):
    """The bodies of an answer: one in the end, or lines for its pieces."""

    media_type = "application/x-ndjson"

    def __init__(
        self, path: Path, what: Asked, model: LanguageModel, started: Sequence[Continuation]
    ) -> None:
        super().__init__(what, model, started)
        self._path = path
        self._begin = self._first = time.monotonic_ns()
        self._ended: str | None = None

    @override
    def received(self) -> None:
        if self._first == self._begin:
            self._first = time.monotonic_ns()

    @override
    def whole(self, texts: Sequence[str], reasons: Sequence[str | None]) -> str:
        self._ended = reasons[0]
        parts = self._parts(0, texts[0], is_last=True)
        return json.dumps(self._line(parts, range(self.started[0].read), is_done=True))

    @override
    def first(self) -> str:
        return ""

    @override
    def chunk(self, piece: Piece) -> str:
        self._ended = piece.reason
        parts = self._parts(0, piece.text, is_last=piece.is_last)
        if not parts and not self.what.with_logprobs:
            return ""
        return f"{json.dumps(self._line(parts, piece.tokens, is_done=False))}\n"

    @override
    def last(self) -> str:
        return f"{json.dumps(self._line({}, range(0), is_done=True))}\n"

    @override
    def failed(self, error: ApiError) -> str:
        return f"{json.dumps({'error': error.message})}\n"

    def _line(self, parts: Mapping[str, Any], tokens: range, *, is_done: bool) -> dict[str, Any]:
        """A piece of the answer with these fields of a message; the last one has the counts."""
        found: dict[str, Any] = {"model": self.model.name, "created_at": moment(time.time())}
        content, thoughts = parts.get("content") or "", parts.get("reasoning_content")
        if self._path == "generate":
            found["response"] = content
            found |= {} if thoughts is None else {"thinking": thoughts}
        else:
            message: dict[str, Any] = {"role": "assistant", "content": content}
            message |= {} if thoughts is None else {"thinking": thoughts}
            calls = [call["function"] for call in parts.get("tool_calls", ())]
            if calls:
                message["tool_calls"] = [
                    {"function": {**call, "arguments": json.loads(call["arguments"])}}
                    for call in calls
                ]
            found["message"] = message
        if logprobs := self._entries(0, tokens):
            found["logprobs"] = logprobs
        found["done"] = is_done
        if is_done:
            now, usage = time.monotonic_ns(), self.usage()
            found |= {
                "done_reason": self._ended,
                "total_duration": now - self._begin,
                "load_duration": 0,
                "prompt_eval_count": usage["prompt_tokens"],
                "prompt_eval_duration": self._first - self._begin,
                "eval_count": usage["completion_tokens"],
                "eval_duration": now - self._first,
            }
        return found


def loaded(path: Path, name: str, reason: str = "load") -> dict[str, Any]:
    """The answer to a request without a prompt."""
    own: dict[str, Any] = {"response": ""}
    if path == "chat":
        own = {"message": {"role": "assistant", "content": ""}}
    head = {"model": name, "created_at": moment(time.time())}
    return {**head, **own, "done": True, "done_reason": reason}


def moment(seconds: float) -> str:
    """A time as Ollama writes it."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def described(name: str, model: LanguageModel | None, size: int, created: float) -> dict[str, Any]:
    """A model as an entry of a list; more is known of one that is loaded."""
    config = None if model is None else model.decoder.config
    quantization = None if model is None else model.decoder.quantization
    tagged = name if ":" in name else f"{name}:latest"  # adapters are tags
    return {
        "name": tagged,
        "model": tagged,
        "modified_at": moment(created),
        "size": size,
        "digest": "",
        "details": _details(config, quantization),
    }


def shown_model(
    config: Config, template: str | None, context: int, quantization: str | None
) -> dict[str, Any]:
    """The properties of a model, and its capabilities."""
    template, found = template or "", ["completion"]
    if Style.of(template) is not None:
        found.append("tools")
    if Thoughts.of(template, "") is not None:
        found.append("thinking")
    return {
        "template": template,
        "details": _details(config, quantization),
        "model_info": {
            "general.architecture": config.family,
            f"{config.family}.context_length": context,
            f"{config.family}.embedding_length": config.width,
            f"{config.family}.block_count": config.layers,
        },
        "capabilities": [*found, "embedding"],
    }


def _details(config: Config | None, quantization: str | None) -> dict[str, Any]:
    family = "" if config is None else config.family
    return {
        "parent_model": "",
        "format": "",
        "family": family,
        "families": [family] if family else [],
        "parameter_size": "",
        "quantization_level": quantization or "",
    }
