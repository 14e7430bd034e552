"""Substitution of expressions for free variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np

from relaxpy.dataclass import replace
from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.relay.expr import Constant, Function, RelayExpr, Var, rewrite

E = TypeVar("E", bound=RelayExpr)


@user_facing
def bind(expr: E, binds: Mapping[Var, RelayExpr]) -> RelayExpr:
    """Return an expression in which variables are replaced: free ones, or parameters of a function.

    The function that is returned does not have the parameters that are replaced.

    Errors:
        MisuseError (also TypeError): `binds` is no mapping, a key is not a variable, or a value not
            an expression.
    """
    if not isinstance(binds, Mapping):
        raise MisuseError(f"expected expressions by variables, found {binds!r:.60}", about=binds)
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


@user_facing
def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> RelayExpr:
    """Return a function whose parameters of these names are replaced by tensors.

    Errors:
        MisuseError (also TypeError, ValueError): it is not a function, `params` is no mapping, or
            two parameters have a name.
    """
    if not isinstance(func, Function):
        raise MisuseError(f"expected a function of Relay, found {func!r:.60}", about=func)
    if not isinstance(params, Mapping):
        raise MisuseError(f"expected a mapping of names to tensors, found {params!r:.60}")
    names = [param.name_hint for param in func.params]
    twice = [name for name in params if names.count(name) > 1]
    if twice:
        raise MisuseError(f"two parameters have the name {twice[0]}", about=twice[0])
    found = {param: params[param.name_hint] for param in func.params if param.name_hint in params}
    values = {
        param: value if isinstance(value, RelayExpr) else Constant(np.asarray(value))
        for param, value in found.items()
    }
    return bind(func, values)
