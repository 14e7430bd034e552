"""The matcher: patterns against expressions, by a search with its own stack."""

from __future__ import annotations

from collections.abc import Generator, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from relaxpy.errors import MisuseError
from relaxpy.ir.op import Op
from relaxpy.ir.relax.dpl.expand import (
    FieldsGoal,
    Goal,
    InfoGoal,
    Part,
    Ways,
    is_same_value,
    ways,
)
from relaxpy.ir.relax.dpl.pattern import DFPattern, StructInfoPattern, VarPattern, all_parts
from relaxpy.ir.relax.dpl.sharing import independent_patterns
from relaxpy.ir.relax.nodes import Expr, SeqExpr, Var, VarBinding
from relaxpy.ir.relax.nodes.base import StructInfo
from relaxpy.ir.relax.relations import is_base_of
from relaxpy.ir.relax.relations.mapping import map_params
from relaxpy.ir.relax.relations.shape_vars import free_shape_vars, substitute_info

Value: TypeAlias = Expr | Op
T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True, eq=False)
class _Done:
    """A pattern that matches by itself has matched: how is known, and other ways do not matter."""

    goal: Goal
    choices: int
    trail: int


@dataclass(frozen=True, slots=True, eq=False)
class _Attempt:
    """Below the choices of a pattern that matches by itself: they are all there are."""

    goal: Goal
    trail: int


@dataclass(slots=True, eq=False)
class _Choice:
    """The ways to match that are left, and what is to match after any of them."""

    entry: tuple[DFPattern, Value] | None
    left: Iterator[Sequence[Part]]
    rest: _Goals
    trail: int


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """What was entered for a pattern that matches by itself, groups for the parts of it in turn."""

    entries: tuple[_Entry, ...]


# What is to match, the next first; None is nothing more.
_Goals: TypeAlias = "tuple[Part | _Done, _Goals] | None"
_Entry: TypeAlias = tuple[DFPattern, Value] | InfoGoal | _Group
_FAILED: Final = object()


