"""FuseOpsByPattern: matches of patterns become calls of composite functions for a back end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import Any

from typing_extensions import override

from relaxpy.errors import UnknownNameError, close_names
from relaxpy.ir.core.node import as_attrs
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.variables import udchain
from relaxpy.ir.relax.dpl.graph import FusionPattern, PatternCheckContext, as_fusion_pattern
from relaxpy.ir.relax.dpl.matcher import Matches, extract_matched_expr
from relaxpy.ir.relax.dpl.pattern import CallPattern, TupleGetItemPattern
from relaxpy.ir.relax.nodes import Binding, Call, DataflowBlock, Expr, Var, VarBinding
from relaxpy.ir.relax.transform.fusion.codegen import annotated_for_codegen
from relaxpy.ir.relax.transform.fusion.grouping import FunctionGroup, group_bindings
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class FuseOpsByPattern(Pass):
    """Groups each match of a pattern in a dataflow block into a function.

    The functions have the attribute `Composite`, the name of the pattern, and the attributes that
    its `attrs_getter` returns. Patterns are tried in order, and a binding is in one match only: the
    first, unless a later match of the same pattern contains all of it.
    Constants stay inside of the functions if `bind_constants`, else they are passed. With
    `annotate_codegen`, each function is wrapped in another one with the attribute `Codegen`, the
    name of the pattern up to the first dot, for RunCodegen. Only `entry_functions` are searched if
    there are any.

    Errors:
        MisuseError (also TypeError): an item is not a FusionPattern, or a tuple of its fields.
        UnknownNameError (also KeyError): the module has no function of an entry's name.
        TransformError: the name of a pattern has no dot, with `annotate_codegen`; or the bindings
            of a match cannot be computed together, since another one needs some and others need it.
    """

    patterns: Sequence[FusionPattern | tuple[Any, ...]]
    bind_constants: bool = True
    annotate_codegen: bool = False
    entry_functions: Sequence[str] | None = None

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "patterns", tuple(map(as_fusion_pattern, self.patterns)))

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        for name in self.entry_functions or ():
            if name not in mod.functions_by_name:
                hint = close_names(name, mod.functions_by_name)
                raise UnknownNameError(f"the module has no function {name}", hint=hint)
        for pattern in self.patterns:
            assert isinstance(pattern, FusionPattern)
            mod = group_bindings(
                mod,
                partial(_matches, pattern=pattern),
                lift_constants=not self.bind_constants,
                entries=self.entry_functions,
                refuses_cycles=True,
            )
        return annotated_for_codegen(mod) if self.annotate_codegen else mod


def _matches(block: DataflowBlock, pattern: FusionPattern) -> Mapping[Binding, FunctionGroup]:
    """The bindings of a block that a pattern matches, each with its group."""
    bound = {b.var: b.value for b in block.bindings if isinstance(b, VarBinding)}
    var_of = {value: var for var, value in bound.items()}
    groups: dict[Var, FunctionGroup] = {}
    contents: dict[FunctionGroup, Set[Var | None]] = {}
    usages: Mapping[Var, Sequence[Var]] | None = None
    for value in bound.values():
        if not isinstance(value, Call):
            continue
        matches = extract_matched_expr(pattern.pattern, value, bound)
        if matches is None:
            continue
        usages = udchain(block) if usages is None else usages
        members = {var_of.get(match): match for match in _computed(matches, value)}
        context = PatternCheckContext(
            value, _annotated(pattern, matches), _known(members), usages, var_of
        )
        if None in members or (pattern.check is not None and not pattern.check(context)):
            continue
        if any(not contents[groups[m]] <= members.keys() for m in members if m in groups):
            continue
        attrs: dict[str, object] = {"Composite": pattern.name}
        if pattern.attrs_getter is not None:
            attrs |= pattern.attrs_getter(context.annotated_expr)
        group = FunctionGroup(as_attrs(attrs))
        contents[group] = members.keys()
        groups |= dict.fromkeys(_known(members), group)
    return {b: groups[b.var] for b in block.bindings if b.var in groups}


def _computed(matches: Matches, root: Expr) -> list[Expr]:
    """The calls and the fields of tuples in a match."""
    values = [
        match
        for pattern, match in matches.items()
        if isinstance(pattern, (CallPattern, TupleGetItemPattern)) and isinstance(match, Expr)
    ]
    return list(dict.fromkeys([root, *values]))


def _known(members: Mapping[Var | None, Expr]) -> dict[Var, Expr]:
    return {var: value for var, value in members.items() if var is not None}


def _annotated(pattern: FusionPattern, matches: Matches) -> dict[str, Expr]:
    named = ((name, matches.get(p)) for name, p in (pattern.annotation_patterns or {}).items())
    return {name: match for name, match in named if isinstance(match, Expr)}
