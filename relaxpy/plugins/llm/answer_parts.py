"""The parts of an answer: thoughts, text and calls of tools, as the chat template writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Literal

from relaxpy.plugins.llm.config import ParameterError
from relaxpy.plugins.llm.json_schema import followable
from relaxpy.support.dataclass import dataclass

_PAIRS: Final = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))
"""The texts that begin and end thoughts."""
_MOST_TOOLS: Final = 128
_NAME: Final = re.compile(r"[\w.-]{1,64}")
_HEAD: Final = re.compile(
    r'[\s;,}\]]*(?:\{\s*"name"\s*:\s*"([\w.-]+)"\s*,\s*"(?:arguments|parameters)"\s*:\s*'
    r"|([\w.-]+)\s*(?:\[ARGS\]\s*)?)(?=\{)"
)
"""The text before the arguments of a call."""
_ANYTHING: Final[Mapping[str, Any]] = {"type": "object"}
"""The parameters of a tool that tells none."""


@dataclass(frozen=True)
class Thoughts:
    """The texts that begin and end what is thought before an answer."""

    begin: str
    end: str
    is_open: bool
    """True if the prompt began it; otherwise the answer may."""

    @classmethod
    def of(cls, template: str, prompt: str) -> Thoughts | None:
        """Those of an answer to a prompt that a chat template rendered, if it knows thoughts."""
        for begin, end in _PAIRS:
            if end in template:
                last = prompt.rstrip()
                return None if last.endswith(end) else cls(begin, end, last.endswith(begin))
        return None


@dataclass(frozen=True)
class Style:
    """How a model writes calls of tools: as objects of JSON, or as names before their arguments."""

    begin: str
    """Stands before calls; an empty one for answers that are nothing else."""
    end: str = ""
    """Stands after them; an empty one if they go on to the end."""
    arguments: str = "arguments"
    """The name of the arguments in an object."""
    listed: bool = False
    """True if the objects are in a list."""
    middle: str = ""
    """Stands between a name and its arguments, where these are not an object together."""
    others: tuple[str, ...] = ()
    """Other texts that may stand before calls."""

    @classmethod
    def of(cls, template: str) -> Style | None:
        """That of a chat template; None if it takes no tools, or calls them in other forms."""
        if not re.search(r"\btools\b", template) or "<function=" in template:
            return None
        if "<tool_call>" in template:  # Hermes, Qwen
            return cls("<tool_call>", "</tool_call>")
        if "[TOOL_CALLS]" in template:  # Mistral
            middle = "[ARGS]" if "[ARGS]" in template else ""
            return cls("[TOOL_CALLS]", listed=not middle, middle=middle)
        if "<|tool_call|>" in template or "<|tool|>" in template:  # Phi, Granite
            end = "<|/tool_call|>" if "/tool_call" in template or "<|tool|>" in template else ""
            return cls("<|tool_call|>", end, listed=True, others=("functools[",))
        if "<|python_tag|>" in template or '"parameters": dictionary' in template:  # Llama 3
            return cls("", arguments="parameters", others=("<|python_tag|>",))
        return cls("")

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts that may be tokens that control the model."""
        return tuple(filter(None, (self.begin, self.end, self.middle, *self.others)))

    def lark(self, tools: Sequence[Tool], literal: Callable[[str], str], *, several: bool) -> str:
        """The rules of a grammar for calls of tools; `literal` writes a text in it."""
        rules = []
        schemas = followable({tool.name: tool.parameters for tool in tools})
        for k, tool in enumerate(tools):
            schema = json.dumps(schemas[tool.name])
            if self.middle:
                own = f"{json.dumps(tool.name)} {literal(self.middle)} %json {schema}"
            else:
                head = f'{{"name": {json.dumps(tool.name)}, "{self.arguments}": '
                own = f'{json.dumps(head)} %json {schema} "}}"'
            rules.append(f"call_{k}: {own}")
        one = " | ".join(f"call_{k}" for k in range(len(tools)))
        begin = f"{literal(self.begin)} " if self.begin else ""
        end = f" {literal(self.end)}" if self.end else ""
        if self.listed:
            more = ' (", " call)*' if several else ""
            calls = f'{begin}/ ?\\[/ call{more} "]"{end}'
        elif self.middle:
            calls = f"({begin}call{end}){'+' if several else ''}"
        elif self.end:
            own = f'{begin}"\\n" call "\\n"{end}'
            calls = f'{own} ("\\n" {own})*' if several else own
        else:
            calls = 'call ("; " call)*' if several else "call"
        return "\n".join([f"calls: {calls}", f"call: {one}", *rules])

    def calls(self, text: str, names: Collection[str]) -> list[tuple[str, str]] | None:
        """The names and arguments of the calls in a text; None if it is not calls of tools."""
        found, at = [], 0
        decoder = json.JSONDecoder()
        try:
            while match := re.compile(r"[\s;,]*(?=\S)").match(text, at):
                at = match.end()
                named = re.compile(r"([\w.-]+)(?:\[ARGS\])?\s*(?=\{)").match(text, at)
                value, at = decoder.raw_decode(text, named.end() if named else at)
                listed = value if isinstance(value, list) and not named else [value]
                for one in listed:
                    call: Any = {"name": named[1], "arguments": one} if named else one
                    call = call.get("function", call)
                    name = call["name"]
                    arguments = call.get("arguments", call.get("parameters", {}))
                    if isinstance(arguments, str):
                        arguments = json.loads(arguments)
                    if name not in names or not isinstance(arguments, dict):
                        return None
                    found.append((name, json.dumps(arguments, ensure_ascii=False)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return None
        return found or None

    def begun_calls(self, text: str, names: Collection[str]) -> list[tuple[str, str]] | None:
        """Those of a text that is cut off, the last one with arguments as far as they come."""
        found, text, at = [], text.lstrip("[ \n"), 0
        while match := _HEAD.match(text, at):
            name, at = match[1] or match[2], match.end()
            if name not in names:
                return None
            try:
                _, end = json.JSONDecoder().raw_decode(text, at)
            except (ValueError, RecursionError):
                end = len(text)
            found.append((name, text[at:end]))
            at = end
        rest = "".join(text[at:].split()).lstrip(";,}]")
        for name in names if rest else ():
            head = f'{{"name":"{name}"'
            whole = (f'{head},"{key}":{{' for key in ("arguments", "parameters"))
            if rest.startswith(head) and any(one.startswith(rest) for one in whole):
                return [*found, (name, "")]
            if head.startswith(rest) or f"{name}[ARGS]".startswith(rest):
                return found
        return found or None if rest else found


@dataclass(frozen=True)
class Tool:
    """A function that the model may call."""

    name: str
    parameters: Mapping[str, Any]
    """The JSON schema of its arguments, an object."""


def tools_of(listed: Any) -> list[Tool]:
    """The tools of a request. Errors: ParameterError."""
    expected = 'a list of {"type": "function", "function": {"name": ..., "parameters": ...}}'
    if not isinstance(listed, list) or len(listed) > _MOST_TOOLS:
        raise ParameterError.of("tools", listed, f"{expected}, of at most {_MOST_TOOLS}")
    found = []
    for entry in listed:
        own = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(own, dict) or entry.get("type", "function") != "function":
            raise ParameterError.of("tools", listed, expected)
        name, parameters = own.get("name"), own.get("parameters") or _ANYTHING
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise ParameterError.of("tools", name, "names of 1 to 64 letters, digits, _, - and .")
        if not isinstance(parameters, dict):
            raise ParameterError.of("tools", parameters, f"a JSON schema as parameters of {name}")
        found.append(Tool(name, parameters))
    if len({tool.name for tool in found}) < len(found):
        raise ParameterError.of("tools", [tool.name for tool in found], "names that differ")
    return found


def chosen_tools(choice: Any, tools: Sequence[Tool]) -> tuple[list[Tool], bool]:
    """The tools that an answer may call, and whether it has to. Errors: ParameterError."""
    match choice:
        case "none":
            return [], False
        case "auto" | None:
            return list(tools), False
        case "required" | "any" if tools:
            return list(tools), True
        case {"type": "function", "function": {"name": name}}:
            if named := [tool for tool in tools if tool.name == name]:
                return named, True
            raise ParameterError.of("tool_choice", name, "the name of one of the tools")
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [*allowed]}}:
            own = [{"type": "function", "function": {"name": tool.name}} for tool in tools]
            if mode in ("auto", "required") and allowed and all(one in own for one in allowed):
                named = [tool for tool, one in zip(tools, own, strict=True) if one in allowed]
                return named, mode == "required"
        case _:
            pass
    one = '{"type": "function", "function": {"name": ...}}'
    expected = f"auto, none, required (with tools), {one}, or an object of allowed_tools"
    raise ParameterError.of("tool_choice", choice, expected)


