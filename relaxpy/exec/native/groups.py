"""Groups of array steps that run in the same loops, iteration by iteration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import product
from typing import TypeAlias

from relaxpy.dataclass import dataclass
from relaxpy.exec.kernel.nest.buffers import strides_of
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.statements import Assignment, Statement
from relaxpy.exec.kernel.plan.tree import Contraction, Run
from relaxpy.exec.kernel.plan.updates import Combine
from relaxpy.ir.arith.algebra.affine import IndexPoly, affine, as_poly
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.ir.tir.ops import cast_to
from relaxpy.ir.tir.substitution import mentions, substitute

_REVERSED = 2
_GATHER = 12
"""The cost of elements that are not consecutive, in terms of consecutive ones."""
LONGEST_STEP = 4
"""Up to this distance, elements are loaded as vectors, at the cost of as many."""


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """What one step of a group does in an iteration: a store, or an accumulation by `combine`.

    An accumulation starts from `initial`, or from the target's value. If there is no iteration, it
    stores nothing unless it `always` does.
    """

    target: Buffer
    indices: tuple[PrimExpr, ...]
    value: PrimExpr
    guards: tuple[PrimExpr, ...]
    combine: Combine | None = None
    initial: PrimExpr | None = None
    always: bool = True

    def substituted(self, values: Mapping[Var, PrimExpr]) -> Member:
        """The same with `values`, converted to their datatypes, for variables."""
        if not values:
            return self
        values = {var: cast_to(value, var.dtype) for var, value in values.items()}
        return replace(
            self,
            indices=tuple(substitute(i, values) for i in self.indices),
            value=substitute(self.value, values),
            guards=tuple(substitute(g, values) for g in self.guards),
            initial=None if self.initial is None else substitute(self.initial, values),
        )

    def reads(self) -> Iterator[tuple[Buffer, tuple[PrimExpr, ...]]]:
        """The buffers and indices that an iteration reads."""
        sources = (self.value, *self.guards, *self.indices)
        for load in (load for source in sources for load in loads(source)):
            yield load.buffer, load.indices

    def accesses(self) -> Iterator[tuple[Buffer, tuple[PrimExpr, ...]]]:
        """The same with the element of the target, and what the initial value reads."""
        yield from self.reads()
        yield self.target, self.indices
        if self.initial is not None:
            yield from ((load.buffer, load.indices) for load in loads(self.initial))


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Members that run in turn in each iteration of `axes` and, inside these, of `over`.

    Accumulations are over `over`, into an element for each iteration of `axes`. The group runs if
    the `tests` of the enclosing loops hold. The iterations of the axes in `independent` run in any
    order, those of the others in the order of the text. An iteration of `axes` ends with the stores
    `after` its only accumulation. A group that is `alone` is not joined.
    """

    axes: tuple[Axis, ...]
    over: tuple[Axis, ...]
    members: tuple[Member, ...]
    tests: tuple[PrimExpr, ...] = ()
    independent: frozenset[Var] = frozenset()
    after: tuple[Member, ...] = ()
    alone: bool = False

    @property
    def all_axes(self) -> tuple[Axis, ...]:
        """The loops from the outermost to the innermost."""
        return (*self.axes, *self.over)

    @property
    def reduces(self) -> bool:
        """Whether a member accumulates."""
        return any(m.combine is not None for m in self.members)

    @property
    def is_ordered(self) -> bool:
        """Whether some of `axes` run in the order of the text."""
        return any(a.var not in self.independent for a in self.axes)


