"""Selects the strategy of each run: the one decision that tasks and emission share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.idioms import searched_condition
from relaxpy.exec.loops.plan.tree import Run
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.exec.native.trees.lanes import in_target_order, lane_axis, shared_axis
from relaxpy.exec.native.trees.product import Product, product_of
from relaxpy.exec.native.trees.program import KernelProgram
from relaxpy.exec.native.trees.recurrences import Recurrence, recurrence_of
from relaxpy.exec.native.trees.repeated import RepeatedLoads, repeated_loads
from relaxpy.exec.native.trees.short_rows import ShortRows, short_rows
from relaxpy.exec.native.trees.transpose import Transpose, transpose_of
from relaxpy.ir.arith.algebra.affine import affine
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Call, PrimExpr
from relaxpy.support.dataclass import dataclass, replace

SEARCHED = 64
"""The elements that a search tests at once, one for each bit of an integer."""
LANE_BITS = 512
"""The bits of a vector of values, on every machine: the order of sums does not depend on it."""


@dataclass(frozen=True, slots=True, eq=False)
class InOrder:
    """A statement in each iteration, one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The iterations of an axis as lanes, inside which accumulations run.

    Those that are swept go row by row in the order of memory, with the targets as sums. Wide ones
    compute several vectors of sums together, to hide latency. Iterations of the axis `beside`,
    which read the same elements, are unrolled and jammed.
    """

    along: Axis
    form: Literal["plain", "swept", "wide"]
    beside: Axis | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Carried:
    """The iterations of an axis as lanes, with the last row of a recurrence in registers.

    The ordered loops of `rows` run inside, the last one from row to row.
    """

    along: Axis
    rows: Run
    before: BufferLoad


@dataclass(frozen=True, slots=True, eq=False)
class Reduction:
    """Reductions with the iterations of an axis as lanes, which are combined at the end."""

    along: Axis


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The first iteration of the only axis of accumulation in which the condition holds."""

    condition: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Elements:
    """One element after the other: no axis is suited to be lanes."""


Strategy: TypeAlias = (
    Product
    | ShortRows
    | Transpose
    | Recurrence
    | InOrder
    | RepeatedLoads
    | Columns
    | Carried
    | Reduction
    | Search
    | Elements
)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The facts known at a run.

    Fields:
        whole: the axes of which others are blocks, by the start of these.
        has_whole_rows: whether the strides of a buffer are those declared, also in a block of rows.
        with_all_columns: a run over the columns that a mask shows as one over all of them.
        enclosing: the axes of the loops that a run is in.
    """

    whole: Mapping[PrimExpr, Axis] = field(default_factory=dict)
    has_whole_rows: Callable[[Buffer], bool] = lambda _: True
    with_all_columns: Callable[[Run], Run] = lambda run: run
    enclosing: Sequence[Axis] = ()


def most_lanes(run: Run) -> int:
    """The elements of a vector of the values of a run."""
    elements = (buffer for m in run.assignments for buffer, _ in m.elements())
    return LANE_BITS // max(16, *(buffer.dtype.bits for buffer in elements))


def unroll_of(run: Run) -> int:
    """The vectors that follow each other in an iteration of a reduction, each with its sums."""
    return 4 if run.accumulations and len(run.assignments) == 1 else 2


def strategy_of(run: Run, program: KernelProgram, context: Context | None = None) -> Strategy:
    """The strategy of a run of `program`."""
    if run.is_scalar:
        return recurrence_of(run, program.plan.root) or InOrder()
    transpose = transpose_of(run, program.plan.root)
    if transpose is not None:
        return transpose
    context = Context() if context is None else context
    rows = short_rows(run, program)
    if rows is not None and all(map(context.has_whole_rows, rows.written)):
        return rows
    product = product_of(context.with_all_columns(run))
    if product is not None and all(context.has_whole_rows(o.buffer) for o in product.operands):
        return product
    repeated = repeated_loads(run, program.plan, context.whole, context.enclosing)
    if repeated is not None and all(context.has_whole_rows(x.buffer) for x in repeated.offsets):
        return repeated
    along = lane_axis(run, context.whole)
    if along is None:
        return Elements()
    if any(along is a for a in run.axes):
        if is_swept(run, along):
            return Columns(along, "swept")
        if run.is_serial and (carried := _carried(run, along, program)) is not None:
            return carried
        beside = shared_axis(run, along)
        is_wide = beside is None and _is_wide(run, along)
        return Columns(along, "wide" if is_wide else "plain", beside)
    condition = _searched(run)
    return Reduction(along) if condition is None else Search(condition)


def _carried(run: Run, along: Axis, program: KernelProgram) -> Carried | None:
    """A recurrence from row to row; None unless a row is one or two vectors."""
    columns = along.extent.constant
    if run.over or run.after or len(run.statements) != 1 or columns is None:
        return None
    [statement] = run.assignments
    if columns * statement.target.dtype.bits > 2 * LANE_BITS:
        return None
    order = in_target_order(statement, tuple(a for a in run.axes if a is not along))
    if any(a.var not in run.independent for a in order[:-1]):
        return None
    rows = replace(run, axes=(along,), ordered=order)
    recurrence = recurrence_of(rows, program.plan.root)
    return None if recurrence is None else Carried(along, rows, recurrence.before)


def _searched(run: Run) -> PrimExpr | None:
    """The condition of which a run computes the first position along a long axis."""
    [member, *_], [axis, *_] = run.assignments, run.over
    is_long = axis.extent.constant is None or axis.extent.constant >= SEARCHED
    if not is_long or member.guards or member.target.dtype != axis.var.dtype:
        return None
    return searched_condition(run)


def _is_wide(run: Run, along: Axis) -> bool:
    """True if a run only adds up consecutive elements of several columns."""
    extent = along.extent.constant
    if not run.over or (extent is not None and extent < Vectors.LEAST_WIDE):
        return False
    if any(isinstance(node, Call) for m in run.assignments for node in walk(m.value)):
        return False
    positions = [position_of(*element) for m in run.assignments for element in m.elements()]
    steps = [affine(position, {along.var}) for position in positions]
    return all(step is not None and step.constant(along.var) in (0, 1) for step in steps)


def is_swept(run: Run, along: Axis) -> bool:
    """True if accumulations over one axis should keep their sums in the targets.

    Those of one vector, or that fill few of them, stay in registers.
    """
    if (
        len(run.over) != 1
        or (run.over[0].extent.constant or Vectors.LEAST_SWEPT) < Vectors.LEAST_SWEPT
    ):
        return False
    members, columns = run.accumulations, along.extent.constant
    lanes = LANE_BITS // max(16, *(m.target.dtype.bits for m in members))
    if columns and (columns <= lanes or Vectors.SUMS * lanes % columns == 0):
        return False
    return not run.is_serial and all(
        not (m.target.dtype.is_float and m.target.dtype.bits < 32) for m in members
    )
