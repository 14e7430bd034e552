"""Chooses the loop that is vectorised, the loop order for that, and the loop to unroll and jam."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce

from relaxpy.exec.loops.nest.buffers import position_of
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.blocking import COSTLY
from relaxpy.exec.loops.plan.statements import Assignment
from relaxpy.exec.loops.plan.tree import Contraction, Run
from relaxpy.exec.machine.tuning import Vectors
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import BufferLoad, outside_indices
from relaxpy.ir.tir.expr import Call, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions
from relaxpy.support.dataclass import dataclass, replace


def with_best_order(run: Run) -> Run:
    """A run of one assignment, with its loops in the order of its target's elements.

    Sums of products of 8 and 16 bits are rounded once.
    """
    [statement] = run.assignments
    value = statement.value
    if not run.over:
        return run if run.is_serial else replace(run, axes=in_target_order(statement, run.axes))
    if isinstance(run.idiom, Contraction) and value.dtype.is_float and value.dtype.bits <= 16:
        wide = reduce(ops.mul, (ops.cast_to(f, "float32") for f in run.idiom.factors))
        return replace(run, statements=(replace(statement, value=wide),))
    return run


def in_lanes(run: Run) -> Run:
    """A serial run with a parallel loop as lanes, if one is suited; else the same run."""
    variables = {a.var for a in run.ordered}
    if (
        run.checked
        or not run.assignments
        or any(mentions(bound, variables) for a in run.ordered for bound in (a.start, a.stop))
    ):
        return run
    order = sorted(run.ordered, key=lambda axis: axis.var in run.independent)
    vectors = replace(run, axes=tuple(order), ordered=())
    along = lane_axis(vectors)
    if along is None or along.var not in run.independent:
        return run
    [statement] = run.assignments
    return vectors if any(mentions(i, {along.var}) for i in statement.indices) else run


def in_target_order(statement: Assignment, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes in the order in which the target's indices mention them."""

    def place(axis: Axis) -> int:
        found = [n for n, i in enumerate(statement.indices) if mentions(i, {axis.var})]
        return found[0] if found else -1

    independent = {a.var for a in axes}
    if any(mentions(b, independent) for a in axes for b in (a.start, a.stop)):
        return axes
    return tuple(sorted(axes, key=place))


def lane_axis(run: Run, whole: Mapping[PrimExpr, Axis] | None = None) -> Axis | None:
    """The axis whose iterations should be the lanes of vectors; None if no axis is suited.

    `whole` has the axes of which others are blocks, by the start of these.
    """
    best: tuple[float, Axis | None] = (1.0, None)
    for axis, work in _works(run):
        cost = work.cost((whole or {}).get(axis.start, axis).extent.constant)
        if cost <= best[0]:
            best = cost, axis
    return best[1]


@dataclass(frozen=True, slots=True)
class _Work:
    """The work of an iteration with an axis as lanes: the sum of its costs, and their number.

    `folds` are the max and min over all lanes that are reduced at the end of a loop.
    """

    total: float
    count: int
    folds: int

    def cost(self, extent: int | None) -> float:
        """The cost of an iteration, of at most so many, as a lane; scalars cost 1."""
        lanes, most = 8.0, min(max(extent or 1, 1), 1 << 63)
        if extent is not None:
            lanes = min(lanes, most)
        folded = Vectors.FOLD * self.folds * lanes / most if extent is not None else 0
        return (self.total + folded) / self.count / lanes


@lru_cache(maxsize=1 << 6)
def _works(run: Run) -> tuple[tuple[Axis, _Work], ...]:
    """The axes whose iterations may be lanes, and the work of an iteration then."""
    dependent = {
        a.var
        for a in run.loops
        for b in run.loops
        if any(mentions(bound, {a.var}) for bound in (b.start, b.stop))
    }
    accesses = [*_accesses(run)]
    operations = sum(map(_functions, run.assignments))
    return tuple(
        (axis, _work(run, axis, accesses, operations * Vectors.FUNCTION))
        for axis in run.loops
        if axis.var not in dependent and (axis.var in run.independent or axis is run.loops[-1])
    )


def _functions(member: Assignment) -> int:
    """The number of mathematical functions of elements in an iteration."""
    calls = (node for node in outside_indices(member.value) if isinstance(node, Call))
    return sum(call.op in COSTLY for call in calls)


def _accesses(run: Run) -> Iterator[tuple[Assignment, bool, IndexPoly]]:
    """The elements that an iteration reads, and the target, which is marked, with its member."""
    for member in run.assignments:
        for buffer, indices in member.read_elements():
            yield member, False, position_of(buffer, indices)
        yield member, True, position_of(member.target, member.indices)


def _work(
    run: Run, axis: Axis, accesses: Sequence[tuple[Assignment, bool, IndexPoly]], operations: int
) -> _Work:
    is_summed = any(axis is a for a in run.over)
    costs = [
        _access_cost(position, axis.var, is_target=is_target)
        for member, is_target, position in accesses
        if not (is_target and is_summed and member.combine is not None)
    ]
    if Vectors.GATHER in costs:  # the time of distant elements, such as those of stores, decides
        costs = [Vectors.GATHER if cost > Vectors.REVERSED else cost for cost in costs]
    extremes = [m for m in run.accumulations if m.combine in ("min", "max")]
    folds = len(extremes) if is_summed else 0
    return _Work(sum(costs) + 1 + operations, len(costs) + 1 + operations, folds)


def _access_cost(position: IndexPoly, var: Var, *, is_target: bool) -> float:
    linear = affine(position, {var})
    step = None if linear is None else linear.constant(var)
    if step == 0:
        return 0.5
    if step == -1:
        return Vectors.REVERSED
    if step is not None and 2 <= step <= Vectors.LONGEST_STEP and not is_target:
        return step
    return 1.0 if step == 1 else Vectors.GATHER


def shared_axis(run: Run, along: Axis) -> Axis | None:
    """The innermost other axis whose successive iterations read many of the same elements.

    A depthwise convolution whose lanes are channels reads its weights, and most elements of its
    windows, once for several pixels.
    """
    rest = [axis for axis in run.axes if axis is not along]
    if run.is_serial or not rest or rest[-1].extent.constant == 1:
        return None
    axis = rest[-1]
    one, four = set[object](), set[object]()
    for member in run.assignments:
        for load in loads(member.value):
            position = position_of(load.buffer, load.indices)
            step = affine(position, {axis.var})
            if step is None:
                return None
            factor = step.coefficients.get(axis.var, as_poly(0))
            places = [
                (load.buffer, frozenset((position + factor * n).terms.items())) for n in range(4)
            ]
            one.add(places[0])
            four.update(places)
    enough = len(one) >= (2 if run.over else Vectors.LEAST_SHARED)
    return axis if enough and len(four) <= 3 * len(one) else None


def step_of(element: BufferLoad, axis: Axis) -> int | None:
    """The distance of the elements of neighbouring rows, if it is known."""
    linear = affine(position_of(element.buffer, element.indices), {axis.var})
    return None if linear is None else linear.constant(axis.var)
