"""Tuples that no tuple holds: values that match the fields of a pattern, all at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from typing_extensions import override

from relaxpy.ir.op import Op
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl.expand import Goal, is_same_value
from relaxpy.ir.relax.dpl.heads import Head, head_of, heads
from relaxpy.ir.relax.dpl.matcher import Matcher, assignment
from relaxpy.ir.relax.dpl.pattern import (
    CallPattern,
    DFPattern,
    ExprPattern,
    OrPattern,
    UnorderedTuplePattern,
    all_parts,
    parts,
)
from relaxpy.ir.relax.dpl.replacing import Kind, New, Replacing, Rewriter, as_replacement
from relaxpy.ir.relax.dpl.rules import COMPUTING, Found, Rule, bound_in, computed_in, take
from relaxpy.ir.relax.dpl.segment import Segment, sorted_by_use
from relaxpy.ir.relax.nodes import Binding, Tuple, Var, VarBinding


@dataclass(frozen=True, eq=False)
class TupleRule(Rule):
    """Puts the fields of what `func(tuple, matches)` gives in the places of what `patterns` match.

    They are computed where the last of these is. So nothing may use one before, except what is part
    of the match itself.
    """

    patterns: tuple[DFPattern, ...]
    func: Rewriter
    also: tuple[DFPattern, ...] = ()

    @override
    def sweep(
        self, bindings: Sequence[Binding], to: Replacing, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        return _Sweep(self, bindings, to, kind, ordered=ordered).run(bindings)


def inner_heads(patterns: Sequence[DFPattern]) -> frozenset[Head] | None:
    """What a value is at first sight that is computed on the way to a match; None is anything."""
    found: frozenset[Head] = frozenset()
    for pattern in patterns:
        for part in all_parts([pattern]):
            if part is not pattern and isinstance(part, COMPUTING):
                part_heads = heads(part)
                if part_heads is None:
                    return None
                found |= part_heads
    return found


def known_to_each(patterns: Sequence[DFPattern]) -> list[DFPattern]:
    """What occurs in several patterns, if each of them matches in one way at most.

    Then two values fit together only if these parts stand for the same in both.
    """
    inside = [set(all_parts([pattern])) for pattern in patterns]
    if any(map(_has_choice, set().union(*inside))):
        return []
    return [p for p in all_parts(patterns) if sum(p in parts for parts in inside) > 1]


def _has_choice(pattern: DFPattern) -> bool:
    if isinstance(pattern, CallPattern):
        operator = pattern.op.expr if isinstance(pattern.op, ExprPattern) else None
        return operator is None or (isinstance(operator, Op) and operator.record.commutative)
    return isinstance(pattern, (OrPattern, UnorderedTuplePattern))


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A value that a field of the pattern matches, and what parts that others have stand for."""

    var: Var
    goal: Goal
    told: Found

    def fits(self, other: _Candidate) -> bool:
        return self.var is not other.var and all(
            part not in other.told or is_same_value(value, other.told[part])
            for part, value in self.told.items()
        )


