"""RemoveUnusedOutputs: private functions return only the fields that calls use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import override

from relaxpy.ir.core.traverse import children, rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.relax.transform.cleanup.private_functions import only_called
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class RemoveUnusedOutputs(Pass):
    """Removes the fields of the tuples that private functions return and no call uses.

    If one field is left, the function returns it itself. Bindings that only the removed fields
    needed are removed, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        used = _used_fields(mod)
        if not used:
            return mod
        result = mod.clone()
        for name, fields in used.items():
            func = mod[name]
            assert isinstance(func, rx.Function)
            result[name] = _with_fields(func, fields)
        result = map_functions(result, rx.Function, lambda func: _Callers(used).expr(func))
        result = normalize_module(result)
        for name in used:
            func = result[name]
            assert isinstance(func, rx.Function)
            result[name] = without_dead_code(func)
        return normalize_module(result)


def _used_fields(mod: IRModule) -> dict[str, Sequence[int]]:
    """The fields that calls use of the results of functions that return others, too."""
    counts: dict[str, int] = {}
    for name, func in only_called(mod).items():
        sinfo = func.body.struct_info
        declared = func.ret_struct_info
        if isinstance(sinfo, rx.TupleStructInfo) and (
            declared is None or is_base_of(declared, sinfo)
        ):
            counts[name] = len(sinfo.fields)
    used: dict[str, set[int]] = {name: set() for name in counts}
    for user in mod.functions_by_name.values():
        if isinstance(user, rx.Function):
            _collect(user, used, counts)
    return {name: sorted(fields) for name, fields in used.items() if len(fields) < counts[name]}


def _collect(func: rx.Function, used: Mapping[str, set[int]], counts: Mapping[str, int]) -> None:
    """Add the fields of results of calls that a function uses."""
    nodes = list(walk(func))
    results: dict[rx.Expr, str] = {
        node.var: name
        for node in nodes
        if isinstance(node, rx.VarBinding) and (name := _callee(node.value)) in counts
    }
    for node in nodes:
        if isinstance(node, rx.VarBinding) and node.var in results:
            continue
        if isinstance(node, rx.TupleGetItem) and node.tuple_value in results:
            used[results[node.tuple_value]].add(node.index)
            continue
        for child in (node.value,) if isinstance(node, rx.VarBinding) else children(node):
            name = results.get(child, "") if isinstance(child, rx.Var) else _callee(child)
            if name in counts:
                used[name].update(range(counts[name]))


def _callee(node: object) -> str:
    """The name of the function that a call calls."""
    is_call = isinstance(node, rx.Call) and isinstance(node.op, rx.GlobalVar)
    return node.op.name_hint if is_call else ""  # type: ignore[attr-defined]


def _with_fields(func: rx.Function, fields: Sequence[int]) -> rx.Function:
    """The function that returns only these fields."""
    body, result = func.body, func.body.body
    blocks = body.blocks
    if isinstance(result, rx.Tuple):
        values = [result.fields[k] for k in fields]
    else:
        taken = [
            rx.VarBinding(rx.Var(f"field{k}"), rx.TupleGetItem(result, k), func.span)
            for k in fields
        ]
        values = [binding.var for binding in taken]
        blocks = (*blocks, rx.BindingBlock(tuple(taken)))
    new = values[0] if len(values) == 1 else rx.Tuple(tuple(values))
    return rebuild(func, body=rx.SeqExpr(blocks, new, span=body.span), ret_struct_info=None)


class _Callers(BindingRewriter):
    """Takes the fields that are left of the results of calls."""

    def __init__(self, used: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self.used = used
        self.results: dict[rx.Expr, tuple[Sequence[int], rx.StructInfo | None]] = {}

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        value = binding.value
        if isinstance(value, rx.TupleGetItem) and value.tuple_value in self.results:
            fields, before = self.results[value.tuple_value]
            if len(fields) == 1:
                return value.tuple_value
            field = rebuild(value, index=fields.index(value.index))
            known = before.fields[value.index] if isinstance(before, rx.TupleStructInfo) else None
            if not isinstance(binding, rx.VarBinding) or binding.var.struct_info != known:
                return field
            return rx.VarBinding(self.rederived(binding.var), field, binding.span)
        if not isinstance(binding, rx.VarBinding) or _callee(value) not in self.used:
            return None
        assert isinstance(value, rx.Call)
        new = self.rederived(binding.var)
        self.results[new] = self.used[_callee(value)], binding.var.struct_info
        return rx.VarBinding(
            new, rx.Call(value.op, value.args, value.attrs, span=value.span), binding.span
        )
