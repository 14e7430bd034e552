"""Values that replace parameters, read just before they are used."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TypeVar

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.symbolic import used_shape_vars
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter, joined
from relaxpy.ir.relax.rewrite.replace import replace_variables
from relaxpy.ir.tir import expr as tir
from relaxpy.support.dataclass import replace

N = TypeVar("N", bound=Node)


class ReadBeforeUse(BindingRewriter):
    """Binds variables just before they are used, in each scope where they are not bound yet.

    Those that define the shape variables of `sizes` are bound in the outermost scope, before
    anything that mentions one of these.
    """

    def __init__(self, variables: Sequence[rx.Var], sizes: Iterable[tir.Var] = ()) -> None:
        super().__init__()
        self.index_of = {var: index for index, var in enumerate(variables)}
        self._bound: dict[rx.Var, rx.Var] = {}
        self._depth = 0
        open_sizes = set(sizes)
        self._definers: dict[tir.Var, rx.Var] = {}
        for var in variables:
            for size in definable_shape_vars(var.struct_info or rx.ObjectStructInfo()):
                if size in open_sizes:
                    self._definers.setdefault(size, var)

    @abstractmethod
    def read(self, index: int, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        """The bindings that give `var` the value of a parameter."""

    @override
    def sequence(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        outer = dict(self._bound)
        self._depth += 1
        after = super().sequence(seq)
        before = self._early(after.body)
        reads, body = self._with_reads(after.body, rx.Var)
        before += reads
        self._depth -= 1
        self._bound = outer
        if before:
            blocks = joined((*after.blocks, rx.BindingBlock(tuple(before))))
            return rebuild(after, blocks=tuple(blocks), body=body)
        return after if body is after.body else rebuild(after, body=body)

    @override
    def block(self, block: rx.BindingBlock) -> Sequence[rx.BindingBlock]:
        if not isinstance(block, rx.DataflowBlock):
            return super().block(block)
        before = self._early(block)
        outer = dict(self._bound)
        after = super().block(block)
        self._bound = outer
        return [rx.BindingBlock(tuple(before)), *after] if before else after

    @override
    def binding(
        self, binding: rx.Binding, block: rx.BindingBlock
    ) -> Iterable[rx.Binding | rx.BindingBlock]:
        kind = rx.DataflowVar if isinstance(block, rx.DataflowBlock) else rx.Var
        before = [] if isinstance(block, rx.DataflowBlock) else self._early(binding)
        if isinstance(binding.value, rx.If):
            reads, cond = self._with_reads(binding.value.cond, kind)
            if cond is not binding.value.cond:
                binding = replace(binding, value=rebuild(binding.value, cond=cond))
        elif isinstance(binding.value, rx.Function):
            reads = []
        else:
            reads, binding = self._with_reads(binding, kind)
        return [*before, *reads, *super().binding(binding, block)]

    def _early(self, node: Node) -> list[rx.Binding]:
        """The reads of parameters that define the shape variables that a node needs."""
        if self._depth != 1 or not self._definers:
            return []
        waiting: list[Node] = [node, *(v for v in occurring_vars(node) if v in self.index_of)]
        needed: dict[rx.Var, set[rx.Var]] = {}
        while waiting:
            var = waiting.pop()
            info = var.struct_info if isinstance(var, rx.Var) else var
            sizes = () if info is None else used_shape_vars(info)
            definers = {self._definers[size] for size in sizes if size in self._definers}
            definers -= self._bound.keys()
            if isinstance(var, rx.Var) and var in definers:
                needed[var] = definers - {var}
                definers -= needed.keys()
            waiting += definers
        reads: list[rx.Binding] = []
        while needed:
            ready = [var for var in needed if needed[var].isdisjoint(needed)]
            if not ready:
                var = next(iter(needed))
                raise TransformError(
                    f"the shapes of parameters mention sizes that are read later: {var.name_hint}",
                    span=var.span,
                )
            for var in sorted(ready, key=self.index_of.__getitem__):
                reads += self._read(var, rx.Var)
                del needed[var]
        return reads

    def _read(self, var: rx.Var, kind: type[rx.Var]) -> list[rx.Binding]:
        new = self._bound[var] = kind(var.name_hint, None, var.span)
        return self.read(self.index_of[var], new, kind)

    def _with_reads(self, node: N, kind: type[rx.Var]) -> tuple[list[rx.Binding], N]:
        """The bindings needed before a node is evaluated, and the node with the new variables."""
        used = [var for var in occurring_vars(node) if var in self.index_of]
        reads = [b for var in used if var not in self._bound for b in self._read(var, kind)]
        if used:
            node = replace_variables(node, {var: self._bound[var] for var in used})
        return reads, node
