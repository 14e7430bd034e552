"""What messages call things, and how errors of other layers become errors of a text."""

from __future__ import annotations

import ast
import inspect

import numpy as np

from relaxpy.entry import last_name
from relaxpy.errors import MisuseError, ParseError, RelaxpyError, Span
from relaxpy.ir.node import Node
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr

__all__ = ["as_parse_error", "construct", "describe", "instead", "last_name"]


def as_parse_error(error: RelaxpyError, span: Span) -> RelaxpyError:
    """`error` of this program, located; misuse of an interface is a mistake of the text here."""
    if isinstance(error, MisuseError):
        return ParseError(error.diagnostics).located(span)
    return error.located(span)


def describe(value: object) -> str:
    """What a message calls a value."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, PrimExpr):
        return f"`{value}` of {value.dtype or 'void'}"
    if isinstance(value, Buffer):
        return f"buffer {value.name}"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape}"
    if inspect.isroutine(value):
        return f"function {getattr(value, '__name__', value)!r}"
    hint = getattr(value, "name_hint", None) if isinstance(value, Node) else None
    kind = type(value).__name__
    article = "an" if kind[:1] in "AEIOU" else "a"
    return f"{kind} {hint!r}" if isinstance(hint, str) else f"{article} {kind}"


_NAMES: dict[type[ast.expr], tuple[str, str | None]] = {
    ast.Await: ("await", None),
    ast.Yield: ("yield", "return the values instead, in a tuple"),
    ast.YieldFrom: ("yield", "return the values instead, in a tuple"),
    ast.NamedExpr: ("an assignment inside an expression", "give it a line of its own"),
    ast.Starred: ("a starred expression", None),
}


def construct(node: ast.expr) -> str:
    """What an expression of Python is called."""
    return _NAMES.get(type(node), (type(node).__name__, None))[0]


def instead(node: ast.expr) -> str | None:
    """What to write in place of such an expression."""
    return _NAMES.get(type(node), ("", None))[1]
