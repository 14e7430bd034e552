"""The application of rules to a function, sequence by sequence, until no rule applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from operator import is_
from typing import TypeVar

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import mutates
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.dpl.cleanup import cleaned
from relaxpy.ir.relax.dpl.replacing import Replacer
from relaxpy.ir.relax.dpl.rules import Rule
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined, with_bindings
from relaxpy.ir.relax.rewrite.refined import Refined
from relaxpy.ir.tir import expr as tir

E = TypeVar("E", bound=rx.Expr)


def rewritten(
    expr: E, rules: Sequence[Rule], mod: IRModule | None, extra: Mapping[str, rx.BaseFunc]
) -> E:
    """`expr`, which is in normal form and derived, after rewriting; itself if no rule applies.

    Replacements may call the functions of `mod`, and those that are in `extra` when they do.
    """
    run = _Rewriting(rules, Replacer(mod, extra, expr))
    if not isinstance(expr, rx.Function):
        run.replacer.visible.update(n for n in walk(expr) if isinstance(n, tir.Var))
        run.replacer.visible.update(free_vars(expr))
    after = run.expr(expr)
    if after is expr:
        return expr
    return Refined(mod, run.replacer.refined).visit_expr(after)  # type: ignore[no-any-return]


class _Rewriting(BindingRewriter):
    def __init__(self, rules: Sequence[Rule], replacer: Replacer) -> None:
        super().__init__()
        self.rules = rules
        self.replacer = replacer

    @override
    def function(self, func: rx.Function) -> rx.Function:
        visible = self.replacer.visible
        sinfos = [p.struct_info for p in func.params if p.struct_info is not None]
        self.replacer.visible = visible | {*func.params, *definable_shape_vars(*sinfos)}
        with self.replacer.effects.inside(func):
            after = super().function(func)
        self.replacer.visible = visible
        return after

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        blocks = super().block(block)
        self.replacer.leave(block.bindings)
        return blocks

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        if isinstance(binding.value, rx.Function):
            self.replacer.enter(binding)  # it may call itself
        new = super().binding(binding, block)
        self.replacer.enter(binding)
        return new

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        """The sequence after sweeps of all rules, repeated until no rule applies."""
        outer = self.replacer.visible
        self.replacer.visible = set(outer)
        seq = super().sequence(seq)
        self.replacer.set_limits(sum(len(block.bindings) for block in seq.blocks))
        before = None
        while before is not seq:
            before = seq
            self.replacer.iterations += 1
            for rule in self.rules:
                self.replacer.visible = set(outer)
                after = self._swept(seq, rule)
                if after is not seq:
                    seq = cleaned(after, self.replacer)
        self.replacer.visible = outer
        return seq

    def _swept(self, seq: rx.SeqExpr, rule: Rule) -> rx.SeqExpr:
        """The sequence after one sweep of a rule, in which the result counts as a last binding."""
        blocks = list(seq.blocks)
        result: rx.Var | None = None
        if not isinstance(seq.body, rx.Var) and seq.body.struct_info is not None:
            result = rx.Var("result", seq.body.struct_info)
            last = blocks.pop() if blocks else rx.BindingBlock(())
            blocks.append(with_bindings(last, [*last.bindings, rx.VarBinding(result, seq.body)]))
        new = [with_bindings(block, self._block(block, rule)) for block in blocks]
        if all(map(is_, new, blocks)):
            return seq
        body = seq.body if result is None else result
        if result is not None:
            *before, final = new[-1].bindings
            assert final.var is result
            if isinstance(final, rx.VarBinding) and is_leaf(final.value):
                new[-1] = with_bindings(new[-1], before)
                body = final.value
        return rebuild(seq, blocks=tuple(joined(new)), body=body)

    def _block(self, block: rx.BindingBlock, rule: Rule) -> Sequence[rx.Binding]:
        in_dataflow = isinstance(block, rx.DataflowBlock)
        kind = rx.DataflowBlock if in_dataflow else rx.BindingBlock
        is_barrier = mutates if in_dataflow else self.replacer.effects.is_barrier
        result: list[rx.Binding] = []
        for separates, group in groupby(block.bindings, is_barrier):
            run: Sequence[rx.Binding] = list(group)
            if not separates:
                run = rule.sweep(run, self.replacer, kind, ordered=not in_dataflow)
            self._enter_all(run)
            result += run
        if in_dataflow:
            self.replacer.leave(result)
        return result

    def _enter_all(self, bindings: Iterable[rx.Binding]) -> None:
        for binding in bindings:
            self.replacer.enter(binding)
