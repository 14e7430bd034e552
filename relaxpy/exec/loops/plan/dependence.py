"""The dependences between statements of a kernel, and the loops that carry them.

Pairs of statements that may access common memory come first: most stores are disjoint. Iterations
of two statements that access the same element are found by solving for them (`aligned_axes`).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from enum import Enum, auto
from itertools import groupby, permutations, product, takewhile
from typing import TypeAlias

from relaxpy.exec.loops.nest.bounds import bounds_of, bounds_of_axis, is_injective
from relaxpy.exec.loops.nest.nodes import Axis
from relaxpy.exec.loops.plan.arg_extremes import arg_extreme_of
from relaxpy.exec.loops.plan.statements import Access, Assignment, Compound, Statement, access
from relaxpy.ir.arith.algebra.affine import Affine, IndexPoly, affine, as_poly, quotient
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import PrimExpr, Var
from relaxpy.support.dataclass import dataclass, replace


class Direction(Enum):
    """The position of one iteration of a loop relative to another iteration."""

    EARLIER = auto()
    SAME = auto()
    LATER = auto()


EARLIER, SAME, LATER = Direction
Directions: TypeAlias = list[set[Direction]]


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependence: statement `source` must run before statement `sink`.

    `directions` has the possible positions of the source's iteration relative to the sink's for
    each common loop. The first loop where these differ carries the dependence; if they are the same
    for all, it is loop-independent. A dependence of a statement on itself is `kept_by_vectorising`
    if executing many iterations at once preserves it: all loads precede all stores, and the last
    store to a computed element remains. Other dependences do not use this field.
    """

    source: int
    sink: int
    directions: tuple[frozenset[Direction], ...]
    kept_by_vectorising: bool = False


