"""The matcher: patterns against expressions, by a search with its own stack."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.traverse import preorder
from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl.alternatives import (
    Alternatives,
    FieldsGoal,
    Goal,
    StructInfoGoal,
    Subgoal,
    alternatives,
    is_same_value,
)
from relaxpy.ir.relax.dpl.pattern import (
    DFPattern,
    StructInfoPattern,
    VarPattern,
    all_subpatterns,
    subpatterns,
)
from relaxpy.ir.relax.nodes import Expr, SeqExpr, Var, VarBinding
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.mapping import map_params
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars, substitute_info
from relaxpy.support.dataclass import dataclass

Value: TypeAlias = Expr | Op
Matches: TypeAlias = dict[DFPattern, Value]
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """The attempt to match an independent pattern.

    Among the goals it follows those of the pattern: the first way to match them is enough. Among
    the choices it precedes those of the pattern: without any of these, the attempt has failed.
    """

    goal: Goal
    choices: int
    trail: int


@dataclass(slots=True, eq=False)
class _Choice:
    """The alternatives that were not tried yet, and the goals that follow any of them."""

    entry: tuple[DFPattern, Value] | None
    untried: Iterator[Sequence[Subgoal]]
    rest: _Goals
    trail: int


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The entries of an independent pattern and those below it."""

    entries: tuple[_Entry, ...]


# A linked list of goals, the next one first.
_Goals: TypeAlias = "tuple[Subgoal | _Attempt, _Goals] | None"
_Entry: TypeAlias = tuple[DFPattern, Value] | StructInfoGoal | _Group
_FAILED: Final = object()


