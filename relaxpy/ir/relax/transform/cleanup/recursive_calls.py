"""Recursive calls in ordinary blocks, since dataflow blocks may not have them (WF-7a, WF-7b)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby

from typing_extensions import override

from relaxpy.dataclass import replace
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.variables import binding_operands, occurring_vars
from relaxpy.ir.relax.call_graph import detect_recursion
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter


def outside_dataflow(mod: IRModule) -> IRModule:
    """The module with dataflow blocks divided at calls of functions that call the present one."""
    result = mod.clone()
    for group in detect_recursion(mod):
        names = {var.name_hint for var in group}
        for name in names:
            func = mod[name]
            assert isinstance(func, rx.Function)
            result[name] = _Divider(names).expr(func)
    return result


class _Divider(BindingRewriter):
    """Divides the dataflow blocks of a function that is in a cycle of calls with `group`."""

    def __init__(self, group: Collection[str]) -> None:
        super().__init__()
        self.group = group
        self.in_nested_function = False

    @override
    def function(self, func: rx.Function) -> rx.Function:
        outer, self.in_nested_function = self.in_nested_function, True
        after = super().function(func) if not outer else func  # PU-20
        self.in_nested_function = outer
        return after

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock) or not any(
            map(self._is_recursive, block.bindings)
        ):
            return super().block(block)
        runs = [(key, tuple(run)) for key, run in groupby(block.bindings, self._is_recursive)]
        home = {binding.var: k for k, (_, run) in enumerate(runs) for binding in run}
        for k, (is_ordinary, run) in enumerate(runs):
            visible = {b.var for b in run} if is_ordinary else set()
            used = {v for b in run for node in binding_operands(b) for v in occurring_vars(node)}
            for var in visible | {v for v in used if home.get(v, k) != k}:
                if isinstance(var, rx.DataflowVar):
                    self._remap[var] = rx.Var(var.name_hint, var.struct_info, var.span)
        return [
            new
            for is_ordinary, run in runs
            for new in super(_Divider, self).block(
                rx.BindingBlock(run, block.span) if is_ordinary else replace(block, bindings=run)
            )
        ]

    def _is_recursive(self, binding: rx.Binding) -> bool:
        call = binding.value
        callee = call.op if isinstance(call, rx.Call) else None
        return isinstance(callee, rx.GlobalVar) and callee.name_hint in self.group
