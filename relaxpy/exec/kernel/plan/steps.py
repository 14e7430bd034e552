"""The plan of a kernel: its steps, their axes, and its buffers.

A plan does not depend on a library. It decides which statements run over whole boxes and which one
element at a time, which buffers share memory, and which steps run in blocks of rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.nodes import Axis, Nest, loads
from relaxpy.exec.kernel.plan.statements import Access, Assignment, Compound, Statement, access
from relaxpy.exec.kernel.plan.updates import ArgExtreme, Update
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Select, Var
from relaxpy.ir.tir.ops import int_range

if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func.function import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """A store for all iterations of `axes` at once; all loads precede all stores."""

    statement: Assignment
    axes: tuple[Axis, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Reduce:
    """An accumulation over the axes `over` into an element for each iteration of `axes`.

    It starts from `initial`, or without one from the present value of the target. If `over` has no
    iteration the target becomes `initial`, unless `always_initialises` is false: then it does not
    change. The emitter chooses the order of the accumulation.
    """

    statement: Assignment
    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    update: Update
    initial: PrimExpr | None = None
    always_initialises: bool = True


def searched_condition(step: Reduce) -> PrimExpr | None:
    """The condition if `step` computes its first true position along one axis, or None.

    Such a step is the minimum of `Select(condition, position, none)`, starting from `none`, which
    is not less than any position.
    """
    match step.over, step.update.combine, step.update.operand, step.initial:
        case (
            [axis],
            "min",
            Select(condition=condition, true_value=position, false_value=IntImm(value=none)),
            IntImm(value=start),
        ) if position is axis.var and none == start and step.always_initialises:
            starts = isinstance(axis.start, IntImm) and axis.start.value == 0
            stop = axis.stop.value if isinstance(axis.stop, IntImm) else math.inf
            last = min(stop - 1, int_range(position.dtype)[1])
            return condition if starts and last <= none else None
        case _:
            return None


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The first position of the maximum (or minimum) of `values`, or of a NaN among them.

    An earlier step computes this `extreme`, which needs not be known in the search.
    """

    values: PrimExpr
    extreme: Reduce

    @property
    def is_maximum(self) -> bool:
        """Whether the extreme is the maximum."""
        return self.extreme.update.combine == "max"


@dataclass(frozen=True, slots=True, eq=False)
class Contract:
    """A sum over the axes `over` of the product of at least two `factors`; else the same as Reduce.

    If the factors are `regrouped`, they are not multiplied in the order of the text. A different
    product may then overflow, so the step runs as a Reduce unless no product can overflow.
    """

    statement: Assignment
    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    factors: tuple[PrimExpr, ...]
    regrouped: bool
    initial: PrimExpr | None = None
    always_initialises: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A prefix accumulation along `axis` for each iteration of the other `axes`.

    Each element is the element `before` it combined with the operand.
    """

    statement: Assignment
    axes: tuple[Axis, ...]
    axis: Axis
    update: Update
    before: BufferLoad


@dataclass(frozen=True, slots=True, eq=False)
class Scatter:
    """Stores at computed indices, in the order of `axes`; accumulations if there is an update."""

    statement: Assignment
    axes: tuple[Axis, ...]
    update: Update | None


@dataclass(frozen=True, slots=True, eq=False)
class ArgReduce:
    """An arg-extreme over its axis, for each iteration of `axes`."""

    statement: Compound
    axes: tuple[Axis, ...]
    extreme: ArgExtreme


@dataclass(frozen=True, slots=True, eq=False)
class Scalar:
    """A statement executed once, element by element."""

    statement: Statement


@dataclass(frozen=True, slots=True, eq=False)
class Serial:
    """`steps` for each value of `axis`, in order."""

    axis: Axis
    steps: tuple[Step, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """The row of a buffer in one iteration of an axis: index `offset` + iteration along `axis`."""

    axis: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Blocked:
    """`steps` over blocks of `axis`, which may run in any order and in parallel.

    In each step one axis runs from `low` to below `high`, the variables of a block. `rows` are the
    buffers of which only those rows are accessed; the live range of those in `local` is one block.

    Units:
        row_bytes   bytes accessed in one iteration of `axis`
        run_bytes   the contiguous bytes among them; None if those of a block are contiguous
    """

    axis: Axis
    low: Var
    high: Var
    steps: tuple[ArrayStep, ...]
    rows: Mapping[Buffer, Row]
    local: frozenset[Buffer]
    row_bytes: PrimExpr
    run_bytes: PrimExpr | None = None


ArrayStep: TypeAlias = Map | Reduce | Contract | Scan | Scatter | ArgReduce
Step: TypeAlias = ArrayStep | Scalar | Serial | Blocked


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """How a kernel runs.

    The kernel allocates the buffers `allocated`. Some of them use the memory of another buffer, as
    `shared` tells; `views` maps buffers to the owners of their memory, and `reshaped` maps those
    that are parameters in another shape to these. If arguments share memory that is written,
    `sequential` runs item by item instead of the steps. A library may have a function for the
    statements in `searches`; those that compute buffers in `unused` need not run. No step has
    the local buffers in `forwarded`: what reads them reads what they are computed from.
    """

    func: PrimFunc
    name: str
    nest: Nest
    sequential: Nest
    shape_vars: frozenset[Var]
    steps: tuple[Step, ...]
    allocated: tuple[Buffer, ...]
    shared: Mapping[Buffer, Buffer]
    views: Mapping[Buffer, Buffer]
    reshaped: Mapping[Buffer, Buffer]
    searches: Mapping[Assignment, Search]
    unused: Mapping[Buffer, Assignment]
    forwarded: frozenset[Buffer]

    @property
    def dimensions(self) -> Iterator[PrimExpr]:
        """The dimensions of the arguments, which are not negative."""
        for buffer in self.func.buffer_map.values():
            yield from buffer.shape


def flatten_steps(steps: Iterable[Step]) -> Iterator[ArrayStep | Scalar]:
    """The steps, with loops and blocks replaced by the steps inside them."""
    for step in steps:
        if isinstance(step, (Serial, Blocked)):
            yield from flatten_steps(step.steps)
        else:
            yield step


def reads(step: Step) -> Iterator[Access]:
    """The reads of `step`, including those of the initial value of an accumulation."""
    for inner in flatten_steps((step,)):
        yield from inner.statement.reads
        if isinstance(inner, (Reduce, Contract)) and inner.initial is not None:
            variables = {a.var for a in inner.axes}
            for load in loads(inner.initial):
                yield access(load.buffer, load.indices, variables)


def accesses(step: Step) -> Iterator[Access]:
    """The reads and writes of `step`, including those of the initial value of an accumulation."""
    yield from reads(step)
    for inner in flatten_steps((step,)):
        yield from inner.statement.writes
