"""ConvertToDataflow: pure bindings that follow each other form a dataflow block."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, replace
from itertools import groupby

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.effects import Effects, may_fail
from relaxpy.ir.relax.block_builder.derive import normalize_module
from relaxpy.ir.relax.nodes import Binding, BindingBlock, DataflowBlock, Function, SeqExpr, Var
from relaxpy.ir.relax.relations.context import Context
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined
from relaxpy.ir.relax.rewrite.unused import needed_bindings
from relaxpy.ir.relax.transform.cleanup.canonicalize_bindings import CanonicalizeBindings


@dataclass(frozen=True)
class ConvertToDataflow(Pass):
    """Puts at least `min_size` neighbouring bindings without effects into a dataflow block.

    A dataflow block next to them takes them in, however few they are. Calls with effects and
    conditionals stay outside, and so does what is only there because it may fail, since a dataflow
    block would lose it (OPT-8). The result is canonical, as after CanonicalizeBindings.

    Example:
        @I.ir_module
        class Before:
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                y = R.exp(x)
                z = R.add(y, y)
                return z

        @I.ir_module
        class After:
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                with R.dataflow():
                    y = R.exp(x)
                    z = R.add(y, y)
                    R.output(z)
                return z

    Errors:
        MisuseError: `min_size` is not a positive integer.

    """

    min_size: int = 2

    def __post_init__(self) -> None:
        size = self.min_size
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise MisuseError(f"min_size is a positive integer, found {size!r:.60}", about=size)

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        mod = normalize_module(mod)

        def converted(func: Function) -> Function:
            effects = Effects(Context(), mod.functions_by_name, func)
            return _Converter(effects, needed_bindings(func), self.min_size).expr(func)

        return CanonicalizeBindings().transform(map_functions(mod, Function, converted), ctx)


class _Converter(BindingRewriter):
    """Regroups bindings; results and effects depend on those of the variables that are `needed`."""

    def __init__(self, effects: Effects, needed: Container[Var | Binding], min_size: int) -> None:
        super().__init__()
        self.effects, self.needed, self.min_size = effects, needed, min_size

    @override
    def function(self, func: Function) -> Function:
        outer = self.effects.in_pure_function
        self.effects.enter_function(func)
        after = super().function(func)
        self.effects.in_pure_function = outer
        return after

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        seq = super().sequence(seq)
        pairs = ((block, binding) for block in seq.blocks for binding in block.bindings)
        blocks: list[BindingBlock] = []
        for fits, run in groupby(pairs, lambda pair: self._fits(*pair)):
            members = list(run)
            home = next((b for b, _ in members if isinstance(b, DataflowBlock)), None)
            if home is None and fits and len(members) >= self.min_size:
                home = DataflowBlock((), span=members[0][0].span)
            bindings = tuple(binding for _, binding in members)
            blocks.append(replace(home or members[0][0], bindings=bindings))
        blocks = joined(blocks)
        if [(type(b), b.bindings) for b in blocks] == [(type(b), b.bindings) for b in seq.blocks]:
            return seq
        return rebuild(seq, blocks=tuple(blocks))

    def _fits(self, block: BindingBlock, binding: Binding) -> bool:
        """Whether a binding may be in a dataflow block, and loses nothing there."""
        if isinstance(block, DataflowBlock):
            return True
        is_check = binding.var is None or binding.var not in self.needed
        return not self.effects.is_barrier(binding) and not (is_check and may_fail(binding))
