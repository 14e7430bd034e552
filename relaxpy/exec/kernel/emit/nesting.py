"""Loops that nest deeper than Python nests blocks: of one within the other, one over both."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from typing import Final

from relaxpy.exec.python_ast import call

_BLOCKS = (ast.For, ast.While, ast.With, ast.Try)
_MOST: Final = 12
"""Python nests 20 blocks in a function; around loops, checks and suppressed warnings need some."""


def flatten_deep_loops(statements: Iterable[ast.stmt]) -> None:
    """Make one loop of loops that only hold each other, in what nests too deeply."""
    for statement in statements:
        if _depth(statement) > _MOST:
            for node in [*ast.walk(statement)]:
                if isinstance(node, ast.For):
                    _join(node)


def _depth(root: ast.stmt) -> int:
    deepest, waiting = 0, [(root, 0)]
    while waiting:
        statement, around = waiting.pop()
        depth = around + isinstance(statement, _BLOCKS)
        deepest = max(deepest, depth)
        waiting += [(inner, depth) for inner in _inside(statement)]
    return deepest


def _inside(statement: ast.stmt) -> Iterator[ast.stmt]:
    for node in ast.iter_child_nodes(statement):
        if isinstance(node, ast.stmt):
            yield node
        elif isinstance(node, ast.ExceptHandler):
            yield from node.body


def _join(outer: ast.For) -> None:
    """Take into a loop those that are all there is in it, and that go over the same each time.

    One that is left by a `break` stays by itself, as the loops around it go on.
    """
    targets, ranges = [outer.target], [outer.iter]
    while True:
        match outer.body:
            case [ast.For(target=ast.Name() as target, iter=inner, body=body, orelse=[])]:
                bound = {name.id for name in targets if isinstance(name, ast.Name)}
                if not _is_settled(inner, bound) or _breaks(body):
                    break
                targets.append(target)
                ranges.append(inner)
                outer.body = body
            case _:
                break
    if len(targets) > 1:
        outer.target = ast.Tuple([*targets], ast.Store())
        outer.iter = call("rt.grid", *ranges)


_SETTLED = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)


def _is_settled(expr: ast.expr, bound: Container[str]) -> bool:
    """Whether `expr` is the same in all rounds of loops over `bound`, and may be asked beforehand.

    What memory holds may change from round to round, and what divides may fail where no round is.
    """
    match expr:
        case ast.Call(func=ast.Name(id="range" | "min" | "max"), args=args, keywords=[]):
            return all(_is_settled(arg, bound) for arg in args)
        case _:
            parts = [*ast.walk(expr)]
            return all(
                isinstance(part, _SETTLED) and not isinstance(part, (ast.FloorDiv, ast.Mod))
                for part in parts
            ) and not any(isinstance(part, ast.Name) and part.id in bound for part in parts)


def _breaks(body: Iterable[ast.stmt]) -> bool:
    """Whether a `break` in the body of a loop ends it."""
    waiting = [*body]
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, ast.Break):
            return True
        if not isinstance(statement, (ast.For, ast.While)):
            waiting += _inside(statement)
    return False
