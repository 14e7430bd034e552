"""Substitution of expressions for free variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.core.node import Node
from relaxpy.plugins.relay.expr import Function, RelayExpr, Var, rewrite
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

E = TypeVar("E", bound=RelayExpr)


@user_facing
def bind(expr: E, binds: Mapping[Var, RelayExpr]) -> RelayExpr:
    """Return an expression in which variables are replaced: free ones, or parameters of a function.

    The function that is returned does not have the parameters that are replaced.

    Errors:
        MisuseError (also TypeError): `binds` is not a mapping, a key is not a variable, or a
            value is not an expression.
    """
    check_type(binds, Mapping, "expected expressions by variables")
    for var, value in binds.items():
        if not isinstance(var, Var) or not isinstance(value, RelayExpr):
            raise MisuseError(
                f"expected expressions by variables, found {var!r:.60}: {value!r:.60}", about=var
            )

    def replaced(node: Node) -> Node | None:
        return binds.get(node) if isinstance(node, Var) else None

    if isinstance(expr, Function) and any(param in binds for param in expr.params):
        body = rewrite(expr.body, replaced)
        params = tuple(param for param in expr.params if param not in binds)
        return replace(expr, params=params, body=body, checked_type_=None)
    return rewrite(expr, replaced)
