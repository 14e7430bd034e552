"""The cleanup after rewriting: removal of aliases, equal calls (CSE), and unused bindings."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import may_fail
from relaxpy.ir.relax.analysis.escapes import Escapes
from relaxpy.ir.relax.dpl.alternatives import is_same_program
from relaxpy.ir.relax.dpl.replacing import Replacer
from relaxpy.ir.relax.rewrite.map_bindings import joined
from relaxpy.ir.relax.rewrite.unused import without_unused
from relaxpy.support.dataclass import replace


def cleaned(seq: rx.SeqExpr, replacer: Replacer) -> rx.SeqExpr:
    """The sequence without the bindings that rewriting left redundant.

    A variable that a rewriter bound to another one is replaced by it (within SC-7). Equal calls are
    merged if a rewriter created one of them and no mutation can show the difference (OPT-11).
    Unused bindings are removed, outside dataflow blocks only if they cannot fail or belonged to a
    match (OPT-3). Nested sequences have been cleaned before.
    """
    seq = _merged(_without_aliases(seq, replacer), replacer)
    superfluous = set()
    for block in seq.blocks:
        for b in block.bindings:
            in_order = not isinstance(block, rx.DataflowBlock) and may_fail(b)
            if not isinstance(b, rx.MatchCast) and (b.var in replacer.matched or not in_order):
                superfluous.add(b)
    return without_unused(seq, lambda binding: binding not in superfluous)


def _renamed(
    seq: rx.SeqExpr, table: Mapping[rx.Var, rx.Var], dropped: Collection[rx.Binding]
) -> rx.SeqExpr:
    """The sequence with variables renamed, and without the dropped bindings."""
    blocks = [
        replace(block, bindings=tuple(b for b in block.bindings if b not in dropped))
        for block in seq.blocks
    ]
    return rename(rebuild(seq, blocks=tuple(joined(blocks))), table)


class _Renaming:
    """The variables that replace others, and the bindings that are superfluous then.

    `introduced` are variables that rewriters introduced.
    """

    def __init__(self, introduced: Collection[rx.Var]) -> None:
        self.introduced = introduced
        self.table: dict[rx.Var, rx.Var] = {}
        self._replaced_by: dict[rx.Var, list[rx.Var]] = {}
        self.dropped: set[rx.Binding] = set()

    def unite(self, first: rx.Var, later: rx.Var, binding: rx.Binding, *, together: bool) -> None:
        """Make `first` and `later`, to which `binding` binds the same value, one variable.

        If they are bound `together`, in one block, a Var replaces a DataflowVar, since it outlives
        the block, and a variable of the program replaces one that a rewriter introduced.
        """
        outlives = not isinstance(later, rx.DataflowVar) and isinstance(first, rx.DataflowVar)
        if together and (outlives or (type(first) is type(later) and first in self.introduced)):
            old, new = first, later
        elif not outlives:
            old, new = later, first
        else:
            return
        moved = [old, *self._replaced_by.pop(old, ())]
        self.table.update(dict.fromkeys(moved, new))
        self._replaced_by.setdefault(new, []).extend(moved)
        self.dropped.add(binding)

    def applied(self, seq: rx.SeqExpr) -> rx.SeqExpr:
        """The sequence after the renaming."""
        return _renamed(seq, self.table, self.dropped) if self.table else seq


def _without_aliases(seq: rx.SeqExpr, replacer: Replacer) -> rx.SeqExpr:
    """The sequence without variables that a rewriter bound to other variables."""
    renaming = _Renaming(replacer.introduced)
    for block in seq.blocks:
        here = {binding.var for binding in block.bindings}
        for binding in block.bindings:
            var, value = binding.var, binding.value
            if not isinstance(binding, rx.VarBinding) or not isinstance(value, rx.Var):
                continue
            if var in replacer.touched:
                first = renaming.table.get(value, value)
                renaming.unite(first, binding.var, binding, together=value in here)
    return renaming.applied(seq)


def _merged(seq: rx.SeqExpr, replacer: Replacer) -> rx.SeqExpr:
    """The sequence with equal calls merged if a rewriter created one of them."""
    renaming = _Renaming(replacer.introduced)
    uses = Escapes(seq, replacer.effects)
    for run in uses.runs:
        known: dict[object, list[rx.VarBinding]] = {}
        here = {binding.var for binding in run}
        for binding in run:
            if not isinstance(binding, rx.VarBinding) or not _computes(binding.value):
                continue
            table = {v: renaming.table[v] for v in _operands(binding.value) if v in renaming.table}
            value = rename(binding.value, table) if table else binding.value
            candidates = known.setdefault(_key(value), [])
            for first in candidates:
                if (
                    (first.var in replacer.touched or binding.var in replacer.touched)
                    and is_same_program(first.value, value)
                    and not (uses.escapes(first.var) and uses.escapes(binding.var))
                ):
                    renaming.unite(
                        renaming.table.get(first.var, first.var),
                        binding.var,
                        binding,
                        together=first.var in here,
                    )
                    break
            else:
                candidates.append(replace(binding, value=value))
    return renaming.applied(seq)


def _computes(value: rx.Expr) -> bool:
    """True if a value is a projection, or newly computed by a pure operator with a legalisation."""
    if isinstance(value, rx.Call) and isinstance(value.op, Op):
        return value.op.record.legalize is not None and value.op.record.pure is True
    return isinstance(value, rx.TupleGetItem)


def _operands(value: rx.Expr) -> Iterator[rx.Var]:
    """The variables in a value, except for those in struct info."""
    return (node for node in walk(value) if isinstance(node, rx.Var))


def _key(value: rx.Expr) -> object:
    """A key that is the same for equal values."""
    head = value.op if isinstance(value, rx.Call) else value.index  # type: ignore[attr-defined]
    return head, *_operands(value)
