"""Rules: what to look for in a run of bindings, and what to put in its place."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from typing_extensions import override

from relaxpy.ir.relax.dpl.expand import Goal
from relaxpy.ir.relax.dpl.heads import Head, head_of, heads
from relaxpy.ir.relax.dpl.matcher import Matcher, Value
from relaxpy.ir.relax.dpl.pattern import (
    CallPattern,
    DFPattern,
    FunctionPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
)
from relaxpy.ir.relax.dpl.replacing import Kind, Replacing, Rewriter, as_replacement
from relaxpy.ir.relax.dpl.segment import Segment, projected
from relaxpy.ir.relax.nodes import BaseFunc, Binding, Expr, Var

Found: TypeAlias = dict[DFPattern, Value]
COMPUTING = (
    CallPattern,
    FunctionPattern,
    TupleGetItemPattern,
    TuplePattern,
    UnorderedTuplePattern,
)


@dataclass(frozen=True, eq=False)
class Rule(ABC):
    """A rewriting that may call functions of its own, the `subroutines`."""

    subroutines: Mapping[str, BaseFunc] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def sweep(
        self, bindings: Sequence[Binding], to: Replacing, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        """The bindings after rewriting wherever the rule applies; themselves if it does nowhere.

        They stand in a block of the kind given; `ordered` is as for `Segment`.
        """


@dataclass(frozen=True, eq=False)
class ExprRule(Rule):
    """Puts what `func(expr, matches)` gives in the place of an expression that `pattern` matches.

    `also` match the same expression. What is put in is looked at again, so that one sweep goes as
    far as the rule does.
    """

    pattern: DFPattern
    func: Rewriter
    also: tuple[DFPattern, ...] = ()

    @cached_property
    def heads(self) -> frozenset[Head] | None:
        """What an expression must be at first sight."""
        return heads(self.pattern)

    @override
    def sweep(
        self, bindings: Sequence[Binding], to: Replacing, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        if self.heads is not None and not any(head_of(b.value) in self.heads for b in bindings):
            return bindings
        segment = Segment(bindings, ordered=ordered)
        matcher = Matcher([self.pattern], segment.values)
        changed = False
        while segment.waiting:
            binding = take(segment, to)
            found = self._found(binding, segment, matcher)
            new = None
            if found is not None:
                given = as_replacement(self.func(binding.value, found), binding.value)
                if given is not None:
                    bound = bound_in(found, segment)
                    new = to.values([binding], given, bound, kind)
            if new is None:
                segment.keep(binding)
                to.see(binding)
            else:
                changed = True
                to.matched.update(computed_in(found or {}, segment))
                segment.waiting.extendleft(reversed((*new.before, *new.last)))
        return segment.bindings() if changed else bindings

    def _found(self, binding: Binding, segment: Segment, matcher: Matcher) -> Found | None:
        value = binding.value
        if isinstance(value, Var):
            return None  # what it stands for was looked at
        if self.heads is not None and head_of(value) not in self.heads:
            return None
        found = matcher.first([Goal(self.pattern, value)])
        if found is None or not segment.in_order(computed_in(found, segment)):
            return None
        return found | dict.fromkeys(self.also, value)


def take(segment: Segment, to: Replacing) -> Binding:
    """The next binding; a field of a tuple that a rewriter wrote out is that very field."""
    binding = segment.waiting.popleft()
    found = projected(binding, lambda expr: _written_out(expr, segment, to))
    if found is not binding and found.var is not None:
        to.touched.add(found.var)
    return found


def _written_out(expr: Expr, segment: Segment, to: Replacing) -> Expr | None:
    while isinstance(expr, Var):
        if expr not in to.touched or expr not in segment.values:
            return None
        expr = segment.values[expr]
    return expr


def computed_in(found: Mapping[DFPattern, Value], segment: Segment) -> list[Var]:
    """The variables whose values were matched as more than inputs."""
    parts = (value for pattern, value in found.items() if isinstance(pattern, COMPUTING))
    bound = (segment.variable_of(value) for value in parts)
    return [var for var in bound if var is not None]


def bound_in(found: Mapping[DFPattern, Value], segment: Segment) -> dict[Expr, Var]:
    """The values that were matched, with the variables that have them already."""
    table: dict[Expr, Var] = {}
    for value in found.values():
        var = segment.variable_of(value)
        if var is not None and isinstance(value, Expr):
            table[value] = var
    return table