@dataclass(frozen=True)
class Part:
    """A part of an answer, or the next piece of one."""

    kind: Literal["reasoning", "content", "call"]
    text: str
    """The thoughts or the content, or the arguments of a call as JSON."""
    name: str = ""
    """The name of the tool that is called."""


@dataclass(frozen=True)
class Layout:
    """The parts that an answer may have."""

    thoughts: Thoughts | None
    style: Style | None
    """How calls are written, if there may be some."""
    names: frozenset[str] = frozenset()
    """The names of the tools."""
    most: int = 1 << 30
    """The most calls."""

    @property
    def marks(self) -> tuple[str, ...]:
        """The texts between parts, which may be tokens that control the model."""
        thoughts, style = self.thoughts, self.style
        pair = () if thoughts is None else (thoughts.begin, thoughts.end)
        return pair if style is None else (*pair, *style.marks)


class Splitter:
    """The parts of an answer whose text comes in pieces."""

    def __init__(self, layout: Layout) -> None:
        self._thoughts, self._style, self._names = layout.thoughts, layout.style, layout.names
        thoughts, style = self._thoughts, self._style
        self._marks = () if style is None else tuple(filter(None, (style.begin, *style.others)))
        self._left = layout.most
        self._text = ""
        self._state = "thoughts" if thoughts is not None and thoughts.is_open else "start"
        self._mark = ""
        self._is_blank = True
        """True until a part begins: spaces before it belong to none."""

    def add(self, text: str) -> list[Part]:
        """The parts that are known with the next piece."""
        self._text += text
        found: list[Part] = []
        while (part := self._step()) is not None:
            found += part
        return [part for part in found if part.text or part.kind == "call"]

    def end(self, *, is_cut: bool = False) -> list[Part]:
        """The parts at the end of the text, which may be a part of a call if it `is_cut`."""
        found = self.add("")
        rest, self._text = self._text, ""
        if self._state == "calls":
            found += self._called(rest, self._mark + rest, is_cut=is_cut)
        elif rest.strip() or not self._is_blank:
            kind: Any = "reasoning" if self._state == "thoughts" else "content"
            found.append(Part(kind, rest))
        return [part for part in found if part.text or part.kind == "call"]

    def _step(self) -> Iterable[Part] | None:
        """Go on in the text; the parts, or None if more text is needed."""
        if self._is_blank and self._state != "calls":
            self._text = self._text.lstrip()
            if not self._text:
                return None
        match self._state:
            case "start":
                return self._begin()
            case "thoughts":
                assert self._thoughts is not None
                return self._until((self._thoughts.end,), "reasoning", "content")
            case "content" if self._marks:
                return self._until(self._marks, "content", "calls")
            case "calls" if self._style is not None and self._style.end:
                return self._until_end(self._style.end)
            case "content" if self._text:
                return self._until((), "content", "content")
        return None

    def _begin(self) -> Iterable[Part] | None:
        """Find out whether thoughts or calls begin the answer."""
        text, style = self._text, self._style
        begins = [self._thoughts.begin] if self._thoughts is not None else []
        is_bare = style is not None and not style.begin
        if is_bare and style is not None:
            begins += style.others
        for begin in begins:
            if text.startswith(begin):
                self._text, self._is_blank = text[len(begin) :], True
                is_thought = self._thoughts is not None and begin == self._thoughts.begin
                self._state = "thoughts" if is_thought else "calls"
                self._mark = "" if is_thought else begin
                return []
            if begin.startswith(text):
                return None
        self._state = "calls" if is_bare and text[0] in "{[" else "content"
        return []

    def _until(
        self, marks: Sequence[str], kind: Literal["reasoning", "content"], state: str
    ) -> Iterable[Part] | None:
        """The text as far as none of some marks begins in it, after which comes another state."""
        places = [(place, mark) for mark in marks if (place := self._text.find(mark)) >= 0]
        if places:
            place, mark = min(places)
            text, self._text = self._text[:place].rstrip(), self._text[place + len(mark) :]
            self._state, self._mark, self._is_blank = state, mark, True
            if kind == "reasoning":  # calls may follow at once
                self._thoughts, self._state = None, "start"
            return [Part(kind, text)]
        held = len(self._text)
        if marks:  # spaces before a mark belong to no part
            kept = begun(self._text, marks)
            held = len(self._text[: len(self._text) - kept].rstrip())
        if not held:
            return None
        text, self._text = self._text[:held], self._text[held:]
        self._is_blank = False
        return [Part(kind, text)]

    def _until_end(self, end: str) -> Iterable[Part] | None:
        place = self._text.find(end)
        if place < 0:
            return None
        body, self._text = self._text[:place], self._text[place + len(end) :]
        self._state, self._is_blank = "content", True
        return self._called(body, f"{self._mark}{body}{end}")

    def _called(self, body: str, whole: str, *, is_cut: bool = False) -> list[Part]:
        """The calls in a text; what is not one is content."""
        assert self._style is not None
        if self._style.begin and not self._style.end:  # it may be there once more for each call
            body = body.replace(self._style.begin, " ")
        if self._mark.endswith("["):
            body = f"[{body}"
        calls = self._style.calls(body, self._names)
        if calls is None and is_cut:
            calls = self._style.begun_calls(body, self._names)
        if calls is None:
            return [Part("content", whole)]
        calls = calls[: self._left]
        self._left -= len(calls)
        return [Part("call", arguments, name) for name, arguments in calls]


def begun(text: str, marks: Iterable[str]) -> int:
    """The length of the longest end of a text that one of some marks begins with."""

    def length(mark: str) -> int:
        longest = range(min(len(mark) - 1, len(text)), 0, -1)
        return next((n for n in longest if text.endswith(mark[:n])), 0)

    return max(map(length, marks), default=0)
