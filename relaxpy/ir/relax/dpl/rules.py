"""Rules: patterns to find in a run of bindings, and their replacements.

A rule of a PatternContext replaces several bindings at once; a tuple rule replaces values that
match the fields of a tuple pattern without being in a tuple.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from types import MappingProxyType
from typing import Any, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.graph import (
    BindingGraph,
    GraphMatcher,
    Segment,
    VarMatches,
    projected,
    sorted_by_use,
)
from relaxpy.ir.relax.dpl.matcher import (
    Goal,
    Head,
    Matcher,
    Matches,
    assignment,
    head_of,
    heads,
    is_same_value,
)
from relaxpy.ir.relax.dpl.replacing import Kind, NewBindings, Replacer, Rewriter, as_replacement
from relaxpy.ir.relax.nodes import BaseFunc, Binding, Expr, Tuple, Var, VarBinding
from relaxpy.support.dataclass import dataclass
from relaxpy.support.missing import described

COMPUTING = (
    dp.CallPattern,
    dp.FunctionPattern,
    dp.TupleGetItemPattern,
    dp.TuplePattern,
    dp.UnorderedTuplePattern,
)


@dataclass(frozen=True, eq=False)
class Rule(ABC):
    """A rewriting of bindings. Its replacements may call the `subroutines`."""

    subroutines: Mapping[str, BaseFunc] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def sweep(
        self, bindings: Sequence[Binding], replacer: Replacer, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        """The bindings after all rewriting by this rule; `bindings` itself if it never applies.

        They belong to a block of this kind; see `Segment` for `ordered`.
        """


@dataclass(frozen=True, eq=False)
class ExprRule(Rule):
    """Replaces an expression that `pattern` matches by the result of `func(expr, matches)`.

    The patterns in `outer` match the same expression. A replacement is visited again, so that one
    sweep applies the rule as often as possible.
    """

    pattern: dp.DFPattern
    func: Rewriter
    outer: tuple[dp.DFPattern, ...] = ()

    @late_property
    def heads(self) -> frozenset[Head] | None:
        """The heads of the expressions that the pattern may match; None stands for any head."""
        return heads(self.pattern)

    @override
    def sweep(
        self, bindings: Sequence[Binding], replacer: Replacer, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        if not any(self._may_match(binding.value) for binding in bindings):
            return bindings
        segment = Segment(bindings, ordered=ordered)
        matcher = Matcher([self.pattern], segment.values)
        changed = False
        while segment.waiting:
            binding = take(segment, replacer)
            matches = self._matches(binding.value, segment, matcher)
            new = None
            if matches is not None:
                result = as_replacement(self.func(binding.value, matches), binding.value)
                if result is not None:
                    new = replacer.rebind([binding], result, bound_in(matches, segment), kind)
            if matches is None or new is None:
                segment.keep(binding)
                replacer.enter(binding)
            else:
                changed = True
                replacer.matched.update(computed_in(matches, segment))
                segment.waiting.extendleft(reversed((*new.operands, *new.results)))
        return segment.bindings() if changed else bindings

    def _may_match(self, value: Expr) -> bool:
        return self.heads is None or head_of(value) in self.heads

    def _matches(self, value: Expr, segment: Segment, matcher: Matcher) -> Matches | None:
        # The value that a variable is bound to was visited where it was bound.
        if isinstance(value, Var) or not self._may_match(value):
            return None
        matches = matcher.first([Goal(self.pattern, value)])
        if matches is None or not segment.in_order(computed_in(matches, segment)):
            return None
        return matches | dict.fromkeys(self.outer, value)


def take(segment: Segment, replacer: Replacer) -> Binding:
    """The next binding; a projection of a tuple that a rewriter wrote out becomes the field."""
    binding = segment.waiting.popleft()
    field_binding = projected(binding, lambda expr: _written_out(expr, segment, replacer))
    if field_binding is not binding and field_binding.var is not None:
        replacer.touched.add(field_binding.var)
    return field_binding


def _written_out(expr: Expr, segment: Segment, replacer: Replacer) -> Expr | None:
    while isinstance(expr, Var):
        if expr not in replacer.touched or expr not in segment.values:
            return None
        expr = segment.values[expr]
    return expr


def computed_in(matches: Matches, segment: Segment) -> list[Var]:
    """The variables whose values were matched, other than inputs of the pattern."""
    values = (value for pattern, value in matches.items() if isinstance(pattern, COMPUTING))
    bound = (segment.variable_of(value) for value in values)
    return [var for var in bound if var is not None]


def bound_in(matches: Matches, segment: Segment) -> dict[Expr, Var]:
    """The values that were matched and are bound to variables."""
    table: dict[Expr, Var] = {}
    for value in matches.values():
        var = segment.variable_of(value)
        if var is not None and isinstance(value, Expr):
            table[value] = var
    return table


MatchRewriter: TypeAlias = Callable[[VarMatches, Mapping[Var, Expr]], Any]


@dataclass(frozen=True, eq=False)
class ContextRule(Rule):
    """Binds variables of a match of `context` to new values, from `func(matches, bindings)`."""

    context: dp.PatternContext
    func: MatchRewriter

    @override
    def sweep(
        self, bindings: Sequence[Binding], replacer: Replacer, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        graph = BindingGraph(bindings)
        search = GraphMatcher(self.context, graph)
        segment = Segment((), ordered=ordered)
        for binding in bindings:
            segment.keep(binding)
        replacements: list[dict[Var, Expr]] = []
        values = dict(graph.values)
        for matches in search.matches():
            computed = {v for p, v in matches.items() if dp.subpatterns(p) and isinstance(v, Var)}
            if not segment.in_order(computed):
                continue
            new = _new_values(self.func(dict(matches), MappingProxyType(values)), values)
            if new:
                replacements.append(new)
                search.replaced.update(new)
                replacer.matched |= computed
                for var in new:
                    del values[var]
        return _with_values(bindings, replacements, replacer, kind) if replacements else bindings


def _new_values(result: object, values: Mapping[Var, Expr]) -> dict[Var, Expr]:
    """The new values that a rewriter returned, except for those that are the old ones."""
    if result is None:
        return {}
    if not isinstance(result, Mapping):
        raise MisuseError(
            f"a rewriter of bindings returns a dict from variables to expressions, found "
            f"{described(result)}",
            about=result,
        )
    for var, value in result.items():
        if not isinstance(var, Var) or not isinstance(value, Expr):
            raise MisuseError(
                f"a rewriter of bindings returns new values of variables, found {var!r:.40}: "
                f"{value!r:.40}",
                about=value,
            )
        if var not in values:
            raise MisuseError(
                f"{var.name_hint} is not bound among the bindings of the match, so it has no value "
                "to replace",
                about=var,
            )
    return {v: e for v, e in result.items() if e is not values[v] and e is not v}


def _with_values(
    bindings: Sequence[Binding],
    replacements: Sequence[Mapping[Var, Expr]],
    replacer: Replacer,
    kind: Kind,
) -> Sequence[Binding]:
    """The bindings with new values, each computed as soon as its operands are bound.

    A replacement that depends on its own results by way of other bindings is omitted.
    """
    visible = set(replacer.visible)
    for binding in bindings:
        replacer.enter(binding)
    by_var = {b.var: b for b in bindings}
    position = {b.var: i for i, b in enumerate(bindings)}
    groups: list[dict[Var, Sequence[Binding]]] = []
    for new in replacements:
        olds = sorted((by_var[var] for var in new), key=lambda b: position[b.var])
        whole = Tuple(tuple(new[b.var] for b in olds))  # type: ignore[index]
        mentioned = [var.name_hint for var in occurring_vars(whole) if var in new]
        if mentioned:
            raise TransformError(
                f"a new value is computed from {mentioned[0]}, which gets a new value itself",
                span=olds[0].span,
                hint="compute it from the old value, which the rewriter receives in the bindings",
            )
        rebound = replacer.rebind(olds, whole, {}, kind, fields=True)
        if rebound is not None:
            groups.append(dict.fromkeys(new, (*rebound.operands, *rebound.results)))
    replacer.visible = visible
    result = _ordered(bindings, groups)
    if result is None:
        acyclic: list[dict[Var, Sequence[Binding]]] = []
        for group in groups:
            if _ordered(bindings, [*acyclic, group]) is not None:
                acyclic.append(group)
        groups, result = acyclic, _ordered(bindings, acyclic)
    for binding in result or ():
        replacer.enter(binding)
    return result if groups and result is not None else bindings


def _ordered(
    bindings: Sequence[Binding], groups: Iterable[Mapping[Var, Sequence[Binding]]]
) -> list[Binding] | None:
    """The bindings, sorted, with each group instead of the first binding that it replaces."""
    by_var = {var: group for table in groups for var, group in table.items()}
    result: list[Binding] = []
    inserted: set[int] = set()
    for binding in bindings:
        group = None if binding.var is None else by_var.get(binding.var)
        if group is None:
            result.append(binding)
        elif id(group) not in inserted:
            inserted.add(id(group))
            result += group
    return sorted_by_use(result)


@dataclass(frozen=True, eq=False)
class TupleRule(Rule):
    """Replaces values that match `patterns` by the fields of the result of `func(tuple, matches)`.

    The new values are computed where the last of the old ones is. So nothing may use an old value
    before that, except for other values of the match.
    """

    patterns: tuple[dp.DFPattern, ...]
    func: Rewriter
    outer: tuple[dp.DFPattern, ...] = ()

    @override
    def sweep(
        self, bindings: Sequence[Binding], replacer: Replacer, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        return _Sweep(self, bindings, replacer, kind, ordered=ordered).run(bindings)


def inner_heads(patterns: Sequence[dp.DFPattern]) -> frozenset[Head] | None:
    """The heads of values that are computed on the way to a match; None stands for any head."""
    result: frozenset[Head] = frozenset()
    for pattern in patterns:
        for sub in dp.all_subpatterns([pattern]):
            if sub is not pattern and isinstance(sub, COMPUTING):
                sub_heads = heads(sub)
                if sub_heads is None:
                    return None
                result |= sub_heads
    return result


def shared_subpatterns(patterns: Sequence[dp.DFPattern]) -> list[dp.DFPattern]:
    """The patterns below several of `patterns`, if each of these matches in one way at most.

    Then two values belong together only if these patterns match the same expressions in both.
    """
    below = [set(dp.all_subpatterns([pattern])) for pattern in patterns]
    if any(map(_has_choice, set().union(*below))):
        return []
    return [p for p in dp.all_subpatterns(patterns) if sum(p in subs for subs in below) > 1]


def _has_choice(pattern: dp.DFPattern) -> bool:
    if isinstance(pattern, dp.CallPattern):
        operator = pattern.op.expr if isinstance(pattern.op, dp.ExprPattern) else None
        return operator is None or (isinstance(operator, Op) and operator.record.commutative)
    return isinstance(pattern, (dp.OrPattern, dp.UnorderedTuplePattern))


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A value that matches a field of the pattern, with the matches of shared subpatterns."""

    var: Var
    goal: Goal
    shared: Matches

    def fits(self, other: _Candidate) -> bool:
        return self.var is not other.var and all(
            pattern not in other.shared or is_same_value(value, other.shared[pattern])
            for pattern, value in self.shared.items()
        )


