"""Which parts of a kernel must stay in order, and which loop carries that order."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import groupby, product
from typing import TypeAlias

from relaxpy.exec.kernel.nest.bounds import extremes, is_injective, reach
from relaxpy.exec.kernel.nest.nodes import Axis
from relaxpy.exec.kernel.plan.conflicts import possible_conflicts
from relaxpy.exec.kernel.plan.parts import Access, Group, Part, Statement
from relaxpy.exec.kernel.plan.updates import arg_extreme_of, update_of
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, as_poly, quotient
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var


class Direction(Enum):
    """How one iteration of a loop lies to another one of it."""

    EARLIER = auto()
    SAME = auto()
    LATER = auto()


EARLIER, SAME, LATER = Direction
Directions: TypeAlias = list[set[Direction]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Part `source` must come before part `sink`.

    `directions` say for each common loop how the source's round lies to the sink's: the first that
    is not the same carries the order, which holds within one round of all of them if there is none.
    An order of a statement with itself is `kept_at_once` where performing several iterations at
    once, in the order of their loops, keeps it: elements are read before a later iteration
    overwrites them, and of stores to one computed element the last counts. It says nothing of other
    orders.
    """

    source: int
    sink: int
    directions: tuple[frozenset[Direction], ...]
    kept_at_once: bool = False


def edges(
    parts: Sequence[Part], sizes: Container[Var], roots: Mapping[Buffer, Buffer]
) -> set[Edge]:
    """The orders among those of `parts`, which stand in the order of the text, that share a loop.

    Parts without a common loop stay in the order of the text.
    """
    compare = _Comparison(sizes)
    found: set[Edge] = set()
    begin = 0
    for _, together in groupby(parts, lambda part: part.axes[0].var if part.axes else None):
        members = tuple(together)
        for i, j in possible_conflicts(members, sizes, roots):
            found.update(_between(begin + i, members[i], begin + j, members[j], roots, compare))
        begin += len(members)
    return found


def _between(
    i: int,
    first: Part,
    j: int,
    second: Part,
    roots: Mapping[Buffer, Buffer],
    compare: _Comparison,
) -> Iterator[Edge]:
    common = common_axes(first, second)
    for x, y in _pairs(first, second):
        if roots.get(x.buffer, x.buffer) is not roots.get(y.buffer, y.buffer):
            continue
        found = compare.directions(x, first.axes, y, second.axes, common)
        if found is None:
            continue
        scattered = x is y and None in x.maps
        for level, possible in enumerate(found):
            if EARLIER in possible:
                yield Edge(i, j, _carried(found, level), scattered)
            if LATER in possible:
                # Of two stores each may come later: the other order, above, is not kept.
                yield Edge(j, i, _carried(_reversed(found), level), True)
            if SAME not in possible:
                break
        else:
            if i != j:
                yield Edge(i, j, (frozenset((SAME,)),) * common)


def _carried(found: Directions, level: int) -> tuple[frozenset[Direction], ...]:
    """The directions of what the loop at `level` carries: the same round of all loops around it."""
    outer = [frozenset((SAME,))] * level
    return (*outer, frozenset((EARLIER,)), *map(frozenset, found[level + 1 :]))


def _reversed(found: Directions) -> Directions:
    swap = {EARLIER: LATER, SAME: SAME, LATER: EARLIER}
    return [{swap[d] for d in possible} for possible in found]


def _pairs(first: Part, second: Part) -> Iterator[tuple[Access, Access]]:
    """Accesses of which one writes.

    What a part accumulates meets itself in any order, but not in memory that it has two names for.
    """
    if first is second:
        match first:
            case Group() if arg_extreme_of(first) is not None:
                every = product(first.writes, (*first.writes, *first.reads))
                yield from ((x, y) for x, y in every if x.buffer is not y.buffer)
                return
            case Statement(write=write) if update_of(first) is not None:
                yield from ((write, y) for y in first.reads if not _same_access(y, write))
                return
            case _:
                pass
    yield from product(first.writes, (*second.writes, *second.reads))
    if first is not second:
        yield from product(first.reads, second.writes)


def _same_access(x: Access, y: Access) -> bool:
    return x.buffer is y.buffer and all(a is b for a, b in zip(x.indices, y.indices, strict=True))


def common_axes(first: Part, second: Part) -> int:
    """The number of loops around both, which are the outermost of each."""
    return sum(a.var is b.var for a, b in zip(first.axes, second.axes, strict=False))


