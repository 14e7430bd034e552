"""Substitution of scalar variables, in whatever node they stand."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import TypeVar, cast

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, rewrite, walk
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var

N = TypeVar("N", bound=Node)


def mentions(value: PrimExpr, variables: Container[Var]) -> bool:
    """Whether any of `variables` occurs in `value`."""
    if isinstance(value, Var):
        return value in variables
    return any(isinstance(part, Var) and part in variables for part in walk(value))


def substitute(
    node: N,
    values: Mapping[Var, PrimExpr],
    after: Callable[[Node], Node | None] = lambda _: None,
) -> N:
    """`node` with the TIR variables in `values` replaced at every use.

    Literals are not folded, unless `after`, a rule for nodes whose parts are done, does it.
    Variables whose info mentions a replaced one, and buffers whose shape, strides or offset do, are
    made anew, once each.
    """
    if not values:
        return node
    if isinstance(node, IntImm):
        return node
    if isinstance(node, Var):
        return cast("N", values.get(node, node))
    made: dict[int, Node] = {}

    def rule(found: Node) -> Node | None:
        if isinstance(found, Var):
            return values.get(found)
        if not found._variable:
            return after(found)
        new = made.get(id(found))
        if new is None:
            new = map_children(lambda child: rewrite(child, rule), found)
            made[id(found)] = new
        return new

    return cast("N", rewrite(node, rule))
