"""Which argument of a call is at fault."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relaxpy.errors import close_names


class Fault(NamedTuple):
    """What is wrong, where, and what to write instead."""

    node: ast.expr | ast.keyword
    message: str
    hint: str | None


def culprit(
    node: ast.Call, args: Sequence[object], kwargs: Mapping[str, object], about: object
) -> ast.expr | None:
    """The argument, or member of one, whose value is the very object `about`."""
    given: list[tuple[ast.expr, object]] = []
    if not any(isinstance(arg, ast.Starred) for arg in node.args):
        given += zip(node.args, args, strict=True)
    given += [(k.value, kwargs[k.arg]) for k in node.keywords if k.arg is not None]
    found = (part_about(at, value, about) for at, value in given)
    inside = (_written(at, about) for at, _ in given if isinstance(about, str))
    return next(filter(None, (*found, *inside)), None)


def _written(node: ast.expr, text: object) -> ast.expr | None:
    """Where in `node` a string stands that became part of another value."""
    literals = (n for n in ast.walk(node) if isinstance(n, ast.Constant))
    return next((n for n in literals if isinstance(n.value, str) and n.value == text), None)


def part_about(node: ast.expr, value: object, about: object) -> ast.expr | None:
    """The part of the text of `value` that gave the very object `about`."""
    if about is None:
        return None
    if value is about:
        return node
    if not isinstance(node, (ast.Tuple, ast.List)) or not isinstance(value, (tuple, list)):
        return None
    if len(node.elts) != len(value):
        return None
    parts = zip(node.elts, value, strict=True)
    found = (part_about(part, member, about) for part, member in parts)
    return next(filter(None, found), None)


def misfit(
    node: ast.Call,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Fault | None:
    """What is wrong with arguments that do not fit a signature; None if they do."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return _arity_fault(node, signature, str(error))
    return None


def _arity_fault(node: ast.Call, signature: inspect.Signature, message: str) -> Fault:
    name = ast.unparse(node.func)
    parameters = signature.parameters
    empty = inspect.Parameter.empty
    plain = [parameter.replace(annotation=empty) for parameter in parameters.values()]
    hint = f"it is {name}{inspect.Signature(plain)}"
    for keyword in node.keywords:
        if keyword.arg is None or f"'{keyword.arg}'" not in message:
            continue
        if "unexpected" not in message:
            return Fault(keyword, f"{name}: {message}", hint)
        near = close_names(keyword.arg, parameters)
        return Fault(keyword, f"{name} takes no keyword argument {keyword.arg!r}", near or hint)
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    count, found = len(positional), len(node.args)
    if message.startswith("too many") and found > count:
        few = f"{count} positional argument{'' if count == 1 else 's'}"
        return Fault(node.args[count], f"{name} takes {few}, found {found}", hint)
    return Fault(node, f"{name}: {message}", hint)


def raised_at(error: BaseException) -> str | None:
    """Where in a Python function that was called an error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or trace.tb_frame.f_code.co_filename.startswith(_HERE):
        return None
    return f"raised at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


_HERE = __file__.rpartition("script")[0]
