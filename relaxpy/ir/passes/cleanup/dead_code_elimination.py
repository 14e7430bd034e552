"""DeadCodeElimination: unused bindings and functions are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from typing_extensions import override

from relaxpy.errors import UnknownNameError, close_names
from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import cast_may_fail, makes_impure_call, may_fail
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph, reachable_functions, recursive_groups
from relaxpy.ir.relax.nodes import Binding, Expr, Function, MatchCast
from relaxpy.ir.relax.rewrite.bind import fit_parameters, unproved_result
from relaxpy.ir.relax.rewrite.map_bindings import without_unused
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Removes bindings that nothing uses, and functions that no public function or entry reaches.

    Impure calls stay. Outside dataflow blocks so do bindings that may fail or not terminate
    (OPT-8), such as calls of functions with such bindings; in them a cast stays only if the shape
    variables that it binds are used (OPT-5, OPT-9).

    Errors:
        UnknownNameError: the module has no function of an entry's name.
    """

    entry_functions: Sequence[str] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        named = self.entry_functions or ()
        for name in named:
            if name not in mod.functions_by_name:
                hint = close_names(name, mod.functions_by_name)
                raise UnknownNameError(f"the module has no function {name}", hint=hint)
        mod = without_unreachable(mod, named)
        fails = ReturningCalls(mod).may_fail
        has_effect = partial(makes_impure_call, functions=mod.functions_by_name)
        mod = map_functions(mod, Function, lambda func: without_dead_code(func, fails, has_effect))
        return without_unreachable(normalize_module(mod), named)


def without_unreachable(mod: IRModule, named: Sequence[str] = ()) -> IRModule:
    """The module without the private functions to which no public or named one leads."""
    functions = mod.functions_by_name
    entries = [
        name
        for name, func in functions.items()
        if "global_symbol" in func.attrs or not isinstance(func, (Function, PrimFunc))
    ]
    reached = reachable_functions(mod, (*entries, *named))
    if len(reached) == len(functions):
        return mod
    result = mod.clone()
    for name in functions.keys() - reached:
        del result[name]
    return result


def _may_fail(binding: Binding) -> bool:
    return cast_may_fail(binding) if isinstance(binding, MatchCast) else may_fail(binding)


def without_dead_code(
    func: Function,
    fails: Callable[[Binding], bool] = _may_fail,
    has_effect: Callable[[Expr], bool] = makes_impure_call,
) -> Function:
    """`func` without unused bindings; impure calls, and ordinary bindings that may fail, stay."""
    return without_unused(func, has_effect=lambda b: has_effect(b.value) or fails(b))


class ReturningCalls:
    """Decides which bindings may fail, where calls of known functions fail as their bodies do.

    A function returns if it is not recursive, and no binding outside its dataflow blocks may fail.
    """

    def __init__(self, mod: IRModule) -> None:
        self._returning: dict[str | rx.Var, rx.Function] = {}
        recursive = {name for group in recursive_groups(mod) for name in group}
        for group in strongly_connected(call_graph(mod)):
            for name in group:
                func = mod.functions_by_name[name]
                assert isinstance(func, rx.Function)
                if self._returns(func) and name not in recursive:
                    self._returning[name] = func

    def may_fail(self, binding: rx.Binding) -> bool:
        """True if a pure binding may raise an error or not terminate."""
        value = binding.value
        if isinstance(binding, rx.MatchCast):
            return cast_may_fail(binding)
        if isinstance(value, rx.If):
            one = self._blocks_may_fail(value.true_branch.blocks)
            return self._blocks_may_fail(value.false_branch.blocks) or one
        if isinstance(value, rx.Call) and isinstance(value.op, (rx.GlobalVar, rx.Var)):
            name = value.op.name_hint if isinstance(value.op, rx.GlobalVar) else value.op
            callee = self._returning.get(name)
            return callee is None or not fit_parameters(callee.params, value.args)
        return may_fail(binding)

    def _returns(self, func: rx.Function) -> bool:
        """True if calls of a function return; enters the local functions in it that do."""
        fails = self._blocks_may_fail(func.body.blocks)
        return func.is_pure and not fails and unproved_result(func) is None

    def _blocks_may_fail(self, blocks: Iterable[rx.BindingBlock]) -> bool:
        result = False
        for block in blocks:
            is_ordinary = not isinstance(block, rx.DataflowBlock)
            for binding in block.bindings:
                value = binding.value
                if isinstance(value, rx.Function) and binding.var is not None:
                    if self._returns(value):
                        self._returning[binding.var] = value
                elif self.may_fail(binding) and is_ordinary:
                    result = True
        return result
