"""Keeping NumPy quiet around kernels that a generated function calls without their checks."""

from __future__ import annotations

import ast
from collections.abc import Collection

from relaxpy.exec import python_ast as py


def silence(function: ast.FunctionDef, loud: Collection[ast.stmt], *, whole: bool) -> None:
    """Let NumPy not warn in the `loud` statements of `function`, or in the `whole` of it.

    The whole will do where nothing in it calls functions that should see the caller's settings.
    """
    if not loud:
        return
    if whole:
        function.decorator_list.append(py.path("rx.quiet"))
    else:
        function.body = _with_quiet(function.body, {id(stmt) for stmt in loud})


def _with_quiet(body: list[ast.stmt], loud: Collection[int]) -> list[ast.stmt]:
    """`body` with runs of loud statements, and allocations between them, under `errstate`."""
    out: list[ast.stmt] = []
    run: list[ast.stmt] = []
    for stmt in body:
        if isinstance(stmt, ast.If):
            stmt.body, stmt.orelse = _with_quiet(stmt.body, loud), _with_quiet(stmt.orelse, loud)
        if id(stmt) in loud or (run and (is_allocation(stmt) or isinstance(stmt, ast.Delete))):
            run.append(stmt)
            continue
        out += _closed(run, loud)
        run = []
        out.append(stmt)
    return out + _closed(run, loud)


def _closed(run: list[ast.stmt], loud: Collection[int]) -> list[ast.stmt]:
    """The run up to its last loud statement under `errstate`, and what follows that."""
    count = max((i + 1 for i, stmt in enumerate(run) if id(stmt) in loud), default=0)
    if not count:
        return run
    ignored = py.call("np.errstate", all=py.text("ignore"))
    return [ast.With([ast.withitem(ignored)], run[:count]), *run[count:]]


def is_allocation(stmt: ast.stmt, *modules: str) -> bool:
    """Whether all that a statement does is to make a new tensor, by `empty` of these modules."""
    match stmt:
        case ast.Assign(
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr="empty"))
        ):
            return module in (modules or ("np", "rx"))
        case _:
            return False
