"""Tuple rules: replace values that match the fields of a tuple pattern without being in a tuple."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from typing_extensions import override

from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.alternatives import Goal, is_same_value
from relaxpy.ir.relax.dpl.heads import Head, head_of, heads
from relaxpy.ir.relax.dpl.matcher import Matcher, Matches, assignment
from relaxpy.ir.relax.dpl.replacing import Kind, NewBindings, Replacer, Rewriter, as_replacement
from relaxpy.ir.relax.dpl.rules import COMPUTING, Rule, bound_in, computed_in, take
from relaxpy.ir.relax.dpl.segment import Segment, sorted_by_use
from relaxpy.ir.relax.nodes import Binding, Tuple, Var, VarBinding
from relaxpy.support.dataclass import dataclass


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
            for field, candidate in candidates.items():
                self.open[field][binding.var] = candidate

    def _candidates(self, binding: Binding) -> dict[int, _Candidate]:
        """A candidate for each field of the pattern that the value of a binding matches."""
        if not isinstance(binding, VarBinding) or isinstance(binding.value, Var):
            return {}
        result: dict[int, _Candidate] = {}
        for field, pattern in enumerate(self.rule.patterns):
            goal = Goal(pattern, binding.value)
            matches = self.matcher.first([goal])
            if matches is not None:
                shared = {sub: matches[sub] for sub in self.shared if sub in matches}
                result[field] = _Candidate(binding.var, goal, shared)
        return result

    def _completed(
        self, binding: Binding, candidates: Mapping[int, _Candidate]
    ) -> NewBindings | None:
        """The replacement of a match in which the value of this binding is the last one."""
        for field, candidate in reversed(tuple(candidates.items())):
            if not self._may_be_completed(field, candidate):
                continue
            chosen = {field: candidate}
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
        """Return whether new values are computed from old ones by way of other bindings."""
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
