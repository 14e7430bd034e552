"""Suppression of NumPy's warnings around kernels that generated functions call unchecked."""

from __future__ import annotations

import ast
from collections.abc import Collection

from relaxpy.exec import python_ast as py


def suppress_warnings(
    function: ast.FunctionDef, may_warn: Collection[ast.stmt], *, whole: bool
) -> None:
    """Suppress NumPy's warnings in the statements `may_warn`, or in the `whole` function.

    The whole function is allowed if it calls no functions that must see the caller's settings.
    """
    if not may_warn:
        return
    if whole:
        function.decorator_list.append(py.path("rx.without_warnings"))
    else:
        function.body = _with_errstate(function.body, {id(stmt) for stmt in may_warn})


def _with_errstate(body: list[ast.stmt], may_warn: Collection[int]) -> list[ast.stmt]:
    """`body` with `errstate` around runs of statements that may warn, and their allocations."""
    out: list[ast.stmt] = []
    run: list[ast.stmt] = []
    for stmt in body:
        if isinstance(stmt, ast.If):
            stmt.body, stmt.orelse = (
                _with_errstate(stmt.body, may_warn),
                _with_errstate(stmt.orelse, may_warn),
            )
        if id(stmt) in may_warn or (run and (is_allocation(stmt) or isinstance(stmt, ast.Delete))):
            run.append(stmt)
            continue
        out += _closed(run, may_warn)
        run = []
        out.append(stmt)
    return out + _closed(run, may_warn)


def _closed(run: list[ast.stmt], may_warn: Collection[int]) -> list[ast.stmt]:
    """The run with `errstate` around the statements up to the last one that may warn."""
    count = max((i + 1 for i, stmt in enumerate(run) if id(stmt) in may_warn), default=0)
    if not count:
        return run
    ignored = py.call("np.errstate", all=py.text("ignore"))
    return [ast.With([ast.withitem(ignored)], run[:count]), *run[count:]]


def is_allocation(stmt: ast.stmt, *modules: str) -> bool:
    """Return whether a statement only creates a tensor, by the function `empty` of these modules.

    Without modules, it may also be the tensor of another name.
    """
    match stmt:
        case ast.Assign(value=ast.Name()):
            return not modules
        case ast.Assign(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="empty"))
        ):
            return module in (modules or ("np", "rx"))
        case _:
            return False
