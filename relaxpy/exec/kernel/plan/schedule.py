"""From parts to steps: loops are distributed over parts, and kept only where they carry an order.

Rule:
    Allen and Kennedy, "Automatic translation of FORTRAN programs to vector form", TOPLAS 9(4),
    1987, with one loop of a cycle moved outward where its directions allow it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from heapq import heappop, heappush

from relaxpy.exec.kernel.nest import domain
from relaxpy.exec.kernel.nest.bounds import is_one_to_one
from relaxpy.exec.kernel.nest.domain import is_point
from relaxpy.exec.kernel.nest.nodes import Axis, loads
from relaxpy.exec.kernel.plan.dependence import EARLIER, LATER, Edge, common_axes, edges
from relaxpy.exec.kernel.plan.join import joined
from relaxpy.exec.kernel.plan.parts import Group, Part, Statement
from relaxpy.exec.kernel.plan.scans import scan_of
from relaxpy.exec.kernel.plan.steps import (
    ArgReduce,
    Contract,
    Map,
    Reduce,
    Scalar,
    Scatter,
    Serial,
    Step,
)
from relaxpy.exec.kernel.plan.updates import arg_extreme_of, update_of
from relaxpy.ir.arith.algebra.affine import Affine, affine, as_poly
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import Mul, PrimExpr, Var
from relaxpy.ir.tir.substitution import mentions


def schedule(
    parts: Sequence[Part], sizes: Container[Var], roots: Mapping[Buffer, Buffer]
) -> tuple[Step, ...]:
    """Steps that perform `parts`, which stand in the order of the text.

    `roots` are the buffers whose memory others are laid over.
    """
    orders = edges(parts, sizes, roots)
    return tuple(_Scheduler(parts, sizes, roots).steps(range(len(parts)), orders, ()))


class _Scheduler:
    def __init__(
        self, parts: Sequence[Part], sizes: Container[Var], roots: Mapping[Buffer, Buffer]
    ) -> None:
        self.parts = parts
        self.sizes = sizes
        self.roots = roots

    def steps(
        self, members: Iterable[int], orders: set[Edge], serial: tuple[Axis, ...]
    ) -> Iterable[Step]:
        """The steps of `members` within the loops `serial`."""
        found = components(members, orders)
        number = {member: n for n, component in enumerate(found) for member in component}
        within: list[set[Edge]] = [set() for _ in found]
        for edge in orders:
            if (n := number[edge.source]) == number[edge.sink]:
                within[n].add(edge)
        for component, inside in zip(found, within, strict=True):
            if len(component) == 1:
                part = self.parts[component[0]]
                if all(e.kept_at_once for e in inside) and not self._forced(part, serial):
                    yield self._whole(part, serial)
                    continue
            yield from self._cycle(component, inside, serial)

    def _forced(self, part: Part, serial: tuple[Axis, ...]) -> bool:
        """Whether a loop of `part` has to be kept though no order asks for it."""
        if isinstance(part, Group):
            return False
        return any(a.var in part.ordered for a in _free(part, serial)) or self._repeats(
            part, serial
        )

    def _repeats(self, part: Statement, serial: tuple[Axis, ...]) -> bool:
        """Whether one element is stored to several times, each time in place of what was there."""
        free = _free(part, serial)
        if update_of(part) is not None or None in _maps(part, {a.var for a in free}):
            return False
        return not all(any(mentions(i, {a.var}) for i in part.indices) for a in free)

    def _cycle(
        self, component: list[int], inside: set[Edge], serial: tuple[Axis, ...]
    ) -> Iterable[Step]:
        """The component with one more of its common loops around it."""
        parts = [self.parts[i] for i in component]
        if len(parts) == 1 and isinstance(parts[0], Statement):
            scan = scan_of(parts[0], _free(parts[0], serial), self.sizes, self.roots)
            if scan is not None:
                yield scan
                return
        common = min(common_axes(parts[0], p) for p in parts)
        done = {a.var for a in serial}
        levels = [n for n in range(common) if parts[0].axes[n].var not in done]
        if not levels:
            for part in parts:
                yield Scalar(part)
            return
        allowed = [n for n in levels if self._may_be_outermost(n, levels, parts, inside)]
        best = min(allowed, key=lambda n: (self._left(n, levels, component, inside), n))
        axis = loop_axis(parts, best, self.sizes)
        left = {e for e in inside if not _satisfied(e, best)}
        inner = tuple(self.steps(component, left, (*serial, axis)))
        yield Serial(axis, inner, self._why(axis, parts, inside))

    def _may_be_outermost(
        self, level: int, levels: list[int], parts: list[Part], inside: set[Edge]
    ) -> bool:
        outer = {parts[0].axes[n].var for n in levels if n < level}
        axes = [p.axes[level] for p in parts]
        if any(mentions(b, outer) for a in axes for b in (a.start, a.stop)):
            return False
        return not any(LATER in e.directions[level] for e in inside)

    def _left(self, level: int, levels: list[int], component: list[int], inside: set[Edge]) -> int:
        """How many parts stay in cycles once the loop at `level` runs one round at a time."""
        left = {e for e in inside if not _satisfied(e, level)}
        found = components(component, left)
        kept = [e for e in left if not e.kept_at_once]
        stuck = [c for c in found if len(c) > 1 or any(e.source == e.sink == c[0] for e in kept)]
        return sum(map(len, stuck))

    def _why(self, axis: Axis, parts: list[Part], inside: set[Edge]) -> str:
        for part in parts:
            if isinstance(part, Group):
                return part.reason
            if any(v is axis.var for v in part.ordered):
                return f"inner loops end where {axis.var.name} says"
        names = sorted({w.buffer.name for p in parts for w in p.writes})
        return f"loop {axis.var.name} carries a dependence on {', '.join(names)}"

    def _whole(self, part: Part, serial: tuple[Axis, ...]) -> Step:
        axes = _free(part, serial)
        if isinstance(part, Group):
            extreme = arg_extreme_of(part)
            if extreme is None or extreme.axis not in axes:
                step: Step = Scalar(part)
                for axis in reversed(axes):
                    step = Serial(axis, (step,), part.reason)
                return step
            return ArgReduce(part, tuple(a for a in axes if a is not extreme.axis), extreme)
        if not axes:
            return Scalar(part)
        plain = classify(part, axes, self.sizes)
        found = classify(*joined(part, axes, self.sizes), self.sizes)
        return plain if isinstance(found, Scatter) else found


def classify(statement: Statement, axes: tuple[Axis, ...], sizes: Container[Var]) -> Step:
    """How `statement` runs over `axes` at once."""
    variables = {a.var for a in axes}
    update = update_of(statement)
    maps = _maps(statement, variables)
    if None in maps:
        return Scatter(statement, axes, update)
    inside = {v for m in maps if m is not None for v in m.coefficients}
    spatial = tuple(a for a in axes if a.var in inside)
    over = tuple(a for a in axes if a.var not in inside)
    if update is None:
        return Map(statement, axes)
    known = [m for m in maps if m is not None]
    if not is_one_to_one(known, axes, sizes):
        return Scatter(statement, axes, update)
    if not over:
        return Map(statement, axes)
    if update.combine == "add" and not statement.guards:
        product = _contraction(statement, spatial, over, update.operand)
        if product is not None:
            return product
    return Reduce(statement, spatial, over, update)


def _maps(statement: Statement, variables: Container[Var]) -> list[Affine | None]:
    """The places that are stored to as affine maps; None for one that is not, or is read."""
    return [
        affine(i, variables) if next(loads(i), None) is None else None for i in statement.indices
    ]


def _contraction(
    statement: Statement, axes: tuple[Axis, ...], over: tuple[Axis, ...], term: PrimExpr
) -> Contract | None:
    """The sum of `term` as a contraction, if it is a product of several factors that are summed.

    Integers of a byte and more wrap, so that their factors may be grouped in any way. Those of
    floats are grouped as they are written, unless that would make arrays larger than the operands.
    """
    dtype = statement.target.dtype
    summed = {a.var for a in over}
    # An axis that nothing mentions repeats the sum, which no product of matrices does.
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
    return Contract(statement, axes, over, factors, regrouped)


def _is_no_larger(product: PrimExpr, variables: Iterable[Var]) -> bool:
    """Whether one factor of `product` varies with all that the product varies with."""
    inside = [v for v in variables if mentions(product, {v})]
    return any(all(mentions(f, {v}) for v in inside) for f in _factors(product))


def _factors(value: PrimExpr) -> Iterable[PrimExpr]:
    if isinstance(value, Mul):
        yield from _factors(value.a)
        yield from _factors(value.b)
    else:
        yield value


def loop_axis(parts: Sequence[Part], level: int, sizes: Container[Var]) -> Axis:
    """The loop at `level` as far as any of `parts` uses it; each checks for its own share."""
    axis, *others = [p.axes[level] for p in parts]
    for other in others:
        start = domain.least(axis.start, as_poly(other.start), sizes)
        stop = domain.greatest(axis.stop, as_poly(other.stop), sizes)
        if start is not axis.start or stop is not axis.stop:
            axis = Axis(axis.var, start, stop)
    return axis


def _free(part: Part, serial: tuple[Axis, ...]) -> tuple[Axis, ...]:
    done = {a.var for a in serial}
    whole = isinstance(part, Group)
    return tuple(a for a in part.axes if a.var not in done and (whole or not is_point(a)))


def _satisfied(edge: Edge, level: int) -> bool:
    """Whether running the loop at `level` in order keeps the order of `edge`."""
    return edge.directions[level] == {EARLIER}


def components(members: Iterable[int], orders: Iterable[Edge]) -> list[list[int]]:
    """The strongly connected components, sources first and else in the order of the text."""
    nodes = sorted(members)
    after: dict[int, set[int]] = {n: set() for n in nodes}
    before: dict[int, set[int]] = {n: set() for n in nodes}
    for edge in orders:
        if edge.source != edge.sink:
            after[edge.source].add(edge.sink)
            before[edge.sink].add(edge.source)
    # Kosaraju: what leads to the last node of a walk, of all not taken yet, is in a cycle with it.
    order: list[int] = []
    seen: set[int] = set()
    for node in nodes:
        order += _finished(node, after, seen)
    found: dict[int, list[int]] = {}
    component: dict[int, int] = {}
    seen.clear()
    for node in reversed(order):
        if together := sorted(_finished(node, before, seen)):
            found[together[0]] = together
            component |= dict.fromkeys(together, together[0])
    # Each by its first member: the one that stands first of those with nothing left before them.
    waits = {
        first: {component[b] for n in together for b in before[n]} - {first}
        for first, together in found.items()
    }
    follows: dict[int, list[int]] = {first: [] for first in found}
    for first, sources in waits.items():
        for source in sources:
            follows[source].append(first)
    ready = sorted(first for first, sources in waits.items() if not sources)
    ordered: list[list[int]] = []
    while ready:
        first = heappop(ready)
        ordered.append(found[first])
        for later in follows[first]:
            waits[later].discard(first)
            if not waits[later]:
                heappush(ready, later)
    return ordered


def _finished(start: int, following: Mapping[int, set[int]], seen: set[int]) -> list[int]:
    """The nodes that are reached from `start` and not `seen` yet, each after those beyond it."""
    if start in seen:
        return []
    seen.add(start)
    found: list[int] = []
    path = [(start, iter(following[start]))]
    while path:
        node, rest = path[-1]
        step = next((n for n in rest if n not in seen), None)
        if step is None:
            found.append(node)
            path.pop()
        else:
            seen.add(step)
            path.append((step, iter(following[step])))
    return found