class Matcher:
    """Matches the patterns under `roots` against expressions.

    `bindings` has the expressions that patterns match so far, and `values` those that variables are
    bound to. Between two matches, `values` may grow by variables that no expression has mentioned
    yet. An independent pattern is tried once on each expression, so that only patterns that share
    subpatterns take a search of more than linear time.
    """

    def __init__(self, roots: Sequence[DFPattern], values: Mapping[Var, Expr]) -> None:
        self.values = values
        self.bindings: Matches = {}
        self._nested_values: dict[Var, Expr] = {}
        self._sinfo_goals: list[StructInfoGoal] = []
        self._trail: list[_Entry] = []
        self._independent = independent_patterns(roots)
        self._has_sinfo = any(isinstance(p, StructInfoPattern) for p in all_subpatterns(roots))
        self._known: dict[tuple[DFPattern, Value], _Group | None] = {}

    def value_of(self, expr: Value) -> Value:
        """The value of an expression: of a variable its definition, of a sequence its result.

        Errors:
            MisuseError: variables are bound to each other in a cycle.
        """
        steps = 0
        while True:
            if isinstance(expr, Var):
                value = self.values.get(expr)
                if value is None:
                    value = self._nested_values.get(expr)
                if value is None or value is expr:
                    return expr
                steps += 1
                if steps > len(self.values) + len(self._nested_values):
                    raise MisuseError(f"{expr.name_hint} is bound to itself by way of others")
                expr = value
            elif isinstance(expr, SeqExpr):
                for block in expr.blocks:
                    for binding in block.bindings:
                        if isinstance(binding, VarBinding):
                            self._nested_values[binding.var] = binding.value
                expr = expr.body
            else:
                return expr

    def solutions(self, goals: Sequence[Goal]) -> Generator[None]:
        """Yield once for each way to satisfy all goals, with the matches in `bindings`."""
        start = len(self._trail)
        choices: list[_Choice | _Attempt] = []
        pending: Any = None
        for goal in reversed(goals):
            pending = (goal, pending)
        try:
            while True:
                while pending is not None and pending is not _FAILED:
                    pending = self._step(pending, choices)
                if pending is None and self._sinfo_holds(start):
                    yield None
                pending = self._backtrack(choices)
                if pending is _FAILED:
                    return
        finally:
            self._undo(start)

    def holds(self, pattern: DFPattern, expr: Value) -> bool:
        """Return whether a pattern matches with the present bindings, which do not change."""
        return self.first([Goal(pattern, expr)]) is not None

    def first(self, goals: Sequence[Goal]) -> Matches | None:
        """The bindings of the first way to satisfy all goals, or None if there is none."""
        search = self.solutions(goals)
        for _ in search:
            matches = dict(self.bindings)
            search.close()
            return matches
        return None

    def _step(self, goals: Any, choices: list[_Choice | _Attempt]) -> Any:
        """The goals that are left after a step towards the first one, or _FAILED."""
        goal, rest = goals
        match goal:
            case Goal():
                return self._match(goal, rest, choices)
            case StructInfoGoal():
                self._enter(goal)
                return rest if self._is_base(goal, self._images(), final=False) else _FAILED
            case FieldsGoal():
                return self._choose(None, self._assignments(goal), rest, choices)
            case _:
                if not self._sinfo_holds(goal.trail):
                    return _FAILED
                del choices[goal.choices :]
                group = _Group(tuple(self._trail[goal.trail :]))
                self._trail[goal.trail :] = (group,)
                self._known[goal.goal.pattern, goal.goal.expr] = group
                return rest

    def _match(self, goal: Goal, rest: Any, choices: list[_Choice | _Attempt]) -> Any:
        pattern, expr = goal.pattern, goal.expr
        if not (isinstance(pattern, VarPattern) and isinstance(expr, Var)):
            expr = self.value_of(expr)
        bound = self.bindings.get(pattern)
        if bound is not None:
            return rest if is_same_value(bound, expr) else _FAILED
        if pattern in self._independent:
            key = pattern, goal.expr
            if key in self._known:
                group = self._known[key]
                if group is None:
                    return _FAILED
                self._enter(group)
                return rest
            attempt = _Attempt(goal, len(choices), len(self._trail))
            choices.append(attempt)
            rest = (attempt, rest)
        return self._choose((pattern, expr), alternatives(goal, expr, self.holds), rest, choices)

    def _choose(
        self,
        entry: tuple[DFPattern, Value] | None,
        ways: Alternatives,
        rest: Any,
        choices: list[_Choice | _Attempt],
    ) -> Any:
        """The goals of the first alternative and the rest; the others are left for later."""
        if not ways:
            return _FAILED
        if len(ways) > 1:
            choices.append(_Choice(entry, iter(ways[1:]), rest, len(self._trail)))
        return self._begin(entry, ways[0], rest)

    def _begin(
        self, entry: tuple[DFPattern, Value] | None, way: Sequence[Subgoal], rest: Any
    ) -> Any:
        if entry is not None:
            self._enter(entry)
        for subgoal in reversed(way):
            rest = (subgoal, rest)
        return rest

    def _backtrack(self, choices: list[_Choice | _Attempt]) -> Any:
        """The goals of the next alternative that is left, or _FAILED."""
        while choices:
            last = choices[-1]
            self._undo(last.trail)
            if isinstance(last, _Attempt):
                self._known[last.goal.pattern, last.goal.expr] = None
            else:
                way = next(last.untried, None)
                if way is not None:
                    return self._begin(last.entry, way, last.rest)
            choices.pop()
        return _FAILED

    def _enter(self, entry: _Entry) -> None:
        self._trail.append(entry)
        for single in _flattened(entry):
            if isinstance(single, StructInfoGoal):
                self._sinfo_goals.append(single)
            else:
                self.bindings[single[0]] = single[1]

    def _undo(self, size: int) -> None:
        """Remove all entries after the first `size`."""
        while len(self._trail) > size:
            for single in _flattened(self._trail.pop()):
                if isinstance(single, StructInfoGoal):
                    self._sinfo_goals.pop()
                else:
                    del self.bindings[single[0]]

    def _sinfo_holds(self, trail: int) -> bool:
        """True if the goals for struct info that follow the first `trail` entries are satisfied."""
        if not self._has_sinfo:
            return True
        images = self._images()
        entered = (e for e in self._trail[trail:] if isinstance(e, StructInfoGoal))
        return all(self._is_base(goal, images, final=True) for goal in entered)

    def _images(self) -> Mapping[Any, Any]:
        """The dimensions that the shape variables of patterns match."""
        return map_params(
            [g.base for g in self._sinfo_goals], [g.actual for g in self._sinfo_goals]
        )

    def _is_base(self, goal: StructInfoGoal, images: Mapping[Any, Any], *, final: bool) -> bool:
        """Return whether a goal is satisfied, or may still be unless this is `final`."""
        if not final and any(var not in images for var in free_shape_vars(goal.base)):
            return True
        return is_base_of(substitute_info(goal.base, images), goal.actual)

    def _assignments(self, goal: FieldsGoal) -> Alternatives:
        """The fields that the first pattern may match if each of the others gets one that it fits.

        If all patterns are independent, one assignment of all of them is enough.
        """
        patterns, fields = goal.patterns, goal.fields
        fits = [[i for i, f in enumerate(fields) if self.holds(p, f)] for p in patterns]
        owner = assignment(fits)
        if owner is None:
            return ()
        if all(p in self._independent and p not in self.bindings for p in patterns):
            return (tuple(Goal(patterns[p], fields[f]) for f, p in sorted(owner.items())),)
        if not patterns:
            return ((),)
        return [
            (
                Goal(patterns[0], fields[i]),
                FieldsGoal(patterns[1:], (*fields[:i], *fields[i + 1 :])),
            )
            for i in fits[0]
        ]


