"""Generated Python: rendering of trees with astor, and loading of text with `linecache` entries.

Long lines are broken as people break them.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import keyword
import linecache
import unicodedata
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any, Final

from relaxpy.errors import SPAN_OF_LINE, Span

_WIDTH: Final = 88
"""Lines of at most this length are not folded."""
_MANY: Final = 8
"""More items than these share lines."""
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_OPERATORS: Final = (
    (" if ", " else ", " for "),
    (" or ",),
    (" and ",),
    (" == ", " != ", " < ", " <= ", " > ", " >= ", " is ", " is not ", " in ", " not in "),
    (" | ", " ^ ", " & "),
    (" << ", " >> "),
    (" + ", " - "),
    (" * ", " / ", " // ", " % ", " @ "),
)
"""The operators from the weakest, each with those of the same precedence."""
_KEYWORDS: Final = ("if ", "elif ", "while ", "return")
_WHOLE: Final = (
    "assert ",
    "class ",
    "del ",
    "from ",
    "global ",
    "import ",
    "nonlocal ",
    "raise",
    "with ",
)
"""Statements that stay on one line: they have more than an expression."""


def folded(tokens: Sequence[str]) -> str:
    """The text of tokens, with long lines broken inside brackets."""
    lines: list[str] = []
    start = 0
    for end in [k for k, token in enumerate(tokens, 1) if token[:1] == "\n"]:
        lines.append(_line(tokens[start:end]))
        start = end
    return "".join([*lines, *tokens[start:]])


def _line(tokens: Sequence[str]) -> str:
    """A logical line, which ends with newlines."""
    text = "".join(tokens)
    if len(text.rstrip("\n")) <= _WIDTH or any("\n" in token for token in tokens[:-1]):
        return text
    code = [token for token in tokens[:-1] if token]
    indent = ""
    while code and code[0].isspace():
        indent += code.pop(0)
    suffix = code.pop() if code and code[-1] == ":" else ""
    if code[0].startswith(_WHOLE):
        return text
    before = _prefix(code)
    lines = _expression(code[before:], indent, "".join(code[:before]), suffix, enclosed=False)
    return "\n".join(lines) + tokens[-1]


def _prefix(code: Sequence[str]) -> int:
    """The number of tokens before the expression of a statement: a keyword, or targets."""
    if code[0] == "for ":
        return code.index(" in ") + 1
    if code[0] in _KEYWORDS:
        return 2 if code[1:2] == [" "] else 1
    assigned = [k for k, token in _outermost(code) if token.endswith("= ") and token[0] == " "]
    assigned = [k for k in assigned if code[k] not in _OPERATORS[3]]
    return assigned[-1] + 1 if assigned else 0


def _outermost(code: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The tokens outside of brackets, and the brackets themselves, with their positions."""
    depth = 0
    for k, token in enumerate(code):
        depth -= token in _CLOSING
        if depth == 0:
            yield k, token
        depth += token in _OPENING


def _expression(
    code: Sequence[str], indent: str, prefix: str, suffix: str, *, enclosed: bool
) -> list[str]:
    """The lines of an expression; those that are `enclosed` in brackets may end anywhere."""
    text = f"{indent}{prefix}{''.join(code)}{suffix}"
    if len(text) <= _WIDTH:
        return [text]
    outer = list(_outermost(code))
    tokens = [token for _, token in outer]
    if "lambda " in tokens:
        return [text]
    if not enclosed and ", " in tokens:
        return [f"{indent}{prefix}(", *_items(code, f"{indent}    "), f"{indent}){suffix}"]
    for operators in _OPERATORS:
        splits = [k for k, token in outer if token in operators]
        if splits and (operators is not _OPERATORS[3] or code[-1] not in _CLOSING):
            return _operands(code, splits, indent, prefix, suffix, enclosed=enclosed)
    brackets = [k for k, token in outer if token in _OPENING and code[k + 1] not in _CLOSING]
    if not brackets:
        return [text]
    opening = brackets[-1]
    closing = next(k for k, token in outer if k > opening and token in _CLOSING)
    head, tail = "".join(code[: opening + 1]), "".join(code[closing:])
    items = _items(code[opening + 1 : closing], f"{indent}    ")
    return [f"{indent}{prefix}{head}", *items, f"{indent}{tail}{suffix}"]


