"""Chat templates: the text of a conversation, as the model was trained to read it.

A template is a program of the model's author. It runs in Jinja's sandbox, in a process of its own
whose time and memory the system bounds, so that a hostile one takes little of both.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock, Timer
from typing import Any

from relaxpy.plugins.llm import template_process
from relaxpy.plugins.llm.config import ModelError, shown

_SECONDS, _WAIT = 2.0, 20.0
"""The CPU time of a text, and how long it may take on a busy machine."""
_MEMORY = 512 * 1024 * 1024
"""The bytes of the process that renders."""
_LONGEST = 256 * 1024
"""The most characters of a template: Python compiles what it says."""
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
Messages = Sequence[Mapping[str, Any]]


class ChatTemplate:
    """A template that can be read."""

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        """`special` are the texts of tokens that the template may name.

        Errors:
            ModelError: the template is not one, or the package jinja2 is not installed.
        """
        if len(text) > _LONGEST:
            raise ModelError(
                f"the chat template has {len(text)} characters, expected at most {_LONGEST}"
            )
        self.text, self._special = text, dict(special)
        _renderer(os.getpid()).rendered(text, None)

    def render(
        self,
        messages: Messages,
        *,
        continues: bool = True,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """The text of messages; the answer of the assistant comes next, if it `continues`.

        `variables` are others that the template may name, such as `enable_thinking`.

        Errors:
            ModelError: the messages are not such, or the template does not take them.
        """
        values = {
            "tools": None,
            "documents": None,
            **(variables or {}),
            **self._special,
            "messages": _checked(messages),
            "add_generation_prompt": continues,
        }
        return _renderer(os.getpid()).rendered(self.text, values)


class _Renderer:
    """The process that renders, which is started when it is needed."""

    def __init__(self) -> None:
        self._turn = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def rendered(self, template: str, values: Mapping[str, Any] | None) -> str:
        """The text that a template writes. Errors: ModelError."""
        try:
            request = json.dumps([template, values]).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise ModelError(f"a message has a value that is not one of JSON: {error}") from None
        with self._turn:
            if self._process is None or self._process.poll() is not None:
                self.end()
                self._process = _started()
            try:
                reply = _replied(self._process, request)
            except BaseException:  # an interrupt, after which the reply would be the next one's
                self.end()
                raise
            if reply is None:
                code = self._process.wait()
                self.end()
                raise ModelError(f"the chat template {_why_ended(code)}")
        kind, text = reply
        if kind != "text":
            raise ModelError(f"the chat template {text}")
        return str(text)

    def end(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with suppress(OSError):  # it writes what the process has not read
                    pipe.close()
            process.wait()


@cache
def _renderer(process: int) -> _Renderer:
    """The one of this process, by its number: one that was forked off starts its own."""
    found = _Renderer()
    atexit.register(found.end)
    return found


def _started() -> subprocess.Popen[bytes]:
    """The process. Errors: ModelError if it cannot start, or jinja2 is not installed."""
    specs = [find_spec(name) for name in ("jinja2", "markupsafe")]
    places = [str(Path(s.origin).parents[1]) for s in specs if s is not None and s.origin]
    if len(places) < len(specs):
        raise ModelError(
            "chat templates need the package jinja2", hint="python -m pip install 'relaxpy[llm]'"
        )
    if not sys.executable:
        raise ModelError("chat templates need a process of Python, and sys.executable names none")
    program = [sys.executable, "-I", "-S", template_process.__file__, str(_SECONDS), str(_MEMORY)]
    try:
        return subprocess.Popen(
            [*program, *places],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the program that the user started
        )
    except OSError as error:
        raise ModelError(f"the process for chat templates does not start: {error}") from None


def _why_ended(code: int) -> str:
    """The error of a template whose process ended with a code."""
    if code == -getattr(signal, "SIGPROF", 0):
        return f"takes more than {_SECONDS} seconds of CPU time"
    if code == -getattr(signal, "SIGKILL", -1):  # by `_replied`; on Windows it is 1
        return f"takes more than {_WAIT} seconds, or its process was killed"
    return (
        f"needs more than {_MEMORY >> 20} MB, or more than {_WAIT} seconds, or cannot run: "
        f"its process ended with code {code}"
    )


def _replied(process: subprocess.Popen[bytes], request: bytes) -> list[Any] | None:
    """The reply to a request; None if the process ended instead."""
    assert process.stdin is not None
    assert process.stdout is not None
    timer = Timer(_WAIT, process.kill)
    timer.daemon = True
    timer.start()
    try:
        process.stdin.write(request)
        process.stdin.flush()
        line = process.stdout.readline(_LONGEST_REPLY)
    except OSError:  # it ended before it has read all
        return None
    finally:
        timer.cancel()
    if not line.endswith(b"\n"):
        process.kill()
        return None
    reply: list[Any] = json.loads(line)
    return reply


_LONGEST_REPLY = 12 * template_process.MOST_LETTERS + 100


def _checked(messages: Any) -> list[dict[str, Any]]:
    """Messages whose contents are texts; one may have come as a list of parts that are texts."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ModelError(f"a conversation has at least one message, found {shown(messages)}")
    found = []
    for message in messages:
        if not isinstance(message, Mapping) or message.get("role") not in _ROLES:
            raise ModelError(
                f"a message has a role ({', '.join(_ROLES)}) and a content, "
                f"found {shown(message, 80)}"
            )
        content = message.get("content")
        if isinstance(content, list):
            texts = [part.get("text") for part in content if isinstance(part, Mapping)]
            if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
                raise ModelError(f"the parts of a content are texts, found {shown(content, 80)}")
            content = "".join(map(str, texts))
        calls = message.get("tool_calls")
        if content is None and calls:  # an answer that consists of them
            content = ""
        if not isinstance(content, str):
            raise ModelError(f"the content of a message is a text, found {shown(content)}")
        given = {name: value for name, value in message.items() if value is not None}
        if isinstance(calls, list):
            given["tool_calls"] = [_with_arguments(call) for call in calls]
        found.append({**given, "content": content})
    return found


def _with_arguments(call: Any) -> Any:
    """A call of a tool whose arguments are a table: requests have it as a text of JSON."""
    function = call.get("function") if isinstance(call, Mapping) else None
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if function is None or not isinstance(arguments, str):
        return call
    try:
        return {**call, "function": {**function, "arguments": json.loads(arguments)}}
    except (ValueError, RecursionError):
        return call