def edges(
    statements: Sequence[Statement], shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> set[Edge]:
    """The dependences between `statements`, in source order, that share a loop.

    Statements without a common loop stay in source order.
    """
    compare = _Comparison(shape_vars)
    result: set[Edge] = set()
    begin = 0
    for _, nest in groupby(statements, lambda s: s.axes[0].var if s.axes else None):
        members = tuple(nest)
        for i, j in possible_conflicts(members, shape_vars, roots):
            result.update(_between(begin + i, members[i], begin + j, members[j], roots, compare))
        begin += len(members)
    return result


def _between(
    i: int,
    first: Statement,
    j: int,
    second: Statement,
    roots: Mapping[Buffer, Buffer],
    compare: _Comparison,
) -> Iterator[Edge]:
    common = common_axes(first, second)
    loops = {axis.var for axis in first.axes[:common]}
    for x, y in _pairs(first, second):
        if roots.get(x.buffer, x.buffer) is not roots.get(y.buffer, y.buffer):
            continue
        if i == j and x.buffer is y.buffer and loops <= common_indices(x.indices, y.indices):
            continue  # only the same iteration accesses the same element
        directions = compare.directions(x, first.axes, y, second.axes, common)
        if directions is None:
            continue
        scattered = x is y and None in x.maps
        for level, possible in enumerate(directions):
            if EARLIER in possible:
                yield Edge(i, j, _carried(directions, level), scattered)
            if LATER in possible:
                # For an output dependence the edge above requires the loop to be serial.
                yield Edge(j, i, _carried(_reversed(directions), level), True)
            if SAME not in possible:
                break
        else:
            if i != j:
                yield Edge(i, j, (frozenset((SAME,)),) * common)


def independent_axes(
    statement: Statement,
    serial: Container[Var],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
    *,
    reduces: bool,
) -> frozenset[Var]:
    """The variables of parallel loops around `statement`.

    Conflicting iterations (one writes) differ in none of them; with `reduces`, the caller combines
    accumulations into one element itself. Loops in `serial` enclose all others, so that their
    variables are the same. `roots` maps buffers to those of the same shape whose memory they use.
    """
    own = _pairs if reduces else _conflicts
    found = _axes_that_agree(own(statement, statement), statement.axes, serial, shape_vars, roots)
    inner = tuple(axis for axis in statement.axes if axis.var not in serial)
    if (
        not isinstance(statement, Assignment)
        or len(found) == len(inner)
        or len(inner) == len(statement.axes)
    ):
        return found
    # The variables in `serial` have one value, which may be unknown, where their bounds decide
    # nothing: `k` and `k + j + 1` are different then.
    statement = replace(statement, axes=inner)
    return found | _axes_that_agree(own(statement, statement), inner, (), shape_vars, roots)


def meets_itself(
    first: Assignment,
    second: Assignment,
    axes: Sequence[Axis],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
) -> bool:
    """True if two iterations that conflict (one writes) are the same iteration of `axes`.

    Both statements are in these loops, and in the same iteration of those that enclose them.
    """
    loops = frozenset(axis.var for axis in axes)
    serial = [axis for axis in first.axes if axis.var not in loops]
    outer = {axis.var for axis in serial}
    pairs = (
        (writer.write, access(buffer, indices, loops | outer))
        for writer, other in ((first, second), (second, first))
        for buffer, indices in other.elements()
        if roots.get(buffer, buffer) is roots.get(writer.target, writer.target)
        if not loops <= common_indices(writer.indices, indices)
    )
    return _axes_that_agree(pairs, (*serial, *axes), outer, shape_vars, roots) == loops


def may_run_at_once(
    axis: Axis,
    statements: Sequence[Statement],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
) -> bool:
    """True if `axis`, a loop around all `statements`, is parallel.

    No iteration then writes elements that another one accesses.
    """
    compare = _Comparison(shape_vars)
    for i, j in possible_conflicts(statements, shape_vars, roots):
        first, second = statements[i], statements[j]
        common = common_axes(first, second)
        level = next((n for n in range(common) if first.axes[n].var is axis.var), None)
        if level is None:
            return False
        for x, y in _conflicts(first, second):
            root = roots.get(x.buffer, x.buffer)
            if root is not roots.get(y.buffer, y.buffer):
                continue
            x, y = (Access(root, a.indices, a.maps) for a in (x, y))
            directions = compare.directions(x, first.axes, y, second.axes, common)
            if directions is not None and directions[level] != {SAME}:
                return False
    return True


def common_indices(first: Sequence[PrimExpr], second: Sequence[PrimExpr]) -> Set[Var]:
    """The variables that are equal if both are indices of the same element.

    An access of all elements has no indices.
    """
    return {a for a, b in zip(first, second, strict=False) if a is b and isinstance(a, Var)}


def _axes_that_agree(
    pairs: Iterable[tuple[Access, Access]],
    axes: Sequence[Axis],
    serial: Container[Var],
    shape_vars: Container[Var],
    roots: Mapping[Buffer, Buffer],
) -> frozenset[Var]:
    """The variables that are equal whenever both accesses of a pair are of the same element.

    Those of loops in `serial` are known to be.
    """
    compare = _Comparison(shape_vars)
    found = {axis.var for axis in axes if axis.var not in serial}
    for x, y in pairs:
        root = roots.get(x.buffer, x.buffer)
        if root is not roots.get(y.buffer, y.buffer) or found <= common_indices(
            x.indices, y.indices
        ):
            continue
        x, y = (Access(root, a.indices, a.maps) for a in (x, y))
        directions = compare.directions(x, axes, y, axes, len(axes))
        if directions is None:
            continue
        levels = list(zip(axes, directions, strict=True))
        if all(SAME in possible for axis, possible in levels if axis.var in serial):
            found &= {axis.var for axis, possible in levels if possible == {SAME}}
    return frozenset(found)


def _carried(directions: Directions, level: int) -> tuple[frozenset[Direction], ...]:
    """The directions of a dependence carried by the loop at `level`: outer ones are the same."""
    outer = [frozenset((SAME,))] * level
    return (*outer, frozenset((EARLIER,)), *map(frozenset, directions[level + 1 :]))


def _reversed(directions: Directions) -> Directions:
    swap = {EARLIER: LATER, SAME: SAME, LATER: EARLIER}
    return [{swap[d] for d in possible} for possible in directions]


def _pairs(first: Statement, second: Statement) -> Iterator[tuple[Access, Access]]:
    """Pairs of accesses of which one writes.

    The iterations of a reduction may run in any order, except for aliases of its target.
    """
    if first is second:
        match first:
            case Compound() if arg_extreme_of(first) is not None:
                every = product(first.writes, (*first.writes, *first.reads))
                yield from ((x, y) for x, y in every if x.buffer is not y.buffer)
                return
            case Assignment(write=write) if first.update is not None:
                yield from ((write, y) for y in first.reads if not _same_access(y, write))
                return
            case _:
                pass
    yield from _conflicts(first, second)


def _conflicts(first: Statement, second: Statement) -> Iterator[tuple[Access, Access]]:
    """Pairs of accesses of which one writes, in any statement."""
    yield from product(first.writes, (*second.writes, *second.reads))
    if first is not second:
        yield from product(first.reads, second.writes)


def _same_access(x: Access, y: Access) -> bool:
    return x.buffer is y.buffer and all(a is b for a, b in zip(x.indices, y.indices, strict=True))


def common_axes(first: Statement, second: Statement) -> int:
    """The number of common loops, which are the outermost of both."""
    pairs = zip(first.axes, second.axes, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0].var is pair[1].var, pairs))


