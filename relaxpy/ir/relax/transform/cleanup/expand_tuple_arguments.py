"""ExpandTupleArguments: private functions take the fields of tuples."""

from __future__ import annotations

from collections.abc import Iterator

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import (
    BindingBlock,
    Call,
    Expr,
    Function,
    SeqExpr,
    StructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import DeadCodeElimination
from relaxpy.ir.relax.transform.cleanup.private_functions import calls_of, only_called, with_calls


@dataclass(frozen=True)
class ExpandTupleArguments(Pass):
    """Replaces each parameter of a private function that is a tuple by parameters for its fields.

    If there is one, the module is then cleaned by CanonicalizeBindings and DeadCodeElimination.

    Example:
        @I.ir_module
        class Before:
            @R.function(private=True)
            def f(p: R.Tuple(R.Tensor((4,), "float32"), R.Tensor((4,), "float32"))):
                y = p[1]
                return y

            @R.function
            def main(x: R.Tensor((4,), "float32")):
                z = Before.f((x, x))
                return z

        @I.ir_module
        class After:
            @R.function(private=True)
            def f(p_0: R.Tensor((4,), "float32"), p_1: R.Tensor((4,), "float32")):
                return p_1

            @R.function
            def main(x: R.Tensor((4,), "float32")):
                z = After.f(x, x)
                return z

    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        calls = calls_of(mod)
        expanded = {
            name: func
            for name, func in only_called(mod).items()
            if any(isinstance(p.struct_info, TupleStructInfo) for p in func.params)
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


def _fits(func: Function, call: Call) -> bool:
    """Whether each argument is known to have the tuples, and fields, of its parameter."""
    params = [param.struct_info for param in func.params]
    args = [arg.struct_info for arg in call.args]
    return len(params) == len(args) and all(map(_same_tuples, params, args))


def _same_tuples(declared: StructInfo | None, actual: StructInfo | None) -> bool:
    if not isinstance(declared, TupleStructInfo):
        return not isinstance(actual, TupleStructInfo)
    if not isinstance(actual, TupleStructInfo) or len(actual.fields) != len(declared.fields):
        return False
    return all(map(_same_tuples, declared.fields, actual.fields))


def _expanded(func: Function) -> Function:
    """The function with parameters for the fields, of which it builds the tuples."""
    params: list[Var] = []
    bindings: list[VarBinding] = []

    def expand(param: Var) -> None:
        if not isinstance(param.struct_info, TupleStructInfo):
            params.append(param)
            return
        fields = tuple(
            Var(f"{param.name_hint}_{k}", sinfo, param.span)
            for k, sinfo in enumerate(param.struct_info.fields)
        )
        for field in fields:
            expand(field)
        bindings.append(VarBinding(param, Tuple(fields, span=param.span), param.span))

    for param in func.params:
        expand(param)
    body = SeqExpr((BindingBlock(tuple(bindings)), *func.body.blocks), func.body.body)
    return rebuild(func, params=tuple(params), body=body)


def _expanded_call(call: Call) -> Call:
    def leaves(arg: Expr) -> Iterator[Expr]:
        if isinstance(arg, Tuple):
            for field in arg.fields:
                yield from leaves(field)
        elif isinstance(arg.struct_info, TupleStructInfo):
            for k, sinfo in enumerate(arg.struct_info.fields):
                yield from leaves(TupleGetItem(arg, k, struct_info=sinfo, span=call.span))
        else:
            yield arg

    return rebuild(call, args=tuple(leaf for arg in call.args for leaf in leaves(arg)))
