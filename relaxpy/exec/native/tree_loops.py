"""Emits loop trees: groups, statements in order, loops, and blocks of rows."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.exec.kernel.nest.nodes import Store
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.native.group_loops import GroupLoops
from relaxpy.exec.native.groups import Group
from relaxpy.exec.native.items import Items
from relaxpy.exec.native.llvm import Value
from relaxpy.exec.native.tree import For, Ordered, Rows, Tree
from relaxpy.ir.arith.algebra.affine import IndexPoly, as_poly


class TreeLoops(GroupLoops):
    """Emits the loop trees of a kernel."""

    def tree(self, tree: Tree) -> None:
        """Emit one tree."""
        match tree:
            case Group():
                self.where(tree.tests, lambda: self.group(tree))
            case Ordered():
                self.where(tree.tests, lambda: self._ordered(tree))
            case For(axis=axis, body=body):
                self.loop(axis, lambda: self._sequence(body))
            case Rows():
                self._rows(tree)

    def _sequence(self, trees: Sequence[Tree]) -> None:
        for tree in trees:
            self.tree(tree)

    def _ordered(self, tree: Ordered) -> None:
        """A statement in each iteration, one after the other."""
        statement = tree.statement
        written = {w.buffer for w in statement.writes}
        with self.frame.writing(self.aliases(written)):
            self.iterations(tree.axes, lambda: self._statement(tree))

    def _statement(self, tree: Ordered) -> None:
        statement = tree.statement
        items = Items(self)
        if isinstance(statement, Assignment):
            store = Store(statement.target, statement.indices, statement.value)
            self.where(statement.guards, lambda: items.store(store))
        else:
            items.items(statement.items)

    def _rows(self, tree: Rows) -> None:
        """The blocks of rows, one after the other."""
        step, frame, f = tree.step, self.frame, self.function
        start, stop = self.bounds(step.axis)
        for buffer in step.local:
            row = step.rows[buffer]
            strides: list[IndexPoly] = []
            stride = as_poly(1)
            for axis, size in reversed(list(enumerate(buffer.shape))):
                strides.insert(0, stride)
                stride = stride * (as_poly(tree.size) if axis == row.axis else as_poly(size))
            first = (as_poly(step.low) + row.offset) * strides[row.axis] * -1
            frame.blocks[buffer] = strides, first
        self.share()
        self.proofs[step.low] = step.axis

        def block(index: Value) -> None:
            end = index + tree.size
            if tree.size > 1:
                last = f.index(stop)
                end = f.select(f.compare("slt", end, last), end, last)
            known = {step.low: index, tree.row: index, step.high: end}
            with frame.level(known), frame.within(step.axis):
                for inner in tree.body:
                    self.tree(inner)

        f.loop(start, stop, tree.size, (), lambda index: block(index))
        frame.forget()
        del self.proofs[step.low]

    def share(self) -> None:
        """Let buffers use the memory of others, as the plan says."""
        frame = self.frame
        for buffer, owner in self.plan.shared.items():
            if owner in frame.pointers:
                frame.pointers[buffer] = frame.pointers[owner]
                if owner in frame.blocks:
                    frame.blocks[buffer] = frame.blocks[owner]
