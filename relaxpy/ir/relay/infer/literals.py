"""Open literals of programs that are not checked (RLY-63)."""

from __future__ import annotations

from relaxpy.ir.core.node import Node
from relaxpy.ir.relay.expr import Constant, Literal, RelayExpr, rewrite


def with_default_literals(expr: RelayExpr) -> RelayExpr:
    """Return an expression in which literals have their default datatypes."""

    def constant(node: Node) -> Constant | None:
        return node.as_constant() if isinstance(node, Literal) else None

    return rewrite(expr, constant)
