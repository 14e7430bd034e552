"""Private functions whose signature may change, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, Rewritten


def only_called(mod: IRModule) -> dict[str, rx.Function]:
    """The private Relax functions that are called and not used in any other way."""
    used = {
        name
        for func in mod.functions_by_name.values()
        for node in walk(func)
        for name in _used_as_values(node)
    }
    return {
        name: func
        for name, func in mod.functions_by_name.items()
        if isinstance(func, rx.Function) and "global_symbol" not in func.attrs and name not in used
    }


def _used_as_values(node: Node) -> Iterator[str]:
    """The functions that a node mentions other than as a callee."""
    operands = node.args if isinstance(node, rx.Call) else children(node)
    return (n.name_hint for n in operands if isinstance(n, rx.GlobalVar))


def calls_of(mod: IRModule) -> dict[str, list[rx.Call]]:
    """The calls of each function of the module."""
    calls: dict[str, list[rx.Call]] = {}
    for func in mod.functions_by_name.values():
        for node in walk(func):
            if isinstance(node, rx.Call) and isinstance(node.op, rx.GlobalVar):
                calls.setdefault(node.op.name_hint, []).append(node)
    return calls


def with_calls(mod: IRModule, replacements: Mapping[str, Callable[[rx.Call], rx.Expr]]) -> IRModule:
    """The module with other expressions instead of the calls of functions.

    The struct info of the variables of such calls is derived anew.
    """
    return map_functions(mod, rx.Function, lambda func: _Calls(replacements).expr(func))


class _Calls(BindingRewriter):
    def __init__(self, replacements: Mapping[str, Callable[[rx.Call], rx.Expr]]) -> None:
        super().__init__()
        self.replacements = replacements

    @override
    def step(self, binding: rx.Binding, block: rx.BindingBlock) -> Rewritten:
        call = binding.value
        if not isinstance(call, rx.Call) or not isinstance(call.op, rx.GlobalVar):
            return None
        replacement = self.replacements.get(call.op.name_hint)
        if replacement is None:
            return None
        value = replacement(call)
        if value is call or not isinstance(binding, rx.VarBinding):
            return value
        return rx.VarBinding(self.rederived(binding.var), value, binding.span)
