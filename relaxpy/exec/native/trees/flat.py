"""Loop coalescing: neighbouring axes of a run become one.

This fills vectors of elementwise runs and of sums, also of those that share blocks of rows, and
lets all rows of a matmul with packed weights share each decoded weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.tree import Run, Tile, Tree
from relaxpy.exec.machine.tuning import Rows, Vectors
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import KernelProgram, whole_runs
from relaxpy.exec.native.trees.repeated import RepeatedLoads, repeated_loads
from relaxpy.exec.native.trees.short_rows import short_rows
from relaxpy.exec.native.trees.strategy import strategy_of
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.ops import cast_to, floordiv, floormod
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace

_Flat: TypeAlias = Mapping[Buffer, tuple[Buffer, int]]
"""Buffers with two dimensions joined, and the first of these, by those with both."""


def with_flat_axes(program: KernelProgram) -> KernelProgram:
    """`program` with one axis instead of two where all buffers have both in row-major order.

    The buffers get other shapes for this, in the same memory.
    """
    trees = list(program.trees)
    shared, elided = dict(program.plan.shared), set(program.elided)
    for number, tree in enumerate(trees):
        run = _alone(tree, program)
        renamed: dict[Buffer, tuple[Buffer, int]] = {}
        for joiner in () if run is None else _joiners(run, program):
            trees[number] = run = joiner.run
            renamed |= joiner.buffers
        if run is None and type(tree) is Tile:
            for flat, buffers in _flat_tiles(tree, program):
                trees[number] = flat
                renamed |= buffers
        for old, (new, _) in renamed.items():
            if old in elided:
                elided.add(new)
            else:
                shared[new] = shared.get(old, old)
        if run is not None and (repeated := _with_quotients(run)) is not None:
            trees[number] = repeated
    if all(a is b for a, b in zip(trees, program.trees, strict=True)):
        return program
    return replace(
        program,
        plan=replace(program.plan, shared=shared),
        trees=tuple(trees),
        elided=frozenset(elided),
        written=program.written.union(b for b, a in shared.items() if a in program.written),
    )


def decoded_again(run: Run, program: KernelProgram) -> tuple[Axis, ...]:
    """The axes whose every iteration decodes the same packed weights of a product.

    The run is one of a plan.
    """
    run = replace(run, independent=program.plan.independent(run, ()))
    for joiner in _joiners(run, program):
        run = joiner.run
    match strategy_of(run, program):
        case RepeatedLoads(rows=rows, columns=columns, decoded=decoded):
            others = (axis for axis in run.axes if axis is not rows and axis is not columns)
            return tuple(axis for axis in others if not mentions(decoded, {axis.var}))
        case _:
            return ()


def _alone(tree: Tree, program: KernelProgram) -> Run | None:
    """The only run of a tree; blocks of rows are ignored if their buffers need no memory."""
    if isinstance(tree, Tile) and not program.elided.issuperset(tree.local):
        return None
    parts = list(whole_runs(tree))
    return parts[0] if len(parts) == 1 else None


def _is_plain(run: Run) -> bool:
    """True if a run only has parallel loops."""
    return not (run.over or run.after or run.tests or run.is_serial)


def _sums(run: Run) -> bool:
    """True if a run has parallel loops and accumulations that are not matmuls."""
    return _is_plain(replace(run, over=())) and product_of(run) is None


def _start_at_0(*axes: Axis) -> bool:
    return all(as_poly(axis.start).same(0) for axis in axes)


def _decodes(run: Run, program: KernelProgram) -> bool:
    """True if a run is a matmul with packed weights whose row loops are parallel."""
    if not run.over or not _is_plain(replace(run, over=())):
        return False
    if repeated_loads(run, program.plan) is None:
        return False  # without asking for all other strategies
    return isinstance(strategy_of(run, program), RepeatedLoads)


def _joiners(run: Run, program: KernelProgram) -> Iterator[_Joiner]:
    """The joiners of two neighbouring axes of a run, inner ones first, then those of its result."""
    loops = (run.axes[::-1], run.over[::-1])
    pairs = (_joiner_of(run, *pair) for axes in loops for pair in pairwise(axes))
    joiner = next(filter(None, pairs), None)
    if joiner is not None and (_is_plain(run) or _sums(run) or _decodes(run, program)):
        yield joiner
        yield from _joiners(joiner.run, program)


def _joiner_of(
    run: Run, inner: Axis, outer: Axis, buffers: _Flat = MappingProxyType({})
) -> _Joiner | None:
    """The joiner of two axes, in a run that shares `buffers` with others."""
    if not _start_at_0(outer, inner):
        return None
    joiner = _Joiner(run, outer, inner, buffers)
    return joiner if joiner.admits_all() and joiner.fits() else None


def _accessed(run: Run) -> set[Buffer]:
    return {buffer for m in run.assignments for buffer, _ in m.elements()}


def _may_be_flat(tile: Tile, program: KernelProgram) -> bool:
    """True if a block of rows has only loops that are parallel, and sums that are not matmuls.

    Vectors of short rows are left to these, and a batch that may be one, which is divided along
    another axis.
    """
    members = [run for run in tile.body if isinstance(run, Run)]
    return (
        len(members) == len(tile.body)
        and all(not run.is_scalar and (_is_plain(run) or _sums(run)) for run in members)
        and (tile.axis.extent.constant is not None or not all(run.axes for run in members))
        and short_rows(tile, program) is None
    )


def _joiners_of_rows(members: Sequence[Run]) -> tuple[dict[Run, _Joiner], _Flat]:
    """The joiners of the innermost short axes of runs that have some, and all new buffers."""
    joiners: dict[Run, _Joiner] = {}
    buffers: _Flat = {}
    for run in members:
        pairs = (pair for axes in (run.axes, run.over) for pair in pairwise(axes[::-1]))
        short = (p for p in pairs if (p[0].extent.constant or Rows.ELEMENTS) < Rows.ELEMENTS)
        joiner = next(filter(None, (_joiner_of(run, *pair, buffers) for pair in short)), None)
        if joiner is not None:
            joiners[run], buffers = joiner, joiner.buffers
    for joiner in joiners.values():
        joiner.buffers |= buffers
    return joiners, buffers


def _flat_tiles(tile: Tile, program: KernelProgram) -> Iterator[tuple[Tile, _Flat]]:
    """The blocks of rows with ever fewer axes, and the new buffers of each by the old ones.

    The runs have their short axes joined that are the same dimensions of the buffers of all.
    """
    if not _may_be_flat(tile, program):
        return
    members = [run for run in tile.body if isinstance(run, Run)]
    joiners, buffers = _joiners_of_rows(members)
    joined = (j.admits_all() for j in joiners.values())
    if not joiners or not all(joined):
        return
    if not all(buffers.keys().isdisjoint(_accessed(r)) for r in members if r not in joiners):
        return
    # All that use the memory of a row have their own strides there.
    root, accessed = program.plan.root, {b for r in members for b in _accessed(r)}
    owners = {root(b) for b in buffers.keys() - program.elided if tile.local & {b, root(b)}}
    sharing = {b for b in accessed - program.elided if root(b) in owners}
    if not owners <= tile.local or not sharing <= tile.rows.keys():
        return
    rows = {**tile.rows}
    for old, (new, place) in buffers.items():
        if old in rows:
            axis = rows[old].axis
            rows[new] = replace(rows[old], axis=axis - (axis > place))
    body = tuple(joiners[run].run if run in joiners else run for run in members)
    local = {buffers[b][0] if b in buffers else b for b in tile.local | sharing}
    flat = replace(tile, body=body, rows=rows, local=frozenset(local))
    yield flat, buffers
    yield from _flat_tiles(flat, program)


class _Joiner:
    """Joins the axes `outer` and `inner`; `buffers` has the new buffers by the old ones."""

    def __init__(self, run: Run, outer: Axis, inner: Axis, buffers: _Flat) -> None:
        self.old, self.outer, self.inner = run, outer, inner
        self.pair = {outer.var, inner.var}
        self.buffers = dict(buffers)
        stop = _product(outer.stop, inner.stop)
        self.axis = Axis(Var(outer.var.name, INT64), IntImm(INT64, 0), stop)

    def admits_all(self) -> bool:
        """True if the axes are joined in all accesses of the run."""
        return all(self.admits(*access) for m in self.old.assignments for access in m.elements())

    def admits(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> bool:
        """True if the axes are neighbouring dimensions of an access, or none of it."""
        if not any(mentions(index, self.pair) for index in indices):
            return buffer not in self.buffers
        place = next((n for n, i in enumerate(indices) if _is(i, self.outer.var)), -1)
        if buffer.strides or place < 0 or place + 1 == len(indices):
            return False
        if not _is(indices[place + 1], self.inner.var):
            return False
        if any(mentions(i, self.pair) for i in (*indices[:place], *indices[place + 2 :])):
            return False
        sizes = buffer.shape[place : place + 2]
        for size, axis in zip(sizes, (self.outer, self.inner), strict=True):
            if not as_poly(size).same(as_poly(axis.stop)):
                return False
        if buffer not in self.buffers:
            shape = (*buffer.shape[:place], _product(*sizes), *buffer.shape[place + 2 :])
            shape = tuple(cast_to(size, INT64) for size in shape)
            self.buffers[buffer] = decl_buffer(shape, str(buffer.dtype), buffer.name), place
        return self.buffers[buffer][1] == place

    def fits(self) -> bool:
        """True if the axes occur in these accesses only."""
        return bool(self.buffers) and not any(
            mentions(expr, self.pair)
            for m in self.run.assignments
            for expr in (*m.indices, m.value, *m.guards)
        )

    @late_property
    def run(self) -> Run:
        """The run with one axis."""
        old = self.old
        return replace(
            old,
            axes=self._joined(old.axes),
            over=self._joined(old.over),
            statements=tuple(s.relocated(self._place) for s in old.assignments),
            independent=(old.independent - self.pair) | {self.axis.var},
        )

    def _joined(self, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        rest = (axis for axis in axes if axis is not self.inner)
        return tuple(self.axis if axis is self.outer else axis for axis in rest)

    def _place(self, load: BufferLoad) -> BufferLoad:
        if load.buffer not in self.buffers:
            return load
        buffer, place = self.buffers[load.buffer]
        indices = (*load.indices[:place], self.axis.var, *load.indices[place + 2 :])
        return BufferLoad(buffer, indices)


def _with_quotients(run: Run) -> Run | None:
    """A run that repeats elements, with one axis instead of its last two; None for others.

    `for i: for k < 4: y[4*i + k] = f(x[i], z[k], w[4*i + k])`, whose vectors have 4 elements, is
    `for n: y[n] = f(x[n // 4], z[n % 4], w[n])`.
    """
    count = _repetitions(run)
    if not count:
        return None
    [member], (outer, inner) = run.assignments, run.axes[-2:]
    axis = Axis(Var(outer.var.name, INT64), IntImm(INT64, 0), _product(outer.stop, inner.stop))
    size = IntImm(INT64, count)
    parts = {outer.var: floordiv(axis.var, size), inner.var: floormod(axis.var, size)}

    def index(old: PrimExpr) -> PrimExpr:
        linear = affine(old, parts.keys())
        if linear is None or not linear.coefficients:
            return old
        if _steps(linear.poly(), outer, inner) == (count, 1):
            return (linear.offset + as_poly(axis.var)).expr()
        terms = (factor * as_poly(parts[var]) for var, factor in linear.coefficients.items())
        return sum(terms, linear.offset).expr()

    moved = member.relocated(lambda load: BufferLoad(load.buffer, tuple(map(index, load.indices))))
    return replace(
        run,
        axes=(*run.axes[:-2], axis),
        statements=(moved,),
        independent=run.independent.difference(parts) | {axis.var},
    )


def _repetitions(run: Run) -> int:
    """How often a run stores each element that it reads, along its last axis; 0 for other runs."""
    if not _is_plain(run) or len(run.assignments) != 1 or len(run.axes) < 2:
        return 0
    [member], (outer, inner) = run.assignments, run.axes[-2:]
    count = inner.extent.constant
    if count not in Vectors.REPEATS or not _start_at_0(outer, inner):
        return 0
    zero = IntImm(INT64, 0)
    bare = member.relocated(lambda load: BufferLoad(load.buffer, (zero,) * load.buffer.ndim))
    if any(mentions(expr, {outer.var, inner.var}) for expr in (bare.value, *member.guards)):
        return 0  # it computes with the number of an iteration
    stored = _steps(position_of(member.target, member.indices), outer, inner)
    read = {_steps(position_of(*element), outer, inner) for element in member.read_elements()}
    repeated, others = (1, 0), {(count, 1), (0, 1), (0, 0)}
    repeats = repeated in read and read <= {repeated, *others}
    return count if repeats and stored == (count, 1) else 0


def _steps(position: IndexPoly, outer: Axis, inner: Axis) -> tuple[int | None, int | None]:
    """The distances of the elements of neighbouring iterations of two axes; None if unknown."""
    linear = affine(position, {outer.var, inner.var})
    if linear is None:
        return None, None
    return linear.constant(outer.var), linear.constant(inner.var)


def _is(index: PrimExpr, var: Var) -> bool:
    """True if an index equals a variable."""
    return index is var or (not isinstance(index, Var) and as_poly(index).same(as_poly(var)))


def _product(first: PrimExpr, second: PrimExpr) -> PrimExpr:
    return cast_to((as_poly(first) * as_poly(second)).expr(), INT64)
