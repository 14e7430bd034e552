"""Visiting and rewriting of statements and expressions by plain functions."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, TypeAlias, TypeVar

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core import traverse
from relaxpy.ir.core.node import Node
from relaxpy.ir.tir import ops, substitution
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.stmt import Stmt

N = TypeVar("N", bound=Node)
Change: TypeAlias = Callable[[Any], Any]


@user_facing
def post_order_visit(node: Node, fvisit: Callable[[Any], object]) -> None:
    """Call `fvisit` with every statement and expression once, parts before what they are in.

    The shapes of buffers are not entered.
    """
    _check(node, fvisit)
    for found in traverse.walk(node):
        if isinstance(found, (PrimExpr, Stmt)):
            fvisit(found)


@user_facing
def pre_order_visit(node: Node, fvisit: Callable[[Any], bool]) -> None:
    """Call `fvisit` with every statement and expression once, and enter it if that is true."""
    _check(node, fvisit)
    seen: set[int] = set()
    stack: list[Node] = [node]
    while stack:
        found = stack.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, (PrimExpr, Stmt)) and not fvisit(found):
            continue
        if not found._variable:
            stack += reversed(list(traverse.children(found)))


@user_facing
def ir_transform(
    stmt: Stmt,
    preorder: Change | None,
    postorder: Change | None,
    only_enable: Container[str] | None = None,
) -> Node:
    """`stmt` with statements and expressions changed by functions that give None to leave them.

    What `preorder` gives stands as it is, and is not entered; `postorder` sees nodes whose parts
    have been changed. Both see the kinds named in `only_enable` alone, as in "tir.Add".
    """
    _check(stmt, *(f for f in (preorder, postorder) if f is not None))

    def change(node: Node) -> Node:
        asked = isinstance(node, (PrimExpr, Stmt)) and (
            only_enable is None or f"tir.{type(node).__name__}" in only_enable
        )
        before = preorder(node) if asked and preorder is not None else None
        if before is not None:
            return _node(before)
        rebuilt = node if node._variable else traverse.map_children(change, node)
        after = postorder(rebuilt) if asked and postorder is not None else None
        return rebuilt if after is None else _node(after)

    return change(stmt)


def _check(node: object, *functions: object) -> None:
    """Errors: MisuseError (also TypeError) if these are no node and functions."""
    if not isinstance(node, Node):
        raise MisuseError(f"expected a statement or an expression, found {node!r:.60}", about=node)
    for function in functions:
        if not callable(function):
            raise MisuseError(f"expected a function of nodes, found {function!r:.60}")


def _node(value: object) -> Node:
    """What a change gives. Errors: MisuseError (also TypeError) if that is no node."""
    return value if isinstance(value, Node) else ops.convert(value)


@user_facing
def substitute(node: N, vmap: Mapping[Var, ExprLike]) -> N:
    """`node` with values for variables at every use; nothing is folded.

    Errors:
        MisuseError (also TypeError): a value has another datatype than its variable.
    """
    _check(node)
    if not isinstance(vmap, Mapping):
        raise MisuseError(f"vmap gives variables their values, found {vmap!r:.60}", about=vmap)
    values = {}
    for var, value in vmap.items():
        ops.check_variable(var, "a substitution")
        given = ops.const(value, var.dtype) if type(value) is int else ops.convert(value)
        if given.dtype != var.dtype:
            raise MisuseError(
                f"{var.name} of {var.dtype} cannot be {given.dtype} `{given}`", about=value
            )
        values[var] = given
    return substitution.substitute(node, values)
