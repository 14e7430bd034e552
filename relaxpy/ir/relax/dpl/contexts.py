"""Rewriting of what a PatternContext matches: several bindings at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl.context import PatternContext
from relaxpy.ir.relax.dpl.graph import BindingGraph, Found, GraphMatcher
from relaxpy.ir.relax.dpl.pattern import parts
from relaxpy.ir.relax.dpl.replacing import Kind, Replacing
from relaxpy.ir.relax.dpl.rules import Rule
from relaxpy.ir.relax.dpl.segment import Segment, sorted_by_use
from relaxpy.ir.relax.nodes import Binding, Expr, Tuple, Var

MatchRewriter: TypeAlias = Callable[[Found, Mapping[Var, Expr]], Any]


@dataclass(frozen=True, eq=False)
class ContextRule(Rule):
    """Gives variables of a match of `context` the values that `func(matches, bindings)` says."""

    context: PatternContext
    func: MatchRewriter

    @override
    def sweep(
        self, bindings: Sequence[Binding], to: Replacing, kind: Kind, *, ordered: bool
    ) -> Sequence[Binding]:
        graph = BindingGraph(bindings)
        search = GraphMatcher(self.context, graph)
        segment = Segment((), ordered=ordered)
        for binding in bindings:
            segment.keep(binding)
        news: list[dict[Var, Expr]] = []
        values = dict(graph.values)
        for found in search.matches():
            computed = {v for p, v in found.items() if parts(p) and isinstance(v, Var)}
            if not segment.in_order(computed):
                continue
            new = _checked(self.func(dict(found), MappingProxyType(values)), values)
            if new:
                news.append(new)
                search.gone.update(new)
                to.matched |= computed
                for var in new:
                    del values[var]
        return _with_values(bindings, news, to, kind) if news else bindings


def _checked(given: object, values: Mapping[Var, Expr]) -> dict[Var, Expr]:
    """The new values that a rewriter gave, less those that are the old ones.

    Errors:
        MisuseError (also TypeError): it gave something else.
    """
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise MisuseError(
            f"a rewriter of bindings gives a dict from variables to expressions, found "
            f"{type(given).__name__} {given!r:.60}",
            about=given,
        )
    for var, value in given.items():
        if not isinstance(var, Var) or not isinstance(value, Expr):
            raise MisuseError(
                f"a rewriter of bindings gives new values of variables, found {var!r:.40}: "
                f"{value!r:.40}",
                about=value,
            )
        if var not in values:
            raise MisuseError(
                f"{var.name_hint} is not bound where the match is, so it has no value to replace",
                about=var,
            )
    return {v: e for v, e in given.items() if e is not values[v] and e is not v}


def _with_values(
    bindings: Sequence[Binding], news: Sequence[Mapping[Var, Expr]], to: Replacing, kind: Kind
) -> Sequence[Binding]:
    """The bindings with new values, each group computed as early as what it needs is there.

    A group that needs, by way of other bindings, what it gives itself is left out.

    Errors:
        TransformError: a new value mentions a variable that gets a new value with it.
    """
    before = set(to.visible)
    for binding in bindings:
        to.see(binding)
    by_var = {b.var: b for b in bindings}
    places = {b.var: i for i, b in enumerate(bindings)}
    groups: list[dict[Var, Sequence[Binding]]] = []
    for new in news:
        olds = sorted((by_var[var] for var in new), key=lambda b: places[b.var])
        whole = Tuple(tuple(new[b.var] for b in olds))  # type: ignore[index]
        mentioned = [var.name_hint for var in occurring_vars(whole) if var in new]
        if mentioned:
            raise TransformError(
                f"a new value is computed from {mentioned[0]}, which gets a new value itself",
                span=olds[0].span,
                hint="compute it from the old value, which the rewriter finds in the bindings",
            )
        made = to.values(olds, whole, {}, kind, fields=True)
        if made is not None:
            groups.append(dict.fromkeys(new, (*made.before, *made.last)))
    to.visible = before
    found = _ordered(bindings, groups)
    if found is None:
        fitting: list[dict[Var, Sequence[Binding]]] = []
        for group in groups:
            if _ordered(bindings, [*fitting, group]) is not None:
                fitting.append(group)
        groups, found = fitting, _ordered(bindings, fitting)
    for binding in found or ():
        to.see(binding)
    return found if groups and found is not None else bindings


def _ordered(
    bindings: Sequence[Binding], groups: Iterable[Mapping[Var, Sequence[Binding]]]
) -> list[Binding] | None:
    """The bindings with groups of others in the place of the first that each stands for, sorted."""
    by_var = {var: group for table in groups for var, group in table.items()}
    found: list[Binding] = []
    placed: set[int] = set()
    for binding in bindings:
        group = None if binding.var is None else by_var.get(binding.var)
        if group is None:
            found.append(binding)
        elif id(group) not in placed:
            placed.add(id(group))
            found += group
    return sorted_by_use(found)