class _Comparison:
    """Compares pairs of accesses, with memoised results."""

    def __init__(self, shape_vars: Container[Var]) -> None:
        self.shape_vars = shape_vars
        self._results: dict[object, Directions | None] = {}
        self._ends: dict[object, list[Ends]] = {}

    def directions(
        self, x: Access, x_axes: Sequence[Axis], y: Access, y_axes: Sequence[Axis], common: int
    ) -> Directions | None:
        """For each common loop, the directions between x and y when they access one element.

        None if they never do.
        """
        key = x.buffer, x.indices, x_axes, y.buffer, y.indices, y_axes
        if key not in self._results:
            self._results[key] = self._directions(x, x_axes, y, y_axes, common)
        return self._results[key]

    def _directions(
        self, x: Access, x_axes: Sequence[Axis], y: Access, y_axes: Sequence[Axis], common: int
    ) -> Directions | None:
        shape_vars = self.shape_vars
        ends = self._ends.get((x_axes, y_axes))
        if ends is None:
            ends = self._ends[x_axes, y_axes] = []
            for a, b in zip(x_axes[:common], y_axes[:common], strict=True):
                of_x, of_y = (
                    bounds_of_axis(a, x_axes, shape_vars),
                    bounds_of_axis(b, y_axes, shape_vars),
                )
                ends.append(None if of_x is None or of_y is None else (of_x, of_y))
        possible: Directions = [_by_range(both, shape_vars) for both in ends]
        if x.buffer is not y.buffer:
            return possible
        shared = {axis.var: level for level, axis in enumerate(x_axes[:common])}
        for f, g, size in zip(x.maps, y.maps, x.buffer.shape, strict=False):
            if f is None or g is None:
                continue
            if not _restrict(possible, f, x_axes, g, y_axes, shared, ends, size, shape_vars):
                return None
        return possible if all(possible) else None


Ends: TypeAlias = tuple[tuple[IndexPoly, IndexPoly], tuple[IndexPoly, IndexPoly]] | None
"""The minimum and maximum of a loop variable, for either statement, over the enclosing loops."""


def _by_range(ends: Ends, shape_vars: Container[Var]) -> set[Direction]:
    """The directions that the bounds of one loop permit; these may differ for the statements."""
    possible = set(Direction)
    if ends is None:
        return possible
    (a_start, a_last), (b_start, b_last) = ends
    if b_start.exceeds(a_last, 0, shape_vars):
        possible.discard(LATER)
    if a_start.exceeds(b_last, 0, shape_vars):
        possible.discard(EARLIER)
    if _is_less(a_last, b_start, shape_vars) or _is_less(b_last, a_start, shape_vars):
        possible.discard(SAME)
    return possible


def _is_less(a: IndexPoly, b: IndexPoly, shape_vars: Container[Var]) -> bool:
    """True if `a` is provably less than `b`."""
    return b.exceeds(a, 1, shape_vars)


