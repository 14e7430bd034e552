"""Chat templates: the text of a conversation, as the model was trained to read it.

A template is a program of the model's author. It runs in Jinja's sandbox, and with bounds on its
steps and on the sizes of its values, so that a hostile one takes little time and memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence, Sized
from datetime import datetime
from functools import cache, wraps
from math import prod
from threading import Lock
from typing import Any

from typing_extensions import override

from relaxpy.plugins.llm.config import ModelError, shown

_MOST_STEPS = 100_000
_LARGEST = 4_000_000
"""The most elements or characters of a value."""
_MOST_WORK = 1 << 28
"""The most characters that a function of `_MULTIPLIES` may write."""
_MULTIPLIES = {
    *("center", "expandtabs", "indent", "join", "ljust", "replace", "rjust", "tojson", "translate"),
    *("wordwrap", "zfill"),
}
"""Functions and filters whose result may be as large as the product of the sizes they take."""
_NO_WORK = {"length", "count", "first", "last", "default", "d"}
"""Filters that take no time and make nothing new, whatever the size of a value."""
_WIDE = re.compile(r"[%:.<>=^]\d*\d{7}|%[^a-zA-Z%]*\*|\{[^{}]*:[^{}]*\{")
"""A width in a format, which makes a text of so many characters, or one that a value gives."""
_ROLES = ("system", "developer", "user", "assistant", "tool")
Messages = Sequence[Mapping[str, Any]]


class ChatTemplate:
    """A template, compiled."""

    def __init__(self, text: str, special: Mapping[str, str]) -> None:
        """`special` are the texts of tokens that the template may name.

        Errors:
            ModelError: the template is not one, or the package jinja2 is not installed.
        """
        try:
            import jinja2
        except ModuleNotFoundError:
            raise ModelError(
                "chat templates need the package jinja2",
                hint="python -m pip install 'relaxpy[llm]'",
            ) from None
        self._special = dict(special)
        self._turn = Lock()
        """Whoever renders holds it, as the steps are counted for one at a time."""
        try:
            self._environment = _environment()()
            self._template = self._environment.from_string(text)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelError(f"the chat template cannot be read: {error}") from None

    def render(self, messages: Messages, *, continues: bool = True) -> str:
        """The text of messages; the answer of the assistant comes next, if it `continues`.

        Errors:
            ModelError: the messages are not such, or the template does not take them.
        """
        checked = _checked(messages)
        with self._turn:
            return self._rendered(checked, continues)

    def _rendered(self, messages: list[dict[str, Any]], continues: bool) -> str:
        import jinja2

        self._environment.steps_left = _MOST_STEPS
        parts, size = [], 0
        try:
            for part in self._template.generate(
                messages=messages,
                add_generation_prompt=continues,
                tools=None,
                documents=None,
                **self._special,
            ):
                parts.append(part)
                size += len(part)
                if size > 4 * _LARGEST:
                    raise ModelError(f"the chat template writes more than {4 * _LARGEST} letters")
            return "".join(parts)
        except jinja2.TemplateError as error:
            raise ModelError(f"the chat template refuses the messages: {error}") from None
        except (ArithmeticError, LookupError, MemoryError, RecursionError, AttributeError) as error:
            raise ModelError(f"the chat template fails: {error!r:.200}") from None
        except (TypeError, ValueError) as error:
            if isinstance(error, ModelError):
                raise
            raise ModelError(f"the chat template fails: {error!r:.200}") from None


def _checked(messages: Any) -> list[dict[str, Any]]:
    """Messages whose contents are texts; one may have come as a list of parts that are texts.

    Errors:
        ModelError: these are not messages.
    """
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
        if not isinstance(content, str):
            raise ModelError(f"the content of a message is a text, found {shown(content)}")
        given = {name: value for name, value in message.items() if value is not None}
        found.append({**given, "content": content})
    return found


@cache
def _environment() -> Callable[[], Any]:
    """The class of environments of templates, as transformers has them, with bounds."""
    import jinja2
    from jinja2 import nodes
    from jinja2.exceptions import SecurityError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.filters import do_format
    from jinja2.sandbox import ImmutableSandboxedEnvironment
    from jinja2.utils import Namespace

    def few(args: Sequence[Any], options: Mapping[str, Any]) -> None:
        for arg in (*args, *options.values()):
            if isinstance(arg, int) and abs(arg) > _LARGEST:
                raise SecurityError(f"it calls a function with {arg}")

    def narrow(form: object, mark: str, values: Sequence[Any]) -> None:
        if not isinstance(form, str):
            return
        if _WIDE.search(form):
            raise SecurityError("it writes a value with a large width")
        if form.count(mark) * sum(_extent(value)[0] for value in values) > _MOST_WORK:
            raise SecurityError("it writes large values many times")

    def multiplied(name: str, values: Sequence[Any]) -> None:
        if name in _MULTIPLIES:
            sizes = [abs(v) if isinstance(v, int) else _extent(v)[0] for v in values]
            if prod(max(1, size) for size in sizes) > _MOST_WORK:
                raise SecurityError(f"it calls {name} with large values")

    class Generation(Extension):
        """The block `generation`, which marks answers for training, is its content."""

        tags = {"generation"}  # noqa: RUF012  # as Jinja declares it

        @override
        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    class Environment(ImmutableSandboxedEnvironment):  # type: ignore[misc,unused-ignore]
        intercepted_binops = frozenset({"+", "*", "**", "%"})

        def __init__(self) -> None:
            super().__init__(
                trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
            )
            self.steps_left = _MOST_STEPS
            del self.globals["lipsum"]
            self.globals |= {"raise_exception": refuse, "strftime_now": now, "namespace": names}
            self.filters |= {"tojson": to_json}
            for name in self.filters.keys() - _NO_WORK:
                self.filters[name] = self.filtered(name, self.filters[name])
            self.finalize = self.bounded

        def step(self, count: int = 1) -> None:
            self.steps_left -= count
            if self.steps_left < 0:
                raise SecurityError(f"it takes more than {_MOST_STEPS} steps")

        def bounded(self, value: Any) -> Any:
            """A value that is not too large; a large one takes steps."""
            if isinstance(value, int) and abs(value) > 1 << 64:
                raise SecurityError("it has an integer of more than 64 bits")
            size, visited = _extent(value)
            if size > _LARGEST:
                raise SecurityError(f"it has a value of more than {_LARGEST} elements")
            self.step(((size if isinstance(value, str) else 0) + visited) // 1000)
            return value

        def filtered(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(function)
            def call(*args: Any, **options: Any) -> Any:
                values = (*args, *options.values())
                few(args, options)
                for value in values:
                    self.bounded(value)
                multiplied(name, values)
                if function is do_format:
                    narrow(args[0], "%", values[1:])
                return self.bounded(function(*args, **options))

            return call

        @override
        def _parse(self, *args: Any) -> Any:
            """The tree, in which each iteration and each call of a macro counts as a step."""
            tree: Any = super()._parse(*args)
            for name in tree.find_all(nodes.NSRef):
                public(name.attr)
            step = nodes.ExprStmt(
                nodes.Call(nodes.EnvironmentAttribute("step"), [], [], None, None)
            )
            for node in tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock)):
                node.body.insert(0, step)
            for concat in list(tree.find_all(nodes.Concat)):
                first, *rest = concat.nodes
                concat.nodes = [_added(nodes, first, rest)]
            tree.set_lineno(1)
            tree.set_environment(self)
            return tree

        @override
        def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
            sizes = [len(value) if isinstance(value, Sized) else value for value in (left, right)]
            if operator == "*" and all(isinstance(size, int) for size in sizes):
                self.bounded(range(min(abs(sizes[0] * sizes[1]), 1 << 62)))
            if operator == "%":
                narrow(left, "%", [right])
            if operator == "**" and not (isinstance(right, int) and abs(right) <= 64):
                raise SecurityError("it computes a large power")
            return self.bounded(super().call_binop(context, operator, left, right))

        @override
        def call(self, context: Any, function: Any, *args: Any, **options: Any) -> Any:
            few(args, options)
            own = getattr(getattr(function, "__wrapped__", function), "__self__", None)
            name = getattr(function, "__name__", "")
            # Calls in loops have the loop's variables besides their own arguments.
            given = (v for k, v in options.items() if k not in {"_loop_vars", "_block_vars"})
            values = (*args, *given)
            if isinstance(own, str):
                values = (own, *values)
                multiplied(name, values)
                if name in {"format", "format_map"}:
                    narrow(own, "{", values[1:])
            for value in values:
                self.bounded(value)
            return self.bounded(super().call(context, function, *args, **options))

    def public(name: object) -> None:
        if str(name).startswith("_"):  # Python would find it in place of its own attributes
            raise SecurityError(f"a namespace has no attribute {name!r:.60}")

    def names(*args: Any, **options: Any) -> Any:
        attributes = dict(*args, **options)
        for name in attributes:
            public(name)
        return Namespace(attributes)

    def refuse(message: object) -> None:
        raise jinja2.TemplateError(str(message)[:1000])

    def now(form: str) -> str:
        return datetime.now().strftime(form)

    def to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    return Environment


def _extent(value: Any) -> tuple[int, int]:
    """The characters and elements of a value, if they are few, and the values visited."""
    size, visited, left = 0, 0, [value]
    while left and size <= _LARGEST:
        one = left.pop()
        visited += 1
        if isinstance(one, (str, bytes, list, tuple, dict, set, frozenset, range)):
            size += len(one)
        if isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, (list, tuple, set, frozenset)) and size <= _LARGEST:
            left += one
    return size, visited


def _added(nodes: Any, first: Any, rest: Sequence[Any]) -> Any:
    """`a ~ b` as `string(a) + string(b)`, whose size is bounded."""
    text = nodes.Filter(first, "string", [], [], None, None)
    for other in rest:
        text = nodes.Add(text, nodes.Filter(other, "string", [], [], None, None))
    return text
