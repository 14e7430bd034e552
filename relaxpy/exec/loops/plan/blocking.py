"""Tiles: fuses steps on blocks of rows, so that intermediate results stay in cache."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import field
from typing import Final, NamedTuple

from relaxpy.exec.loops.nest.bounds import may_fail
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.arg_extremes import ArgExtreme
from relaxpy.exec.loops.plan.statements import Access, Assignment, Statement
from relaxpy.exec.loops.plan.tree import (
    Contraction,
    For,
    Plan,
    Row,
    Run,
    Tile,
    Tree,
    accesses,
    runs,
)
from relaxpy.exec.loops.plan.updates import Update
from relaxpy.exec.machine.tuning import Blocks
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly, number_of
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, outside_indices
from relaxpy.ir.tir.expr import Call, ConstExpr, FloatImm, IntImm, PrimExpr, Var
from relaxpy.ir.tir.intrinsics import INTRINSICS
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass, replace

COSTLY: frozenset[Node] = frozenset(
    Op(f"tir.{record.name}") for record in INTRINSICS.values() if record.is_costly
)


def in_tiles(plan: Plan, fast: Container[Statement] = (), *, for_threads: bool = False) -> Plan:
    """`plan` with consecutive elementwise runs over a common axis fused into blocks of rows.

    Blocks are not worth their overhead for the `fast` statements alone. If they are `for_threads`,
    they may contain matmuls, whose batch (or the windows of a convolution) they divide, and also
    pay for a few passes with much work. They may also split the loops of accumulations; the part of
    each block then starts from the initial value. Others are divided again by native code.
    """
    private = {b for b in plan.local if b not in plan.shared} - plan.fixed
    worth = _Worth(private, fast, for_threads, for_threads)
    return replace(plan, trees=_tiled(plan.trees, plan, worth))


@dataclass(frozen=True, slots=True)
class _Worth:
    """The facts that decide whether blocks pay, beside their runs: see `in_tiles` and `_CASES`.

    Blocks may allocate `local` buffers. They may split accumulations if it `divides`.
    """

    local: Container[Buffer]
    fast: Container[Statement]
    for_threads: bool
    divides: bool


def _tiled(
    trees: Sequence[Tree], plan: Plan, worth: _Worth, siblings: Sequence[Tree] | None = None
) -> tuple[Tree, ...]:
    """`trees`, which are among their `siblings`, in blocks."""
    siblings = trees if siblings is None else siblings
    result: list[Tree] = []
    rows = _Rows(plan, worth)
    for tree in trees:
        if isinstance(tree, Run) and rows.members and rows.extended(tree):
            continue
        result += _blocked(rows, siblings, worth)
        rows = _Rows(plan, worth)
        if isinstance(tree, For):
            tree = replace(
                tree, body=_tiled(tree.body, plan, replace(worth, local=(), divides=False))
            )
        if not isinstance(tree, Run) or not rows.extended(tree):
            result.append(tree)
    return (*result, *_blocked(rows, siblings, worth))


@dataclass(slots=True)
class _Rows:
    """Runs over a common axis, and the row of each buffer that an iteration accesses.

    The row is None if accesses differ; buffers in `written` have one. All rows accumulate into the
    same elements of those that are `reduced`. The first run is divided `along` this axis, or else
    its first possible one.
    """

    plan: Plan
    worth: _Worth
    members: list[Run] = field(default_factory=list)
    axes: list[Axis] = field(default_factory=list)
    rows: dict[Buffer, Row | None] = field(default_factory=dict)
    written: set[Buffer] = field(default_factory=set)
    reduced: set[Buffer] = field(default_factory=set)
    along: Axis | None = None

    def extended(self, run: Run) -> bool:
        """Add `run` along one of its loops, and return whether that is possible."""
        writes = [w.buffer for w in run.statement.writes]
        if not self.plan.fixed.isdisjoint(writes):
            return False
        if run.ordered and not isinstance(run.idiom, ArgExtreme):
            return False
        axes: Sequence[Axis] = run.axes
        if is_product(run):
            axes = divided_axes(run) if self.worth.for_threads else ()
        if not self.reduced.isdisjoint(_memory(self.plan, a.buffer) for a in accesses(run)):
            return False
        if any(may_fail(b, (), self.plan.shape_vars) for a in run.loops for b in (a.start, a.stop)):
            return False  # a failure also occurs without blocks
        written = self.written.union(_memory(self.plan, b) for b in writes)
        for axis in axes:
            rows = self._rows(accesses(run), axis) if self._is_common(axis) else {}
            if rows and all(rows[memory] is not None for memory in rows.keys() & written):
                self.members.append(run)
                self.axes.append(axis)
                self.rows |= rows
                self.written = written
                return True
        return self.worth.divides and self._reduced(run)

    def _reduced(self, run: Run) -> bool:
        """Add `run` along a loop that accumulates, and return whether that is possible."""
        statement = run.accumulation
        if statement is None or statement in self.worth.fast or not _is_divisible(run, statement):
            return False
        target = _memory(self.plan, statement.target)
        operands = [access for access in statement.reads if access is not statement.write]
        if target in self.rows or any(_memory(self.plan, a.buffer) is target for a in operands):
            return False
        for axis in run.over:
            rows = self._rows(operands, axis) if self._is_common(axis) else {}
            if rows and all(rows[memory] is not None for memory in rows.keys() & self.written):
                self.members.append(run)
                self.axes.append(axis)
                self.rows |= rows
                self.reduced.add(target)
                return True
        return False

    def _is_common(self, axis: Axis) -> bool:
        """True if `axis` has the bounds of the others, or may be the first one."""
        return axis.has_bounds_of(self.axes[0]) if self.axes else self.along in (None, axis)

    def _rows(self, accesses: Iterable[Access], axis: Axis) -> dict[Buffer, Row | None]:
        """The rows of these `accesses`; None for one that differs from those before."""
        rows: dict[Buffer, Row | None] = {}
        for access in accesses:
            memory = _memory(self.plan, access.buffer)
            row = _moved(_row(access, axis), access.buffer, memory)
            previous = rows.get(memory, self.rows.get(memory, row))
            rows[memory] = row if previous == row else None
        return rows


def _is_divisible(run: Run, statement: Assignment) -> bool:
    """True if parts of an accumulation into a whole buffer may be computed separately."""
    if statement.guards or not _may_start_each_part(statement):
        return False
    elements = math.prod((axis.extent for axis in run.axes), start=as_poly(1))
    if not elements.same(number_of(statement.target.shape)):
        return False
    match run.idiom:
        case None:
            return True
        case Contraction(regrouped=regrouped):
            return not regrouped and not is_product(run)
        case _:
            return False


def _may_start_each_part(statement: Assignment) -> bool:
    """True if each part of an accumulation may start from its initial value."""
    match statement.combine, statement.initial:
        case "add" | "bitwise_xor", IntImm(value=0) | FloatImm(value=0.0):
            return True
        case "mul", IntImm(value=1) | FloatImm(value=1.0):
            return True
        case "min" | "max" | "and" | "or" | "bitwise_and" | "bitwise_or", ConstExpr():
            return True
        case _:
            return False


def _row(access: Access, axis: Axis) -> Row | None:
    """The row, if exactly one index mentions the axis, and is the axis plus a constant."""
    using = [n for n, i in enumerate(access.indices) if mentions(i, {axis.var})]
    if len(using) != 1:
        return None
    index = affine(access.indices[using[0]], {axis.var})
    if index is None or index.offset.constant is None:
        return None
    factor = index.coefficients.get(axis.var)
    if factor is None or not factor.same(1):
        return None
    return Row(using[0], index.offset.constant)


def _is_inside(buffer: Buffer, row: Row, axis: Axis, shape_vars: Container[Var]) -> bool:
    """True if the rows of all iterations are provably inside the buffer."""
    first, end = as_poly(axis.start) + row.offset, as_poly(axis.stop) + row.offset
    margin = as_poly(buffer.shape[row.axis]) - end
    return first.is_at_least(0, shape_vars) and margin.is_at_least(0, shape_vars)


def _blocked(rows: _Rows, trees: Sequence[Tree], worth: _Worth) -> Sequence[Tree]:
    """The members of `rows`, which are among `trees`, as the first of `_CASES` decides."""
    group = _Group(rows, trees, worth)
    return next(case.decision(group) for case in _CASES if case.holds(group))


@dataclass(frozen=True, eq=False)
class _Group:
    """Consecutive runs with common rows, among the `siblings`, that may become blocks."""

    rows: _Rows
    siblings: Sequence[Tree]
    worth: _Worth

    @late_property
    def tile(self) -> Tile:
        """The blocks along the first axis that the runs have in common."""
        return _tile(self.rows, self.siblings, self.worth.local)

    @late_property
    def bytes(self) -> float:
        """The bytes of all rows; infinity if they are not known."""
        total = (row_bytes(self.tile, self.rows.plan) * self.tile.axis.extent).constant
        return math.inf if total is None else total

    @late_property
    def slow(self) -> Sequence[Run]:
        """The runs that take time; those over fewer axes, such as of indices, take little."""
        members = self.rows.members
        most = max(map(_rank, members))
        return [r for r in members if _rank(r) == most and r.statement not in self.worth.fast]

    # ---- conditions

    def sums_arrays(self) -> bool:
        """True if each run accumulates elements of memory along the axis."""
        pairs = zip(self.rows.members, self.rows.axes, strict=True)
        return all(axis in run.over and _needs_no_memory(run) for run, axis in pairs)

    def fits_into_cache(self) -> bool:
        """True if all rows have up to `LEAST_BYTES`."""
        return self.bytes <= Blocks.LEAST_BYTES

    def is_strided_batch(self) -> bool:
        """True if native code would divide by channels a batch of unknown size, most likely one."""
        if self.worth.for_threads or self.rows.axes[0].extent.constant is not None:
            return False
        others = [*_along_others(self.rows)]
        return bool(others and self.tile.local) and all(map(_has_adjacent_rows, others))

    def has_small_sums(self) -> bool:
        """True if blocks would divide accumulations of up to `LEAST_DIVIDED` bytes."""
        return self.has_sums() and self.bytes <= Blocks.LEAST_DIVIDED

    def has_sums(self) -> bool:
        """True if blocks divide accumulations."""
        return bool(self.rows.reduced)

    def has_many_passes(self) -> bool:
        """True if the runs pass over the elements `LEAST_PASSES` times."""
        return sum(map(_passes, self.slow)) >= Blocks.LEAST_PASSES

    def has_work_for_threads(self) -> bool:
        """True if threads share the blocks, and have `MUCH_WORK`."""
        return self.worth.for_threads and _is_much_work(self.slow)

    def keeps_large_result(self) -> bool:
        """True if an intermediate result is not much smaller than what large blocks read."""
        if not any(buffer in self.worth.local for buffer in self.rows.rows):
            return False
        return self.bytes > Blocks.LEAST_DIVIDED and _saves_memory(self.tile, self.rows.plan)

    def always(self) -> bool:
        """True."""
        return True

    # ---- decisions

    def apart(self) -> Sequence[Tree]:
        """The runs one after the other."""
        return self.rows.members

    def undivided(self) -> Sequence[Tree]:
        """The runs in blocks that divide no accumulations, where these pay."""
        undivided = replace(self.worth, divides=False)
        return _tiled(self.rows.members, self.rows.plan, undivided, self.siblings)

    def blocks(self) -> Sequence[Tree]:
        """The runs in blocks, where accumulations may be divided along the best axis."""
        if not (self.worth.divides and any(run.over for run in self.rows.members)):
            return [self.tile]
        others = (_tile(o, self.siblings, self.worth.local) for o in _along_others(self.rows))
        return [min([self.tile, *others], key=lambda t: _least_block(t, self.rows.plan))]


class _Case(NamedTuple):
    """Runs for which a case `holds` become what it decides; `why` has times with and without."""

    holds: Callable[[_Group], bool]
    decision: Callable[[_Group], Sequence[Tree]]
    why: str


_CASES: Final = (
    _Case(
        *(_Group.sums_arrays, _Group.apart),
        "no intermediate result stays in cache: a sum of 64 MiB takes 2.6 ms, and 3.0 in blocks",
    ),
    _Case(
        *(_Group.fits_into_cache, _Group.apart),
        "everything stays in cache: 5 passes over 16 KiB take 7 us, and 8 in blocks",
    ),
    _Case(
        *(_Group.is_strided_batch, _Group.apart),
        "a batch of one would be divided into channels: a depthwise convolution took 2.4 times as "
        "long",
    ),
    _Case(
        *(_Group.has_small_sums, _Group.undivided),
        "parts need memory, and are added: sums of 1024 columns of exponentials of 2 MiB take "
        "0.29 ms, and 0.31 in parts",
    ),
    _Case(
        *(_Group.has_sums, _Group.blocks),
        "their operands stay in cache: such sums of 64 MiB take 11 ms, and 19 apart",
    ),
    _Case(
        *(_Group.has_many_passes, _Group.blocks),
        "intermediate results stay in cache: a layer norm of 64 MiB takes 26 ms on NumPy and 7.4 "
        "as native code, and 35 and 11 apart",
    ),
    _Case(
        *(_Group.has_work_for_threads, _Group.blocks),
        "threads share them: exponentials of 16 MiB take 1.2 ms on two, and 2.0 apart",
    ),
    _Case(
        *(_Group.keeps_large_result, _Group.blocks),
        "it needs no memory of its own: maxima of 64 MiB of sums in rows of unknown length take "
        "4.4 ms, and 13 apart",
    ),
    _Case(
        *(_Group.always, _Group.apart),
        "blocks are calls: one addition of 4 MiB takes 98 us, and 110 in blocks",
    ),
)
"""The first case that holds decides; the times are of one thread, by NumPy unless they say so."""


def _has_adjacent_rows(rows: _Rows) -> bool:
    """True if the rows of a buffer are adjacent elements."""
    return any(r is not None and r.axis == b.ndim - 1 for b, r in rows.rows.items())


def _saves_memory(tile: Tile, plan: Plan) -> bool:
    """True if an intermediate result is not much smaller than the operands of blocks."""
    written = {_memory(plan, w.buffer) for run in runs(tile.body) for w in run.statement.writes}
    read = sum(
        (_row_size(tile, b) for b in tile.rows if _memory(plan, b) not in written), as_poly(0)
    )
    larger = (_row_size(tile, b) * as_poly(4) - read for b in tile.local)
    return any(margin.is_at_least(0, plan.shape_vars) for margin in larger)


def _row_size(tile: Tile, buffer: Buffer) -> IndexPoly:
    """The bytes of a row of `buffer`."""
    others = (size for n, size in enumerate(buffer.shape) if n != tile.rows[buffer].axis)
    return number_of(others) * as_poly(buffer.dtype.itemsize)


def _least_block(tile: Tile, plan: Plan) -> int:
    """The bytes of a row, or of the fewest rows of a block if rows have gaps.

    Blocks have `ROWS_OF_PART` rows if they compute parts of several elements, which need memory.
    """
    rows = max(
        (-(-Blocks.SHORTEST_RUN // (gap.constant or 1)) for gap in gap_bytes(tile, plan)), default=1
    )
    if any(is_part(run, tile) and run.axes for run in runs(tile.body)):
        rows = max(rows, Blocks.ROWS_OF_PART)
    return max(Blocks.ANY_BLOCK, (row_bytes(tile, plan).constant or 0) * rows)


def _along_others(rows: _Rows) -> Iterator[_Rows]:
    """The same runs along each other axis that they have in common."""
    for axis in rows.members[0].loops:
        others = _Rows(rows.plan, rows.worth, along=axis)
        if axis is not rows.axes[0] and all(map(others.extended, rows.members)):
            yield others


def _tile(rows: _Rows, trees: Sequence[Tree], local: Container[Buffer]) -> Tile:
    """The members of `rows`, which are among `trees`, in blocks that may have `local` buffers."""
    members, axes, shape_vars = rows.members, rows.axes, rows.plan.shape_vars
    row_of = {b: r for b, r in rows.rows.items() if r and _is_inside(b, r, axes[0], shape_vars)}
    accessed = dict.fromkeys(a.buffer for run in members for a in accesses(run))
    memories = {b: _memory(rows.plan, b) for b in accessed}
    found = {b: _moved(row_of.get(memory), memory, b) for b, memory in memories.items()}
    known = {b: row for b, row in found.items() if row is not None}
    private = {b for b in row_of if b in local}
    if private:
        inside = {run.statement for run in members}
        others = (run for run in runs(trees) if run.statement not in inside)
        private -= {_memory(rows.plan, a.buffer) for run in others for a in accesses(run)}
    low, high = Var("lo", INT64), Var("hi", INT64)
    blocked = tuple(
        _along(run, axis, Axis(axis.var, low, high))
        for run, axis in zip(members, axes, strict=True)
    )
    return Tile(axes[0], low, high, blocked, known, frozenset(private))


def _along(run: Run, old: Axis, new: Axis) -> Run:
    axes, over = (tuple(new if a is old else a for a in loops) for loops in (run.axes, run.over))
    return replace(run, axes=axes, over=over)


def _needs_no_memory(run: Run) -> bool:
    """True if `run` accumulates elements that are in memory."""
    update = None if run.accumulation is None else run.accumulation.update
    is_load = update is not None and isinstance(update.operand, BufferLoad)
    return is_load or isinstance(run.idiom, Contraction)


def _memory(plan: Plan, buffer: Buffer) -> Buffer:
    """The buffer whose memory `buffer` uses, perhaps in another shape."""
    return plan.shared.get(buffer, buffer)


def _moved(row: Row | None, source: Buffer, target: Buffer) -> Row | None:
    """The same elements as a row of `target`, which has the memory of `source` in another shape."""
    if row is None or source is target:
        return row
    size, step = source.shape[row.axis], _step(source, row.axis)
    for axis in reversed(range(target.ndim)):
        if as_poly(target.shape[axis]).same(as_poly(size)) and _step(target, axis).same(step):
            return replace(row, axis=axis)
    return None


def _step(buffer: Buffer, axis: int) -> IndexPoly:
    """The number of elements from one row to the next."""
    return number_of(buffer.shape[axis + 1 :])


def _rank(run: Run) -> int:
    return len(run.axes) + len(run.over)


def _passes(run: Run, costly: int = 2) -> int:
    """The number of passes over the elements, with costly operations counted as several."""
    match run:
        case Run(idiom=Contraction()):
            return 2
        case (
            Run(idiom=ArgExtreme(operand=operand))
            | Run(accumulation=Assignment(update=Update(operand=operand)))
        ):
            return 2 + _operations(operand, costly)
        case Run(statement=Assignment(value=value)):
            return _operations(value, costly)
        case _:
            return 0


def _operations(value: PrimExpr, costly: int) -> int:
    """The number of different operations on elements, without those on indices."""
    return sum(
        costly if isinstance(node, Call) and node.op in COSTLY else 1
        for node in outside_indices(value)
        if isinstance(node, PrimExpr) and not isinstance(node, (BufferLoad, Var, ConstExpr))
    )


def is_part(run: Run, tile: Tile) -> bool:
    """True if each block of `tile` computes a part of an accumulation."""
    return any(axis.start is tile.low for axis in run.over)


def runs_once(tile: Tile, plan: Plan) -> bool:
    """True if rows overwrite memory that they read, so that they cannot run again."""
    read, written = set[Buffer](), {plan.root(b) for b in tile.local}
    for run in runs(tile.body):
        statement = run.statement
        stored = {plan.root(w.buffer) for w in statement.writes}
        is_reset = isinstance(statement, Assignment) and statement.initial is not None
        loaded = {plan.root(r.buffer) for r in statement.reads}
        read |= (loaded - stored if is_reset else loaded) - written
        if not read.isdisjoint(stored):
            return True
        if not (isinstance(statement, Assignment) and statement.guards):
            written |= stored
    return False


def row_work(tile: Tile) -> IndexPoly:
    """The work of one iteration, in multiply-adds of a matmul."""
    total = as_poly(0)
    for run in runs(tile.body):
        total = total + _work(run, [a for a in run.loops if a.start is not tile.low])
    return total


def _is_much_work(members: Sequence[Run]) -> bool:
    elementwise = (run for run in members if not is_product(run))
    if any((run.loops[-1].extent.constant or 0) < Blocks.LEAST_LONG for run in elementwise):
        return False
    total = sum((_work(run, run.loops) for run in members), as_poly(0)).constant
    return total is not None and total >= Blocks.MUCH_WORK


def _work(run: Run, loops: Sequence[Axis]) -> IndexPoly:
    """The work of all iterations of `loops`, ignoring bounds that depend on other loops."""
    inner = {a.var for a in run.loops}
    extents = (a.extent for a in loops if not a.extent.mentions(inner))
    each = (
        1
        if is_product(run)
        else Blocks.ELEMENT_WORK * max(1, _passes(run, Blocks.COSTLY_OPERATIONS))
    )
    return math.prod(extents, start=as_poly(each))


def row_bytes(tile: Tile, plan: Plan) -> IndexPoly:
    """The bytes that one iteration accesses in buffers with a row for it."""
    total = as_poly(0)
    seen: set[Buffer] = set()
    for run in runs(tile.body):
        [var] = (a.var for a in run.loops if a.start is tile.low)
        for access in accesses(run):
            using = {n for n, i in enumerate(access.indices) if mentions(i, {var})}
            memory = _memory(plan, access.buffer)
            if not using or memory in seen:
                continue
            seen.add(memory)
            others = (size for n, size in enumerate(memory.shape) if n not in using)
            total = total + number_of(others) * as_poly(memory.dtype.itemsize)
    return total


def gap_bytes(tile: Tile, plan: Plan) -> Iterator[IndexPoly]:
    """The contiguous bytes of one iteration in each buffer in which a block has gaps."""
    for buffer, row in {_memory(plan, b): row for b, row in tile.rows.items()}.items():
        if number_of(buffer.shape[: row.axis]).constant != 1:
            yield number_of(buffer.shape[row.axis + 1 :]) * as_poly(buffer.dtype.itemsize)


def is_product(run: Run) -> bool:
    """True if a run is a matmul: several rows of one factor use the same matrix.

    If all factors mention all axes, it is a batch of dot products.
    """
    match run.idiom:
        case Contraction(factors=factors):
            return not all(mentions(f, {a.var}) for f in factors for a in run.axes)
        case _:
            return False


def keeps_negative_zero(run: Run) -> bool:
    """True if -0.0 remains if no product is added; NumPy's sum of no products is 0.0."""
    if not isinstance(run.idiom, Contraction) or run.accumulation is None:
        return False
    match run.accumulation.initial:
        case FloatImm(value=initial):
            return initial == 0 and math.copysign(1, initial) < 0
        case _:
            return run.accumulation.target.dtype.is_float


