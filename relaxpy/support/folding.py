"""Breaks long lines of generated Python as people break them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

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