def _restrict(
    possible: Directions,
    f: Affine,
    x_axes: Sequence[Axis],
    g: Affine,
    y_axes: Sequence[Axis],
    shared: dict[Var, int],
    ends: Sequence[Ends],
    size: PrimExpr,
    shape_vars: Container[Var],
) -> bool:
    """Restrict `possible` by one dimension of that `size`, where x has index `f` and y `g`.

    False if the indices are never equal.
    """
    gap = f.offset - g.offset
    if len(f.coefficients) == 1 and f.coefficients.keys() == g.coefficients.keys() <= shared.keys():
        [(var, factor)] = f.coefficients.items()
        if factor.same(g.coefficients[var]):
            level = shared[var]
            if not gap.terms:
                if _is_nonzero_stride(factor, size, shape_vars):
                    possible[level] &= {SAME}
                return True
            return _restrict_shared(possible, level, factor, gap, ends[level], shape_vars)
    elif not gap.terms and (same := _same_digits(f, x_axes, g, y_axes, shape_vars)) is not None:
        for var in same & shared.keys():
            possible[shared[var]] &= {SAME}
        return True
    lowest, highest = bounds_of(f, x_axes, shape_vars), bounds_of(g, y_axes, shape_vars)
    if lowest is None or highest is None:
        return True
    f_low, f_high = lowest
    g_low, g_high = highest
    return not (_is_less(g_high, f_low, shape_vars) or _is_less(f_high, g_low, shape_vars))


def _same_digits(
    f: Affine, x_axes: Sequence[Axis], g: Affine, y_axes: Sequence[Axis], shape_vars: Container[Var]
) -> Set[Var] | None:
    """The variables of both `f` and `g` that are the same where these are equal.

    None if they are not numbers of the same digits, each of which may be another variable.
    """
    if len(f.coefficients) != len(g.coefficients) or not is_injective(f, x_axes, shape_vars):
        return None
    axes, others = {a.var: a for a in x_axes}, {a.var: a for a in y_axes}
    digits: dict[Var, Var] = {}
    for var, factor in f.coefficients.items():
        other = next((v for v, c in g.coefficients.items() if c.same(factor)), None)
        if other is None or not axes[var].has_bounds_of(others[other]):
            return None
        digits[other] = var
    if len(digits) < len(f.coefficients):
        return None
    return {var for other, var in digits.items() if var is other}


def _is_nonzero_stride(factor: IndexPoly, size: PrimExpr, shape_vars: Container[Var]) -> bool:
    """True if `factor` is never 0, unless the dimension has no element."""
    zero = as_poly(0)
    if _is_less(zero, factor, shape_vars) or _is_less(factor, zero, shape_vars):
        return True
    return quotient(as_poly(size), factor) is not None


def _restrict_shared(
    possible: Directions,
    level: int,
    factor: IndexPoly,
    gap: IndexPoly,
    ends: Ends,
    shape_vars: Container[Var],
) -> bool:
    """As `_restrict`, for f = factor * v + gap and g = factor * v: the distance is gap / factor."""
    step, difference = factor.constant, gap.constant
    if step is None:
        return True
    if difference is None:
        ahead, zero = gap if step > 0 else gap * -1, as_poly(0)
        if _is_less(zero, ahead, shape_vars):
            possible[level] &= {EARLIER}
        elif _is_less(ahead, zero, shape_vars):
            possible[level] &= {LATER}
        return True
    if difference % step:
        return False
    distance = difference // step
    direction = EARLIER if distance > 0 else LATER
    if ends is not None:
        x, y = ends
        farthest = y[1] - x[0] if direction is EARLIER else x[1] - y[0]
        if _is_less(farthest, as_poly(abs(distance)), shape_vars):
            return False
    possible[level] &= {direction}
    return True


@dataclass(frozen=True, slots=True, eq=False)
class _Use:
    """An access by statement number `statement`."""

    statement: int
    access: Access
    writes: bool


