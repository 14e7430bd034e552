"""Rewriting of the matches of a PatternContext: several bindings at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeAlias

from typing_extensions import override

from relaxpy.errors import MisuseError, TransformError
from relaxpy.ir.relax.analysis.variables import occurring_vars
from relaxpy.ir.relax.dpl.context import PatternContext
from relaxpy.ir.relax.dpl.graph import BindingGraph, GraphMatcher, VarMatches
from relaxpy.ir.relax.dpl.pattern import subpatterns
from relaxpy.ir.relax.dpl.replacing import Kind, Replacer
from relaxpy.ir.relax.dpl.rules import Rule
from relaxpy.ir.relax.dpl.segment import Segment, sorted_by_use
from relaxpy.ir.relax.nodes import Binding, Expr, Tuple, Var
from relaxpy.support.dataclass import dataclass
from relaxpy.support.description import described

MatchRewriter: TypeAlias = Callable[[VarMatches, Mapping[Var, Expr]], Any]


@dataclass(frozen=True, eq=False)
class ContextRule(Rule):
    """Binds variables of a match of `context` to new values, from `func(matches, bindings)`."""

    context: PatternContext
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
            computed = {v for p, v in matches.items() if subpatterns(p) and isinstance(v, Var)}
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
    """The new values that a rewriter returned, except for those that are the old ones.

    Errors:
        MisuseError (also TypeError): it returned something else.
    """
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

    Errors:
        TransformError: a new value mentions a variable that gets a new value with it.
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
