"""Flattens loops that are nested more deeply than Python permits."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from typing import Final

from relaxpy.exec.python_ast import call
from relaxpy.ir.core.traverse import preorder

_BLOCKS = (ast.For, ast.While, ast.With, ast.Try)
_MAX_DEPTH: Final = 12
"""Python permits 20 nested blocks; the checks and contexts around loops need some."""


def flatten_deep_loops(statements: Iterable[ast.stmt]) -> None:
    """Flatten perfectly nested loops in statements that are nested too deeply."""
    for statement in statements:
        if _depth(statement) > _MAX_DEPTH:
            for node in [*ast.walk(statement)]:
                if isinstance(node, ast.For):
                    _flatten(node)


def _depth(root: ast.stmt) -> int:
    maximum, stack = 0, [(root, 0)]
    while stack:
        statement, outer = stack.pop()
        depth = outer + isinstance(statement, _BLOCKS)
        maximum = max(maximum, depth)
        stack += [(inner, depth) for inner in _children(statement)]
    return maximum


def _children(statement: ast.stmt) -> Iterator[ast.stmt]:
    return (node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))


def _flatten(outer: ast.For) -> None:
    """Merge into a loop the perfectly nested loops inside it whose ranges are invariant.

    A loop with a `break` is not merged, as its outer loops continue.
    """
    targets, ranges = [outer.target], [outer.iter]
    while True:
        match outer.body:
            case [ast.For(target=ast.Name() as target, iter=inner, body=body, orelse=[])]:
                bound = {name.id for name in targets if isinstance(name, ast.Name)}
                if not _is_invariant(inner, bound) or _breaks(body):
                    break
                targets.append(target)
                ranges.append(inner)
                outer.body = body
            case _:
                break
    if len(targets) > 1:
        outer.target = ast.Tuple([*targets], ast.Store())
        outer.iter = call("rt.grid", *ranges)


_INVARIANT = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.Load)


def _is_invariant(expr: ast.expr, bound: Container[str]) -> bool:
    """True if `expr` is invariant in loops over `bound`, and can be evaluated before them.

    Loads may change between iterations, and hoisted divisions may fail for an empty loop.
    """
    match expr:
        case ast.Call(func=ast.Name(id="range" | "min" | "max"), args=args, keywords=[]):
            return all(_is_invariant(arg, bound) for arg in args)
        case _:
            return all(
                isinstance(node, _INVARIANT)
                and not isinstance(node, (ast.FloorDiv, ast.Mod))
                and not (isinstance(node, ast.Name) and node.id in bound)
                for node in ast.walk(expr)
            )


def _breaks(body: Iterable[ast.stmt]) -> bool:
    """True if a loop with this body may end by a `break`."""
    inside = preorder(body, lambda s: () if isinstance(s, (ast.For, ast.While)) else _children(s))
    return any(isinstance(statement, ast.Break) for statement in inside)
