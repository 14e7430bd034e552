"""Substitution of TIR variables in any node."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TypeVar, cast

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, occurrences, rewrite
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var

N = TypeVar("N", bound=Node)


def mentions(value: PrimExpr, variables: Container[Var]) -> bool:
    """True if any of `variables` occurs in `value`."""
    if isinstance(value, Var):
        return value in variables
    return type(value) is not IntImm and any(var in variables for var in occurrences(value, Var))


def substitute(
    node: N, values: Mapping[Var, PrimExpr], after: Callable[[Node], Node | None] | None = None
) -> N:
    """Replace the TIR variables in `values` at every use in `node`.

    Literals are not folded, unless the rule `after`, which is applied to rebuilt nodes, does that.
    Variables whose struct info mentions a replaced variable, and buffers whose shape, strides or
    offset do, are rebuilt once each.
    """
    if not values:
        return node
    if isinstance(node, IntImm):
        return node
    if isinstance(node, Var):
        return cast("N", values.get(node, node))
    rebuilt: dict[int, Node] = {}

    def rule(old: Node) -> Node | None:
        if not old._variable:
            return None if after is None else after(old)
        if isinstance(old, Var):
            return values.get(old)
        new = rebuilt.get(id(old))
        if new is None:
            new = rebuilt[id(old)] = map_children(operand, old)  # noqa: F821 (deleted later)
        return new

    def operand(old: Node) -> Node:
        if isinstance(old, IntImm):
            return old
        if isinstance(old, Var):
            return values.get(old, old)
        return rewrite(old, rule)

    result = rewrite(node, rule)
    del operand  # otherwise a cycle keeps both alive
    return cast("N", result)
