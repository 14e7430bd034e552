"""Loop coalescing: neighbouring axes of a run become one.

This fills vectors of elementwise runs and of sums, and lets all rows of a matmul with packed
weights share each decoded weight.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from relaxpy.exec.kernel.nest.buffers import position_of
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.tree import Run, Tile, Tree
from relaxpy.exec.native.trees.product import product_of
from relaxpy.exec.native.trees.program import KernelProgram, whole_runs
from relaxpy.exec.native.trees.repeated import RepeatedLoads, repeated_loads
from relaxpy.exec.native.trees.strategy import strategy_of
from relaxpy.exec.tuning import Vectors
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.core.dtype import INT64
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.tir.buffer import Buffer, BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import IntImm, PrimExpr, Var
from relaxpy.ir.tir.ops import cast_to, floordiv, floormod
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import replace


def with_flat_axes(program: KernelProgram) -> KernelProgram:
    """`program` with one axis instead of two where all buffers have both in row-major order.

    The buffers get other shapes for this, in the same memory.
    """
    trees = list(program.trees)
    shared, elided = dict(program.plan.shared), set(program.elided)
    for number, tree in enumerate(trees):
        run = _alone(tree, program)
        for joiner in () if run is None else _joiners(run, program):
            trees[number] = run = joiner.run
            for old, new in joiner.buffers.items():
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


def _joiner_of(run: Run, inner: Axis, outer: Axis) -> _Joiner | None:
    if not _start_at_0(outer, inner):
        return None
    joiner = _Joiner(run, outer, inner)
    accesses = (access for m in run.assignments for access in m.elements())
    return joiner if all(joiner.admits(*access) for access in accesses) and joiner.fits() else None


class _Joiner:
    """Joins the axes `outer` and `inner`; `buffers` has the new buffers by the old ones."""

    def __init__(self, run: Run, outer: Axis, inner: Axis) -> None:
        self.old, self.outer, self.inner = run, outer, inner
        self.pair = {outer.var, inner.var}
        self.buffers: dict[Buffer, Buffer] = {}
        self._dimension: dict[Buffer, int] = {}
        stop = _product(outer.stop, inner.stop)
        self.axis = Axis(Var(outer.var.name, INT64), IntImm(INT64, 0), stop)

    def admits(self, buffer: Buffer, indices: Sequence[PrimExpr]) -> bool:
        """True if the axes are neighbouring dimensions of an access, or none of it."""
        if not any(mentions(index, self.pair) for index in indices):
            return buffer not in self.buffers
        place = next((n for n, i in enumerate(indices) if i is self.outer.var), -1)
        if buffer.strides or place < 0 or indices[place + 1 : place + 2] != (self.inner.var,):
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
            self.buffers[buffer] = decl_buffer(shape, str(buffer.dtype), buffer.name)
            self._dimension[buffer] = place
        return self._dimension[buffer] == place

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
        buffer = self.buffers.get(load.buffer)
        if buffer is None:
            return load
        place = self._dimension[load.buffer]
        indices = (*load.indices[:place], self.axis.var, *load.indices[place + 2 :])
        return BufferLoad(buffer, indices)


def _with_quotients(run: Run) -> Run | None:
    """A run that repeats elements along its last, short axis, with its last two axes joined.

    The indices that have one of the two have a quotient or remainder of the new one.
    """
    if not _is_plain(run) or len(run.assignments) != 1 or len(run.axes) < 2:
        return None
    [member], (outer, inner) = run.assignments, run.axes[-2:]
    count, pair, zero = inner.extent.constant, {outer.var, inner.var}, IntImm(INT64, 0)
    if count not in Vectors.REPEATS or not _start_at_0(outer, inner):
        return None
    bare = member.relocated(lambda load: BufferLoad(load.buffer, (zero,) * load.buffer.ndim))
    if any(mentions(expr, pair) for expr in (bare.value, *member.guards)):
        return None
    if _steps(position_of(member.target, member.indices), outer, inner) != (count, 1):
        return None
    steps = {_steps(position_of(*read), outer, inner) for read in member.read_elements()}
    if (1, 0) not in steps or not steps <= {(0, 0), (1, 0), (0, 1), (count, 1)}:
        return None
    axis = Axis(Var(outer.var.name, INT64), zero, _product(outer.stop, inner.stop))
    size = IntImm(INT64, count)
    whole, quotient, rest = axis.var, floordiv(axis.var, size), floormod(axis.var, size)

    def joined(load: BufferLoad) -> BufferLoad:
        return BufferLoad(load.buffer, tuple(map(index, load.indices)))

    def index(old: PrimExpr) -> PrimExpr:
        linear = affine(old, pair)
        if linear is None or not linear.coefficients:
            return old
        if _steps(linear.poly(), outer, inner) == (count, 1):
            return (linear.offset + as_poly(whole)).expr()
        parts = ((outer.var, quotient), (inner.var, rest))
        terms = (linear.coefficients.get(var, as_poly(0)) * as_poly(part) for var, part in parts)
        return sum(terms, linear.offset).expr()

    return replace(
        run,
        axes=(*run.axes[:-2], axis),
        statements=(member.relocated(joined),),
        independent=(run.independent - pair) | {axis.var},
    )


def _steps(position: IndexPoly, outer: Axis, inner: Axis) -> tuple[int | None, int | None]:
    """The distances of the elements of neighbouring iterations of two axes; None if unknown."""
    linear = affine(position, {outer.var, inner.var})
    if linear is None:
        return None, None
    return linear.constant(outer.var), linear.constant(inner.var)


def _product(first: PrimExpr, second: PrimExpr) -> PrimExpr:
    return cast_to((as_poly(first) * as_poly(second)).expr(), INT64)
