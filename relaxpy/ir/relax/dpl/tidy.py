"""What rewriting leaves behind, cleared up: other names of variables, equal values, unused ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from relaxpy.ir.core.traverse import rebuild, rename, walk
from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl.effects import may_fail
from relaxpy.ir.relax.dpl.expand import is_same_program
from relaxpy.ir.relax.dpl.replacing import Replacing
from relaxpy.ir.relax.nodes import (
    Binding,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relaxpy.ir.relax.rewrite.map_bindings import joined
from relaxpy.ir.relax.rewrite.unused import without_unused


def tidied(seq: SeqExpr, to: Replacing) -> SeqExpr:
    """The sequence without what rewriting made superfluous.

    A variable that a rewriter only gave another name is that other one (within SC-7). A call that a
    rewriter made is not made again for the same operands, where no mutation could show it (OPT-11).
    What nothing uses is gone; outside dataflow blocks only if it cannot fail, or was part of a
    match, for which the replacement stands (OPT-3). Sequences inside were tidied by themselves.
    """
    seq = _merged(_without_aliases(seq, to), to)
    superfluous = {
        binding
        for block in seq.blocks
        for binding in block.bindings
        if not isinstance(binding, MatchCast)
        and (isinstance(block, DataflowBlock) or binding.var in to.matched or not may_fail(binding))
    }
    return without_unused(seq, lambda binding: binding not in superfluous)


def _renamed(seq: SeqExpr, table: Mapping[Var, Var], dropped: Collection[Binding]) -> SeqExpr:
    """The sequence with variables for others, less the bindings that this makes superfluous."""
    blocks = [
        replace(block, bindings=tuple(b for b in block.bindings if b not in dropped))
        for block in seq.blocks
    ]
    return rename(rebuild(seq, blocks=tuple(joined(blocks))), table)


class _Names:
    """Which variable stands for which, and the bindings that are superfluous by that."""

    def __init__(self, new: Collection[Var]) -> None:
        self.new = new
        self.table: dict[Var, Var] = {}
        self._meant_by: dict[Var, list[Var]] = {}
        self.dropped: set[Binding] = set()

    def unite(self, first: Var, later: Var, binding: Binding, *, together: bool) -> None:
        """Let `later`, which `binding` binds to what `first` is, be the same variable.

        A Var outlives its block: it takes the place of a DataflowVar that is bound `together` with
        it, in one block. So does a variable of the program of one that a rewriter brought in.
        """
        outlives = not isinstance(later, DataflowVar) and isinstance(first, DataflowVar)
        if together and (outlives or (type(first) is type(later) and first in self.new)):
            old, new = first, later
        elif not outlives:
            old, new = later, first
        else:
            return
        moved = [old, *self._meant_by.pop(old, ())]
        self.table.update(dict.fromkeys(moved, new))
        self._meant_by.setdefault(new, []).extend(moved)
        self.dropped.add(binding)

    def applied(self, seq: SeqExpr) -> SeqExpr:
        """The sequence under these names."""
        return _renamed(seq, self.table, self.dropped) if self.table else seq


def _without_aliases(seq: SeqExpr, to: Replacing) -> SeqExpr:
    names = _Names(to.introduced)
    for block in seq.blocks:
        here = {binding.var for binding in block.bindings}
        for binding in block.bindings:
            var, value = binding.var, binding.value
            if isinstance(binding, VarBinding) and var in to.touched and isinstance(value, Var):
                first = names.table.get(value, value)
                names.unite(first, binding.var, binding, together=value in here)
    return names.applied(seq)


def _merged(seq: SeqExpr, to: Replacing) -> SeqExpr:
    """The sequence with equal calls made once, where a rewriter made one of them."""
    names = _Names(to.introduced)
    uses = _Uses(seq, to)
    for run in uses.runs:
        known: dict[object, list[VarBinding]] = {}
        here = {binding.var for binding in run}
        for binding in run:
            if not isinstance(binding, VarBinding) or not _computes(binding.value):
                continue
            table = {v: names.table[v] for v in _operands(binding.value) if v in names.table}
            value = rename(binding.value, table) if table else binding.value
            alike = known.setdefault(_sketch(value), [])
            for first in alike:
                if (
                    (first.var in to.touched or binding.var in to.touched)
                    and is_same_program(first.value, value)
                    and not (uses.shows(first.var) and uses.shows(binding.var))
                ):
                    names.unite(
                        names.table.get(first.var, first.var),
                        binding.var,
                        binding,
                        together=first.var in here,
                    )
                    break
            else:
                alike.append(replace(binding, value=value))
    return names.applied(seq)


def _computes(value: Expr) -> bool:
    """Whether a value is a field, or what an operator with a kernel of its own computes anew."""
    if isinstance(value, Call) and isinstance(value.op, Op):
        return value.op.record.legalize is not None and value.op.record.pure is True
    return isinstance(value, TupleGetItem)


def _operands(value: Expr) -> Iterator[Var]:
    """The variables in a value, those in infos left out."""
    return (node for node in walk(value) if isinstance(node, Var))


def _sketch(value: Expr) -> object:
    """What equal values share, quick to take."""
    head = value.op if isinstance(value, Call) else value.index  # type: ignore[attr-defined]
    return head, *_operands(value)


class _Uses:
    """The runs of bindings without effects, and where the values in each may be seen otherwise."""

    def __init__(self, seq: SeqExpr, to: Replacing) -> None:
        self.runs: list[list[Binding]] = []
        self.users: dict[Var, list[tuple[int, Binding | None]]] = {}
        self.home: dict[Var, int] = {}
        for block in seq.blocks:
            self.runs.append([])
            for binding in block.bindings:
                if not isinstance(block, DataflowBlock) and to.effects.is_barrier(binding):
                    self._enter(binding, -1)
                    self.runs.append([])
                else:
                    self.runs[-1].append(binding)
                    self._enter(binding, len(self.runs) - 1)
        for var in occurring_vars(seq.body):
            self.users.setdefault(var, []).append((-1, None))

    def _enter(self, binding: Binding, run: int) -> None:
        if binding.var is not None:
            self.home[binding.var] = run
        for var in occurring_vars(binding.value):
            self.users.setdefault(var, []).append((run, binding))

    def shows(self, var: Var) -> bool:
        """Whether a value may be met by what changes it or sees it changed.

        That is all but operators that compute something new of it in the same run.
        """
        run = self.home[var]
        waiting, seen = [var], {var}
        while waiting:
            for place, binding in self.users.get(waiting.pop(), ()):
                if binding is None or place != run:
                    return True
                if isinstance(binding.value, (Var, Tuple, TupleGetItem)):
                    if binding.var is not None and binding.var not in seen:
                        seen.add(binding.var)
                        waiting.append(binding.var)
                elif not _computes(binding.value):
                    return True
        return False
