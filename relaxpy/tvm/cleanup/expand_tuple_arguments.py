"""ExpandTupleArguments: private functions take the fields of tuples."""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.relax.transform.cleanup.private_functions import calls_of, only_called, with_calls
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class ExpandTupleArguments(Pass):
    """Replaces each parameter of a private function that is a tuple by parameters for its fields.

    If there is one, the module is then cleaned by CanonicalizeBindings and DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        calls = calls_of(mod)
        expanded = {
            name: func
            for name, func in only_called(mod).items()
            if any(isinstance(p.struct_info, rx.TupleStructInfo) for p in func.params)
            and "num_input" not in func.attrs
            and all(_fits(func, call) for call in calls.get(name, ()))
        }
        if not expanded:
            return mod
        result = mod.clone()
        for name, func in expanded.items():
            result[name] = _expanded(func)
        result = normalize_module(with_calls(result, dict.fromkeys(expanded, _expanded_call)))
        return DeadCodeElimination().transform(CanonicalizeBindings().transform(result, ctx), ctx)


def _fits(func: rx.Function, call: rx.Call) -> bool:
    """Return whether each argument is known to have the tuples, and fields, of its parameter."""
    params = [param.struct_info for param in func.params]
    args = [arg.struct_info for arg in call.args]
    return len(params) == len(args) and all(map(_same_tuples, params, args))


def _same_tuples(declared: rx.StructInfo | None, actual: rx.StructInfo | None) -> bool:
    if not isinstance(declared, rx.TupleStructInfo):
        return not isinstance(actual, rx.TupleStructInfo)
    if not isinstance(actual, rx.TupleStructInfo) or len(actual.fields) != len(declared.fields):
        return False
    return all(map(_same_tuples, declared.fields, actual.fields))


def _expanded(func: rx.Function) -> rx.Function:
    """The function with parameters for the fields, from which it builds the tuples."""
    params: list[rx.Var] = []
    bindings: list[rx.VarBinding] = []

    def expand(param: rx.Var) -> None:
        if not isinstance(param.struct_info, rx.TupleStructInfo):
            params.append(param)
            return
        fields = tuple(
            rx.Var(f"{param.name_hint}_{k}", sinfo, param.span)
            for k, sinfo in enumerate(param.struct_info.fields)
        )
        for field in fields:
            expand(field)
        bindings.append(rx.VarBinding(param, rx.Tuple(fields, span=param.span), param.span))

    for param in func.params:
        expand(param)
    body = rx.SeqExpr((rx.BindingBlock(tuple(bindings)), *func.body.blocks), func.body.body)
    return rebuild(func, params=tuple(params), body=body)


def _expanded_call(call: rx.Call) -> rx.Call:
    def leaves(arg: rx.Expr) -> Iterator[rx.Expr]:
        if isinstance(arg, rx.Tuple):
            for field in arg.fields:
                yield from leaves(field)
        elif isinstance(arg.struct_info, rx.TupleStructInfo):
            for k, sinfo in enumerate(arg.struct_info.fields):
                yield from leaves(rx.TupleGetItem(arg, k, struct_info=sinfo, span=call.span))
        else:
            yield arg

    return rebuild(call, args=tuple(leaf for arg in call.args for leaf in leaves(arg)))
