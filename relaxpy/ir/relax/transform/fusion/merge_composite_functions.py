"""MergeCompositeFunctions: neighbouring functions for one back end become one function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from typing_extensions import override

from relaxpy.ir.core.traverse import Groups, rename
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import mentioned_globals
from relaxpy.ir.relax.rewrite.map_bindings import copy_with_new_vars
from relaxpy.ir.relax.transform.fusion.codegen import codegen_name, without_primitive
from relaxpy.ir.relax.transform.fusion.grouping import FunctionGroup, group_bindings
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class MergeCompositeFunctions(Pass):
    """Merges calls of composite functions of one back end, as FuseOpsByPattern creates them.

    A call is merged with those that compute its arguments, unless another computation lies between
    them. The function that results has the attribute `Codegen`, the name of the back end, for
    RunCodegen; the composite functions are nested in it.

    Errors:
        TransformError: the name of a composite function has no dot.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        before = normalize_module(mod)
        backends = {
            name: backend
            for name, func in before.functions_by_name.items()
            if (backend := codegen_name(func)) is not None
        }
        if not backends:
            return before
        grouped = group_bindings(
            before, lambda block: _groups(block, backends), lift_constants=True
        )
        return before if grouped is before else _with_nested_functions(grouped)


@dataclass(slots=True, eq=False)
class _Merged:
    """A set of calls of one back end, or another binding, and all that it depends on.

    The sets of bindings are bits of integers, so that the dependencies of 10,000 take little time.
    """

    backend: str | None
    members: int
    before: int = 0


def _groups(
    block: rx.DataflowBlock, backends: Mapping[str, str]
) -> Mapping[rx.Binding, FunctionGroup]:
    """The calls of composite functions in a block, with the groups that they are merged into."""
    home: dict[rx.Var, _Merged] = {}
    merged: dict[rx.Binding, _Merged] = {}
    sets = Groups[_Merged]()
    for position, binding in enumerate(block.bindings):
        call = binding.value
        callee = call.op if isinstance(call, rx.Call) else None
        backend = backends.get(callee.name_hint) if isinstance(callee, rx.GlobalVar) else None
        used = (home[var] for var in occurring_vars(call) if var in home)
        operands = dict.fromkeys(map(sets.find, used))
        separated = reduce(or_, (operand.before for operand in operands), 0)
        joined = [
            operand
            for operand in operands
            if backend is not None
            and operand.backend == backend
            and not operand.members & separated
        ]
        needed = reduce(or_, (operand.members for operand in operands), separated)
        unit = joined[0] if joined else _Merged(backend, 0)
        for other in joined[1:]:
            sets.join(unit, other)
            unit.members |= other.members
        unit.members |= 1 << position
        unit.before = (unit.before | needed) & ~unit.members
        merged[binding] = unit
        if binding.var is not None:
            home[binding.var] = unit
    groups: dict[_Merged, FunctionGroup] = {}
    roots = {binding: sets.find(unit) for binding, unit in merged.items()}
    for root in roots.values():
        if root.backend is not None and root not in groups:
            groups[root] = FunctionGroup({"Codegen": root.backend})
    return {binding: groups[root] for binding, root in roots.items() if root in groups}


def _with_nested_functions(mod: IRModule) -> IRModule:
    """The module with composite functions nested in the functions for a back end."""
    result = mod.clone()
    renamed: dict[rx.GlobalVar, rx.GlobalVar] = {}
    for var, func in mod.items():
        if isinstance(func, rx.Function) and "Codegen" in func.attrs and "Primitive" in func.attrs:
            name = f"{var.name_hint}_{func.attrs['Codegen']}"
            renamed[var] = rx.GlobalVar(name)
            del result[var]
            nested = without_primitive(_nested(func, mod))
            result[renamed[var]] = nested.with_attr("global_symbol", name)
    old_names = {old.name_hint for old in renamed}
    for var, func in result.items():
        if isinstance(func, rx.Function) and not old_names.isdisjoint(mentioned_globals(func)):
            result[var] = rename(func, renamed)
    mentioned = {n for func in result.functions_by_name.values() for n in mentioned_globals(func)}
    for var, func in result.items():
        if "Composite" in func.attrs and var.name_hint not in mentioned:
            del result[var]
    return normalize_module(result)


def _nested(func: rx.Function, mod: IRModule) -> rx.Function:
    """The function with a local function instead of each composite one that it calls."""
    local: dict[str, rx.Var] = {}
    bindings: list[rx.Binding] = []
    table: dict[rx.Expr, rx.Var] = {}
    for block in func.body.blocks:
        for binding in block.bindings:
            call = binding.value
            assert isinstance(binding, rx.VarBinding)
            if isinstance(call, rx.Call) and isinstance(call.op, rx.GlobalVar):
                name = call.op.name_hint
                callee = mod[name]
                assert isinstance(callee, rx.Function)
                if name not in local:
                    local[name] = rx.Var("lv")
                    inner = without_primitive(copy_with_new_vars(callee))
                    bindings.append(rx.VarBinding(local[name], inner, call.span))
                call = rx.Call(local[name], call.args, span=call.span)
            var = binding.var
            if isinstance(var, rx.DataflowVar):
                table[var] = rx.Var(var.name_hint, var.struct_info, var.span)
            bindings.append(rx.VarBinding(var, call, binding.span))
    body = rx.SeqExpr((rx.BindingBlock(tuple(bindings)),), func.body.body)
    attrs = func.attrs
    whole = rx.Function(func.params, body, is_pure=func.is_pure, attrs=attrs, span=func.span)
    return rename(whole, table)