def group_of(
    run: Run, statement: Assignment, tests: tuple[PrimExpr, ...], independent: frozenset[Var]
) -> Group:
    """A group of the `statement` of `run`, with `independent` iterations."""
    update = statement.update
    if not run.over or update is None:
        member = Member(statement.target, statement.indices, statement.value, statement.guards)
        is_ordered = any(a.var not in independent for a in run.axes)
        axes = run.axes if is_ordered else _in_target_order(statement, run.axes)
        return Group(axes, (), (member,), tests, independent)
    operand = update.operand
    if isinstance(run.idiom, Contraction) and operand.dtype.is_float and operand.dtype.bits == 16:
        # Sums of products of 16 bits are rounded once.
        operand = reduce(ops.mul, (ops.cast_to(f, "float32") for f in run.idiom.factors))
    member = Member(
        statement.target,
        statement.indices,
        operand,
        statement.guards,
        update.combine,
        statement.initial,
        statement.always,
    )
    return Group(run.axes, run.over, (member,), tests, independent)


def in_lanes(
    statement: Statement,
    axes: Sequence[Axis],
    tests: tuple[PrimExpr, ...],
    independent: frozenset[Var],
) -> Group | None:
    """A statement in order as a group with an independent axis in lanes, if one is suited."""
    variables = {a.var for a in axes}
    if not isinstance(statement, Assignment) or any(
        mentions(bound, variables) for a in axes for bound in (a.start, a.stop)
    ):
        return None
    order = sorted(axes, key=lambda axis: axis.var in independent)
    member = Member(statement.target, statement.indices, statement.value, statement.guards)
    # Several iterations may store the same element, so that others cannot be joined.
    group = Group(tuple(order), (), (member,), tests, independent, alone=True)
    along = lane_axis(group)
    if along is None or along.var not in independent:
        return None
    return group if any(mentions(i, {along.var}) for i in statement.indices) else None


