"""Calls of functions that certainly return: such a call may be removed if nothing uses it."""

from __future__ import annotations

from collections.abc import Iterable

from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import cast_may_fail, may_fail
from relaxpy.ir.relax.call_graph import call_graph, recursive_groups, strongly_connected
from relaxpy.ir.relax.rewrite.arguments import fit_parameters
from relaxpy.ir.relax.rewrite.inline import unproved_result


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
        """Whether a pure binding may raise an error or not terminate."""
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
        """Whether calls of a function return; enters the local functions in it that do."""
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
