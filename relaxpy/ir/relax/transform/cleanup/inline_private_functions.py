"""InlinePrivateFunctions: calls of private functions become their bodies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, cast

from typing_extensions import override

from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph, reachable, recursive_groups
from relaxpy.ir.relax.nodes import Function, GlobalVar
from relaxpy.ir.relax.rewrite.inline import inline_functions
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings
from relaxpy.ir.relax.transform.cleanup.dead_code_elimination import without_dead_code
from relaxpy.ir.relax.transform.cleanup.private_functions import only_called
from relaxpy.support.dataclass import dataclass

_LEVELS: Final = 32
"""The number of call levels that are inlined by recursion."""


@dataclass(frozen=True)
class InlinePrivateFunctions(Pass):
    """Replaces calls of private functions by their bodies, and removes these functions.

    Recursive ones stay, and so do those that are used as values. The functions that called them are
    simplified as by CanonicalizeBindings, and lose unused bindings, as by DeadCodeElimination.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)
        order = [name for group in strongly_connected(call_graph(mod)) for name in group]
        recursive = {name for group in recursive_groups(mod) for name in group}
        inlined = {n: func for n, func in only_called(mod).items() if n not in recursive}
        if not inlined:
            return mod
        result = mod.clone()
        for name in inlined:
            del result[name]
        for name, expanded in _expanded(mod, order, inlined):
            result[name] = expanded
        result = normalize_module(result)
        simple = CanonicalizeBindings().transform(result, ctx)
        for var, func in result.clone().items():
            if isinstance(func, Function) and func is not mod[var.name_hint]:
                result[var.name_hint] = without_dead_code(cast("Function", simple[var.name_hint]))
        return normalize_module(result)


def _expanded(
    mod: IRModule, order: Sequence[str], inlined: Mapping[str, Function]
) -> Iterator[tuple[str, Function]]:
    """The functions that stay, with the bodies of `inlined` instead of calls of these.

    Functions are visited in `order`, each after those that it calls. Of `inlined`, those of every
    `_LEVELS`th level of calls are expanded beforehand, as inlining recurses at each level.
    """
    graph = call_graph(mod)
    called = {name: [n for n in names if n in inlined] for name, names in graph.items()}
    needed = reachable(called, [name for name in order if name not in inlined])
    bodies = dict(inlined)
    inner = {**called}
    level: dict[str, int] = {}
    for name in order:
        level[name] = 1 + max((level[n] for n in called[name]), default=0)
        if name not in needed or not called[name]:
            continue
        if name not in inlined or level[name] % _LEVELS == 0:
            func = mod.functions_by_name[name]
            assert isinstance(func, Function)
            table: dict[GlobalVar | str, Function] = {
                n: bodies[n] for n in reachable(inner, called[name])
            }
            after = inline_functions(func, table)
            if name in inlined:
                bodies[name], inner[name] = after, []
            else:
                yield name, after
