"""Python functions that stand in a module beside those of the program (`@I.pyfunc`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.ir.node import Attrs
from relaxpy.ir.relax.nodes import BaseFunc, ExternFunc

IS_PYTHON = "is_pyfunc"
SOURCE = "python_source"


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


def behind(func: BaseFunc) -> Callable[..., Any] | None:
    """The Python function behind an entry of a module; None if it is another one, or text alone."""
    text = func.attrs.get(SOURCE) if is_python_function(func) else None
    return text.function if isinstance(text, PythonText) else None
