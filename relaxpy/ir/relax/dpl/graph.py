"""Matching of constraints: which variables of a block the patterns of a context stand for."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl.constraints import Constraints, Edge
from relaxpy.ir.relax.dpl.expand import Goal, same_sizes
from relaxpy.ir.relax.dpl.heads import Head, head_of, heads
from relaxpy.ir.relax.dpl.matcher import Matcher
from relaxpy.ir.relax.dpl.pattern import (
    AndPattern,
    AttrPattern,
    DataTypePattern,
    DFPattern,
    OrPattern,
    ShapePattern,
    StructInfoPattern,
    all_parts,
    parts,
)
from relaxpy.ir.relax.nodes import (
    Binding,
    Call,
    Expr,
    ExternFunc,
    GlobalVar,
    ShapeStructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from relaxpy.ir.tir.expr import PrimExpr

Found: TypeAlias = dict[DFPattern, Expr]
_SAME_PLACE = (
    AndPattern,
    AttrPattern,
    DataTypePattern,
    OrPattern,
    ShapePattern,
    StructInfoPattern,
)


class BindingGraph:
    """The variables that bindings define and use, in order, and which has which as an operand.

    A variable that is cast stands for itself, one that is bound to another for that one.
    """

    def __init__(self, bindings: Iterable[Binding]) -> None:
        self.values: dict[Var, Expr] = {}
        self.operands: dict[Var, tuple[Expr, ...]] = {}
        self.users: dict[Var, dict[Var | Binding, None]] = {}
        self.variables: dict[Var, None] = {}
        self._bound_to: dict[Expr, Var] = {}
        for binding in bindings:
            var, value = binding.var, binding.value
            if isinstance(binding, VarBinding):
                self.values[binding.var] = value
                if isinstance(value, Var):
                    continue
                self._bound_to.setdefault(value, binding.var)
            for used in map(self._meant, occurring_vars(value)):
                self.variables.setdefault(used)
                self.users.setdefault(used, {})[binding if var is None else var] = None
            if var is not None:
                self.variables.setdefault(var)
                self.operands[var] = tuple(
                    self._meant(o) if isinstance(o, Var) else o for o in _operands(value)
                )

    def _meant(self, var: Var) -> Var:
        """The variable that one stands for that is bound to a variable."""
        while isinstance(found := self.values.get(var), Var):
            var = found
        return var

    def variable_of(self, value: Expr) -> Var | None:
        """The variable that a value is bound to; a variable is its own."""
        return value if isinstance(value, Var) else self._bound_to.get(value)

    @cached_property
    def by_head(self) -> dict[Head | None, list[Var]]:
        """The variables by what their values are; None has those that have none."""
        found: dict[Head | None, list[Var]] = {}
        for var in self.variables:
            value = self.values.get(var)
            found.setdefault(None if value is None else head_of(value), []).append(var)
        return found

    def candidates(self, pattern: DFPattern) -> Sequence[Var]:
        """The variables that a pattern may stand for, by a look at their values."""
        wanted = heads(pattern)
        if wanted is None:
            return list(self.variables)
        found = {v for head in wanted for v in self.by_head.get(head, ())}
        return [var for var in self.variables if var in found]


def _operands(value: Expr) -> tuple[Expr, ...]:
    """What a value is computed from, tuples taken apart and what is called left out."""
    match value:
        case Call(args=args):
            waiting = list(reversed(args))
        case TupleGetItem(tuple_value=whole):
            waiting = [whole]
        case _:
            waiting = [value]
    found: list[Expr] = []
    while waiting:
        operand = waiting.pop()
        if isinstance(operand, Tuple):
            waiting += reversed(operand.fields)
        elif not isinstance(operand, (GlobalVar, ExternFunc)):
            found.append(operand)
    return tuple(found)


@dataclass(slots=True, eq=False)
class _Decision:
    """A pattern for which variables are tried, and the earlier decisions that made others fail."""

    pattern: DFPattern
    candidates: Iterator[Var]
    blamed: set[int]
    ways: Generator[None] | None = None
    entered: list[DFPattern] = field(default_factory=list)


class GraphMatcher:
    """Finds variables for all patterns of a context at once, different ones for different patterns.

    The pattern with the fewest candidates is decided first, then its neighbours. When nothing is
    left for one, the search goes back to the last decision that had to do with it.

    Rule:
        Prosser, Computational Intelligence 9(3), 1993: conflict-directed backjumping.
    """

    def __init__(self, constraints: Constraints, graph: BindingGraph) -> None:
        self.graph = graph
        edges = constraints.edges
        nodes = dict.fromkeys(p for edge in edges for p in (edge.used, edge.user))
        nodes.update(dict.fromkeys(p for group in constraints.same_shapes for p in group))
        self.nodes = list(nodes)
        self.same_shapes = constraints.same_shapes
        self.matcher = Matcher(self.nodes, graph.values)
        self.around: dict[DFPattern, list[Edge]] = {p: [] for p in self.nodes}
        for edge in edges:
            self.around[edge.used].append(edge)
            self.around[edge.user].append(edge)
        self.place = _places(all_parts(self.nodes))
        self.below = {p: frozenset(all_parts([p])) for p in self.nodes}
        inner = {p for node in self.nodes for p in self.below[node] if p is not node}
        named = {p for edge in edges if not edge.implied for p in (edge.used, edge.user)}
        named |= {p for group in self.same_shapes for p in group}
        self.wanted = [p for p in self.nodes if p in named or p not in inner]
        self.initial = {p: graph.candidates(p) for p in self.wanted}
        self.gone: set[Var] = set()
        self.level: dict[DFPattern, int] = {}

    def matches(self) -> Iterator[Found]:
        """Matches that have nothing to do with the variables that are `gone` by then.

        Each begins with another variable for the pattern that is decided first, unless what the
        one before has found is gone.
        """
        if not self.wanted or not all(self.initial.values()):
            return
        first = min(self.wanted, key=lambda p: len(self.initial[p]))
        for var in self.initial[first]:
            while var not in self.gone:
                found = self._search(first, var)
                if found is None:
                    break
                before = len(self.gone)
                yield found
                if len(self.gone) == before:
                    break

    def _search(self, first: DFPattern, var: Var) -> Found | None:
        """A match in which `first` stands for `var`."""
        self.level.clear()
        stack = [_Decision(first, iter((var,)), set())]
        while stack:
            top = stack[-1]
            if self._advance(top, len(stack) - 1):
                following = self._next(len(stack))
                if following is None:
                    found = self._found()
                    self._abandon(stack)
                    return found
                stack.append(following)
                continue
            blamed = top.blamed
            stack.pop()
            while stack and len(stack) - 1 not in blamed:
                self._leave(stack.pop())
            if stack:
                stack[-1].blamed |= blamed - {len(stack) - 1}
        return None

    def _abandon(self, stack: list[_Decision]) -> None:
        while stack:
            self._leave(stack.pop())

    def _leave(self, decision: _Decision) -> None:
        if decision.ways is not None:
            decision.ways.close()
        self._forget(decision)

    def _forget(self, decision: _Decision) -> None:
        for pattern in decision.entered:
            del self.level[pattern]
        decision.entered = []

    def _advance(self, decision: _Decision, level: int) -> bool:
        """Go on to the next way in which the pattern matches; False if there is none left."""
        matcher, pattern = self.matcher, decision.pattern
        while True:
            self._forget(decision)
            if decision.ways is None:
                var = next((v for v in decision.candidates if v not in self.gone), None)
                if var is None:
                    return False
                decision.blamed |= {
                    level
                    for p, level in self.level.items()
                    if p in self.below[pattern] or isinstance(p, StructInfoPattern)
                }
                decision.ways = matcher.solutions([Goal(pattern, var)])
            if next(decision.ways, self) is self:
                decision.ways = None
                continue
            decision.entered = [p for p in matcher.bindings if p not in self.level]
            self.level.update(dict.fromkeys(decision.entered, level))
            blamed = self._conflict(decision.entered, level)
            if blamed is None:
                return True
            decision.blamed |= blamed

    def _expr(self, pattern: DFPattern) -> Expr | None:
        """What a pattern stands for: a variable where there is one."""
        value = self.matcher.bindings.get(pattern)
        if not isinstance(value, Expr):
            return None
        return self.graph.variable_of(value) or value

    def _conflict(self, entered: Collection[DFPattern], level: int) -> set[int] | None:
        """The earlier decisions that what was entered contradicts; None if there is none."""
        new = set(entered)
        holders: dict[Var, DFPattern] = {}
        for pattern in self.nodes:
            expr = self._expr(pattern)
            if not isinstance(expr, Var):
                continue
            if expr in self.gone:
                return set()
            holder = holders.setdefault(expr, pattern)
            if self.place[holder] != self.place[pattern] and (holder in new or pattern in new):
                return {self.level[holder], self.level[pattern]} - {level}
        for pattern in entered:
            for edge in self.around.get(pattern, ()):
                if not edge.implied and not self._edge_holds(edge):
                    ends = {self.level[edge.used], self.level[edge.user]}
                    return ends - {level}
        for group in self.same_shapes:
            known = [p for p in group if p in self.level]
            if any(p in new for p in group) and not self._one_shape(known):
                return {self.level[p] for p in known} - {level}
        return None

    def _edge_holds(self, edge: Edge) -> bool:
        used, user = self._expr(edge.used), self._expr(edge.user)
        if used is None or user is None:
            return True
        if not isinstance(user, Var) or not self._is_operand(used, user, edge.index):
            return False
        return not edge.only or (isinstance(used, Var) and list(self.graph.users[used]) == [user])

    def _is_operand(self, used: Expr, user: Var, index: int) -> bool:
        operands = self.graph.operands.get(user, ())
        if index == -1:
            return used in operands or (
                isinstance(used, Var) and user in self.graph.users.get(used, ())
            )
        return index < len(operands) and operands[index] is used

    def _one_shape(self, patterns: Sequence[DFPattern]) -> bool:
        shapes = [_shape_of(self._expr(p)) for p in patterns]
        first = shapes[0]
        return first is not None and all(s is not None and same_sizes(first, s) for s in shapes)

    def _next(self, level: int) -> _Decision | None:
        """The next pattern to decide, with its candidates; None if nothing is open."""
        best: _Decision | None = None
        fewest = -1
        for pattern in self.wanted:
            if pattern in self.level:
                continue
            found, blamed = self._near(pattern)
            if best is None or len(found) < fewest:
                best, fewest = _Decision(pattern, iter(found), blamed), len(found)
        return best

    def _near(self, pattern: DFPattern) -> tuple[Sequence[Var], set[int]]:
        """The candidates that edges to decided patterns leave, and whose decisions these were."""
        near: list[tuple[Sequence[Var], int]] = []
        for edge in self.around[pattern]:
            other = edge.user if edge.used is pattern else edge.used
            expr = self._expr(other) if other in self.level else None
            if not isinstance(expr, Var):
                continue
            beside: Iterable[object] = self.graph.operands.get(expr, ())
            if other is edge.used:
                beside = self.graph.users.get(expr, ())
            found = dict.fromkeys(v for v in beside if isinstance(v, Var))
            near.append((list(found), self.level[other]))
        if not near:
            return self.initial[pattern], set()
        least, level = min(near, key=lambda found: len(found[0]))
        return least, {level}

    def _found(self) -> Found:
        """What each pattern of the context stands for."""
        found = {}
        for pattern in self.nodes:
            expr = self._expr(pattern)
            if expr is not None:
                found[pattern] = expr
        return found


def _places(patterns: Sequence[DFPattern]) -> dict[DFPattern, DFPattern]:
    """For each pattern one that stands for those that match the very same expression."""
    found = {pattern: pattern for pattern in patterns}

    def root(pattern: DFPattern) -> DFPattern:
        while found[pattern] is not pattern:
            found[pattern] = found[found[pattern]]
            pattern = found[pattern]
        return pattern

    for pattern in patterns:
        if isinstance(pattern, _SAME_PLACE):
            for part in parts(pattern):
                found[root(part)] = root(pattern)
    return {pattern: root(pattern) for pattern in patterns}


def _shape_of(expr: Expr | None) -> tuple[PrimExpr, ...] | None:
    match None if expr is None else expr.struct_info:
        case TensorStructInfo() as info:
            return info.get_shape()
        case ShapeStructInfo(values=values):
            return values
        case _:
            return None
