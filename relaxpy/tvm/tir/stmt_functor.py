"""Visitors and mutators of statements and expressions as plain functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, TypeAlias, TypeVar

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.core import traverse
from relaxpy.ir.core.node import Node
from relaxpy.ir.tir import ops, substitution
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.stmt import Stmt
from relaxpy.support.entry import user_facing

N = TypeVar("N", bound=Node)
Change: TypeAlias = Callable[[Any], Any]


@user_facing
def post_order_visit(node: Node, fvisit: Callable[[Any], object]) -> None:
    """Call `fvisit` with every statement and expression once, children before parents.

    The shapes of buffers are not visited.
    """
    _check(node, fvisit)
    for child in traverse.walk(node):
        if isinstance(child, (PrimExpr, Stmt)):
            fvisit(child)


@user_facing
def pre_order_visit(node: Node, fvisit: Callable[[Any], bool]) -> None:
    """Call `fvisit` with every statement and expression once; visit its children if it is true."""
    _check(node, fvisit)
    visited: set[int] = set()
    stack: list[Node] = [node]
    while stack:
        child = stack.pop()
        if id(child) in visited:
            continue
        visited.add(id(child))
        if isinstance(child, (PrimExpr, Stmt)) and not fvisit(child):
            continue
        if not child._variable:
            stack += reversed(list(traverse.children(child)))


@user_facing
def ir_transform(
    stmt: Stmt,
    preorder: Change | None,
    postorder: Change | None,
    only_enable: Container[str] | None = None,
) -> Node:
    """Rewrite the statements and expressions of `stmt`; a function returns None for no change.

    A result of `preorder` is final, and its children are not visited. `postorder` is called with
    nodes whose children are rewritten. Both are called only with the node classes in `only_enable`,
    such as "tir.Add".
    """
    _check(stmt, *(f for f in (preorder, postorder) if f is not None))

    def change(node: Node) -> Node:
        enabled = isinstance(node, (PrimExpr, Stmt)) and (
            only_enable is None or f"tir.{type(node).__name__}" in only_enable
        )
        replaced = preorder(node) if enabled and preorder is not None else None
        if replaced is not None:
            return _node(replaced)
        rebuilt = node if node._variable else traverse.map_children(change, node)
        rewritten = postorder(rebuilt) if enabled and postorder is not None else None
        return rebuilt if rewritten is None else _node(rewritten)

    return change(stmt)


def _check(node: object, *functions: object) -> None:
    """Errors: MisuseError (also TypeError) if `node` is not a node or a function not callable."""
    check_type(node, Node, "expected a statement or an expression")
    for function in functions:
        if not callable(function):
            raise unexpected(function, "expected a function of nodes")


def _node(value: object) -> Node:
    """Convert the result of a rewrite. Errors: MisuseError (also TypeError) if it is not a node."""
    return value if isinstance(value, Node) else ops.convert(value)


def _uses(node: Node, var: Var) -> bool:
    """Return whether `substitute` replaces `var` anywhere in `node`, shapes of buffers included."""
    return substitution.substitute(node, {var: Var(var.name, var.dtype)}) is not node


@user_facing
def substitute(node: N, vmap: Mapping[Var, ExprLike]) -> N:
    """Replace variables by values at every use in `node`; nothing is folded.

    Errors:
        MisuseError (also TypeError): a value has another datatype than its variable, which is
            used in `node` and whose datatype is known.
    """
    _check(node)
    check_type(vmap, Mapping, "vmap maps variables to values")
    values = {}
    for var, value in vmap.items():
        ops.check_variable(var, "a substitution")
        new_value = ops.const(value, var.dtype) if type(value) is int else ops.convert(value)
        is_of_another_type = new_value.dtype != var.dtype and not var.dtype.is_void
        if is_of_another_type and _uses(node, var):
            raise MisuseError(
                f"{var.name} of {var.dtype} cannot be {new_value.dtype} `{new_value}`", about=value
            )
        values[var] = new_value
    return substitution.substitute(node, values)
