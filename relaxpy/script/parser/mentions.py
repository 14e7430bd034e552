"""The functions of a module that a function mentions."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator, Sequence

from relaxpy.script.parser.source.report import bound_names


def mentioned(node: ast.FunctionDef, known: Container[str]) -> list[str]:
    """Return the functions of the module that a function mentions, by name or as attributes.

    Parameters, and variables that a preceding statement always binds, hide functions.
    """
    spec = node.args
    params = {arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)}
    functions: dict[str, None] = {}
    bound = set(params)
    for statement in _unconditional(node.body):
        for child in ast.walk(statement):
            if isinstance(child, ast.Attribute) and child.attr in known:
                if not (isinstance(child.value, ast.Name) and child.value.id in params):
                    functions[child.attr] = None
            elif isinstance(child, ast.Name) and child.id in known and child.id not in bound:
                functions[child.id] = None
        if isinstance(statement, (ast.Assign, ast.AnnAssign, ast.FunctionDef)):
            bound.update(bound_names(statement))
    return list(functions)


def _unconditional(nodes: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that are always parsed, including those of blocks."""
    for node in nodes:
        if isinstance(node, ast.With):
            yield from _unconditional(node.body)
        else:
            yield node