def batch_axes(run: Run) -> list[Axis]:
    """The batch axes of a matmul, which are in all factors."""
    assert isinstance(run.idiom, Contraction)
    factors = run.idiom.factors
    return [a for a in run.axes if all(mentions(f, {a.var}) for f in factors)]


def divided_axes(run: Run) -> Sequence[Axis]:
    """The axes along which to divide a matmul into blocks, the best first.

    These are batch axes. In a convolution, whose windows are copied (im2col), they are those of the
    images and of their windows, unless the kernels are larger: the copies of a block stay in the
    cache. Other matmuls have none, since BLAS divides them as well.
    """
    assert isinstance(run.idiom, Contraction)
    factors = run.idiom.factors
    if run.idiom.regrouped or len(factors) != 2:
        return ()
    batch = batch_axes(run)
    for windows, kernels in (factors, factors[::-1]):
        inside = [a for a in run.axes if a not in batch and mentions(windows, {a.var})]
        if any(_slides(windows, axis, run.over) for axis in inside):
            outside = [a for a in run.axes if a not in batch and mentions(kernels, {a.var})]
            more = (_size(outside) - _size(inside)).constant
            return batch if more is not None and more > 0 else [*batch, *inside]
    return batch


def _slides(factor: PrimExpr, axis: Axis, over: Sequence[Axis]) -> bool:
    """True if an index of `factor` is the sum of `axis` and an axis of the sum."""
    summed = {a.var for a in over}
    return any(
        mentions(index, {axis.var}) and mentions(index, summed)
        for load in loads(factor)
        for index in load.indices
    )


def _size(axes: Sequence[Axis]) -> IndexPoly:
    """The number of iterations."""
    return math.prod((a.extent for a in axes), start=as_poly(1))
