"""Schedules statements as a tree: distributes loops, and keeps those that carry a dependence.

Rule:
    Allen and Kennedy, "Automatic translation of FORTRAN programs to vector form", TOPLAS 9(4),
    1987. A loop of a cycle may also be interchanged outward if its directions permit.

Split loops become one again before that: axes are coalesced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from heapq import heappop, heappush
from itertools import permutations

from relaxpy.exec.loops.nest import domain
from relaxpy.exec.loops.nest.bounds import is_one_to_one, may_fail
from relaxpy.exec.loops.nest.nodes import Axis, loads
from relaxpy.exec.loops.plan.arg_extremes import arg_extreme_of
from relaxpy.exec.loops.plan.dependence import EARLIER, LATER, Edge, common_axes, edges
from relaxpy.exec.loops.plan.idioms import scan_of
from relaxpy.exec.loops.plan.statements import Assignment, Compound, Statement
from relaxpy.exec.loops.plan.tree import Contraction, For, Run, Tree
from relaxpy.exec.loops.plan.unschedule import canonical, coalesced_axis
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.arith.algebra.folding import conjuncts
from relaxpy.ir.core.traverse import occurrences, strongly_connected
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions, substitute
from relaxpy.support.dataclass import replace


def schedule(
    statements: Sequence[Statement], shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> tuple[Tree, ...]:
    """The trees that execute `statements`, which are in source order.

    `roots` maps buffers to the buffers that own their memory.
    """
    statements = tables_first(statements, shape_vars, roots)
    orders = edges(statements, shape_vars, roots)
    return tuple(
        _Scheduler(statements, shape_vars, roots).trees(range(len(statements)), orders, ())
    )


def tables_first(
    statements: Sequence[Statement], shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> Sequence[Statement]:
    """The statements, those first that compute tables, so that the others can be fused.

    A table has fewer loops than each reader, but for tables among these, and needs no result of
    the statements that it passes. It cannot fail.
    """
    early = _tables(statements, shape_vars, roots)
    if not early:
        return statements
    order = _arranged(statements, early, roots, {})
    if order == sorted(order):
        return statements
    # A table leaves the loops that it shares with others, which is distribution: nothing there may
    # have to come before it.
    before: dict[int, set[int]] = {}
    for edge in edges(statements, shape_vars, roots):
        if edge.source != edge.sink:
            before.setdefault(edge.sink, set()).add(edge.source)
    return tuple(statements[n] for n in _arranged(statements, early, roots, before))


def _arranged(
    statements: Sequence[Statement],
    early: set[int],
    roots: Mapping[Buffer, Buffer],
    before: Mapping[int, set[int]],
) -> list[int]:
    """The numbers of the statements, first those of `early` that can pass the others.

    A statement comes after those that it has in `before`.
    """
    first: list[int] = []
    rest: list[int] = []
    used: set[Buffer] = set()
    written: set[Buffer] = set()
    for number, statement in enumerate(statements):
        reads, writes = (
            {roots.get(a.buffer, a.buffer) for a in accesses}
            for accesses in (statement.reads, statement.writes)
        )
        if (
            number in early
            and before.get(number, set()).issubset(first)
            and used.isdisjoint(writes)
            and written.isdisjoint(reads)
        ):
            first.append(number)
            continue
        rest.append(number)
        used |= reads | writes
        written |= writes
    return [*first, *rest]


def _tables(
    statements: Sequence[Statement], shape_vars: Container[Var], roots: Mapping[Buffer, Buffer]
) -> set[int]:
    """The numbers of the statements that compute tables."""
    counts = [sum(not domain.is_point(a) for a in s.axes) for s in statements]
    most = max(counts, default=0)
    writers = Counter(roots.get(w.buffer, w.buffer) for s in statements for w in s.writes)
    readers: dict[Buffer, list[int]] = {}
    for number, statement in enumerate(statements):
        for buffer in {roots.get(r.buffer, r.buffer) for r in statement.reads}:
            readers.setdefault(buffer, []).append(number)
    found: set[int] = set()
    for number, statement in reversed([*enumerate(statements)]):
        if not isinstance(statement, Assignment) or counts[number] == most:
            continue
        memory = roots.get(statement.target, statement.target)
        later = readers.get(memory, ())
        if (
            later
            and writers[memory] == 1
            and all(n in found or counts[number] < counts[n] for n in later)
            and not any(
                may_fail(e, statement.axes, shape_vars)
                for e in (statement.value, *statement.indices, *statement.guards)
            )
        ):
            found.add(number)
    return found


class _Scheduler:
    def __init__(
        self,
        statements: Sequence[Statement],
        shape_vars: Container[Var],
        roots: Mapping[Buffer, Buffer],
    ) -> None:
        self.statements = statements
        self.shape_vars = shape_vars
        self.roots = roots

    def trees(
        self, members: Iterable[int], orders: set[Edge], serial: tuple[Axis, ...]
    ) -> Iterable[Tree]:
        """The trees of `members` within the loops `serial`."""
        sccs = components(members, orders)
        number = {member: n for n, component in enumerate(sccs) for member in component}
        within: list[set[Edge]] = [set() for _ in sccs]
        for edge in orders:
            if (n := number[edge.source]) == number[edge.sink]:
                within[n].add(edge)
        for component, inside in zip(sccs, within, strict=True):
            if len(component) == 1:
                statement = self.statements[component[0]]
                if all(e.kept_by_vectorising for e in inside) and not self._forced(
                    statement, serial
                ):
                    yield self._vectorised(statement, serial)
                    continue
            yield from self._cycle(component, inside, serial)

    def _forced(self, statement: Statement, serial: tuple[Axis, ...]) -> bool:
        """True if a loop of `statement` is needed although no dependence requires it."""
        if isinstance(statement, Compound):
            return False
        return any(a.var in statement.ordered for a in _free(statement, serial)) or self._repeats(
            statement, serial
        )

    def _repeats(self, statement: Assignment, serial: tuple[Axis, ...]) -> bool:
        """True if an element is overwritten repeatedly."""
        free = _free(statement, serial)
        if statement.update is not None or None in _maps(statement, {a.var for a in free}):
            return False
        return not all(any(mentions(i, {a.var}) for i in statement.indices) for a in free)

    def _cycle(
        self, component: list[int], inside: set[Edge], serial: tuple[Axis, ...]
    ) -> Iterable[Tree]:
        """The component within one more of its common loops."""
        statements = [self.statements[i] for i in component]
        if len(statements) == 1 and isinstance(statements[0], Assignment):
            scan = scan_of(statements[0], _free(statements[0], serial), self.shape_vars, self.roots)
            if scan is not None:
                yield scan
                return
        common = min(common_axes(statements[0], p) for p in statements)
        serial_vars = {a.var for a in serial}
        levels = [n for n in range(common) if statements[0].axes[n].var not in serial_vars]
        if not levels:
            for statement in statements:
                yield Run((statement,))
            return
        allowed = [n for n in levels if self._may_be_outermost(n, levels, statements, inside)]
        best = min(allowed, key=lambda n: (self._cycle_sizes(n, component, inside), n))
        axis = loop_axis(statements, best, self.shape_vars)
        unsatisfied = {e for e in inside if not _satisfied(e, best)}
        body = tuple(self.trees(component, unsatisfied, (*serial, axis)))
        yield For(axis, body, self._why(axis, statements))

    def _may_be_outermost(
        self, level: int, levels: list[int], statements: list[Statement], inside: set[Edge]
    ) -> bool:
        before = [statements[0].axes[n] for n in levels if n < level]
        outer = {a.var for a in before}
        bounds = [b for p in statements for b in (p.axes[level].start, p.axes[level].stop)]
        if any(mentions(b, outer) for b in bounds):
            return False
        # The bounds of a loop inside an empty one are not evaluated.
        if any(may_fail(b, (), self.shape_vars) for b in bounds) and not all(
            a.extent.is_at_least(1, self.shape_vars) for a in before
        ):
            return False
        return not any(LATER in e.directions[level] for e in inside)

    def _cycle_sizes(self, level: int, component: list[int], inside: set[Edge]) -> int:
        """The number of statements that remain in cycles if the loop at `level` is serial."""
        unsatisfied = {e for e in inside if not _satisfied(e, level)}
        sccs = components(component, unsatisfied)
        ordering = [e for e in unsatisfied if not e.kept_by_vectorising]
        cycles = [
            c for c in sccs if len(c) > 1 or any(e.source == e.sink == c[0] for e in ordering)
        ]
        return sum(map(len, cycles))

    def _why(self, axis: Axis, statements: list[Statement]) -> str:
        for statement in statements:
            if isinstance(statement, Compound):
                return statement.reason
            if any(v is axis.var for v in statement.ordered):
                return f"the bounds of inner loops depend on {axis.var.name}"
        names = sorted({w.buffer.name for p in statements for w in p.writes})
        return f"loop {axis.var.name} carries a dependence on {', '.join(names)}"

    def _vectorised(self, statement: Statement, serial: tuple[Axis, ...]) -> Tree:
        axes = _free(statement, serial)
        if isinstance(statement, Compound):
            extreme = arg_extreme_of(statement)
            tree: Tree = Run((statement,))
            if extreme is not None and extreme.axis in axes:
                bounds = [bound for a in axes for bound in (a.start, a.stop)]
                outer = [a for a in axes if any(mentions(bound, {a.var}) for bound in bounds)]
                if extreme.axis not in outer:
                    others = tuple(a for a in axes if a is not extreme.axis and a not in outer)
                    tree = Run((statement,), others, ordered=(extreme.axis,), idiom=extreme)
                    axes = tuple(outer)
            for axis in reversed(axes):
                tree = For(axis, (tree,), statement.reason)
            return tree
        if not axes:
            return Run((statement,))
        fewer = coalesced(statement, axes, self.shape_vars)
        simpler = classify(*fewer, self.shape_vars)
        if not simpler.ordered or fewer == (statement, axes):
            return simpler
        return classify(statement, axes, self.shape_vars)


def classify(statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]) -> Run:
    """`statement` with `axes` in their roles, where no dependence requires an order of stores.

    Stores at computed indices, or several to one element, are in source order.
    """
    variables = {a.var for a in axes}
    update = statement.update
    maps = [m for m in _maps(statement, variables) if m is not None]
    if len(maps) < len(statement.indices):
        return Run((statement,), ordered=axes)
    if update is None:
        return Run((statement,), axes)
    if not is_one_to_one(maps, axes, shape_vars):
        return Run((statement,), ordered=axes)
    inside = {v for m in maps for v in m.coefficients}
    spatial = tuple(a for a in axes if a.var in inside)
    over = tuple(a for a in axes if a.var not in inside)
    product = None
    if over and update.combine == "add" and not statement.guards:
        product = _contraction(statement, spatial, over, update.operand)
    statement = statement.accumulating() if over else statement
    return Run((statement,), spatial, over, idiom=product)


def _maps(statement: Assignment, variables: Set[Var]) -> list[Affine | None]:
    """The indices of the store as affine maps; None for one that is not affine or has a load."""
    return [
        affine(i, variables) if next(loads(i), None) is None else None for i in statement.indices
    ]


def _contraction(
    statement: Assignment, axes: tuple[Axis, ...], over: tuple[Axis, ...], term: PrimExpr
) -> Contraction | None:
    """The sum of `term` as a contraction, if `term` is a product of several factors.

    Integers of at least 8 bits wrap, so their factors may be regrouped. Float factors are grouped
    as in the source, unless that needs arrays larger than the operands.
    """
    dtype = statement.target.dtype
    summed = {a.var for a in over}
    # An axis that no factor mentions repeats the sum, which is not a matmul.
    if not (dtype.is_float or dtype.bits >= 8) or not all(mentions(term, {v}) for v in summed):
        return None
    factors = tuple(_factors(term))
    regrouped = dtype.is_float and len(factors) > 2
    if regrouped and isinstance(term, Mul):
        sides = (term.a, term.b)
        everything = summed.union(a.var for a in axes)
        if all(mentions(s, summed) and _is_no_larger(s, everything) for s in sides):
            factors, regrouped = sides, False
    if sum(mentions(f, summed) for f in factors) < 2:
        return None
    return Contraction(factors, regrouped)


def _is_no_larger(product: PrimExpr, variables: Iterable[Var]) -> bool:
    """True if a factor of `product` mentions all variables that the product mentions."""
    inside = [v for v in variables if mentions(product, {v})]
    return any(all(mentions(f, {v}) for v in inside) for f in _factors(product))


def _factors(value: PrimExpr) -> Iterable[PrimExpr]:
    if isinstance(value, Mul):
        yield from _factors(value.a)
        yield from _factors(value.b)
    else:
        yield value


def loop_axis(statements: Sequence[Statement], level: int, shape_vars: Container[Var]) -> Axis:
    """The union of the loops of `statements` at `level`; each statement tests its own bounds."""
    axis, *others = [p.axes[level] for p in statements]
    for other in others:
        start = domain.min_bound(axis.start, as_poly(other.start), shape_vars)
        stop = domain.max_bound(axis.stop, as_poly(other.stop), shape_vars)
        if start is not axis.start or stop is not axis.stop:
            axis = replace(axis, start=start, stop=stop)
    return axis


def _free(statement: Statement, serial: tuple[Axis, ...]) -> tuple[Axis, ...]:
    serial_vars = {a.var for a in serial}
    is_compound = isinstance(statement, Compound)
    return tuple(
        a
        for a in statement.axes
        if a.var not in serial_vars and (is_compound or not domain.is_point(a))
    )


def _satisfied(edge: Edge, level: int) -> bool:
    """True if the loop at `level` preserves `edge` if it is serial."""
    return edge.directions[level] == {EARLIER}


def components(members: Iterable[int], orders: Iterable[Edge]) -> list[list[int]]:
    """The strongly connected components in topological order, ties in source order."""
    after: dict[int, set[int]] = {n: set() for n in sorted(members)}
    for edge in orders:
        if edge.source != edge.sink:
            after[edge.source].add(edge.sink)
    # Each component is represented by its first member.
    groups = {min(group): sorted(group) for group in strongly_connected(after)}
    first_of = {n: first for first, group in groups.items() for n in group}
    follows = {
        first: {first_of[later] for n in group for later in after[n]} - {first}
        for first, group in groups.items()
    }
    waits = Counter(later for following in follows.values() for later in following)
    ready = sorted(groups.keys() - waits.keys())
    ordered: list[list[int]] = []
    while ready:
        first = heappop(ready)
        ordered.append(groups[first])
        for later in follows[first]:
            waits[later] -= 1
            if not waits[later]:
                heappush(ready, later)
    return ordered


def coalesced(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> tuple[Assignment, tuple[Axis, ...]]:
    """`statement` with as few `axes` as possible; their iterations may run in any order.

    A guard on one axis becomes a bound of the axis.
    """
    while (result := _coalesced_once(statement, axes, shape_vars)) is not None:
        statement, axes = result
    return _guards_as_bounds(statement, axes, shape_vars)


def _coalesced_once(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> tuple[Assignment, tuple[Axis, ...]] | None:
    """Coalesce two of the axes, or return None if that is not possible.

    Whatever depends on the outer axis of a pair depends on the inner one, too.
    """
    if len(axes) < 2:
        return None
    exprs = (*statement.indices, *statement.guards, statement.value)
    loads = (load for e in exprs for load in occurrences(e, BufferLoad))
    used = [
        set(occurrences(e, Var))
        for e in (*exprs, *(index for load in loads for index in load.indices))
    ]
    pairs = (
        (outer, inner)
        for outer, inner in permutations(axes, 2)
        if all(inner.var in variables for variables in used if outer.var in variables)
    )
    return next(
        filter(None, (_coalesced_pair(statement, axes, *pair, shape_vars) for pair in pairs)), None
    )


def _coalesced_pair(
    statement: Assignment,
    axes: tuple[Axis, ...],
    outer: Axis,
    inner: Axis,
    shape_vars: Container[Var],
) -> tuple[Assignment, tuple[Axis, ...]] | None:
    pair = {outer.var, inner.var}
    if any(mentions(b, pair) for a in statement.axes for b in (a.start, a.stop)):
        return None
    joint = coalesced_axis(outer, inner, shape_vars)
    if joint is None:
        return None
    known = (*statement.axes, joint.axis)

    def changed(expr: PrimExpr) -> PrimExpr:
        return canonical(substitute(expr, {inner.var: joint.inner}), known, shape_vars)

    indices = tuple(map(changed, statement.indices))
    value, guards = changed(statement.value), tuple(map(changed, statement.guards))
    exprs = (*indices, value, *guards)
    if any(mentions(e, pair) for e in exprs):
        return None
    if not any(mentions(e, {joint.axis.var}) for e in exprs):
        return None

    def merged(old: Sequence[Axis]) -> tuple[Axis, ...]:
        remaining = (a for a in old if a.var is not inner.var)
        return tuple(joint.axis if a.var is outer.var else a for a in remaining)

    result = replace(
        statement, axes=merged(statement.axes), indices=indices, value=value, guards=guards
    )
    return result, merged(axes)


def _guards_as_bounds(
    statement: Assignment, axes: tuple[Axis, ...], shape_vars: Container[Var]
) -> tuple[Assignment, tuple[Axis, ...]]:
    """`statement` with guards on one axis as bounds of the axis; itself if it has no guards."""
    if not statement.guards:
        return statement, axes
    remaining: list[PrimExpr] = []
    stops = False
    for test in (t for guard in statement.guards for t in conjuncts(guard)):
        # A test that may stop the program must see all iterations that earlier tests leave.
        stops |= may_fail(test, statement.axes, shape_vars)
        boxes = None if stops else domain.split(test, axes, shape_vars)
        if boxes is None or len(boxes.holds) != 1:
            remaining.append(test)
        else:
            [axes] = boxes.holds
    bounds = {a.var: a for a in axes}
    all_axes = tuple(bounds.get(a.var, a) for a in statement.axes)
    return replace(statement, axes=all_axes, guards=tuple(remaining)), axes
