"""Tensors die after their last use: `del` statements put into generated functions."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable


def delete_after_last_use(body: list[ast.stmt], owned: Collection[str]) -> list[ast.stmt]:
    """`body` with each name in `owned` deleted once nothing mentions it any more.

    Names that inner functions capture are left alone, and so are those that live to the end anyway.
    """
    captured = {
        name
        for stmt in body
        for node in ast.walk(stmt)
        if isinstance(node, ast.FunctionDef)
        for name in _mentions(node)
    }
    names = set(owned) - captured
    totals = Counter(_mentions(*body))
    return _with_deletions(body, names, totals)


def _mentions(*nodes: ast.AST) -> Iterable[str]:
    return (n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name))


def _with_deletions(
    body: list[ast.stmt], names: Collection[str], totals: Counter[str]
) -> list[ast.stmt]:
    here: Counter[str] = Counter()
    last: dict[str, int] = {}
    inside: dict[int, set[str]] = {}
    for i, stmt in enumerate(body):
        count = Counter(n for n in _mentions(stmt) if n in names)
        here.update(count)
        last.update(dict.fromkeys(count, i))
        if isinstance(stmt, ast.If):
            inside[i] = {name for name, number in count.items() if number == totals[name]}
    dying: dict[int, list[str]] = {}
    for name, i in last.items():
        if here[name] == totals[name] and name not in inside.get(i, ()):
            dying.setdefault(i, []).append(name)
    out: list[ast.stmt] = []
    for i, stmt in enumerate(body):
        if isinstance(stmt, ast.If):
            stmt.body = _with_deletions(stmt.body, inside.get(i, ()), totals)
            stmt.orelse = _with_deletions(stmt.orelse, inside.get(i, ()), totals)
        out.append(stmt)
        ends = isinstance(stmt, ast.Return) or (i + 2 == len(body) and _only_returns(body[-1]))
        if i in dying and not ends:
            out.append(ast.Delete([ast.Name(name, ast.Del()) for name in dying[i]]))
    return out


def _only_returns(stmt: ast.stmt) -> bool:
    """Whether `stmt` gives a result without computing anything."""
    match stmt:
        case ast.Return(value=ast.Name() | ast.Constant() | None):
            return True
        case ast.Return(value=ast.Tuple(elts=fields)):
            return all(isinstance(f, ast.Name) for f in fields)
        case _:
            return False
