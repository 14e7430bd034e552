"""Epilogue fusion: contractions with the elementwise steps that follow them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from relaxpy.exec.loops.nest.bounds import unproved
from relaxpy.exec.loops.plan.dependence import aligned_axes
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import For, Run, Tree
from relaxpy.exec.native.trees.product import Product, joins, product_of
from relaxpy.exec.native.trees.program import KernelProgram, whole_runs
from relaxpy.exec.native.trees.repeated import mentions_outside_loads
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.support.dataclass import replace


def with_epilogues(program: KernelProgram) -> KernelProgram:
    """`program` with elementwise runs_ as epilogues of the contractions before them.

    Each of their elements is computed from that of the contraction's result, which has no other use
    and needs no memory.
    """
    joiner = _Joiner(program)
    trees = tuple(joiner.joined(program.trees))
    return replace(program, trees=trees, elided=program.elided | joiner.elided)


class _Joiner:
    def __init__(self, program: KernelProgram) -> None:
        self.program = program
        plan = program.plan
        self.local = {entry.buffer for entry in plan.nest.local}
        self.elided: set[Buffer] = set()

    def joined(self, trees: tuple[Tree, ...]) -> Iterator[Tree]:
        """The trees in order."""
        last: Tree | None = None
        for tree in trees:
            if isinstance(tree, For):
                tree = replace(tree, body=tuple(self.joined(tree.body)))
            both = None if last is None else self._both(last, tree)
            if both is None and last is not None:
                yield last
            last = both or tree
        if last is not None:
            yield last

    def _both(self, first: Tree, second: Tree) -> Run | None:
        """`first` with the epilogue `second`, or None."""
        if not isinstance(first, Run) or first.after or first.tests:
            return None
        found = list(whole_runs(second))
        if len(found) != 1 or product_of(first) is None:
            return None
        [maps], [member] = found, first.assignments
        if maps.over or maps.tests or maps.is_serial:
            return None
        if member.initial is None:
            return None
        renamed = _renamed(first, member, maps)
        if renamed is None:
            return None
        after = tuple(m.substituted(renamed) for m in maps.assignments)
        both = replace(first, after=after)
        joined = product_of(both) if self._is_elementwise(both) else None
        if joined is None or not joins(joined) or self._overwrites(joined):
            return None
        self.elided |= {m.target for m in (member, *after[:-1])}
        return both

    def _overwrites(self, product: Product) -> bool:
        """True if the last store is to memory that the product or its epilogue reads."""
        root = self.program.plan.root
        target, *others = (root(operand.buffer) for operand in product.operands)
        return target in others

    def _is_elementwise(self, run: Run) -> bool:
        """True if an iteration of the epilogue only needs the sum of its element."""
        [member], after = run.assignments, run.after
        axes = {a.var for a in run.axes}
        sources = [member, *after]
        for writer in sources[:-1]:
            users = sum(
                writer.target is m.target or any(b is writer.target for b, _ in m.read_elements())
                for m in sources
            )
            if writer.target not in self.local or users != self.program.plan.uses[writer.target]:
                return False
        known: dict[Buffer, tuple[PrimExpr, ...]] = {member.target: member.indices}
        for m in after:
            if m.guards or m.combine is not None or m.target in known:
                return False
            if not all(self._inside(run, *a) for a in ((m.target, m.indices), *m.read_elements())):
                return False
            # Values in registers are looked up by their indices.
            if any(
                indices != known[buffer] for buffer, indices in m.read_elements() if buffer in known
            ):
                return False
            # The indices of the loads are known, but no other value of an axis.
            if mentions_outside_loads(m.value, axes):
                return False
            known[m.target] = m.indices
        return True

    def _inside(self, run: Run, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> bool:
        """True if all accesses of the iterations are in bounds."""
        return not unproved(buffer, indices, run.axes, self.program.plan.shape_vars)


def _renamed(first: Run, member: Assignment, maps: Run) -> Mapping[Var, PrimExpr] | None:
    """The variables of `maps` as those of `first`, so that both mean the same element."""
    load = next(
        (i for m in maps.assignments for b, i in m.read_elements() if b is member.target), None
    )
    if load is None or any(a.dtype != b.dtype for a, b in zip(load, member.indices, strict=True)):
        return None  # the indices of the epilogue would be casts of those of the sum
    return aligned_axes(load, maps.axes, member.indices, first.axes)
