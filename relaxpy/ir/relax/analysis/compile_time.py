"""The variables of a function that can be computed before it is called."""

from __future__ import annotations

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.analysis.purity import makes_impure_call
from relaxpy.ir.relax.analysis.symbolic import used_shape_vars
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.nodes import Function, MatchCast, StructInfo, Var, VarBinding
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.tir import expr as tir
from relaxpy.support.entry import user_facing


@user_facing
def computable_at_compile_time(func: Function) -> list[Var]:
    """The parameters after the first `num_input` ones, and the variables computed from these alone.

    Their values may use shape variables that the same parameters determine, and no impure calls.
    Without the attribute `num_input`, all parameters are inputs.

    Errors:
        MisuseError (also TypeError): `func` is not a Relax function, or `num_input` not a count.
    """
    expect(func, Function)
    inputs = func.attrs.get("num_input", len(func.params))
    if not isinstance(inputs, int) or inputs < 0:
        raise MisuseError(f"num_input is a count, found {inputs!r:.60}", span=func.span)
    known: dict[Var, None] = {}
    shape_vars: set[tir.Var] = set()

    def add(var: Var, sinfo: StructInfo | None) -> None:
        known[var] = None
        if sinfo is not None:
            shape_vars.update(definable_shape_vars(sinfo))

    for param in func.params[inputs:]:
        add(param, param.struct_info)
    for node in walk(func.body):
        if not isinstance(node, (VarBinding, MatchCast)) or node.var is None:
            continue
        if any(var not in known for var in free_vars(node.value)):
            continue
        used = used_shape_vars(node.value, of_variables=False)
        if not shape_vars.issuperset(used) or makes_impure_call(node.value):
            continue
        add(node.var, node.struct_info if isinstance(node, MatchCast) else None)
    return list(known)
