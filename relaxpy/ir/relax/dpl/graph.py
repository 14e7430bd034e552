"""The matching of a PatternContext: finds a variable of a block for each of its patterns."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from heapq import heappop, heappush
from types import MappingProxyType
from typing import TypeAlias

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.core.traverse import Groups, preorder
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.effects import Dependencies, may_fail
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.matcher import Goal, Head, Matcher, head_of, heads
from relaxpy.ir.relax.dpl.pattern import DFPattern, Edge, PatternContext, check_pattern
from relaxpy.ir.relax.known import equal_shapes
from relaxpy.ir.relax.nodes import Expr, Var
from relaxpy.ir.relax.nodes.base_classes import check_name
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass, replace
from relaxpy.support.entry import user_constructed, user_facing

VarMatches: TypeAlias = dict[dp.DFPattern, rx.Expr]


class BindingGraph:
    """The variables that bindings define and use, in order, with their operands and users.

    A variable that is bound to another one is replaced by it, unless it is cast.
    """

    def __init__(self, bindings: Iterable[rx.Binding]) -> None:
        self.values: dict[rx.Var, rx.Expr] = {}
        self.operands: dict[rx.Var, tuple[rx.Expr, ...]] = {}
        self.users: dict[rx.Var, dict[rx.Var | rx.Binding, None]] = {}
        self.variables: dict[rx.Var, None] = {}
        self._bound_to: dict[rx.Expr, rx.Var] = {}
        for binding in bindings:
            var, value = binding.var, binding.value
            if isinstance(binding, rx.VarBinding):
                self.values[binding.var] = value
                if isinstance(value, rx.Var):
                    continue
                self._bound_to.setdefault(value, binding.var)
            for used in map(self._original, occurring_vars(value)):
                self.variables.setdefault(used)
                self.users.setdefault(used, {})[binding if var is None else var] = None
            if var is not None:
                self.variables.setdefault(var)
                self.operands[var] = tuple(
                    self._original(o) if isinstance(o, rx.Var) else o for o in _operands(value)
                )

    def _original(self, var: rx.Var) -> rx.Var:
        """The variable that replaces one that is bound to a variable."""
        while isinstance(value := self.values.get(var), rx.Var):
            var = value
        return var

    def variable_of(self, value: rx.Expr) -> rx.Var | None:
        """The variable that a value is bound to; itself if it is a variable."""
        return value if isinstance(value, rx.Var) else self._bound_to.get(value)

    @late_property
    def by_head(self) -> dict[Head | None, list[rx.Var]]:
        """The variables by the heads of their values; those without values under None."""
        table: dict[Head | None, list[rx.Var]] = {}
        for var in self.variables:
            value = self.values.get(var)
            table.setdefault(None if value is None else head_of(value), []).append(var)
        return table

    def candidates(self, pattern: dp.DFPattern) -> Sequence[rx.Var]:
        """The variables that a pattern may match, by the heads of their values."""
        pattern_heads = heads(pattern)
        if pattern_heads is None:
            return list(self.variables)
        fitting = {v for head in pattern_heads for v in self.by_head.get(head, ())}
        return [var for var in self.variables if var in fitting]


def _operands(value: rx.Expr) -> tuple[rx.Expr, ...]:
    """The operands of a value, except for functions; for a tuple its fields."""
    match value:
        case rx.Call(args=args):
            roots = args
        case rx.TupleGetItem(tuple_value=whole):
            roots = (whole,)
        case _:
            roots = (value,)
    parts = preorder(roots, lambda part: part.fields if isinstance(part, rx.Tuple) else ())
    return tuple(p for p in parts if not isinstance(p, (rx.Tuple, rx.GlobalVar, rx.ExternFunc)))


@dataclass(slots=True, eq=False)
class _Decision:
    """The choice of a variable for a pattern, by which the patterns in `decided` match.

    `conflicts` are the levels of earlier decisions that excluded other variables.
    """

    pattern: dp.DFPattern
    candidates: Iterator[rx.Var]
    conflicts: set[int]
    ways: Generator[None] | None = None
    decided: list[dp.DFPattern] = field(default_factory=list)


class GraphMatcher:
    """Finds a variable for each pattern of a context, different ones for different patterns.

    The pattern with the fewest candidates is decided first, then its neighbours. If no candidate of
    a pattern is left, the search returns to the last decision that is in conflict with it. `level`
    has the number of the decision by which each pattern matches. Variables that are `replaced` no
    longer match.

    Rule:
        Prosser, Computational Intelligence 9(3), 1993: conflict-directed backjumping.
    """

    def __init__(self, context: PatternContext, graph: BindingGraph) -> None:
        self.graph = graph
        edges = context.edges
        nodes = dict.fromkeys(p for edge in edges for p in (edge.used, edge.user))
        nodes.update(dict.fromkeys(p for group in context.same_shapes for p in group))
        self.nodes = list(nodes)
        self.same_shapes = context.same_shapes
        self.matcher = Matcher(self.nodes, graph.values)
        self.edges_of: dict[dp.DFPattern, list[Edge]] = {p: [] for p in self.nodes}
        for edge in edges:
            self.edges_of[edge.used].append(edge)
            self.edges_of[edge.user].append(edge)
        self.representative = _representatives(dp.all_subpatterns(self.nodes))
        self.below = {p: frozenset(dp.all_subpatterns([p])) for p in self.nodes}
        inner = {p for node in self.nodes for p in self.below[node] if p is not node}
        named = {p for edge in edges if not edge.implied for p in (edge.used, edge.user)}
        named |= {p for group in self.same_shapes for p in group}
        self.to_decide = [p for p in self.nodes if p in named or p not in inner]
        self.candidates = {p: graph.candidates(p) for p in self.to_decide}
        self.replaced: set[rx.Var] = set()
        self.level: dict[dp.DFPattern, int] = {}

    def matches(self) -> Iterator[VarMatches]:
        """Matches without variables that are `replaced` when the match is requested.

        Each has another variable for the pattern that is decided first, unless variables of the
        preceding match were replaced.
        """
        if not self.to_decide or not all(self.candidates.values()):
            return
        first = min(self.to_decide, key=lambda p: len(self.candidates[p]))
        for var in self.candidates[first]:
            while var not in self.replaced:
                matches = self._search(first, var)
                if matches is None:
                    break
                before = len(self.replaced)
                yield matches
                if len(self.replaced) == before:
                    break

    def _search(self, first: dp.DFPattern, var: rx.Var) -> VarMatches | None:
        """A match in which `first` matches `var`."""
        self.level.clear()
        stack = [_Decision(first, iter((var,)), set())]
        while stack:
            top = stack[-1]
            if self._advance(top, len(stack) - 1):
                following = self._next()
                if following is None:
                    matches = self._matches()
                    while stack:
                        self._undo(stack.pop())
                    return matches
                stack.append(following)
                continue
            conflicts = stack.pop().conflicts
            while stack and len(stack) - 1 not in conflicts:
                self._undo(stack.pop())
            if stack:
                stack[-1].conflicts |= conflicts - {len(stack) - 1}
        return None

    def _undo(self, decision: _Decision) -> None:
        if decision.ways is not None:
            decision.ways.close()
        self._forget(decision)

    def _forget(self, decision: _Decision) -> None:
        for pattern in decision.decided:
            del self.level[pattern]
        decision.decided = []

    def _advance(self, decision: _Decision, level: int) -> bool:
        """Continue to the next way in which the pattern matches; False if there is none left."""
        matcher, pattern = self.matcher, decision.pattern
        while True:
            self._forget(decision)
            if decision.ways is None:
                var = next((v for v in decision.candidates if v not in self.replaced), None)
                if var is None:
                    return False
                decision.conflicts |= {
                    level
                    for p, level in self.level.items()
                    if p in self.below[pattern] or isinstance(p, dp.StructInfoPattern)
                }
                decision.ways = matcher.solutions([Goal(pattern, var)])
            if next(decision.ways, self) is self:
                decision.ways = None
                continue
            decision.decided = [p for p in matcher.bindings if p not in self.level]
            self.level.update(dict.fromkeys(decision.decided, level))
            conflicts = self._conflicts(decision.decided, level)
            if conflicts is None:
                return True
            decision.conflicts |= conflicts

    def _expr(self, pattern: dp.DFPattern) -> rx.Expr | None:
        """The expression that a pattern matches: the variable if it is bound to one."""
        value = self.matcher.bindings.get(pattern)
        if not isinstance(value, rx.Expr):
            return None
        return self.graph.variable_of(value) or value

    def _conflicts(self, decided: Collection[dp.DFPattern], level: int) -> set[int] | None:
        """The earlier decisions that contradict this one; None if it satisfies all constraints."""
        new = set(decided)
        owners: dict[rx.Var, dp.DFPattern] = {}
        for pattern in self.nodes:
            expr = self._expr(pattern)
            if not isinstance(expr, rx.Var):
                continue
            if expr in self.replaced:
                return set()
            owner = owners.setdefault(expr, pattern)
            same_expr = self.representative[owner] is self.representative[pattern]
            if not same_expr and (owner in new or pattern in new):
                return {self.level[owner], self.level[pattern]} - {level}
        for pattern in decided:
            for edge in self.edges_of.get(pattern, ()):
                if not edge.implied and not self._edge_holds(edge):
                    return {self.level[edge.used], self.level[edge.user]} - {level}
        for group in self.same_shapes:
            known = [p for p in group if p in self.level]
            if any(p in new for p in group) and not self._have_same_shape(known):
                return {self.level[p] for p in known} - {level}
        return None

    def _edge_holds(self, edge: Edge) -> bool:
        used, user = self._expr(edge.used), self._expr(edge.user)
        if used is None or user is None:
            return True
        if not isinstance(user, rx.Var) or not self._is_operand(used, user, edge.index):
            return False
        return not edge.only or (
            isinstance(used, rx.Var) and list(self.graph.users[used]) == [user]
        )

    def _is_operand(self, used: rx.Expr, user: rx.Var, index: int) -> bool:
        operands = self.graph.operands.get(user, ())
        if index == -1:
            return used in operands or (
                isinstance(used, rx.Var) and user in self.graph.users.get(used, ())
            )
        return index < len(operands) and operands[index] is used

    def _have_same_shape(self, patterns: Sequence[dp.DFPattern]) -> bool:
        shapes = [_shape_of(self._expr(p)) for p in patterns]
        return all(equal_shapes(shapes[0], shape) for shape in shapes)

    def _next(self) -> _Decision | None:
        """The next pattern to decide, with its candidates; None if all are decided."""
        choices = (
            (pattern, *self._neighbours(pattern))
            for pattern in self.to_decide
            if pattern not in self.level
        )
        best = min(choices, key=lambda choice: len(choice[1]), default=None)
        return None if best is None else _Decision(best[0], iter(best[1]), best[2])

    def _neighbours(self, pattern: dp.DFPattern) -> tuple[Sequence[rx.Var], set[int]]:
        """The candidates that an edge to a decided pattern leaves, and the level of that one."""
        near: list[tuple[Sequence[rx.Var], int]] = []
        for edge in self.edges_of[pattern]:
            other = edge.user if edge.used is pattern else edge.used
            expr = self._expr(other) if other in self.level else None
            if not isinstance(expr, rx.Var):
                continue
            neighbours: Iterable[object] = self.graph.operands.get(expr, ())
            if other is edge.used:
                neighbours = self.graph.users.get(expr, ())
            variables = dict.fromkeys(v for v in neighbours if isinstance(v, rx.Var))
            near.append((list(variables), self.level[other]))
        if not near:
            return self.candidates[pattern], set()
        fewest, level = min(near, key=lambda item: len(item[0]))
        return fewest, {level}

    def _matches(self) -> VarMatches:
        """The expression that each pattern of the context matches."""
        matches = ((pattern, self._expr(pattern)) for pattern in self.nodes)
        return {pattern: expr for pattern, expr in matches if expr is not None}


def _representatives(patterns: Sequence[dp.DFPattern]) -> dict[dp.DFPattern, dp.DFPattern]:
    """For each pattern a representative of the patterns that must match the same expression."""
    groups = Groups[dp.DFPattern]()
    for pattern in patterns:
        if isinstance(pattern, (dp.PairPattern, dp.RestrictedPattern)):
            for sub in dp.subpatterns(pattern):
                groups.join(pattern, sub)
    return {pattern: groups.find(pattern) for pattern in patterns}


def _shape_of(expr: rx.Expr | None) -> tuple[PrimExpr, ...] | None:
    match None if expr is None else expr.struct_info:
        case rx.TensorStructInfo() as sinfo:
            return sinfo.get_shape()
        case rx.ShapeStructInfo(values=values):
            return values
        case _:
            return None


class Segment:
    """Bindings that are taken from `waiting` one by one, and are kept or replaced.

    They have no effects, so that values may be computed in another order. But outside dataflow
    blocks (`ordered`), bindings that may fail stay in order (OPT-3).
    """

    def __init__(self, bindings: Iterable[rx.Binding], *, ordered: bool) -> None:
        self.ordered = ordered
        self.waiting = deque(bindings)
        self.kept: list[rx.Binding | None] = []
        self.values: dict[rx.Var, rx.Expr] = {}
        self.position: dict[rx.Var, int] = {}
        self._bound_to: dict[rx.Expr, rx.Var] = {}
        self._failing: list[int] = [0]

    def keep(self, binding: rx.Binding) -> None:
        """Append a binding to the result."""
        var = binding.var
        if var is not None:
            self.position[var] = len(self.kept)
            if isinstance(binding, rx.VarBinding):
                self.values[var] = binding.value
                if not isinstance(binding.value, rx.Var):
                    self._bound_to.setdefault(binding.value, var)
        self.kept.append(binding)
        self._failing.append(self._failing[-1] + (self.ordered and may_fail(binding)))

    def remove(self, var: rx.Var) -> None:
        """Remove a binding that was kept: its variable will be bound later."""
        position = self.position.pop(var)
        binding = self.kept[position]
        assert binding is not None
        self.kept[position] = None
        self.values.pop(var, None)
        if self._bound_to.get(binding.value) is var:
            del self._bound_to[binding.value]

    def variable_of(self, value: object) -> rx.Var | None:
        """The variable that a value is bound to."""
        return self._bound_to.get(value) if isinstance(value, rx.Expr) else None

    def in_order(self, moved: Collection[rx.Var]) -> bool:
        """True if these variables may be computed at the end without reordering possible failures.

        That is the case if no other binding that may fail is between them or after them.
        """
        if not self.ordered:
            return True
        positions = sorted(self.position[var] for var in moved if var in self.position)
        failing = [p for p in positions if self._failing[p + 1] > self._failing[p]]
        return not failing or self._failing[-1] - self._failing[failing[0]] == len(failing)

    def bindings(self) -> list[rx.Binding]:
        """The bindings that were kept, in order."""
        return [binding for binding in self.kept if binding is not None]


def projected(binding: rx.Binding, value_of: Callable[[rx.Expr], object]) -> rx.Binding:
    """The binding; if it projects a Tuple, a binding of the field itself."""
    value = binding.value
    if isinstance(value, rx.TupleGetItem):
        whole = value_of(value.tuple_value)
        if isinstance(whole, rx.Tuple) and value.index < len(whole.fields):
            return replace(binding, value=whole.fields[value.index])
    return binding


def sorted_by_use(bindings: Sequence[rx.Binding]) -> list[rx.Binding] | None:
    """The bindings, with those that use later ones moved after these; None if there is a cycle.

    All others keep their order, and bindings that are moved are as early as possible.
    """
    number = {binding: index for index, binding in enumerate(bindings)}
    missing: list[int] = []
    users: dict[int, list[int]] = {}
    for index, needs in enumerate(Dependencies(bindings, is_sorted=False).needs.values()):
        missing.append(len(needs))
        for need in needs:
            users.setdefault(number[need], []).append(index)  # type: ignore[index]
    done: list[rx.Binding] = []
    for index in range(len(bindings)):
        ready = [index] if missing[index] == 0 else []
        while ready:
            position = heappop(ready)
            done.append(bindings[position])
            for user in users.get(position, ()):
                missing[user] -= 1
                if missing[user] == 0 and user < index:
                    heappush(ready, user)
    return done if len(done) == len(bindings) else None


@dataclass(frozen=True, slots=True)
class PatternCheckContext:
    """A match and its context, which the `check` of a FusionPattern receives.

    `annotated_expr` has the matches of the annotation patterns by their names, `matched_bindings`
    the variables of the match with their values, `var_usages` the variables that are computed from
    each variable, and `value_to_bound_var` the variable that a value is bound to.
    """

    matched_expr: Expr
    annotated_expr: Mapping[str, Expr]
    matched_bindings: Mapping[Var, Expr]
    var_usages: Mapping[Var, Sequence[Var]]
    value_to_bound_var: Mapping[Expr, Var]


Check: TypeAlias = Callable[[PatternCheckContext], bool]
AttrsGetter: TypeAlias = Callable[[Mapping[str, Expr]], Mapping[str, object]]


@user_constructed
@dataclass(frozen=True, slots=True, eq=False)
class FusionPattern:
    """A pattern with a name, which usually begins with that of a backend.

    `check` may reject a match, and `attrs_getter` returns attributes of the fused function. Both
    receive the matches of the `annotation_patterns`, which are subpatterns of `pattern`.

    Errors:
        MisuseError (also TypeError): a field is of the wrong kind.
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] | None = None
    check: Check | None = None
    attrs_getter: AttrsGetter | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "the name of a pattern")
        check_pattern(self.pattern)
        table = {} if self.annotation_patterns is None else self.annotation_patterns
        check_type(table, Mapping, "annotation patterns are a dict of patterns by name")
        for name, pattern in table.items():
            check_name(name, "the name of an annotation pattern")
            check_pattern(pattern)
        for function in (self.check, self.attrs_getter):
            if function is not None and not callable(function):
                raise unexpected(function, "expected a function")
        set_fields(self, annotation_patterns=MappingProxyType(dict(table)))


