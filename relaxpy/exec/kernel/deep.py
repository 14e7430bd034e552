"""Loops that nest deeper than Python nests blocks: of one within the other, one over both."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import Final

from relaxpy.exec.pytree import call

_BLOCKS = (ast.For, ast.While, ast.With, ast.Try)
_MOST: Final = 12
"""Python nests 20 blocks in a function; around loops, checks and quiet parts need some."""


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
    """Take into a loop those that are all there is in it, and that go over the same each time."""
    targets, ranges = [outer.target], [outer.iter]
    while True:
        match outer.body:
            case [ast.For(target=ast.Name() as target, iter=inner, body=body, orelse=[])]:
                bound = {name.id for name in targets if isinstance(name, ast.Name)}
                if any(isinstance(n, ast.Name) and n.id in bound for n in ast.walk(inner)):
                    break
                targets.append(target)
                ranges.append(inner)
                outer.body = body
            case _:
                break
    if len(targets) > 1:
        outer.target = ast.Tuple([*targets], ast.Store())
        outer.iter = call("rt.grid", *ranges)
