"""What messages call things, and how errors of other layers become errors of a text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable

import numpy as np

from relaxpy.entry import last_name
from relaxpy.errors import (
    MisuseError,
    ParseError,
    RelaxpyError,
    Span,
    UnknownAttributeError,
    nearest,
)
from relaxpy.ir.node import Node
from relaxpy.ir.relax.op.registry import registered_ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.script.parser.guard import public_names

__all__ = [
    "as_parse_error",
    "attribute_hint",
    "binding_hint",
    "construct",
    "describe",
    "instead",
    "last_name",
    "member_hint",
    "truth_hint",
    "unknown_member",
]


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


def operators_called(name: str) -> list[str]:
    """Operators, as programs write them, whose last name is this."""
    dotted = f".{name}"
    known = (n for n in registered_ops() if n.endswith(dotted))
    return [f"R.{n.removeprefix('relax.')}" for n in known]


def attribute_hint(spoken: str, name: str, known: Iterable[str]) -> str | None:
    """What may be meant by `spoken.name`, where the namespace `spoken` has the names `known`."""
    found = [f"{spoken}.{near}" for near in nearest(name, known)]
    if spoken.partition(".")[0] == "R":
        found = operators_called(name) or found
    return f"did you mean {' or '.join(f'`{f}`' for f in found[:2])}?" if found else None


def unknown_member(space: object, spoken: str, name: str) -> AttributeError:
    """The error for a name that the namespace `space`, called `spoken`, does not have."""
    message = f"{spoken} has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(message, name=name, obj=space)
    known = {*getattr(space, "__all__", ()), *public_names(space)}
    hint = attribute_hint(spoken, name, known)
    return UnknownAttributeError(message, hint=hint, about=name)


def member_hint(name: str, spoken: str) -> str | None:
    """What to write for an attribute that values have in other libraries, but not here."""
    if name == "shape":
        return (
            f"name sizes in the annotation, as in R.Tensor((n, 4)); R.shape_of({spoken}) is a value"
        )
    if name == "T":
        return f"write R.permute_dims({spoken})"
    found = operators_called(name)
    return f"operators are functions: {found[0]}({spoken}, ...)" if found else None


def truth_hint(node: ast.expr) -> str | None:
    """What to write for `node`, which asks for the truth of a value of the program."""
    match node:
        case ast.UnaryOp():
            return "for tensors write R.logical_not(...)"
        case ast.BoolOp(op=ast.And()):
            return "for tensors write R.logical_and(..., ...)"
        case ast.BoolOp():
            return "for tensors write R.logical_or(..., ...)"
        case ast.IfExp():
            return "write an if statement with an else, or R.where(condition, ..., ...)"
        case _:
            return None


def binding_hint(tree: ast.AST, node: ast.Name) -> str | None:
    """Where in the same function an unknown name is bound all the same."""
    around: ast.AST = tree
    inside: list[ast.AST] = [tree]
    while inside:
        part = inside.pop()
        if isinstance(part, ast.FunctionDef) and _holds(part, node):
            around = part
        if _is_size_in(part, node):
            return (
                f"in a signature sizes are strings: {node.id!r}"
                if _in_signature(around, node)
                else f"declare a new size before: {node.id} = T.int64()"
            )
        inside += ast.iter_child_nodes(part)
    lines = [
        part.lineno
        for part in ast.walk(around)
        if isinstance(part, ast.Name) and part.id == node.id and isinstance(part.ctx, ast.Store)
    ]
    if not lines:
        return None
    first = min(lines)
    if first >= node.lineno:
        return "it is bound further down: move that before its first use"
    branches = (part for part in ast.walk(around) if isinstance(part, ast.If))
    if not any(part.lineno <= first <= (part.end_lineno or first) for part in branches):
        return "what a block binds ends with it: use it there, or bind it before"
    return "what a branch binds ends with it: bind the same name last in both branches"


def _is_size_in(part: ast.AST, node: ast.Name) -> bool:
    """Whether `part` is an info's text with `node` among its dimensions."""
    if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Attribute):
        return False
    shapes = [a for a in part.args[:1] if isinstance(a, (ast.Tuple, ast.List))]
    named = part.func.attr in ("Tensor", "Shape")
    return named and any(n is node for shape in shapes for n in ast.walk(shape))


def _in_signature(function: ast.AST, node: ast.Name) -> bool:
    if not isinstance(function, ast.FunctionDef):
        return False
    parts = [function.args, *filter(None, [function.returns])]
    return any(n is node for part in parts for n in ast.walk(part))


def _holds(outer: ast.FunctionDef, node: ast.Name) -> bool:
    return outer.lineno <= node.lineno <= (outer.end_lineno or outer.lineno)


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