def _in_target_order(statement: Assignment, axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
    """The axes in the order in which the target's indices mention them."""

    def place(axis: Axis) -> int:
        found = [n for n, i in enumerate(statement.indices) if mentions(i, {axis.var})]
        return found[0] if found else -1

    independent = {a.var for a in axes}
    if any(mentions(b, independent) for a in axes for b in (a.start, a.stop)):
        return axes
    return tuple(sorted(axes, key=place))


def fused(groups: Iterable[Group], root: Callable[[Buffer], Buffer]) -> list[Group]:
    """The groups, with neighbours joined where each iteration only meets its own elements.

    `root` is the buffer whose memory a buffer uses.
    """
    result: list[Group] = []
    for group in groups:
        joined = None if not result else _joined(result[-1], group, root)
        if joined is None:
            result.append(group)
        else:
            result[-1] = joined
    return result


def _joined(first: Group, second: Group, root: Callable[[Buffer], Buffer]) -> Group | None:
    """One group that runs both, or None if that changes a result."""
    if len(first.all_axes) != len(second.all_axes) or len(first.tests) != len(second.tests):
        return None
    if not all(a is b for a, b in zip(first.tests, second.tests, strict=True)):
        return None
    if first.reduces and second.reduces and len(first.axes) != len(second.axes):
        return None
    pairs = list(zip(first.all_axes, second.all_axes, strict=True))
    renamed = {b.var: a.var for a, b in pairs if a.var is not b.var}
    if any(a.var.dtype != b.var.dtype for a, b in pairs):
        return None
    if not all(
        as_poly(x).same(as_poly(substitute(y, renamed)))
        for a, b in pairs
        for x, y in ((a.start, b.start), (a.stop, b.stop))
    ):
        return None
    later = [m.substituted(renamed) for m in second.members]
    variables = {a.var for a in first.all_axes}
    before = [(m, list(m.accesses())) for m in first.members]
    after = [(m, list(m.accesses())) for m in later]
    for one, other in product(before, after):
        if not all(_needs_own(*pair, root, variables) for pair in ((one, other), (other, one))):
            return None
    count = len(second.axes if second.reduces else first.axes)
    axes, over = first.all_axes[:count], first.all_axes[count:]
    independent = first.independent & {renamed.get(v, v) for v in second.independent}
    return Group(axes, over, (*first.members, *later), first.tests, independent)


_Used: TypeAlias = tuple[Member, Sequence[tuple[Buffer, tuple[PrimExpr, ...]]]]


def _needs_own(
    writer: _Used, other: _Used, root: Callable[[Buffer], Buffer], variables: Iterable[Var]
) -> bool:
    """Whether an iteration of `other` needs what the same iteration of `writer` stores, at most."""
    one = writer[0]
    written = root(one.target)
    member, accesses = other
    for buffer, indices in accesses:
        if root(buffer) is not written:
            continue
        if one.combine is not None or (member.combine is not None and buffer is member.target):
            return False
        if not _same_element(one, buffer, indices, variables):
            return False
    return True


def _same_element(
    writer: Member, buffer: Buffer, indices: Sequence[PrimExpr], variables: Iterable[Var]
) -> bool:
    """Whether an access is that of the element which `writer` stores, one for each iteration."""
    if buffer.ndim != writer.target.ndim or writer.guards:
        return False
    if not all(a is b for a, b in zip(indices, writer.indices, strict=True)):
        return False
    if not all(any(mentions(i, {v}) for i in writer.indices) for v in variables):
        return False
    target = writer.target
    same = all(a is b for a, b in zip(buffer.shape, target.shape, strict=True))
    if same and not buffer.strides and not target.strides:
        return True
    strides = zip(strides_of(buffer), strides_of(target), strict=True)
    return all(as_poly(a).same(as_poly(b)) for a, b in strides)


def lane_axis(group: Group) -> Axis | None:
    """The axis whose iterations should be the lanes of vectors; None if no axis is suited."""
    best: tuple[float, Axis | None] = (1.0, None)
    dependent = {
        a.var
        for a in group.all_axes
        for b in group.all_axes
        if any(mentions(bound, {a.var}) for bound in (b.start, b.stop))
    }
    accesses = [*_accesses(group)]
    for number, axis in enumerate(group.all_axes, 1):
        is_last = number == len(group.all_axes)
        if axis.var in dependent or not (axis.var in group.independent or is_last):
            continue
        cost = _cost(group, axis, accesses)
        if cost <= best[0]:
            best = cost, axis
    return best[1]


def _accesses(group: Group) -> Iterator[tuple[Member, bool, IndexPoly]]:
    """The elements that an iteration reads, and the target, which is marked, with its member."""
    for member in group.members:
        for buffer, indices in member.reads():
            yield member, False, _position(buffer, indices)
        yield member, True, _position(member.target, member.indices)


def _position(buffer: Buffer, indices: Sequence[PrimExpr]) -> IndexPoly:
    position = as_poly(0)
    for index, stride in zip(indices, strides_of(buffer), strict=True):
        position = position + as_poly(index) * as_poly(stride)
    return position


def _cost(group: Group, axis: Axis, accesses: Sequence[tuple[Member, bool, IndexPoly]]) -> float:
    """The cost of an iteration with `axis` as lanes, where 1 is that of scalars."""
    lanes = 8.0
    extent = axis.extent.constant
    if extent is not None:
        lanes = min(lanes, max(extent, 1))
    is_summed = any(axis is a for a in group.over)
    costs = [
        _access_cost(position, axis.var, is_target=is_target)
        for member, is_target, position in accesses
        if not (is_target and is_summed and member.combine is not None)
    ]
    if _GATHER in costs:  # the time of distant elements, such as those of stores, decides
        costs = [_GATHER if cost > _REVERSED else cost for cost in costs]
    return (sum(costs) + 1) / (len(costs) + 1) / lanes


def _access_cost(position: IndexPoly, var: Var, *, is_target: bool) -> float:
    if not position.mentions({var}):
        return 0.5
    linear = affine(position, {var})
    step = None if linear is None else linear.constant(var)
    if step == -1:
        return _REVERSED
    if step is not None and 2 <= step <= LONGEST_STEP and not is_target:
        return step
    return 1.0 if step == 1 else _GATHER