def _flattened(entry: _Entry) -> Iterator[tuple[DFPattern, Value] | StructInfoGoal]:
    """The single entries in an entry, in order."""
    inside = preorder([entry], lambda e: e.entries if isinstance(e, _Group) else ())
    return (single for single in inside if not isinstance(single, _Group))


def assignment(fits: Sequence[Sequence[T]]) -> dict[T, int] | None:
    """The pattern of each field, such that every pattern has a field that fits; None if impossible.

    Rule:
        Kuhn, Naval Research Logistics 2, 1955: augmenting paths in a bipartite graph.
    """
    owner: dict[T, int] = {}

    def assign(pattern: int, tried: set[T]) -> bool:
        for field in fits[pattern]:
            if field not in tried:
                tried.add(field)
                if field not in owner or assign(owner[field], tried):
                    owner[field] = pattern
                    return True
        return False

    return owner if all(assign(p, set()) for p in range(len(fits))) else None


def extract_matched_expr(
    pattern: DFPattern, expr: object, var2val: Mapping[Var, Expr] | None = None
) -> Matches | None:
    """The expression that each subpattern matches; see `DFPattern.extract_matched_expr`.

    Errors:
        MisuseError (also TypeError): `expr` is not an expression, or `var2val` not a mapping.
    """
    if not isinstance(expr, (Expr, Op)):
        raise unexpected(expr, "patterns match expressions")
    if not isinstance(var2val, Mapping | None):
        raise unexpected(
            var2val,
            "var2val is a table from variables to values",
            hint="relax.analysis.get_var2val(func) returns one",
        )
    return Matcher([pattern], var2val or {}).first([Goal(pattern, expr)])


def independent_patterns(roots: Sequence[DFPattern]) -> frozenset[DFPattern]:
    """The patterns under `roots` whose subpatterns and shape variables occur nowhere else.

    Whether such a pattern matches depends on the expression alone, and its first match is as good
    as any other. The roots count as used from outside.

    Rule:
        A pattern is independent if it dominates everything below it: every path from the roots
        leads through it. Dominators by Cooper, Harvey and Kennedy, A Simple, Fast Dominance
        Algorithm, 2001.
    """
    order = all_subpatterns(roots)
    operands: dict[DFPattern, list[object]] = {}
    for pattern in order:
        operands[pattern] = list(subpatterns(pattern))
        if isinstance(pattern, StructInfoPattern):
            operands[pattern] += free_shape_vars(pattern.struct_info)
    entry = object()
    users: dict[object, list[object]] = {root: [entry] for root in roots}
    for pattern in order:
        for operand in operands[pattern]:
            users.setdefault(operand, []).append(pattern)
    depth: dict[object, int] = {entry: 0}
    dominator: dict[object, object] = {entry: entry}
    for node in [*reversed(order), *users]:
        if node in depth:
            continue
        nearest, *others = users[node]
        for other in others:
            while nearest is not other:
                if depth[nearest] < depth[other]:
                    nearest, other = other, nearest
                nearest = dominator[nearest]
        dominator[node], depth[node] = nearest, depth[nearest] + 1
    independent = set()
    lowest: dict[object, int] = {}  # the least depth of a dominator of anything below
    for pattern in order:
        below = [min(depth[dominator[n]], lowest.get(n, depth[n])) for n in operands[pattern]]
        lowest[pattern] = min(below, default=depth[pattern])
        if lowest[pattern] >= depth[pattern]:
            independent.add(pattern)
    return frozenset(independent)
