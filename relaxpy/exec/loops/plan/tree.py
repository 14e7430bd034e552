"""The tree of a kernel: its statements within their loops, each in a role; and its buffers.

A tree is independent of the back end. It fixes the roles of loops, which buffers alias, and which
statements run in blocks of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from relaxpy.exec.loops.nest.nodes import Axis, Nest, expressions, external_calls, walk_items
from relaxpy.exec.loops.plan.arg_extremes import ArgExtreme
from relaxpy.exec.loops.plan.dependence import independent_axes
from relaxpy.exec.loops.plan.statements import Access, Assignment, Compound, Statement
from relaxpy.exec.loops.plan.updates import Update
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.tir.prim_func import PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class Contraction:
    """A sum of products of at least two `factors`.

    If the factors are `regrouped`, they are not multiplied in source order. A different
    product may then overflow.
    """

    factors: tuple[PrimExpr, ...]
    regrouped: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A prefix accumulation: each element is the element `before` it combined with the operand."""

    update: Update
    before: BufferLoad


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """The first position of the maximum (or minimum) of `values`, or of a NaN among them.

    An earlier assignment computes this `extreme`; the search need not know it.
    """

    values: PrimExpr
    extreme: Assignment

    @property
    def is_maximum(self) -> bool:
        """True if it is an argmax, not an argmin."""
        return self.extreme.update is not None and self.extreme.update.combine == "max"


Idiom: TypeAlias = Contraction | Scan | Search | ArgExtreme