class _Sweep:
    """One sweep of a TupleRule; `open` are the values for each field that may still be used."""

    def __init__(
        self,
        rule: TupleRule,
        bindings: Sequence[Binding],
        to: Replacing,
        kind: Kind,
        *,
        ordered: bool,
    ) -> None:
        self.rule = rule
        self.to = to
        self.kind = kind
        self.segment = Segment(bindings, ordered=ordered)
        self.matcher = Matcher(rule.patterns, self.segment.values)
        self.told = known_to_each(rule.patterns)
        self.open: list[dict[Var, _Candidate]] = [{} for _ in rule.patterns]
        self.users: dict[Var, list[Var]] = {}
        self.inner = inner_heads(rule.patterns)
        self.bindings: dict[Var, VarBinding] = {}

    def run(self, bindings: Sequence[Binding]) -> Sequence[Binding]:
        changed = False
        while self.segment.waiting:
            binding = take(self.segment, self.to)
            candidates = self._candidates(binding)
            new = self._completed(binding, candidates)
            if new is not None:
                changed = True
                self.segment.waiting.extendleft(reversed((*new.before, *new.last)))
                continue
            self.segment.keep(binding)
            self.to.see(binding)
            self._note(binding, candidates)
        if not changed:
            return bindings
        found = sorted_by_use(self.segment.bindings())
        assert found is not None, "a match is taken only where its order can be kept"
        return found

    def _note(self, binding: Binding, candidates: Mapping[int, _Candidate]) -> None:
        """Close what is used from now on by something that is part of no match."""
        value = binding.value
        partly = self.inner is None or head_of(value) in self.inner
        for var in occurring_vars(value):
            if var not in self.bindings:
                continue
            if partly and binding.var is not None:
                self.users[var].append(binding.var)
            else:
                for values in self.open:
                    values.pop(var, None)
        if isinstance(binding, VarBinding) and not isinstance(value, Var):
            self.bindings[binding.var] = binding
            self.users.setdefault(binding.var, [])
            for place, candidate in candidates.items():
                self.open[place][binding.var] = candidate

    def _candidates(self, binding: Binding) -> dict[int, _Candidate]:
        """The fields of the pattern that a value matches by itself."""
        if not isinstance(binding, VarBinding) or isinstance(binding.value, Var):
            return {}
        result: dict[int, _Candidate] = {}
        for place, pattern in enumerate(self.rule.patterns):
            goal = Goal(pattern, binding.value)
            found = self.matcher.first([goal])
            if found is not None:
                told = {part: found[part] for part in self.told if part in found}
                result[place] = _Candidate(binding.var, goal, told)
        return result

    def _completed(self, binding: Binding, candidates: Mapping[int, _Candidate]) -> New | None:
        """What stands for the values of a match of which this binding is the last one."""
        for place, candidate in reversed(tuple(candidates.items())):
            if not self._may_be_filled(place, candidate):
                continue
            chosen = {place: candidate}
            for found in self._assignments(chosen):
                assert isinstance(binding, VarBinding)
                new = self._replaced(binding, chosen, found)
                if new is not None:
                    return new
        return None

    def _may_be_filled(self, place: int, candidate: _Candidate) -> bool:
        """Whether each other field has a value of its own; as many as there are fields will do."""
        fitting = (
            (var for var, other in values.items() if candidate.fits(other))
            for i, values in enumerate(self.open)
            if i != place
        )
        return assignment([list(islice(found, len(self.open))) for found in fitting]) is not None

    def _assignments(self, chosen: dict[int, _Candidate]) -> Iterator[Found]:
        """Each way to fill the fields that are still without a value, the latest values first."""
        found = self.matcher.first([candidate.goal for candidate in chosen.values()])
        if found is None:
            return
        missing = [i for i in range(len(self.rule.patterns)) if i not in chosen]
        if not missing:
            yield found
            return
        place = missing[-1]
        for candidate in reversed(tuple(self.open[place].values())):
            if all(map(candidate.fits, chosen.values())):
                chosen[place] = candidate
                yield from self._assignments(chosen)
                del chosen[place]

    def _replaced(
        self, last: VarBinding, goals: Mapping[int, _Candidate], found: Found
    ) -> New | None:
        """What stands for these values, taken out of their places, if it may."""
        chosen = [goals[i].var for i in range(len(goals))]
        computed = {*computed_in(found, self.segment), *chosen} - {last.var}
        earlier = [var for var in chosen if var is not last.var]
        inputs = {self.segment.variable_of(v) for p, v in found.items() if not parts(p)}
        if not inputs.isdisjoint(earlier):
            return None  # one of the values is computed from another one
        used = {user for var in earlier for user in self.users[var]}
        if not used <= computed | {last.var} or not self.segment.in_order(computed):
            return None
        olds = [last if var is last.var else self.bindings[var] for var in chosen]
        whole = Tuple(tuple(b.value for b in olds))
        given = as_replacement(
            self.rule.func(whole, found | dict.fromkeys(self.rule.also, whole)), whole
        )
        if given is None:
            return None
        bound = {
            value: var for value, var in bound_in(found, self.segment).items() if var not in chosen
        }
        new = self.to.values(olds, given, bound, self.kind, fields=True)
        if new is None or self._needs(new, earlier):
            return None
        self.to.matched |= computed
        places = {var: self.segment.place[var] for var in earlier}
        for var in earlier:
            self.segment.take_back(var)
            for values in self.open:
                values.pop(var, None)
            del self.bindings[var]
        end = len(self.segment.kept)
        by_place = dict(zip(chosen, new.last, strict=True))
        in_order = sorted(chosen, key=lambda var: places.get(var, end))
        return New(new.before, tuple(by_place[var] for var in in_order))

    def _needs(self, new: New, earlier: Sequence[Var]) -> bool:
        """Whether new values are computed from the old ones, by way of others."""
        own = {b.var for b in new.before}
        waiting = [v for b in (*new.before, *new.last) for v in occurring_vars(b.value)]
        first = min((self.segment.place[var] for var in earlier), default=0)
        seen: set[Var] = set()
        while waiting:
            var = waiting.pop()
            if var in earlier:
                return True
            if var in own or var in seen or self.segment.place.get(var, -1) < first:
                continue
            seen.add(var)
            kept = self.segment.kept[self.segment.place[var]]
            waiting += () if kept is None else occurring_vars(kept.value)
        return False
