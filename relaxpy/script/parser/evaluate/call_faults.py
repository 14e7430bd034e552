"""Errors of calls: arguments that do not match a signature, and where Python raised."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from relaxpy.errors import close_names, counted


class Fault(NamedTuple):
    """An error's message, location and hint."""

    node: ast.expr | ast.keyword
    message: str
    hint: str | None


def signature_fault(
    node: ast.Call,
    signature: inspect.Signature,
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Fault | None:
    """Return the error of arguments that do not match a signature; None if they match."""
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
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    for keyword in node.keywords:
        if keyword.arg is None:
            continue
        if keyword.arg not in parameters and not takes_any:  # what is missing may be meant by it
            near = close_names(keyword.arg, parameters)
            return Fault(keyword, f"{name} takes no keyword argument {keyword.arg!r}", near or hint)
        if f"'{keyword.arg}'" in message:
            return Fault(keyword, f"{name}: {message}", hint)
    positional = [
        p for p in parameters.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    count, actual = len(positional), len(node.args)
    if message.startswith("too many") and actual > count:
        expected = counted(count, "positional argument")
        return Fault(node.args[count], f"{name} takes {expected}, found {actual}", hint)
    if message.startswith("missing"):
        missing = message.rpartition("'")[0].rpartition("'")[2]
        message = f"argument {missing!r} is missing"
    return Fault(node.func, f"{name}: {message}", hint)


def raised_at(error: BaseException) -> str | None:
    """Return the last line of the user's Python that ran before a function raised an error."""
    location, trace = None, error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if not frame.f_globals.get("__name__", "").startswith("relaxpy."):
            location = f"raised at {frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return location
