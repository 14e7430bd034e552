"""Generated Python: trees to text through astor, text to running code with lines to look up."""

from __future__ import annotations

import ast
import builtins
import hashlib
import keyword
import linecache
import unicodedata
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from relaxpy.errors import PLACE_OF_LINE, Span

with warnings.catch_warnings():
    # It asks for node classes by names that newer Pythons warn of.
    warnings.simplefilter("ignore", DeprecationWarning)
    import astor
    from astor.source_repr import pretty_source

_SOURCE_KEY: Final = "__relaxpy_source__"
_PLACE: Final = "relaxpy_place"
_WIDEST: Final = 2000
"""Folding takes time that grows with the square of the parts of a line."""
_WIDTH: Final = 79
"""No line that is as short as this is folded."""


def render(tree: ast.Module) -> str:
    """The text of `tree`, ending with a newline."""
    text: str = astor.to_source(tree, pretty_source=_wrapped)
    return text


def _wrapped(parts: Iterable[str]) -> str:
    """Lines folded by astor, but for those of more parts than it folds in good time."""
    done: list[str] = []
    line: list[str] = []
    for part in parts:
        line.append(part)
        if part.startswith("\n"):
            text = "".join(line)
            fits = len(text) <= _WIDTH or len(line) > _WIDEST
            done.append(text if fits else pretty_source(line))
            line = []
    return "".join([*done, *line])


class GeneratedSource:
    """One generated text; while it is alive, `linecache` knows its lines under `filename`."""

    __slots__ = ("__weakref__", "filename", "text")

    def __init__(self, filename: str, text: str) -> None:
        self.filename = filename
        self.text = text
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        weakref.finalize(self, linecache.cache.pop, filename, None)


_sources: weakref.WeakValueDictionary[str, GeneratedSource] = weakref.WeakValueDictionary()


def set_place(statements: Iterable[ast.stmt], span: Span | None) -> None:
    """Let statements stand for what is at `span`, but for those that stand for a part of it."""
    for statement in statements if span is not None else ():
        if not hasattr(statement, _PLACE):
            setattr(statement, _PLACE, span)


def places(tree: ast.Module, text: str) -> Callable[[int], Span | None]:
    """What the lines of `text`, which is `tree` rendered, stand for; worked out when asked."""
    spans = [getattr(statement, _PLACE, None) for statement in _statements(tree)]
    by_line: dict[int, Span] = {}

    def place(line: int) -> Span | None:
        if not by_line:
            for statement, span in zip(_statements(ast.parse(text)), spans, strict=True):
                if span is not None:
                    lines = range(statement.lineno, (statement.end_lineno or 0) + 1)
                    by_line.update(dict.fromkeys(lines, span))
        return by_line.get(line)

    return place


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements in `tree`, those inside others after them."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("orelse", "body"):
            waiting += reversed(getattr(node, name, ()))


def load(
    text: str,
    stem: str,
    namespace: dict[str, Any],
    place: Callable[[int], Span | None] | None = None,
) -> dict[str, Any]:
    """Run the definitions in `text` with the names of `namespace`; the namespace with them added.

    `place` tells what the lines stand for, which errors without a position take for theirs.

    The file name of the code follows from `stem` and the text. Tracebacks, `inspect.getsource` and
    debuggers find the lines as long as the namespace, or a function defined in it, is alive.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    filename = f"<relaxpy {stem} {digest}>"
    source = _sources.get(filename)
    if source is None:
        source = _sources[filename] = GeneratedSource(filename, text)
    names = {"__name__": f"relaxpy_generated.{stem}", **namespace, _SOURCE_KEY: source}
    if place is not None:
        names[PLACE_OF_LINE] = place
    exec(compile(text, filename, "exec"), names)
    return names


class Names:
    """Gives out Python identifiers, each only once, made from hints that may be any text.

    Names of one text share its global ones: `local` gives those of a function, which may repeat the
    names of other functions, but none that is global, whichever is asked for first.
    """

    def __init__(self, reserved: Iterable[str] = (), outer: Names | None = None) -> None:
        self._outer = outer
        self._taken = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *reserved}
        self._inner: set[str] = set()
        self._next: dict[str, int] = {}

    def local(self) -> Names:
        """The names of a function of this text."""
        return Names(outer=self)

    def fresh(self, hint: str) -> str:
        """An identifier as close to `hint` as is possible and was not given out before."""
        stem = identifier(hint)
        name = stem
        while self._is_taken(name):
            number = self._next.get(stem, 0) + 1
            self._next[stem] = number
            name = f"{stem}_{number}"
        self._taken.add(name)
        if self._outer is not None:
            self._outer._inner.add(name)
        return name

    def free(self, name: str) -> None:
        """Let `name` be given out again: what it stood for is out of reach."""
        self._taken.discard(name)
        self._next.clear()

    def _is_taken(self, name: str) -> bool:
        if name in self._taken or name in self._inner:
            return True
        return self._outer is not None and name in self._outer._taken


def identifier(hint: str) -> str:
    """`hint` as Python reads identifiers, with what cannot stand in one replaced by `_`."""
    text = unicodedata.normalize("NFKC", hint)
    text = "".join(char if f"_{char}".isidentifier() else "_" for char in text)
    while text.startswith("__"):
        text = text[1:]
    if not text or text == "_":
        return "v"
    return text if text.isidentifier() else f"_{text}"