class _Comparison:
    """Compares accesses, those that look alike once."""

    def __init__(self, sizes: Container[Var]) -> None:
        self.sizes = sizes
        self._found: dict[object, Directions | None] = {}
        self._ends: dict[object, list[Ends]] = {}

    def directions(
        self, x: Access, x_axes: Sequence[Axis], y: Access, y_axes: Sequence[Axis], common: int
    ) -> Directions | None:
        """Per common loop, how an iteration of x may lie to one of y that meets the same element.

        None if no two meet.
        """
        key = x.buffer, x.indices, x_axes, y.buffer, y.indices, y_axes
        if key not in self._found:
            self._found[key] = self._directions(x, x_axes, y, y_axes, common)
        return self._found[key]

    def _directions(
        self, x: Access, x_axes: Sequence[Axis], y: Access, y_axes: Sequence[Axis], common: int
    ) -> Directions | None:
        sizes = self.sizes
        ends = self._ends.get((x_axes, y_axes))
        if ends is None:
            ends = self._ends[x_axes, y_axes] = []
            for a, b in zip(x_axes[:common], y_axes[:common], strict=True):
                of_x, of_y = reach(a, x_axes, sizes), reach(b, y_axes, sizes)
                ends.append(None if of_x is None or of_y is None else (of_x, of_y))
        possible: Directions = [_by_range(both, sizes) for both in ends]
        if x.buffer is not y.buffer:
            return possible
        shared = {axis.var: level for level, axis in enumerate(x_axes[:common])}
        for f, g, size in zip(x.maps, y.maps, x.buffer.shape, strict=False):
            if f is None or g is None:
                continue
            if not _restrict(possible, f, x_axes, g, y_axes, shared, ends, size, sizes):
                return None
        return possible if all(possible) else None


Ends: TypeAlias = tuple[tuple[IndexPoly, IndexPoly], tuple[IndexPoly, IndexPoly]] | None
"""The first and last values that a loop's variable takes, for either part, in any round of the
loops around it."""


def _by_range(ends: Ends, sizes: Container[Var]) -> set[Direction]:
    """What the bounds of one loop, perhaps divided differently for two parts, leave possible."""
    possible = set(Direction)
    if ends is None:
        return possible
    (a_start, a_last), (b_start, b_last) = ends
    if (b_start - a_last).is_at_least(0, sizes):
        possible.discard(LATER)
    if (a_start - b_last).is_at_least(0, sizes):
        possible.discard(EARLIER)
    if _is_less(a_last, b_start, sizes) or _is_less(b_last, a_start, sizes):
        possible.discard(SAME)
    return possible


def _is_less(a: IndexPoly, b: IndexPoly, sizes: Container[Var]) -> bool:
    """Whether `a` is proved to be less than `b`."""
    return (b - a).is_at_least(1, sizes)


def _restrict(
    possible: Directions,
    f: Affine,
    x_axes: Sequence[Axis],
    g: Affine,
    y_axes: Sequence[Axis],
    shared: dict[Var, int],
    ends: Sequence[Ends],
    size: PrimExpr,
    sizes: Container[Var],
) -> bool:
    """Narrow `possible` by one dimension of that `size`, x at `f` and y at `g` there.

    False if they never meet.
    """
    gap = f.offset - g.offset
    if set(f.coefficients) == set(g.coefficients) <= set(shared) and all(
        c.same(g.coefficients[v]) for v, c in f.coefficients.items()
    ):
        if len(f.coefficients) == 1:
            [(var, factor)] = f.coefficients.items()
            level = shared[var]
            if not gap.terms:
                if _moves(factor, size, sizes):
                    possible[level] &= {SAME}
                return True
            return _one_axis(possible, level, factor, gap, ends[level], sizes)
        alike = all(_run_alike(x_axes[shared[v]], y_axes[shared[v]]) for v in f.coefficients)
        if not gap.terms and alike and is_injective(f, x_axes, sizes):
            for var in f.coefficients:
                possible[shared[var]] &= {SAME}
            return True
    lowest, highest = extremes(f, x_axes, sizes), extremes(g, y_axes, sizes)
    if lowest is None or highest is None:
        return True
    f_low, f_high = lowest
    g_low, g_high = highest
    return not (_is_less(g_high, f_low, sizes) or _is_less(f_high, g_low, sizes))


def _run_alike(a: Axis, b: Axis) -> bool:
    return as_poly(a.start).same(as_poly(b.start)) and as_poly(a.stop).same(as_poly(b.stop))


def _moves(factor: IndexPoly, size: PrimExpr, sizes: Container[Var]) -> bool:
    """Whether a stride of `factor` is never 0, unless the dimension has no element."""
    zero = as_poly(0)
    if _is_less(zero, factor, sizes) or _is_less(factor, zero, sizes):
        return True
    return quotient(as_poly(size), factor) is not None


def _one_axis(
    possible: Directions,
    level: int,
    factor: IndexPoly,
    gap: IndexPoly,
    ends: Ends,
    sizes: Container[Var],
) -> bool:
    """x at factor * v + gap and y at factor * v: y's round comes gap / factor later."""
    step, distance = factor.constant, gap.constant
    if step is None:
        return True
    if distance is None:
        ahead, zero = gap if step > 0 else gap * -1, as_poly(0)
        if _is_less(zero, ahead, sizes):
            possible[level] &= {EARLIER}
        elif _is_less(ahead, zero, sizes):
            possible[level] &= {LATER}
        return True
    if distance % step:
        return False
    rounds = distance // step
    direction = EARLIER if rounds > 0 else LATER
    if ends is not None:
        x, y = ends
        farthest = y[1] - x[0] if direction is EARLIER else x[1] - y[0]
        if _is_less(farthest, as_poly(abs(rounds)), sizes):
            return False
    possible[level] &= {direction}
    return True
