"""Names views of arrays that an emitted kernel uses several times, so that each is made once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import EllipsisType
from typing import Any, Final, TypeAlias

from typing_extensions import override

from relaxpy.exec.python_ast import assign, nodes_in, path
from relaxpy.ir.tir.buffer import Buffer

MANY_USES = 3
"""A view that is used as often gets a name. To make one takes as long as a quarter of a call."""


_OPEN: Final = ...
_Index: TypeAlias = int | EllipsisType | tuple[Any, ...] | None
_Key: TypeAlias = tuple[str, tuple[_Index, ...]]
"""The name of an array, and indices: an integer, None for a new axis, or the bounds of a slice."""


def with_named_views(
    lines: Sequence[ast.stmt], buffers: Mapping[str, Buffer], fresh: Callable[[str], str]
) -> list[ast.stmt]:
    """The lines of a function, where `x_1 = x[0]` precedes several uses of `x[0]`.

    `buffers` are the arrays by name, and `fresh` makes a new name that resembles another. A view
    is made just before its first use, which is in no branch and no loop.
    """
    views = [[*_views(line, buffers)] for line in lines]
    counts = Counter(key for found in views for key, _ in found)
    repeated = {key for key, count in counts.items() if count >= MANY_USES}
    names: dict[_Key, str] = {}
    changed: list[ast.stmt] = []
    for line, found in zip(lines, views, strict=True):
        if isinstance(line, ast.FunctionDef):
            line.body = with_named_views(line.body, buffers, fresh)
            changed.append(line)
            continue
        is_simple = isinstance(line, (ast.Expr, ast.Assign))
        known = names if is_simple else _without(names, line)
        if is_simple:
            for key, view in found:
                if key in repeated and key not in names:
                    names[key] = fresh(key[0])
                    changed.append(assign(names[key], view))
        changed.append(_Replaced(known).visit(line) if known else line)
        names = _without(names, line)
    return changed


def _without(names: dict[_Key, str], line: ast.stmt) -> dict[_Key, str]:
    """The names of views, without those of arrays that a line assigns."""
    if not names:
        return names
    nodes = nodes_in((line,))
    stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return {key: name for key, name in names.items() if key[0] not in stored}


class _Replaced(ast.NodeTransformer):
    """Uses the names of views."""

    def __init__(self, names: Mapping[_Key, str]) -> None:
        self.names = names

    @override
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """A view that has a name is that name."""
        key = _key(node)
        if key is None or key not in self.names:
            return self.generic_visit(node)
        return path(self.names[key])


def _views(line: ast.stmt, buffers: Mapping[str, Buffer]) -> Iterator[tuple[_Key, ast.Subscript]]:
    """The parts of arrays in a line of a function, at constant indices: no elements, no copies."""
    if isinstance(line, ast.FunctionDef):
        return
    for node in nodes_in((line,)):
        if isinstance(node, ast.Subscript) and (key := _key(node)) is not None:
            name, indices = key
            is_part = name in buffers and len(indices) < buffers[name].ndim
            if is_part or any(isinstance(index, tuple) for index in indices):
                yield key, node


def _key(node: ast.Subscript) -> _Key | None:
    """The name of the array and its indices, if all of these are constant."""
    if not (isinstance(node.value, ast.Name) and isinstance(node.ctx, ast.Load)):
        return None
    indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    found = tuple([_index(index) for index in indices])
    return None if _OPEN in found else (node.value.id, found)


def _index(index: ast.expr) -> _Index:
    """A constant index, or the bounds of a slice; `_OPEN` for all others."""
    match index:
        case ast.Constant(value=int() | None as value):
            return value
        case ast.Slice(lower=lower, upper=upper, step=step):
            bounds = tuple([None if b is None else _index(b) for b in (lower, upper, step)])
            return _OPEN if _OPEN in bounds else bounds
        case _:
            return _OPEN
