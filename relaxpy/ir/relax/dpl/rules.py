"""Rules: patterns to find in a run of bindings, and their replacements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field

from typing_extensions import override

from relaxpy.ir.core.fork_lock import late_property
from relaxpy.ir.relax.dpl import pattern as dp
from relaxpy.ir.relax.dpl.alternatives import Goal
from relaxpy.ir.relax.dpl.heads import Head, head_of, heads
from relaxpy.ir.relax.dpl.matcher import Matcher, Matches
from relaxpy.ir.relax.dpl.replacing import Kind, Replacer, Rewriter, as_replacement
from relaxpy.ir.relax.dpl.segment import Segment, projected
from relaxpy.ir.relax.nodes import BaseFunc, Binding, Expr, Var
from relaxpy.support.dataclass import dataclass

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
