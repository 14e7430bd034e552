"""What of a function depends on nothing that is known only when it is called."""

from __future__ import annotations

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.relax.analysis.purity import makes_impure_call
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.nodes import Function, MatchCast, StructInfo, Var, VarBinding
from relaxpy.ir.relax.relations.shape_vars import (
    definable_shape_vars,
    free_shape_vars,
    variables_of,
)
from relaxpy.ir.tir import expr as tir


@user_facing
def computable_at_compile_time(func: Function) -> list[Var]:
    """The parameters behind the first `num_input` ones, and what depends on these alone, in order.

    Shape variables that those values determine may be used, others not. What makes an impure call
    is left to run time. Without attribute `num_input`, all parameters are inputs.

    Errors:
        MisuseError (also TypeError): `func` is no Relax function, or `num_input` no count.
    """
    expect(func, Function)
    inputs = func.attrs.get("num_input", len(func.params))
    if not isinstance(inputs, int) or inputs < 0:
        raise MisuseError(f"num_input counts parameters, found {inputs!r:.60}", span=func.span)
    known: dict[Var, None] = {}
    sizes: set[tir.Var] = set()

    def learn(var: Var, info: StructInfo | None) -> None:
        known[var] = None
        if info is not None:
            sizes.update(definable_shape_vars(info))

    for param in func.params[inputs:]:
        learn(param, param.struct_info)
    for node in walk(func.body):
        if not isinstance(node, (VarBinding, MatchCast)) or node.var is None:
            continue
        if any(var not in known for var in free_vars(node.value)):
            continue
        if not _sizes_used(node.value) <= sizes or makes_impure_call(node.value):
            continue
        learn(node.var, node.struct_info if isinstance(node, MatchCast) else None)
    return list(known)


def _sizes_used(root: Node) -> set[tir.Var]:
    """The shape variables that the text of a value mentions, outside what its variables are."""
    found: set[tir.Var] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        match node:
            case StructInfo():
                found.update(free_shape_vars(node))
            case tir.PrimExpr():
                found.update(variables_of(node))
            case _ if not node._variable:
                waiting += children(node)
            case _:
                pass
    return found
