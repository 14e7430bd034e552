"""Rules applied to a function: sequence by sequence, until none applies any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import is_
from typing import Any, TypeVar

from typing_extensions import override

from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.module import IRModule
from relaxpy.ir.relax.analysis.variables import free_vars
from relaxpy.ir.relax.block_builder.normalize import is_leaf
from relaxpy.ir.relax.dpl.replacing import Replacing
from relaxpy.ir.relax.dpl.rules import Rule
from relaxpy.ir.relax.dpl.tidy import tidied
from relaxpy.ir.relax.nodes import (
    BaseFunc,
    Binding,
    BindingBlock,
    DataflowBlock,
    Expr,
    Function,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.expr_mutator import PyExprMutator
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined, with_bindings
from relaxpy.ir.tir import expr as tir

E = TypeVar("E", bound=Expr)


def rewritten(
    expr: E, rules: Sequence[Rule], mod: IRModule | None, extra: Mapping[str, BaseFunc]
) -> E:
    """`expr`, in normal form and derived, after rewriting; itself if no rule applies.

    The functions of `mod` can be called, and those that are in `extra` by then.
    """
    run = _Rewriting(rules, Replacing(mod, extra, expr))
    if not isinstance(expr, Function):
        run.to.visible.update(n for n in walk(expr) if isinstance(n, tir.Var))
        run.to.visible.update(free_vars(expr))
    after = run.expr(expr)
    if after is expr:
        return expr
    return _Sharpened(mod, run.to.sharper).visit_expr(after)  # type: ignore[no-any-return]


class _Sharpened(PyExprMutator):
    """Derives anew what follows from variables of which more is known (OPT-14)."""

    def __init__(self, mod: IRModule | None, infos: Mapping[Var, StructInfo]) -> None:
        super().__init__(mod)
        self.infos = infos

    @override
    def visit_var_def_(self, var: Var) -> Any:
        info = self.infos.get(var)
        return super().visit_var_def_(var if info is None else replace(var, struct_info=info))


class _Rewriting(BindingRewriter):
    def __init__(self, rules: Sequence[Rule], to: Replacing) -> None:
        super().__init__()
        self.rules = rules
        self.to = to

    @override
    def function(self, func: Function) -> Function:
        effects = self.to.effects
        before = effects.pure
        effects.pure = func.is_pure and not func.attrs.get("relax.force_pure", False)
        known = self.to.visible
        infos = [p.struct_info for p in func.params if p.struct_info is not None]
        self.to.visible = known | {*func.params, *definable_shape_vars(*infos)}
        after = super().function(func)
        self.to.visible = known
        effects.pure = before
        return after

    @override
    def block(self, block: BindingBlock) -> Sequence[BindingBlock]:
        blocks = super().block(block)
        self.to.leave(block.bindings)
        return blocks

    @override
    def binding(self, binding: Binding, block: BindingBlock) -> Iterable[Binding | BindingBlock]:
        if isinstance(binding.value, Function):
            self.to.see(binding)  # it may call itself
        new = super().binding(binding, block)
        self.to.see(binding)
        return new

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        """The sequence after the first rule went as far as it does, then the others, until none."""
        outer = self.to.visible
        self.to.visible = set(outer)
        seq = super().sequence(seq)
        self.to.expect(sum(len(block.bindings) for block in seq.blocks))
        before = None
        while before is not seq:
            before = seq
            self.to.rounds += 1
            for rule in self.rules:
                self.to.visible = set(outer)
                after = self._swept(seq, rule)
                if after is not seq:
                    seq = tidied(after, self.to)
        self.to.visible = outer
        return seq

    def _swept(self, seq: SeqExpr, rule: Rule) -> SeqExpr:
        """The sequence after one sweep of a rule; its result counts as bound at the end."""
        blocks = list(seq.blocks)
        result: Var | None = None
        if not isinstance(seq.body, Var) and seq.body.struct_info is not None:
            result = Var("result", seq.body.struct_info)
            last = blocks.pop() if blocks else BindingBlock(())
            blocks.append(with_bindings(last, [*last.bindings, VarBinding(result, seq.body)]))
        new = [with_bindings(block, self._block(block, rule)) for block in blocks]
        if all(map(is_, new, blocks)):
            return seq
        body = seq.body if result is None else result
        if result is not None:
            *before, final = new[-1].bindings
            assert final.var is result
            if isinstance(final, VarBinding) and is_leaf(final.value):
                new[-1] = with_bindings(new[-1], before)
                body = final.value
        return rebuild(seq, blocks=tuple(joined(new)), body=body)

    def _block(self, block: BindingBlock, rule: Rule) -> Sequence[Binding]:
        bindings = block.bindings
        if isinstance(block, DataflowBlock):
            found = rule.sweep(bindings, self.to, DataflowBlock, ordered=False)
            self._see(found)
            self.to.leave(found)
            return found
        result: list[Binding] = []
        run: list[Binding] = []
        for binding in bindings:
            if self.to.effects.is_barrier(binding):
                result += self._run(run, rule)
                run = []
                result.append(binding)
                self.to.see(binding)
            else:
                run.append(binding)
        result += self._run(run, rule)
        return result

    def _run(self, run: Sequence[Binding], rule: Rule) -> Sequence[Binding]:
        found = rule.sweep(run, self.to, BindingBlock, ordered=True) if run else run
        self._see(found)
        return found

    def _see(self, bindings: Iterable[Binding]) -> None:
        for binding in bindings:
            self.to.see(binding)
