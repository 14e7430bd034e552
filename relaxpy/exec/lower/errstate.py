"""NumPy's warnings, suppressed around kernels that a generated function calls unchecked."""

from __future__ import annotations

import ast
from collections.abc import Collection

from relaxpy.exec import python_ast as py


def suppress_warnings(
    function: ast.FunctionDef, may_warn: Collection[ast.stmt], *, whole: bool
) -> None:
    """Let NumPy not warn in the `may_warn` of `function`, or in the `whole` of it.

    The whole will do where nothing in it calls functions that should see the caller's settings.
    """
    if not may_warn:
        return
    if whole:
        function.decorator_list.append(py.path("rx.without_warnings"))
    else:
        function.body = _with_errstate(function.body, {id(stmt) for stmt in may_warn})


def _with_errstate(body: list[ast.stmt], may_warn: Collection[int]) -> list[ast.stmt]:
    """`body` with runs of statements that may warn, and their allocations, under `errstate`."""
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
    """The run up to its last statement that may warn under `errstate`, and what follows that."""
    count = max((i + 1 for i, stmt in enumerate(run) if id(stmt) in may_warn), default=0)
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
