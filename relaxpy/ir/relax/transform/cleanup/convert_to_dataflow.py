"""ConvertToDataflow: pure bindings that follow each other form a dataflow block."""

from __future__ import annotations

from collections.abc import Container, Iterable
from functools import partial
from itertools import groupby

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import rebuild, strongly_connected
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Effects, may_fail, mutates
from relaxpy.ir.relax.analysis.purity import calls_made
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.call_graph import call_graph
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined
from relaxpy.ir.relax.rewrite.unused import needed_bindings
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import canonical_module
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class ConvertToDataflow(Pass):
    """Puts at least `min_size` neighbouring bindings without effects into a dataflow block.

    A dataflow block next to them takes them in, however few they are. Calls with effects, recursive
    calls and conditionals stay outside, and so do unused bindings that may fail, which a dataflow
    block would lose (OPT-8). The result is canonical, as after CanonicalizeBindings, but a cast
    that certainly fails stays, and fails where it is evaluated.

    Errors:
        MisuseError: `min_size` is not a positive integer.
    """

    min_size: int = 2

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_size < 1:
            raise MisuseError(
                f"min_size is a positive integer, found {self.min_size}", about=self.min_size
            )

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        graph = call_graph(mod)
        cycles = {name: group for group in strongly_connected(graph) for name in group}
        result = mod
        for var, func in mod.items():
            if isinstance(func, rx.Function):
                effects = Effects(Context(), mod.functions_by_name, func)
                recursive = cycles[var.name_hint]
                needed = needed_bindings(func, has_effect=partial(_has_effect, effects))
                converter = _Converter(effects, needed, recursive, self.min_size)
                after = converter.expr(func)
                if after is not func:
                    result = mod.clone() if result is mod else result
                    result[var] = after
        return canonical_module(result, refuse_contradictions=False)


def _has_effect(effects: Effects, value: rx.Expr) -> bool:
    return any(not effects.is_pure(call) for call in calls_made(value))


class _Converter(BindingRewriter):
    """Regroups bindings; results and effects depend on those that are `needed`.

    `recursive` are the functions that call the one being converted, `inside` the local functions
    that are being converted.
    """

    def __init__(
        self,
        effects: Effects,
        needed: Container[rx.Var | rx.Binding],
        recursive: Container[str],
        min_size: int,
    ) -> None:
        super().__init__()
        self.effects, self.needed, self.recursive = effects, needed, recursive
        self.min_size = min_size
        self.inside: list[rx.Var] = []

    @override
    def function(self, func: rx.Function) -> rx.Function:
        with self.effects.inside(func):
            return super().function(func)

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        if not isinstance(binding.value, rx.Function) or binding.var is None:
            return super().binding(binding, block)
        self.inside.append(binding.var)
        after = super().binding(binding, block)
        self.inside.pop()
        return after

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        seq = super().sequence(seq)
        pairs = ((block, binding) for block in seq.blocks for binding in block.bindings)
        blocks: list[rx.BindingBlock] = []
        for fits, run in groupby(pairs, lambda pair: self._fits(*pair)):
            members = list(run)
            home = next((b for b, _ in members if isinstance(b, rx.DataflowBlock)), None)
            if home is None and fits and len(members) >= self.min_size:
                home = rx.DataflowBlock((), span=members[0][0].span)
            bindings = tuple(binding for _, binding in members)
            blocks.append(replace(home or members[0][0], bindings=bindings))
        blocks = joined(blocks)
        if [(type(b), b.bindings) for b in blocks] == [(type(b), b.bindings) for b in seq.blocks]:
            return seq
        return rebuild(seq, blocks=tuple(blocks))

    def _fits(self, block: rx.BindingBlock, binding: rx.Binding) -> bool:
        """Return whether a binding may be in a dataflow block, and would not be lost there."""
        if isinstance(block, rx.DataflowBlock):
            return True
        callee = binding.value.op if isinstance(binding.value, rx.Call) else None
        if callee in self.inside:
            return False  # WF-7a
        if isinstance(callee, rx.GlobalVar) and callee.name_hint in self.recursive:
            return False  # WF-7b
        is_check = binding.var is None or binding.var not in self.needed
        is_pure = mutates(binding) or not self.effects.is_barrier(binding)
        return is_pure and not (is_check and may_fail(binding))
