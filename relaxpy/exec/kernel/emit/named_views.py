"""Names views of arrays that an emitted kernel uses several times, so that each is made once."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from typing_extensions import override

from relaxpy.exec.python_ast import assign, path
from relaxpy.ir.tir.buffer import Buffer

MANY_USES = 3
"""A view that is used as often gets a name. To make one takes as long as a quarter of a call."""


def with_named_views(
    lines: Sequence[ast.stmt], buffers: Mapping[str, Buffer], fresh: Callable[[str], str]
) -> list[ast.stmt]:
    """The lines of a function, where `x_1 = x[0]` precedes several uses of `x[0]`.

    `buffers` are the arrays by name, and `fresh` makes a new name that resembles another. A view
    is made just before its first use, which is in no branch and no loop.
    """
    counts = Counter(_key(view) for line in lines for view in _views(line, buffers))
    repeated = {key for key, count in counts.items() if count >= MANY_USES}
    names: dict[str, str] = {}
    changed: list[ast.stmt] = []
    for line in lines:
        if isinstance(line, ast.FunctionDef):
            line.body = with_named_views(line.body, buffers, fresh)
            changed.append(line)
            continue
        if isinstance(line, (ast.Expr, ast.Assign)):
            for view in _views(line, buffers):
                key = _key(view)
                if key in repeated and key not in names:
                    names[key] = fresh(view.value.id)  # type: ignore[attr-defined]
                    changed.append(assign(names[key], view))
        changed.append(_Replaced(names).visit(line) if names else line)
        for stored in _stored(line):
            names = {k: n for k, n in names.items() if not k.startswith(f"{stored}[")}
    return changed


class _Replaced(ast.NodeTransformer):
    """Uses the names of views."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    @override
    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """A view that has a name is that name."""
        if isinstance(node.ctx, ast.Load) and (name := self.names.get(_key(node))):
            return path(name)
        return self.generic_visit(node)


def _views(line: ast.stmt, buffers: Mapping[str, Buffer]) -> Iterator[ast.Subscript]:
    """The parts of arrays in a line of a function, at constant indices: no elements, no copies."""
    if isinstance(line, ast.FunctionDef):
        return
    for node in ast.walk(line):
        match node:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Load()):
                indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
                if not all(map(_is_fixed, indices)):
                    continue
                is_part = name in buffers and len(indices) < buffers[name].ndim
                if is_part or any(isinstance(i, ast.Slice) for i in indices):
                    yield node
            case _:
                pass


def _is_fixed(index: ast.expr) -> bool:
    """Whether an index is a constant, or a slice with constant bounds."""
    match index:
        case ast.Constant(value=value):
            return value is not ...
        case ast.Slice(lower=lower, upper=upper, step=step):
            return all(bound is None or _is_fixed(bound) for bound in (lower, upper, step))
        case _:
            return False


def _stored(line: ast.stmt) -> set[str]:
    """The names that a line assigns to."""
    names = (node for node in ast.walk(line) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Store)}


def _key(view: ast.Subscript) -> str:
    return ast.unparse(view)