class Matcher:
    """Matches the patterns under `roots` against expressions.

    What is found so far is in `bindings`. `values` says what variables stand for; between two
    matches it may grow by variables that no expression looked at before has mentioned. A pattern
    whose parts occur nowhere else is tried once on each expression, so that only patterns that
    share parts are searched for in more than linear time.
    """

    def __init__(self, roots: Sequence[DFPattern], values: Mapping[Var, Expr]) -> None:
        self.values = values
        self.bindings: dict[DFPattern, Value] = {}
        self._inner: dict[Var, Expr] = {}
        self._infos: list[InfoGoal] = []
        self._trail: list[_Entry] = []
        self._independent = independent_patterns(roots)
        self._with_info = any(isinstance(p, StructInfoPattern) for p in all_parts(roots))
        self._known: dict[tuple[DFPattern, Value], _Group | None] = {}

    def value_of(self, expr: Value) -> Value:
        """What an expression stands for: of a bound variable its value, of a sequence its result.

        Variables that are bound to a variable stand for it.

        Errors:
            MisuseError: variables are bound to each other in a circle.
        """
        names = 0
        while True:
            if isinstance(expr, Var):
                found = self.values.get(expr)
                if found is None:
                    found = self._inner.get(expr)
                if found is None or found is expr:
                    return expr
                names += 1
                if names > len(self.values) + len(self._inner):
                    raise MisuseError(f"{expr.name_hint} is bound to itself by way of others")
                expr = found
            elif isinstance(expr, SeqExpr):
                for block in expr.blocks:
                    for binding in block.bindings:
                        if isinstance(binding, VarBinding):
                            self._inner[binding.var] = binding.value
                expr = expr.body
            else:
                return expr

    def solutions(self, goals: Sequence[Goal]) -> Generator[None]:
        """Each way in which all goals hold at once, given `bindings`, which then holds it, too.

        Afterwards `bindings` is what it was.
        """
        start = len(self._trail)
        choices: list[_Choice | _Attempt] = []
        here: Any = None
        for goal in reversed(goals):
            here = (goal, here)
        try:
            while True:
                while here is not None and here is not _FAILED:
                    here = self._step(here, choices)
                if here is None and self._infos_hold(start):
                    yield None
                here = self._go_back(choices)
                if here is _FAILED:
                    return
        finally:
            self._undo(start)

    def holds(self, pattern: DFPattern, expr: Value) -> bool:
        """Whether a pattern matches given what is bound; what it binds is forgotten."""
        return self.first([Goal(pattern, expr)]) is not None

    def first(self, goals: Sequence[Goal]) -> dict[DFPattern, Value] | None:
        """What is bound in the first way in which all goals hold, or None."""
        search = self.solutions(goals)
        for _ in search:
            found = dict(self.bindings)
            search.close()
            return found
        return None

    def _step(self, goals: Any, choices: list[_Choice | _Attempt]) -> Any:
        """The goals after the first one was attended to, or _FAILED."""
        goal, rest = goals
        match goal:
            case Goal():
                return self._match(goal, rest, choices)
            case InfoGoal():
                return rest if self._assume(goal) else _FAILED
            case FieldsGoal():
                return self._choose(None, self._orders(goal), rest, choices)
            case _:
                if not self._infos_hold(goal.trail):
                    return _FAILED
                del choices[goal.choices :]
                found = _Group(tuple(self._trail[goal.trail :]))
                self._trail[goal.trail :] = (found,)
                self._known[goal.goal.pattern, goal.goal.expr] = found
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
            choices.append(_Attempt(goal, len(self._trail)))
            rest = (_Done(goal, len(choices) - 1, len(self._trail)), rest)
        return self._choose((pattern, expr), ways(goal, expr, self.holds), rest, choices)

    def _choose(
        self,
        entry: tuple[DFPattern, Value] | None,
        found: Ways,
        rest: Any,
        choices: list[_Choice | _Attempt],
    ) -> Any:
        """The goals of the first way in front of the rest; the others are left for later."""
        if not found:
            return _FAILED
        trail = len(self._trail)
        if len(found) > 1:
            choices.append(_Choice(entry, iter(found[1:]), rest, trail))
        return self._begin(entry, found[0], rest)

    def _begin(self, entry: tuple[DFPattern, Value] | None, way: Sequence[Part], rest: Any) -> Any:
        if entry is not None:
            self._enter(entry)
        for part in reversed(way):
            rest = (part, rest)
        return rest

    def _go_back(self, choices: list[_Choice | _Attempt]) -> Any:
        """The goals of the next way that is left, or _FAILED."""
        while choices:
            last = choices[-1]
            self._undo(last.trail)
            if isinstance(last, _Attempt):
                self._known[last.goal.pattern, last.goal.expr] = None
                choices.pop()
                continue
            way = next(last.left, None)
            if way is not None:
                return self._begin(last.entry, way, last.rest)
            choices.pop()
        return _FAILED

    def _enter(self, entry: _Entry) -> None:
        self._trail.append(entry)
        for single in _singles(entry):
            if isinstance(single, InfoGoal):
                self._infos.append(single)
            else:
                self.bindings[single[0]] = single[1]

    def _undo(self, size: int) -> None:
        """Forget what was entered after the first `size` entries."""
        while len(self._trail) > size:
            for single in _singles(self._trail.pop()):
                if isinstance(single, InfoGoal):
                    self._infos.pop()
                else:
                    del self.bindings[single[0]]

    def _assume(self, goal: InfoGoal) -> bool:
        """Enter what an info has to be the base of, unless it provably cannot be."""
        self._enter(goal)
        return self._holds(goal, self._sizes(), final=False)

    def _infos_hold(self, trail: int) -> bool:
        """Whether the infos entered after the first `trail` entries are what they shall be."""
        if not self._with_info:
            return True
        sizes = self._sizes()
        since = (e for e in self._trail[trail:] if isinstance(e, InfoGoal))
        return all(self._holds(goal, sizes, final=True) for goal in since)

    def _sizes(self) -> Mapping[Any, Any]:
        """What the shape variables of patterns stand for."""
        return map_params([g.info for g in self._infos], [g.found for g in self._infos])

    def _holds(self, goal: InfoGoal, sizes: Mapping[Any, Any], *, final: bool) -> bool:
        info: StructInfo = goal.info
        if not final and any(var not in sizes for var in free_shape_vars(info)):
            return True
        return is_base_of(substitute_info(info, sizes), goal.found)

    def _orders(self, goal: FieldsGoal) -> Ways:
        """The fields that the first pattern may match so that each other still has one, too.

        Rule:
            Kuhn, Naval Research Logistics 2, 1955: augmenting paths in a bipartite graph.
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


def _singles(entry: _Entry) -> Iterator[tuple[DFPattern, Value] | InfoGoal]:
    """What an entry consists of, in order."""
    waiting: list[_Entry] = [entry]
    while waiting:
        entry = waiting.pop()
        if isinstance(entry, _Group):
            waiting += reversed(entry.entries)
        else:
            yield entry


def assignment(fits: Sequence[Sequence[T]]) -> dict[T, int] | None:
    """For each field the pattern it goes to, where every pattern gets one that fits it."""
    owner: dict[T, int] = {}

    def place(pattern: int, tried: set[T]) -> bool:
        for field in fits[pattern]:
            if field not in tried:
                tried.add(field)
                if field not in owner or place(owner[field], tried):
                    owner[field] = pattern
                    return True
        return False

    return owner if all(place(p, set()) for p in range(len(fits))) else None


def extract_matched_expr(
    pattern: DFPattern, expr: object, var2val: Mapping[Var, Expr] | None = None
) -> dict[DFPattern, Value] | None:
    """What `pattern` and those in it match; see `DFPattern.extract_matched_expr`.

    Errors:
        MisuseError (also TypeError): `expr` is no expression, or `var2val` no table.
    """
    if not isinstance(expr, (Expr, Op)):
        raise MisuseError(f"patterns match expressions, found {expr!r:.60}", about=expr)
    if not isinstance(var2val, Mapping | None):
        raise MisuseError(
            f"var2val is a table from variables to values, found {var2val!r:.60}",
            about=var2val,
            hint="relax.analysis.get_var2val(func) makes one",
        )
    return Matcher([pattern], var2val or {}).first([Goal(pattern, expr)])
