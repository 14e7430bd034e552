"""Python functions in a module (`@I.pyfunc`), and in calls."""

from __future__ import annotations

import tokenize
from collections.abc import Callable
from typing import Any, Final

from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relax.nodes import BaseFunc, ExternFunc, StructInfo

IS_PYTHON = "is_pyfunc"
SOURCE = "python_source"
_OF_STRINGS: Final = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))


class PythonText(str):
    """The source or the name of a function, with the function if Python has defined it."""

    __slots__ = ("function",)
    function: Callable[..., Any] | None

    def __new__(cls, text: str, function: Callable[..., Any] | None = None) -> PythonText:
        """Create the source with a reference to `function`."""
        new = str.__new__(cls, text)
        new.function = function
        return new


def python_function(
    name: str,
    text: str,
    function: Callable[..., Any] | None = None,
    struct_info: StructInfo | None = None,
) -> ExternFunc:
    """The entry of a module for a Python function; perhaps only its source is known."""
    attrs = {"global_symbol": name, IS_PYTHON: True, SOURCE: PythonText(text, function)}
    return ExternFunc(name, struct_info, attrs=Attrs(attrs))


def compiled_function(name: str, function: Callable[..., Any]) -> ExternFunc:
    """The callee for a Python function: as a packed function of the name, which is not registered.

    The source and the JSON of a program have only the name.
    """
    return ExternFunc(PythonText(name, function))


def is_python_function(func: BaseFunc) -> bool:
    """True if an entry of a module is a Python function."""
    return isinstance(func, ExternFunc) and func.attrs.get(IS_PYTHON) is True


def text_of(func: BaseFunc) -> str:
    """The source of a Python function without `@I.pyfunc`; empty if it is not known."""
    return str(func.attrs.get(SOURCE) or "")


def python_function_of(func: BaseFunc) -> Callable[..., Any] | None:
    """The Python function of a callee or of a module's entry, or None if there is none."""
    text: object = func.attrs.get(SOURCE) if is_python_function(func) else None
    if isinstance(func, ExternFunc) and isinstance(func.global_symbol, PythonText):
        text = func.global_symbol
    return text.function if isinstance(text, PythonText) else None


def reindented(text: str, old: str, new: str) -> str:
    """`text` with the indentation `new` instead of `old`, except inside of strings."""
    lines = text.split("\n")
    inside: set[int] = set()
    try:
        for token in tokenize.generate_tokens(iter([f"{line}\n" for line in lines]).__next__):
            if token.type in _OF_STRINGS:
                inside.update(range(token.start[0], token.end[0]))
    except (tokenize.TokenError, SyntaxError):
        pass  # a source that is not Python has no strings
    return "\n".join(
        line if number in inside or not line else new + line.removeprefix(old)
        for number, line in enumerate(lines)
    )