class Tree:
    """A part of a kernel: a `Run`, a `For`, a `Tile`, or a kind that a back end adds."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Run(Tree):
    """A loop nest: a statement in its loops, except those that enclose it in the tree.

    The iterations of `axes` may run simultaneously, with all loads before all stores. In each of
    them, those of `over` accumulate into one element, in any order, or those of `ordered` run in
    source order. A library may have a function for the `idiom`.

    A back end may fuse several assignments, which then run in turn in each iteration, and let each
    iteration of `axes` end with the epilogue `after` the only accumulation. It records the `tests`
    that enclosing loops have to pass, the `independent` (parallel) axes, and whether obligations
    are `checked` in each iteration.
    """

    statements: tuple[Statement, ...]
    axes: tuple[Axis, ...] = ()
    over: tuple[Axis, ...] = ()
    ordered: tuple[Axis, ...] = ()
    idiom: Idiom | None = None
    tests: tuple[PrimExpr, ...] = ()
    independent: frozenset[Var] = frozenset()
    after: tuple[Assignment, ...] = ()
    checked: bool = False

    @property
    def statement(self) -> Statement:
        """The only statement."""
        [statement] = self.statements
        return statement

    @property
    def assignments(self) -> tuple[Assignment, ...]:
        """The statements that are assignments."""
        return tuple(s for s in self.statements if isinstance(s, Assignment))

    @property
    def stores(self) -> tuple[Assignment, ...]:
        """The assignments, and the stores that end each iteration."""
        return (*self.assignments, *self.after)

    @property
    def accumulations(self) -> tuple[Assignment, ...]:
        """The assignments that accumulate."""
        return tuple(s for s in self.assignments if s.combine is not None)

    @property
    def is_scalar(self) -> bool:
        """True if it runs element by element: in order, with checks, or a compound statement."""
        has_compound = any(isinstance(s, Compound) for s in self.statements)
        return bool(self.ordered) or self.checked or has_compound

    @property
    def is_serial(self) -> bool:
        """True if some of its loops run in source order."""
        return bool(self.ordered) or any(a.var not in self.independent for a in self.axes)

    @property
    def loops(self) -> tuple[Axis, ...]:
        """All loops, from the outermost to the innermost."""
        return (*self.axes, *self.over, *self.ordered)

    @property
    def store(self) -> Assignment | None:
        """The statement of an elementwise store with independent iterations."""
        is_elementwise = self.axes and not self.over and not self.ordered
        return self.statement if is_elementwise and isinstance(self.statement, Assignment) else None

    @property
    def accumulation(self) -> Assignment | None:
        """The statement of an accumulation over some loops."""
        return self.statement if self.over and isinstance(self.statement, Assignment) else None


@dataclass(frozen=True, slots=True, eq=False)
class For(Tree):
    """`body` for each value of `axis`, in order."""

    axis: Axis
    body: tuple[Tree, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Row:
    """The row of a buffer in one iteration of an axis: index `offset` + iteration along `axis`."""

    axis: int
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Tile(Tree):
    """`body` over blocks of `axis`, which may run in any order and in parallel.

    In each run one axis is from `low` to below `high`, the variables of a block. `rows` are the
    buffers of which only those rows are accessed; the live range of those in `local` is one block.

    If a back end has chosen the `size` of blocks, those of size 1 have no such axes, but the
    variable of `axis` instead. Buffers in `local` may have one more axis, in `single`, along which
    the tree is in one iteration of an enclosing loop.
    """

    axis: Axis
    low: Var
    high: Var
    body: tuple[Tree, ...]
    rows: Mapping[Buffer, Row]
    local: frozenset[Buffer]
    size: int | None = None
    single: Mapping[Buffer, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The execution plan of a kernel: its `trees`, in order.

    Buffers in `local` may alias another buffer in `shared`; `views` maps buffers to the owners of
    their memory, and `reshaped` maps reshaped parameters to the parameters. The trees are only
    correct if written arguments do not alias others. Local buffers in `forwarded` are eliminated:
    their readers read the original instead. `uses` has the number of runs that access a buffer.
    """

    func: PrimFunc
    name: str
    nest: Nest
    shape_vars: frozenset[Var]
    trees: tuple[Tree, ...]
    local: tuple[Buffer, ...]
    shared: Mapping[Buffer, Buffer]
    views: Mapping[Buffer, Buffer]
    reshaped: Mapping[Buffer, Buffer]
    forwarded: frozenset[Buffer]
    uses: Counter[Buffer]

    def root(self, buffer: Buffer) -> Buffer:
        """The buffer whose memory `buffer` uses."""
        buffer = self.views.get(buffer, buffer)
        return self.shared.get(buffer, buffer)

    def independent(self, run: Run, serial: Iterable[Axis]) -> frozenset[Var]:
        """The variables of a run's parallel loops, inside `serial`."""
        outer = {axis.var for axis in serial}
        reduces = bool(run.over) or isinstance(run.idiom, ArgExtreme)
        return independent_axes(run.statement, outer, self.shape_vars, self.shared, reduces=reduces)

    @property
    def calls_functions(self) -> bool:
        """True if the kernel calls external functions."""
        sources = (e for item in walk_items(self.nest.items) for e in expressions(item))
        return any(True for source in sources for _ in external_calls(source))

    @property
    def fixed(self) -> frozenset[Buffer]:
        """The buffers that alias others, or that others alias."""
        return frozenset((*self.views, *self.views.values(), *self.reshaped))

    @property
    def dimensions(self) -> Iterator[PrimExpr]:
        """The dimensions of the arguments, which are not negative."""
        for buffer in self.func.buffer_map.values():
            yield from buffer.shape


def runs(trees: Iterable[Tree]) -> Iterator[Run]:
    """The statements of `trees` in their own loops, in order."""
    for tree in trees:
        match tree:
            case Run():
                yield tree
            case For(body=body) | Tile(body=body):
                yield from runs(body)
            case _:
                pass


def written_memory(trees: Iterable[Tree], root: Callable[[Buffer], Buffer]) -> set[Buffer]:
    """The buffers whose memory `trees` write; `root` is that whose memory a buffer uses."""
    return {root(write.buffer) for run in runs(trees) for write in run.statement.writes}


def accesses(tree: Tree) -> Iterator[Access]:
    """The reads and writes of the statements in `tree`."""
    for run in runs((tree,)):
        yield from run.statement.reads
        yield from run.statement.writes
