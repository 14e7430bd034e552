"""InlinePrivateFunctions: calls of private functions become their bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph, strongly_connected
from relaxpy.ir.relax.nodes import Function, GlobalVar
from relaxpy.ir.relax.rewrite.inline import inline_functions
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.relax.transform.cleanup.private_functions import only_called


@dataclass(frozen=True)
class InlinePrivateFunctions(Pass):
    """Replaces calls of private functions by their bodies, and removes these functions.

    Recursive ones stay, and so do those that are used as values. The functions that called them are
    simplified as by CanonicalizeBindings, and lose what nothing uses, as by DeadCodeElimination.

    Example:
        @I.ir_module
        class Before:
            @R.function(private=True)
            def square(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                y = R.multiply(x, x)
                return y

            @R.function
            def main(x: R.Tensor((4,), "float32")):
                y = Before.square(x)
                z = R.exp(y)
                return z

        @I.ir_module
        class After:
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                y = R.multiply(x, x)
                z = R.exp(y)
                return z

    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        graph = call_graph(mod)
        recursive = {
            name
            for group in strongly_connected(graph)
            for name in group
            if len(group) > 1 or name in graph[name]
        }
        inlined: dict[GlobalVar | str, Function] = {
            name: func for name, func in only_called(mod).items() if name not in recursive
        }
        if not inlined:
            return mod
        result = mod.clone()
        for name in inlined:
            del result[name]
        for var, func in mod.items():
            if isinstance(func, Function) and var.name_hint not in inlined:
                result[var.name_hint] = inline_functions(func, inlined)
        result = normalize_module(result)
        simple = CanonicalizeBindings().transform(result, ctx)
        for var, func in result.clone().items():
            if isinstance(func, Function) and func is not mod[var.name_hint]:
                result[var.name_hint] = without_dead_code(cast("Function", simple[var.name_hint]))
        return normalize_module(result)