def _operands(
    code: Sequence[str],
    splits: Sequence[int],
    indent: str,
    prefix: str,
    suffix: str,
    *,
    enclosed: bool,
) -> list[str]:
    """An expression with a line for each operand, behind its operator."""
    inner = indent if enclosed else f"{indent}    "
    lines: list[str] = []
    for start, stop in zip([0, *splits], [*splits, len(code)], strict=True):
        part, operator = (code[start + 1 : stop], code[start]) if start else (code[:stop], "")
        first = prefix if enclosed and not start else operator.lstrip()
        last = suffix if enclosed and stop == len(code) else ""
        lines += _expression(part, inner, first, last, enclosed=True)
    return lines if enclosed else [f"{indent}{prefix}(", *lines, f"{indent}){suffix}"]


def _items(code: Sequence[str], indent: str) -> list[str]:
    """The lines of a bracketed expression."""
    if len(indent) + len("".join(code)) <= _WIDTH:
        return [indent + "".join(code)]
    outer = list(_outermost(code))
    if any(token in ("lambda ", " for ") for _, token in outer):
        return _expression(code, indent, "", "", enclosed=True)
    commas = [k for k, token in outer if token.rstrip() == ","]
    if not commas:
        return _expression(code, indent, "", "", enclosed=True)
    bounds = zip([-1, *commas], [*commas, len(code)], strict=True)
    items = [list(code[start + 1 : stop]) for start, stop in bounds]
    items = [item for item in items if item]
    if len(items) > _MANY:
        return list(_filled(map("".join, items), indent))
    return [line for item in items for line in _expression(item, indent, "", ",", enclosed=True)]


def _filled(items: Iterable[str], indent: str) -> Iterator[str]:
    """Lines with as many items each as fit."""
    line = indent
    for item in items:
        if line != indent and len(line) + len(item) + 2 > _WIDTH:
            yield line.rstrip()
            line = indent
        line += f"{item}, "
    yield line.rstrip()


_SOURCE_KEY: Final = "__relaxpy_source__"
_SPAN_ATTRIBUTE: Final = "relaxpy_span"


def render(tree: ast.Module) -> str:
    """The text of `tree`, ending with a newline."""
    return _to_source()(tree)


@cache
def _to_source() -> Callable[[ast.Module], str]:
    """The function that renders: astor is imported for the first tree."""
    with warnings.catch_warnings():
        # astor uses deprecated names of node classes.
        warnings.simplefilter("ignore", DeprecationWarning)
        import astor
        from astor.op_util import Precedence

    def is_plain_number(constant: ast.Constant) -> bool:
        """True if a constant is an integer that is written without sign and parentheses."""
        is_whole = type(constant.value) is int and constant.value >= 0
        return is_whole and getattr(constant, "_pp", Precedence.highest) <= Precedence.Constant

    class SourceGenerator(astor.SourceGenerator):  # type: ignore[misc]
        """astor's, which writes the tokens of the most frequent nodes with fewer calls."""

        write: Callable[..., None]

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            write, append = self.write, self.result.append
            visitors: dict[type, Callable[[Any], None]] = {}

            def write_fast(*items: Any) -> None:
                for item in items:
                    kind, token = type(item), item
                    if kind is ast.Attribute:
                        write_fast(item.value, ".", item.attr)
                        continue
                    if kind is ast.Name:
                        token = item.id
                    elif kind is ast.Constant and is_plain_number(item):
                        write_fast("")
                        append("")  # in place of a parenthesis
                        token = repr(item.value)
                    if type(token) is str:
                        if self.new_lines:
                            write("")
                        if token:
                            append(token)
                    elif isinstance(item, ast.AST):
                        if kind not in visitors:
                            visitors[kind] = getattr(self, f"visit_{kind.__name__}")
                        visitors[kind](item)
                    else:
                        item()

            self.write = write_fast

    return partial(astor.to_source, pretty_source=folded, source_generator_class=SourceGenerator)


