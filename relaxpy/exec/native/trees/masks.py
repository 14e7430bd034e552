"""Recognises a mask between two contractions, such as a causal one, to skip hidden columns.

A masked element is a constant instead of the sum of products. Values computed from it depend on
the row alone, and in most rows they are neutral: they change no max or min, and add zeros to all
sums. A block that only has such rows needs the columns that the mask shows in one of them.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import field
from typing import cast

from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Run, Tile
from relaxpy.exec.machine.tuning import Rows
from relaxpy.exec.native.trees.product import TARGET, Product, product_of
from relaxpy.exec.native.trees.strategy import most_lanes, unroll_of
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.core.dtype import INT64, DataType
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rewrite
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import EQ, GE, LE, FloatImm, IntImm, Mul, Not, PrimExpr, Select, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import dataclass, replace

_FLAG = DataType("int8")


@dataclass(frozen=True, slots=True, eq=False)
class Masked(Tile):
    """Blocks of rows of a chain, with the columns from `first` to below `last` of all in `columns`.

    These are all columns unless two things hold for all others: no element of a `panel` is `seen`,
    and no factor of the last contraction is `infinite`, which makes a NaN of a zero. Then they are
    computed again if a row is `lost`, that is, hidden elements are not neutral in it. Each of these
    runs stores a non-zero flag if so. A panel has `panel_size` columns.
    """

    columns: Axis = field(kw_only=True)
    first: Var = field(kw_only=True)
    last: Var = field(kw_only=True)
    panel: tuple[Var, Var] = field(kw_only=True)
    panel_size: int = field(kw_only=True)
    seen: Run = field(kw_only=True)
    infinite: Run = field(kw_only=True)
    lost: Run = field(kw_only=True)

    @property
    def flags(self) -> tuple[Buffer, ...]:
        """The one-element buffers of these flags."""
        return tuple(r.assignments[0].target for r in (self.seen, self.infinite, self.lost))


def with_mask(
    tile: Tile, rows: Axis, buffers: Container[Buffer], elided: Container[Buffer]
) -> Tile:
    """The blocks of a chain without hidden columns; unchanged if these have unknown values.

    The chain stores `buffers`. Those in `elided` have no memory; `rows` are one block.
    """
    one, *_ = tile.body
    assert isinstance(one, Run)
    scores = (one.after or one.assignments)[-1]
    columns = _axis_of(one, scores.indices[-1])
    extent = None if columns is None else columns.extent.constant
    if columns is None or as_poly(columns.start).constant != 0:
        return tile
    if (extent is not None and extent < Rows.PANELS * Rows.LEAST_PANEL) or (
        tile.size or 0
    ) < Rows.LEAST_MASKED:
        return tile
    reader = _Reader(tile, scores.target, columns, buffers)
    if not reader.is_masked(rows) or any(
        x.buffer in elided for e in reader.neutral for x in loads(e)
    ):
        return tile
    return reader.masked(rows)


def _axis_of(run: Run, index: PrimExpr) -> Axis | None:
    """The axis of a run whose variable an index is."""
    return next((a for a in run.loops if a.var is index), None)


class _Reader:
    """Propagates the values of hidden columns through the statements."""

    def __init__(
        self, tile: Tile, scores: Buffer, columns: Axis, buffers: Container[Buffer]
    ) -> None:
        self.tile, self.columns, self.buffers = tile, columns, buffers
        self.scores = scores
        one, inner, two = tile.body
        assert isinstance(one, Run)
        assert isinstance(inner, Tile)
        assert isinstance(two, Run)
        self.one, self.inner, self.two = one, inner, two
        self.mask: PrimExpr | None = None
        """The condition of the mask, for the column of this variable."""
        self.column = columns.var
        self.shown: PrimExpr | None = None
        """The condition that it shows an element: the same, or its negation."""
        self.hidden: dict[Buffer, PrimExpr] = {}
        """The values of the elements of hidden columns in a row."""
        self.neutral: list[PrimExpr] = []
        """The conditions that hold in a row where they are neutral."""

    def is_masked(self, rows: Axis) -> bool:
        """True if there is a mask, and hidden columns have known values."""
        if not all(_is_in_tiles(product_of(run), rows) for run in (self.one, self.two)):
            return False
        for run in (self.one, *cast("tuple[Run, ...]", self.inner.body)):
            axis = self._columns_of(run)
            if axis is None and run is self.one:
                return False
            members = run.after if run is self.one else run.assignments
            if any(m.guards or not self._follows(m, axis) for m in members):
                return False
        return self.shown is not None and self._adds_zeros()

    def _columns_of(self, run: Run) -> Axis | None:
        """The axis of a run that is that of the columns."""
        indices = (i[-1] for m in run.stores for b, i in m.elements() if self._is_wide(b))
        axes = (_axis_of(run, index) for index in indices)
        return next((a for a in axes if a is not None and a.has_bounds_of(self.columns)), None)

    def _is_wide(self, buffer: Buffer) -> bool:
        """True if a buffer of the chain has elements for columns."""
        if buffer not in self.buffers or buffer.ndim != self.scores.ndim:
            return False
        return as_poly(buffer.shape[-1]).same(as_poly(self.columns.stop))

    def _follows(self, member: Assignment, axis: Axis | None) -> bool:
        """True if a statement has a known effect in hidden columns, which is noted."""
        variables = set[Var]() if axis is None else {axis.var}
        for buffer, indices in member.elements():
            if buffer not in self.buffers:
                continue
            if self._is_wide(buffer) != (bool(indices) and indices[-1] in variables):
                return False
            if any(
                mentions(i, variables) for i in indices[: -1 if self._is_wide(buffer) else None]
            ):
                return False
        if axis is None:
            return True
        target = BufferLoad(member.target, member.indices)
        value = self._in_hidden(member.value, axis.var)
        if self._is_wide(member.target):
            self.hidden.pop(member.target, None)
            if member.combine is None and value is not None:
                self.hidden[member.target] = value
            return True
        match member.combine:
            case None:
                return not mentions(member.value, variables)
            case _ if value is None or member.initial is None:
                return False
            case "max":
                self.neutral.append(GE(target, value))
            case "min":
                self.neutral.append(LE(target, value))
            case "add" if _is_zero(member.initial):
                self.neutral.append(EQ(value, ops.const(0, str(value.dtype))))
            case _:
                return False
        return True

    def _in_hidden(self, value: PrimExpr, column: Var) -> PrimExpr | None:
        """A value in hidden columns, which only depends on the row; None if it does not."""

        def rule(node: Node) -> Node | None:
            match node:
                case BufferLoad(buffer=buffer):
                    return self.hidden.get(buffer)
                case Select(condition=test, true_value=yes, false_value=no) if mentions(
                    test, {column}
                ) and self._is_mask(test, column, yes, no):
                    return no if self.mask is self.shown else yes
            return None

        result = cast("PrimExpr", rewrite(value, rule))
        return None if mentions(result, {column}) else result

    def _is_mask(self, test: PrimExpr, column: Var, yes: PrimExpr, no: PrimExpr) -> bool:
        """True if a condition is that of the mask, the first one that hides elements."""
        if self.mask is not None:
            mask = substitute(self.mask, {self.column: column})
            return structural_equal(mask, test)
        stored = {m.target for m in self.two.stores}
        if any(x.buffer in self.buffers or x.buffer in stored for x in loads(test)):
            return False  # it is not known before the chain runs
        if mentions(yes, {column}) == mentions(no, {column}):
            return False
        self.mask, self.column = test, column
        self.shown = test if mentions(yes, {column}) else Not(test)
        return True

    def _adds_zeros(self) -> bool:
        """True if the last contraction adds products with zeros for hidden columns."""
        [member], over = self.two.assignments, self.two.over
        if len(over) != 1 or not over[0].has_bounds_of(self.columns) or member.guards:
            return False
        if not isinstance(member.value, Mul) or not _is_zero(member.initial):
            return False
        sides = [member.value.a, member.value.b]
        sides.sort(key=lambda e: any(x.buffer in self.hidden for x in loads(e)))
        self.factor, shares = sides
        used = list(loads(shares))
        if len(used) != 1 or used[0].indices[-1] is not over[0].var:
            return False
        value = self._in_hidden(shares, over[0].var)
        if value is None or not value.dtype.is_float:
            return False
        self.neutral.append(EQ(value, ops.const(0, str(value.dtype))))
        return True

    def masked(self, rows: Axis) -> Masked:
        """The blocks without hidden columns."""
        first, last, low, high = (Var(n, INT64) for n in ("first", "last", "left", "right"))
        two, [over] = self.two, self.two.over
        assert self.shown is not None
        one = ops.const(1, str(_FLAG))
        zero = ops.const(0, str(_FLAG))

        def flag(name: str, value: PrimExpr, axes: Sequence[Axis]) -> Run:
            dtype = value.dtype
            member = replace(
                two.assignments[0],
                axes=tuple(axes),
                target=decl_buffer((), str(dtype), name),
                indices=(),
                value=value,
                combine="max" if dtype == _FLAG else "add",
                initial=ops.const(0, str(dtype)),
            )
            independent = frozenset(a.var for a in axes)
            return Run((member,), (), tuple(axes), independent=independent)

        def restricted(run: Run) -> Run:
            axis = self._columns_of(run)
            limited = None if axis is None else Axis(axis.var, first, last)
            axes, over = (
                tuple(limited if limited and a is axis else a for a in loops)
                for loops in (run.axes, run.over)
            )
            return replace(run, axes=axes, over=over)

        seen = Select(self.shown, one, zero)
        # A product with 0 is NaN if the other factor is NaN or infinite.
        nan = Mul(self.factor, ops.const(0, str(self.factor.dtype)))
        others = tuple(a for a in two.axes if mentions(nan, {a.var}))
        lost = Select(ops.all_of(*self.neutral), zero, one)
        inner = tuple(map(restricted, cast("tuple[Run, ...]", self.inner.body)))
        tile, shown_axis = self.tile, Axis(self.column, low, high)
        return Masked(
            *(tile.axis, tile.low, tile.high),
            (restricted(self.one), replace(self.inner, body=inner), restricted(two)),
            *(tile.rows, tile.local, tile.size),
            columns=self.columns,
            first=first,
            last=last,
            panel=(low, high),
            panel_size=self._panel_size(inner),
            seen=flag("seen", seen, (rows, shown_axis)),
            infinite=flag("infinite", nan, (Axis(over.var, low, high), *others)),
            lost=flag("lost", lost, (rows,)),
        )

    def _panel_size(self, inner: Sequence[Run]) -> int:
        """The columns of a panel: few where there are few, which rows hide a part of.

        The sums of a row do not depend on the number of skipped panels, as the lanes of the others
        stay the same.
        """
        added = (run for run in inner if any(m.combine == "add" for m in run.assignments))
        least = max((most_lanes(run) * unroll_of(run) for run in added), default=1)
        wanted = (self.columns.extent.constant or Rows.PANEL * Rows.PANELS) // Rows.PANELS
        size = max(Rows.LEAST_PANEL, least)
        while size < min(wanted, Rows.PANEL):
            size *= 2
        return size


def _is_in_tiles(product: Product | None, rows: Axis) -> bool:
    """True if a contraction computes all rows of a block from consecutive columns."""
    if product is None or product.row is None or not product.row.extent.same(rows.extent):
        return False
    return product.column.strides[TARGET].constant == 1


def _is_zero(value: PrimExpr | None) -> bool:
    """True if a value is +0."""
    match value:
        case IntImm(value=0):
            return True
        case FloatImm(value=number):
            return number == 0 and math.copysign(1, number) > 0
        case _:
            return False
