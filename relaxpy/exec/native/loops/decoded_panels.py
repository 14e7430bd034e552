"""Emits products of many rows with packed elements, which are decoded into panels for tiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Final, TypeAlias

from relaxpy.dataclass import replace
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.statements import Assignment
from relaxpy.exec.kernel.plan.tree import Run
from relaxpy.exec.native.contraction.contract import emit_tiles
from relaxpy.exec.native.llvm.function import Type, Value
from relaxpy.exec.native.llvm.interleave import transposed
from relaxpy.exec.native.loops.axes import Loops
from relaxpy.exec.native.trees.product import is_factor, product_of
from relaxpy.exec.native.trees.repeated import PANEL, RepeatedLoads
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import Mul, Var

_DEPTH: Final = 1024
"""The most rows of a panel: a cache has it, while all rows of the other factor pass."""


MANY_ROWS: Final = 10
"""The rows from which to decode columns for tiles takes less time than in registers."""
Read: TypeAlias = Callable[[Value, int], Value]
"""The value of what rows share, for a column and the lanes from a first one on."""


class DecodedPanels:
    """The sums of a run for many rows: columns are decoded once, and multiplied in tiles."""

    def __init__(self, loops: Loops, run: Run, repeated: RepeatedLoads, read: Read) -> None:
        self._loops, self._run, self._repeated, self._read = loops, run, repeated, read
        self._frame, self._function = loops.frame, loops.function
        self._axis, *self._outer = repeated.outer
        self._blocks = prod(axis.extent.constant or 0 for axis in self._outer)
        count = self._axis.extent.constant or 0
        parts = -(-count * self._blocks * repeated.count // _DEPTH)
        self._size = -(-count // parts)
        self._memory = self._function.alloca(
            Type("float"), self._size * self._blocks * repeated.count * PANEL
        )

    def emit(self, columns: Axis) -> None:
        """Emit the products with `columns`, of which there are `PANEL` or more.

        Those of the last panel overlap others if they have to.
        """
        frame, loops, f = self._frame, self._loops, self._function
        start, stop = loops.bounds(columns)
        last = f.index(stop) - PANEL

        def panel(index: Value) -> None:
            low = Var("low", INT64)
            with frame.level({low: f.intrinsic("smin", index, last)}):
                self._panel(Axis(columns.var, low, low + PANEL))

        loops.stretches(start, stop, PANEL, (), panel)
        frame.forget()

    def _panel(self, columns: Axis) -> None:
        """The products of all rows with a panel of columns, in parts that add to the target."""
        f, [member] = self._function, self._run.assignments
        adding = replace(member, initial=None)
        start, stop = self._loops.bounds(self._axis)
        assert isinstance(start, int)
        assert isinstance(stop, int)

        def part(member: Assignment, first: Value, size: int) -> None:
            low = Var("first", INT64)
            with self._frame.level({low: first}):
                self._part(member, columns, Axis(self._axis.var, low, low + size))

        size = self._size
        whole = stop - (stop - start) % size
        part(member, f.index(start), size)
        f.loop(start + size, whole, size, [], lambda n: part(adding, n, size))
        if whole < stop:
            part(adding, f.index(whole), stop - whole)

    def _part(self, member: Assignment, columns: Axis, part: Axis) -> None:
        """The products with a part of the sum, for which columns are decoded."""
        repeated, frame = self._repeated, self._frame
        over = (part, *self._outer, *repeated.inner)
        decoded = decl_buffer([*(a.extent.constant for a in over), PANEL], "float32", "panel")
        place = [(as_poly(a.var) - as_poly(a.start)).expr() for a in (*over, columns)]
        self._decode(columns, (part, *self._outer))
        assert repeated.own is not None
        value = Mul(repeated.own, BufferLoad(decoded, place))
        axes = tuple(columns if a is repeated.columns else a for a in self._run.axes)
        kept = tuple(a for a in axes if a is columns or a is repeated.rows)
        run = replace(self._run, statements=(replace(member, value=value),), axes=kept, over=over)
        product = product_of(run)
        assert product is not None
        frame.pointers[decoded] = self._memory
        emit_tiles(product, frame)
        del frame.pointers[decoded]
        frame.forget()

    def _decode(self, columns: Axis, axes: Sequence[Axis]) -> None:
        """Decode a panel: squares of columns and successive elements are transposed."""
        f, frame, repeated = self._function, self._frame, self._repeated
        side = min(repeated.lanes, f.module.vector_bits // 32)
        number = as_poly(0)
        for axis in axes:
            number = number * axis.extent + as_poly(axis.var) - as_poly(axis.start)

        def squares(column: Value) -> None:
            there = [frame.variable(columns.start) + column + n for n in range(side)]
            row = frame.index(number * (repeated.count * PANEL)) + column
            for first in range(0, repeated.count, repeated.lanes):
                vectors = [self._read(index, first) for index in there]
                for lane in range(0, repeated.lanes, side):
                    parts = [f.shuffle(v, None, range(lane, lane + side)) for v in vectors]
                    for n, values in enumerate(transposed(f, parts), first + lane):
                        f.store(values, f.element(self._memory, row + n * PANEL, values.type))

        def block() -> Sequence[Value]:
            f.loop(0, PANEL, side, [], squares)
            return ()

        self._loops.nested(axes, block, ())
        frame.forget()


def has_panels(run: Run, repeated: RepeatedLoads) -> bool:
    """Whether the sums of many rows can be computed in panels."""
    [member], axes = run.assignments, (*repeated.outer, *repeated.inner)
    columns = repeated.columns
    if repeated.rows is None or columns is None or repeated.own is None or not repeated.outer:
        return False
    if member.initial is None or any(a.extent.constant is None for a in axes):
        return False
    if any(a.extent.constant == 0 or as_poly(a.start).constant is None for a in axes):
        return False
    extent = columns.extent.constant
    return (extent is None or extent >= PANEL) and is_factor(repeated.own)