class _Sweep:
    """One sweep of a TupleRule; `open` has the candidates for each field that may still be used."""

    def __init__(
        self,
        rule: TupleRule,
        bindings: Sequence[Binding],
        replacer: Replacer,
        kind: Kind,
        *,
        ordered: bool,
    ) -> None:
        self.rule = rule
        self.replacer = replacer
        self.kind = kind
        self.segment = Segment(bindings, ordered=ordered)
        self.matcher = Matcher(rule.patterns, self.segment.values)
        self.shared = shared_subpatterns(rule.patterns)
        self.open: list[dict[Var, _Candidate]] = [{} for _ in rule.patterns]
        self.users: dict[Var, list[Var]] = {}
        self.inner = inner_heads(rule.patterns)
        self.bindings: dict[Var, VarBinding] = {}

    def run(self, bindings: Sequence[Binding]) -> Sequence[Binding]:
        changed = False
        while self.segment.waiting:
            binding = take(self.segment, self.replacer)
            candidates = self._candidates(binding)
            new = self._completed(binding, candidates)
            if new is not None:
                changed = True
                self.segment.waiting.extendleft(reversed((*new.operands, *new.results)))
                continue
            self.segment.keep(binding)
            self.replacer.enter(binding)
            self._add(binding, candidates)
        if not changed:
            return bindings
        result = sorted_by_use(self.segment.bindings())
        assert result is not None, "a match is replaced only if its order can be kept"
        return result

    def _add(self, binding: Binding, candidates: Mapping[int, _Candidate]) -> None:
        """Add the candidates of a binding; drop those that it uses unless it may be in a match."""
        value = binding.value
        may_be_inner = self.inner is None or head_of(value) in self.inner
        for var in occurring_vars(value):
            if var not in self.bindings:
                continue
            if may_be_inner and binding.var is not None:
                self.users[var].append(binding.var)
            else:
                for values in self.open:
                    values.pop(var, None)
        if isinstance(binding, VarBinding) and not isinstance(value, Var):
            self.bindings[binding.var] = binding
            self.users.setdefault(binding.var, [])
            for index, candidate in candidates.items():
                self.open[index][binding.var] = candidate

    def _candidates(self, binding: Binding) -> dict[int, _Candidate]:
        """A candidate for each field of the pattern that the value of a binding matches."""
        if not isinstance(binding, VarBinding) or isinstance(binding.value, Var):
            return {}
        result: dict[int, _Candidate] = {}
        for index, pattern in enumerate(self.rule.patterns):
            goal = Goal(pattern, binding.value)
            matches = self.matcher.first([goal])
            if matches is not None:
                shared = {sub: matches[sub] for sub in self.shared if sub in matches}
                result[index] = _Candidate(binding.var, goal, shared)
        return result

    def _completed(
        self, binding: Binding, candidates: Mapping[int, _Candidate]
    ) -> NewBindings | None:
        """The replacement of a match in which the value of this binding is the last one."""
        for index, candidate in reversed(tuple(candidates.items())):
            if not self._may_be_completed(index, candidate):
                continue
            chosen = {index: candidate}
            for matches in self._assignments(chosen):
                assert isinstance(binding, VarBinding)
                new = self._replaced(binding, chosen, matches)
                if new is not None:
                    return new
        return None

    def _may_be_completed(self, field: int, candidate: _Candidate) -> bool:
        """True if there is a different value for each other field, by the shared subpatterns.

        For each field, as many values as there are fields suffice for this test.
        """
        fitting = (
            (var for var, other in values.items() if candidate.fits(other))
            for i, values in enumerate(self.open)
            if i != field
        )
        return assignment([list(islice(vars_, len(self.open))) for vars_ in fitting]) is not None

    def _assignments(self, chosen: dict[int, _Candidate]) -> Iterator[Matches]:
        """Each way to add candidates for the other fields to `chosen`, the latest values first."""
        matches = self.matcher.first([candidate.goal for candidate in chosen.values()])
        if matches is None:
            return
        missing = [i for i in range(len(self.rule.patterns)) if i not in chosen]
        if not missing:
            yield matches
            return
        field = missing[-1]
        for candidate in reversed(tuple(self.open[field].values())):
            if all(map(candidate.fits, chosen.values())):
                chosen[field] = candidate
                yield from self._assignments(chosen)
                del chosen[field]

    def _replaced(
        self, last: VarBinding, candidates: Mapping[int, _Candidate], matches: Matches
    ) -> NewBindings | None:
        """The replacement of these values, which are removed; None if that is not allowed."""
        segment = self.segment
        chosen = [candidates[i].var for i in range(len(candidates))]
        computed = {*computed_in(matches, segment), *chosen} - {last.var}
        earlier = [var for var in chosen if var is not last.var]
        inputs = {segment.variable_of(v) for p, v in matches.items() if not dp.subpatterns(p)}
        if not inputs.isdisjoint(earlier):
            return None  # one of the values is computed from another one
        used = {user for var in earlier for user in self.users[var]}
        if not used <= computed | {last.var} or not segment.in_order(computed):
            return None
        olds = [last if var is last.var else self.bindings[var] for var in chosen]
        whole = Tuple(tuple(b.value for b in olds))
        outer = dict.fromkeys(self.rule.outer, whole)
        result = as_replacement(self.rule.func(whole, matches | outer), whole)
        if result is None:
            return None
        bound = {e: var for e, var in bound_in(matches, segment).items() if var not in chosen}
        new = self.replacer.rebind(olds, result, bound, self.kind, fields=True)
        if new is None or self._depends_on(new, earlier):
            return None
        self.replacer.matched |= computed
        position = {var: segment.position[var] for var in earlier}
        for var in earlier:
            segment.remove(var)
            for values in self.open:
                values.pop(var, None)
            del self.bindings[var]
        by_var = dict(zip(chosen, new.results, strict=True))
        in_order = sorted(chosen, key=lambda var: position.get(var, len(segment.kept)))
        return NewBindings(new.operands, tuple(by_var[var] for var in in_order))

    def _depends_on(self, new: NewBindings, earlier: Sequence[Var]) -> bool:
        """True if new values are computed from old ones by way of other bindings."""
        position = self.segment.position
        introduced = {b.var for b in new.operands}
        waiting = [v for b in (*new.operands, *new.results) for v in occurring_vars(b.value)]
        first = min((position[var] for var in earlier), default=0)
        seen: set[Var] = set()
        while waiting:
            var = waiting.pop()
            if var in earlier:
                return True
            if var in introduced or var in seen or position.get(var, -1) < first:
                continue
            seen.add(var)
            kept = self.segment.kept[position[var]]
            waiting += () if kept is None else occurring_vars(kept.value)
        return False