_registered: list[FusionPattern] = []


@user_facing
def register_patterns(patterns: Iterable[FusionPattern | tuple[object, ...]]) -> None:
    """Register patterns; later ones have a higher priority.

    A tuple has the fields of a FusionPattern: a name, a pattern, annotation patterns, a check.

    Errors:
        MisuseError (also TypeError): an item is of another kind; nothing is registered then.
    """
    check_type(patterns, Iterable, "expected a list of patterns")
    _registered.extend([as_fusion_pattern(item) for item in patterns])


def as_fusion_pattern(item: object) -> FusionPattern:
    """The item as a FusionPattern, from its fields if it is a tuple of them.

    Errors:
        MisuseError (also TypeError): it is neither.
    """
    if isinstance(item, FusionPattern):
        return item
    if isinstance(item, tuple) and 2 <= len(item) <= 5:
        return FusionPattern(*item)
    raise unexpected(item, "expected a FusionPattern, or a name and a pattern")


@user_facing
def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """The registered patterns whose names begin with `prefix`, the highest priority first."""
    check_name(prefix, "the beginning of a name")
    return [pattern for pattern in reversed(_registered) if pattern.name.startswith(prefix)]


@user_facing
def get_pattern(name: str) -> FusionPattern | None:
    """The registered pattern of this name, of several the last one; None if there is none."""
    check_name(name, "the name of a pattern")
    return next((pattern for pattern in reversed(_registered) if pattern.name == name), None)
