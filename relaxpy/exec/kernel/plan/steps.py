"""The plan of a kernel: which steps it takes, over which axes, in which buffers.

It names no library. An emitter reads it and finds decided what runs over whole boxes at once and
what one element at a time, which buffers share memory, and what is done in blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from relaxpy.exec.kernel.nest.nodes import Axis, Nest, loads
from relaxpy.exec.kernel.plan.parts import Access, Group, Part, Statement, access
from relaxpy.exec.kernel.plan.updates import ArgExtreme, Update
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Select, Var
from relaxpy.ir.tir.ops import int_range

if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func.function import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A store for all rounds of `axes` at once; every value is read before any is written."""

    statement: Statement
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """An accumulation over the axes `over` into an element for each round of `axes`.

    It starts from `initial`, or without one from what the target holds. Where `over` has no round
    the target is `initial`, unless `begins_always` is false: then it stays as it is. The order of
    the accumulation is the emitter's.
    """

    statement: Statement
    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    update: Update
    initial: PrimExpr | None = None
    begins_always: bool = True


def first_of(step: Reduce) -> PrimExpr | None:
    """The condition whose first position along the one reduced axis `step` finds, or None.

    That is the least of `Select(condition, position, none)`, beginning with `none`, which is no
    less than any position.
    """
    match step.over, step.update.combine, step.update.operand, step.initial:
        case (
            [axis],
            "min",
            Select(condition=condition, true_value=position, false_value=IntImm(value=none)),
            IntImm(value=start),
        ) if position is axis.var and none == start and step.begins_always:
            starts = isinstance(axis.start, IntImm) and axis.start.value == 0
            stop = axis.stop.value if isinstance(axis.stop, IntImm) else math.inf
            last = min(stop - 1, int_range(position.dtype)[1])
            return condition if starts and last <= none else None
        case _:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Contract:
    """A sum over the axes `over` of the product of `factors`, at least two; else as Reduce.

    Where they are `regrouped`, that is, not multiplied as the text says, a product may overflow
    that does not there, or the other way round: it is a Reduce unless none of them can.
    """

    statement: Statement
    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    factors: tuple[PrimExpr, ...]
    regrouped: bool
    initial: PrimExpr | None = None
    begins_always: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """An accumulation along `axis` of which every state is kept, for each round of other `axes`.

    Each element is that `before` it, combined with the operand.
    """

    statement: Statement
    axes: tuple[Axis, ...]
    axis: Axis
    update: Update
    before: BufferLoad


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Stores to places that are computed, in the order of `axes`; with an update, accumulations."""

    statement: Statement
    axes: tuple[Axis, ...]
    update: Update | None


@dataclass(frozen=True, slots=True, eq=False)
class ArgReduce:
    """An arg-extreme over its axis, for each round of `axes`."""

    group: Group
    axes: tuple[Axis, ...]
    extreme: ArgExtreme


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A part performed once, element by element."""

    part: Part


@dataclass(frozen=True, slots=True, eq=False)
class Serial:
    """`steps` for each value of `axis`, in order."""

    axis: Axis
    steps: tuple[Step, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """What one round of an axis meets of a buffer: place `offset` + round in dimension `axis`."""

    axis: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Blocked:
    """`steps` over stretches of `axis`, which may run in any order and at once.

    In each step one axis runs from `low` to below `high`, the variables of a stretch. `rows` are
    the buffers of which only that stretch is touched; those in `local` are needed only while it
    runs.

    Units:
        row_bytes   bytes touched in one round of `axis`
    """

    axis: Axis
    low: Var
    high: Var
    steps: tuple[Whole, ...]
    rows: Mapping[Buffer, Row]
    local: frozenset[Buffer]
    row_bytes: PrimExpr


Whole: TypeAlias = Map | Reduce | Contract | Scan | Scatter | ArgReduce
Step: TypeAlias = Whole | Scalar | Serial | Blocked


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """All that is decided about a kernel.

    `made` are the buffers it makes itself, `shared` gives for some of these another buffer whose
    memory they use, `views` those laid over other buffers' memory. Where arguments share memory
    that is written, `ordered` runs item by item instead of the steps.
    """

    func: PrimFunc
    name: str
    nest: Nest
    ordered: Nest
    sizes: frozenset[Var]
    steps: tuple[Step, ...]
    made: tuple[Buffer, ...]
    shared: Mapping[Buffer, Buffer]
    views: Mapping[Buffer, Buffer]


def flat(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, those inside loops and blocks in place of these."""
    for step in steps:
        if isinstance(step, (Serial, Blocked)):
            yield from flat(step.steps)
        else:
            yield step


def accesses(step: Step) -> Iterator[Access]:
    """What `step` reads and writes, the initial value of an accumulation included."""
    for inner in flat((step,)):
        for part in parts_in(inner):
            yield from part.reads
            yield from part.writes
        if isinstance(inner, (Reduce, Contract)) and inner.initial is not None:
            variables = {a.var for a in inner.axes}
            for load in loads(inner.initial):
                yield access(load.buffer, load.indices, variables)


def parts_in(step: Step) -> Iterator[Part]:
    """The parts that `step` performs."""
    match step:
        case Serial(steps=steps) | Blocked(steps=steps):
            for inner in steps:
                yield from parts_in(inner)
        case ArgReduce(group=group):
            yield group
        case Scalar(part=part):
            yield part
        case _:
            yield step.statement
