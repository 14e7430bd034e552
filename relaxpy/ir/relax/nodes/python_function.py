"""Python functions that stand in a module beside those of the program (`@I.pyfunc`)."""

from __future__ import annotations

import tokenize
from collections.abc import Callable
from typing import Any, Final

from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax.nodes import BaseFunc, ExternFunc

IS_PYTHON = "is_pyfunc"
SOURCE = "python_source"
_OF_STRINGS: Final = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


class PythonText(str):
    """The text of a function, which knows the function where that was defined by Python."""

    __slots__ = ("function",)
    function: Callable[..., Any] | None

    def __new__(cls, text: str, function: Callable[..., Any] | None = None) -> PythonText:
        """Make `text` remember `function`."""
        made = str.__new__(cls, text)
        made.function = function
        return made


def python_function(name: str, text: str, function: Callable[..., Any] | None = None) -> ExternFunc:
    """The entry of a module for a Python function; without `function`, one that is only text."""
    attrs = {"global_symbol": name, IS_PYTHON: True, SOURCE: PythonText(text, function)}
    return ExternFunc(name, attrs=Attrs(attrs))


def is_python_function(func: BaseFunc) -> bool:
    """Whether an entry of a module is a Python function."""
    return isinstance(func, ExternFunc) and func.attrs.get(IS_PYTHON) is True


def text_of(func: BaseFunc) -> str:
    """The text of a Python function, less `@I.pyfunc`; empty where it is not known."""
    return str(func.attrs.get(SOURCE) or "")


def python_function_of(func: BaseFunc) -> Callable[..., Any] | None:
    """The Python function behind an entry of a module; None if it is another one, or text alone."""
    text = func.attrs.get(SOURCE) if is_python_function(func) else None
    return text.function if isinstance(text, PythonText) else None


def reindented(text: str, before: str, after: str) -> str:
    """`text` with the indentation `after` in the place of `before`, but inside its strings."""
    lines = text.split("\n")
    inside: set[int] = set()
    try:
        for token in tokenize.generate_tokens(iter([f"{line}\n" for line in lines]).__next__):
            if token.type in _OF_STRINGS:
                inside.update(range(token.start[0], token.end[0]))
    except (tokenize.TokenError, SyntaxError):
        pass  # what is no Python has no strings
    return "\n".join(
        line if number in inside or not line else after + line.removeprefix(before)
        for number, line in enumerate(lines)
    )
