"""Deletion of names after their last use: Python counts the references to a value."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import chain

from relaxpy.exec.numpy import python_ast as py


def delete_after_last_use(body: list[ast.stmt], owned: Collection[str]) -> list[ast.stmt]:
    """`body` with a deletion of each name in `owned` after its last use.

    Names that nested functions capture are not deleted, nor are names that are used at the end.
    """
    captured: set[str] = set()
    mentions = [[*_mentions(stmt, captured)] for stmt in body]
    totals = Counter(chain.from_iterable(mentions))
    names = set(owned) - captured
    return _with_deletions(body, map(Counter, mentions), names, totals)


def _mentions(stmt: ast.AST, captured: set[str]) -> Iterator[str]:
    """The names in `stmt`; names in nested functions are also added to `captured`."""
    stack = [stmt]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.FunctionDef):
            children = py.child_nodes(node)
            names = [*chain.from_iterable(_mentions(s, captured) for s in children)]
            captured.update(names)
            yield from names
        else:
            stack += py.child_nodes(node)


def _with_deletions(
    body: list[ast.stmt],
    counts: Iterable[Counter[str]],
    names: Collection[str],
    totals: Counter[str],
) -> list[ast.stmt]:
    counts_here: Counter[str] = Counter()
    last: dict[str, int] = {}
    only_in: dict[int, set[str]] = {}
    for i, (stmt, mentions) in enumerate(zip(body, counts, strict=True)):
        count = {name: number for name, number in mentions.items() if name in names}
        counts_here.update(count)
        last.update(dict.fromkeys(count, i))
        if isinstance(stmt, ast.If):
            only_in[i] = {name for name, number in count.items() if number == totals[name]}
    dying: dict[int, list[str]] = {}
    for name, i in last.items():
        if counts_here[name] == totals[name] and name not in only_in.get(i, ()):
            dying.setdefault(i, []).append(name)
    out: list[ast.stmt] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, ast.If):
            for suite in (stmt.body, stmt.orelse):
                suite_counts = [Counter(_mentions(s, set())) for s in suite]
                suite[:] = _with_deletions(suite, suite_counts, only_in.get(i, ()), totals)
        out.append(stmt)
        ends = py.leaves([stmt]) or (i + 2 == len(body) and _only_returns(body[-1]))
        if i in dying and not ends:
            out.append(ast.Delete([ast.Name(name, ast.Del()) for name in dying[i]]))
    return out


def _only_returns(stmt: ast.stmt) -> bool:
    """True if `stmt` returns names or a constant."""
    match stmt:
        case ast.Return(value=ast.Name() | ast.Constant() | None):
            return True
        case ast.Return(value=ast.expr() as value):
            return py.is_tuple_of_names(value)
        case _:
            return False