def possible_conflicts(
    statements: Sequence[Statement], shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> set[tuple[int, int]]:
    """Pairs of statements, by number, that are not proved independent.

    Two statements may conflict if one writes memory that the other accesses. Every statement is
    paired with itself, as its iterations may conflict. Transitively implied pairs are omitted.
    """
    pairs = {(i, i) for i in range(len(statements))}
    if len(statements) == 1:
        return pairs
    uses: dict[Buffer, list[_Use]] = {}
    for i, statement in enumerate(statements):
        for writes, accesses in ((True, statement.writes), (False, statement.reads)):
            for use in accesses:
                root = roots.get(use.buffer, use.buffer)
                uses.setdefault(root, []).append(_Use(i, use, writes))
    for group in uses.values():
        for first, second in _overlapping_pairs(group, statements, shape_vars):
            if first.writes or second.writes:
                i, j = sorted((first.statement, second.statement))
                pairs.add((i, j))
    return pairs


def _overlapping_pairs(
    group: list[_Use], statements: Sequence[Statement], shape_vars: Container[Var]
) -> Iterator[tuple[_Use, _Use]]:
    """Pairs of uses of one buffer, without those that are disjoint in some dimension."""
    if not any(use.writes for use in group) or len({use.statement for use in group}) == 1:
        return
    groups = [group]
    buffer, rank = group[0].access.buffer, len(group[0].access.maps)
    spans: dict[_Use, list[_Span]] = {use: [] for use in group}
    if all(u.access.buffer is buffer and len(u.access.maps) == rank for u in group):
        spans = {use: _spans(use, statements[use.statement], shape_vars) for use in group}
        for dimension in range(rank):
            along = {use: dims[dimension] for use, dims in spans.items()}
            divided = [_disjoint_groups(g, along, shape_vars) for g in groups]
            for members, (_, overlapping) in zip(groups, divided, strict=True):
                yield from ((first, second) for first in overlapping for second in members)
            groups = [g for disjoint, _ in divided for g in disjoint]
    boxes = {use: list(map(_constant_span, dims)) for use, dims in spans.items()}
    for members in groups:
        same: dict[object, list[_Use]] = {}
        for use in members:
            key = use.access.buffer, use.access.indices, statements[use.statement].axes
            same.setdefault(key, []).append(use)
        for uses in same.values():
            yield from _successive(uses)
        for of_first, of_second in permutations(same.values(), 2):
            if not _are_disjoint(boxes[of_first[0]], boxes[of_second[0]]):
                yield from product((use for use in of_first if use.writes), of_second)


def _successive(uses: list[_Use]) -> Iterator[tuple[_Use, _Use]]:
    """Pairs of uses of the same elements in the same loops without a store between them.

    Their dependences imply those of the other pairs, which have the same directions.
    """
    since_store: list[_Use] = []
    for use in uses:
        if use.writes:
            yield from ((before, use) for before in since_store)
            since_store.clear()
        elif since_store and since_store[0].writes:
            yield since_store[0], use
        since_store.append(use)


_Span: TypeAlias = tuple[IndexPoly, IndexPoly] | None
"""The minimum and maximum index of a use in one dimension."""


def _spans(use: _Use, statement: Statement, shape_vars: Container[Var]) -> list[_Span]:
    return [
        None if m is None else bounds_of(m, statement.axes, shape_vars) for m in use.access.maps
    ]


def _constant_span(span: _Span) -> tuple[int, int] | None:
    if span is None or span[0].constant is None or span[1].constant is None:
        return None
    return span[0].constant, span[1].constant


def _are_disjoint(a_box: list[tuple[int, int] | None], b_box: list[tuple[int, int] | None]) -> bool:
    return any(
        a is not None and b is not None and (a[1] < b[0] or b[1] < a[0])
        for a, b in zip(a_box, b_box, strict=True)
    )


def _disjoint_groups(
    group: list[_Use], along: Mapping[_Use, _Span], shape_vars: Container[Var]
) -> tuple[list[list[_Use]], list[_Use]]:
    """The uses in groups with increasing spans, and those that may overlap several groups.

    Rule:
        The first use of a group starts after all uses of the previous group have ended; the other
        uses of the group start no earlier. So each use ends before all uses of later groups start.
    """
    spans: dict[_Use, tuple[IndexPoly, IndexPoly]] = {}
    for use in group:
        span = along[use]
        if span is None:
            return [group], []
        spans[use] = span
    ends = [end.constant for _, end in spans.values()]
    if None not in ends:
        group = sorted(group, key=lambda use: spans[use][1].constant or 0)
    groups: list[list[_Use]] = []
    overlapping: list[_Use] = []
    for use in group:
        start = spans[use][0]
        if not groups:
            groups.append([use])
        elif not start.exceeds(spans[groups[-1][0]][0], 0, shape_vars):
            overlapping.append(use)
        elif all(start.exceeds(spans[o][1], 1, shape_vars) for o in reversed(groups[-1])):
            groups.append([use])
        else:
            groups[-1].append(use)
    return groups, overlapping


def aligned_axes(
    indices: Sequence[PrimExpr],
    axes: Sequence[Axis],
    other_indices: Sequence[PrimExpr],
    other_axes: Sequence[Axis],
) -> dict[Var, PrimExpr] | None:
    """The values of `axes` in the iteration of `other_axes` that accesses the same element.

    None unless each iteration has exactly one counterpart, which the axes decide one by one, or one
    of `axes` for several others, whose iterations it numbers. An axis of one iteration needs no
    counterpart. Variables that are the same in both are left out.
    """
    own, others = {a.var: a for a in axes}, {a.var: a for a in other_axes}
    pairs: set[tuple[Var, Var]] = set()
    points: dict[Var, PrimExpr] = {}
    numbers: dict[Var, PrimExpr] = {}
    digits: list[Var] = []
    for index, other in zip(indices, other_indices, strict=True):
        f, g = affine(index, own.keys()), affine(other, others.keys())
        if f is None or g is None or len(f.coefficients) > 1:
            return None
        if f.coefficients and len(g.coefficients) > 1:
            [x] = f.coefficients
            number = _number(f, own[x], g, others)
            if number is None or x in numbers:
                return None
            # The same expression where possible, so that both accesses have equal indices.
            value = other if isinstance(index, Var) else number.expr()
            numbers[x] = ops.cast_to(value, x.dtype)
            digits += g.coefficients
            continue
        if f.coefficients and g.coefficients:
            [(x, factor)], [(y, other_factor)] = f.coefficients.items(), g.coefficients.items()
            if not own[x].has_bounds_of(others[y]) or not factor.same(other_factor):
                return None
            pairs.add((x, y))
        elif len(g.coefficients) > 1:
            return None
        else:
            used = [own[x] for x in f.coefficients] + [others[y] for y in g.coefficients]
            if not all(axis.extent.same(1) for axis in used):
                return None
            points |= {axis.var: axis.start for axis in used}
            f, g = _at(f, points), _at(g, points)
        if not f.offset.same(g.offset):
            return None
    mine, theirs = [*{x for x, _ in pairs}, *numbers], [*{y for _, y in pairs}, *digits]
    if not len(set(mine)) == len(mine) == len(pairs) + len(numbers):
        return None
    if not len(set(theirs)) == len(theirs) == len(pairs) + len(digits):
        return None
    if not own.keys() <= {*mine, *points} or not others.keys() <= {*theirs, *points}:
        return None
    values = numbers | {x: ops.cast_to(start, x.dtype) for x, start in points.items() if x in own}
    return values | {x: ops.cast_to(y, x.dtype) for x, y in pairs if x is not y}


def _number(f: Affine, axis: Axis, g: Affine, others: Mapping[Var, Axis]) -> IndexPoly | None:
    """The value of `axis`, alone in `f`, where `g` has the value of `f`.

    None unless it numbers the iterations of all axes of `g`, one inside the other.
    """
    [factor] = f.coefficients.values()
    if factor.constant != 1:
        return None
    rest, count = dict(g.coefficients), as_poly(1)
    while rest:
        var = next((v for v, stride in rest.items() if stride.same(count)), None)
        if var is None:
            return None
        count = count * others[var].extent
        del rest[var]
    start = {var: others[var].start for var in g.coefficients}
    first = (_at(g, start).offset - f.offset).same(as_poly(axis.start))
    if not first or not count.same(axis.extent):
        return None
    return _at(g, {var: var for var in g.coefficients}).offset - f.offset


def _at(map: Affine, values: Mapping[Var, PrimExpr]) -> Affine:
    """`map` where its variables have these values."""
    terms = (factor * as_poly(values[var]) for var, factor in map.coefficients.items())
    return Affine({}, sum(terms, map.offset))