class GeneratedSource:
    """One generated text; while it is alive, `linecache` has its lines under `filename`."""

    __slots__ = ("__weakref__", "filename", "text")

    def __init__(self, filename: str, text: str) -> None:
        self.filename = filename
        self.text = text
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        weakref.finalize(self, linecache.cache.pop, filename, None)


_sources: weakref.WeakValueDictionary[str, GeneratedSource] = weakref.WeakValueDictionary()


def set_span(statements: Iterable[ast.stmt], span: Span | None) -> None:
    """Set the program span of generated statements that do not have a narrower one yet."""
    for statement in statements if span is not None else ():
        if not hasattr(statement, _SPAN_ATTRIBUTE):
            setattr(statement, _SPAN_ATTRIBUTE, span)


def span_of(statement: ast.stmt) -> Span | None:
    """The program span of a generated statement, if it has one."""
    return getattr(statement, _SPAN_ATTRIBUTE, None)


def spans_by_line(tree: ast.Module, text: str) -> Callable[[int], Span | None]:
    """The function from the lines of `text`, the rendered `tree`, to program spans.

    The table is computed on first use.
    """
    spans = [*map(span_of, _statements(tree))]
    if not any(spans):
        return lambda line: None
    by_line: dict[int, Span] = {}

    def span_of_line(line: int) -> Span | None:
        if not by_line:
            try:
                parsed = ast.parse(text)
            except SystemError:  # Python 3.11, if a collection parses inside (gh-106905)
                return None
            for statement, span in zip(_statements(parsed), spans, strict=True):
                if span is not None:
                    lines = range(statement.lineno, (statement.end_lineno or 0) + 1)
                    by_line.update(dict.fromkeys(lines, span))
        return by_line.get(line)

    return span_of_line


def _statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements in `tree` in pre-order."""
    worklist: list[ast.AST] = [tree]
    while worklist:
        node = worklist.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in ("orelse", "body"):
            worklist += reversed(getattr(node, name, ()))


def load(
    text: str,
    stem: str,
    namespace: dict[str, Any],
    span_of_line: Callable[[int], Span | None] | None = None,
) -> dict[str, Any]:
    """Execute the definitions in `text` and return `namespace` extended with them.

    `span_of_line` returns the program span of a line, for run-time errors without a position.

    The file name of the code is derived from `stem` and the text. Tracebacks, `inspect.getsource`
    and debuggers find the lines as long as the namespace, or a function defined in it, is alive.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    filename = f"<relaxpy {stem} {digest}>"
    source = _sources.get(filename)
    if source is None:
        source = _sources[filename] = GeneratedSource(filename, text)
    names = {"__name__": f"relaxpy_generated.{stem}", **namespace, _SOURCE_KEY: source}
    if span_of_line is not None:
        names[SPAN_OF_LINE] = span_of_line
    exec(compile(text, filename, "exec"), names)
    return names


class Names:
    """A supply of unique Python identifiers, derived from hints that may be any text.

    `local` returns the names of a function. They may repeat names of other functions, but not
    global names, whichever of the two is requested first.
    """

    def __init__(self, reserved: Iterable[str] = (), outer: Names | None = None) -> None:
        self._outer = outer
        self._taken = {*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *reserved}
        self._inner: set[str] = set()
        self._next: dict[str, int] = {}

    def local(self) -> Names:
        """The supply of names for a function of this text."""
        return Names(outer=self)

    def fresh(self, hint: str) -> str:
        """An unused identifier that is as close to `hint` as possible."""
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
        """Make `name` available again, since its variable is dead."""
        self._taken.discard(name)
        self._next.clear()

    def _is_taken(self, name: str) -> bool:
        if name in self._taken or name in self._inner:
            return True
        return self._outer is not None and name in self._outer._taken


def identifier(hint: str) -> str:
    """Normalise `hint` as Python does, and replace invalid characters by `_`."""
    if hint.isascii() and hint.isidentifier() and not hint.startswith("__") and hint != "_":
        return hint
    text = unicodedata.normalize("NFKC", hint)
    text = "".join(char if f"_{char}".isidentifier() else "_" for char in text)
    while text.startswith("__"):
        text = text[1:]
    if not text or text == "_":
        return "v"
    return text if text.isidentifier() else f"_{text}"
