"""DeadCodeElimination: unused bindings and functions are removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.errors import UnknownNameError, close_names
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.effects import cast_may_fail, may_fail
from relaxpy.ir.relax.analysis.purity import makes_impure_call
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import mentioned_globals, reachable
from relaxpy.ir.relax.nodes import Binding, BindingBlock, DataflowBlock, Expr, Function, MatchCast
from relaxpy.ir.relax.rewrite.unused import without_unused
from relaxpy.ir.relax.transform.cleanup.returning_calls import ReturningCalls
from relaxpy.ir.tir.prim_func.function import PrimFunc


@dataclass(frozen=True)
class DeadCodeElimination(Pass):
    """Removes bindings that nothing uses, and functions that no public function or entry reaches.

    Impure calls stay. Outside dataflow blocks so does what may fail or not terminate (OPT-8), such
    as a call of a function in which something may; in them a cast stays only if the shape variables
    that it binds are used (OPT-5, OPT-9).

    Errors:
        UnknownNameError: the module has no function of an entry's name.
    """

    entry_functions: Sequence[str] | None = None

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = self._reachable(normalize_module(mod))
        fails = ReturningCalls(mod).may_fail
        has_effect = partial(makes_impure_call, functions=mod.functions_by_name)
        mod = map_functions(mod, Function, lambda func: without_dead_code(func, fails, has_effect))
        return self._reachable(normalize_module(mod))

    def _reachable(self, mod: IRModule) -> IRModule:
        """The module without the private functions that no other function leads to."""
        functions = mod.functions_by_name
        for name in self.entry_functions or ():
            if name not in functions:
                hint = close_names(name, functions)
                raise UnknownNameError(f"the module has no function {name}", hint=hint)
        entries = [
            name
            for name, func in functions.items()
            if "global_symbol" in func.attrs or not isinstance(func, (Function, PrimFunc))
        ]
        graph = {
            name: [n for n in mentioned_globals(func) if n in functions]
            for name, func in functions.items()
        }
        reached = reachable(graph, (*entries, *(self.entry_functions or ())))
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
    """`func` without unused bindings; impure calls, and what fails in ordinary blocks, stay."""
    kept = {
        binding
        for block in walk(func)
        if isinstance(block, BindingBlock) and not isinstance(block, DataflowBlock)
        for binding in block.bindings
        if fails(binding)
    }
    return without_unused(func, kept.__contains__, has_effect)
