"""Named patterns, for passes that offload the matches to a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from relaxpy.errors import check_type, unexpected
from relaxpy.ir.core.node import set_fields
from relaxpy.ir.relax.dpl.pattern import DFPattern, check_pattern
from relaxpy.ir.relax.nodes import Expr, Var
from relaxpy.ir.relax.nodes.base import check_name
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed, user_facing


@dataclass(frozen=True, slots=True)
class PatternCheckContext:
    """A match and its context, which the `check` of a FusionPattern receives.

    `annotated_expr` has the matches of the annotation patterns by their names, `matched_bindings`
    the variables of the match with their values, `var_usages` the variables that are computed from
    each variable, and `value_to_bound_var` the variable that a value is bound to.
    """

    matched_expr: Expr
    annotated_expr: Mapping[str, Expr]
    matched_bindings: Mapping[Var, Expr]
    var_usages: Mapping[Var, Sequence[Var]]
    value_to_bound_var: Mapping[Expr, Var]


Check: TypeAlias = Callable[[PatternCheckContext], bool]
AttrsGetter: TypeAlias = Callable[[Mapping[str, Expr]], Mapping[str, object]]


@user_constructed
@dataclass(frozen=True, slots=True, eq=False)
class FusionPattern:
    """A pattern with a name, which usually begins with that of a backend.

    `check` may reject a match, and `attrs_getter` returns attributes of the fused function. Both
    receive the matches of the `annotation_patterns`, which are subpatterns of `pattern`.

    Errors:
        MisuseError (also TypeError): a field is of the wrong kind.
    """

    name: str
    pattern: DFPattern
    annotation_patterns: Mapping[str, DFPattern] | None = None
    check: Check | None = None
    attrs_getter: AttrsGetter | None = None

    def __post_init__(self) -> None:
        check_name(self.name, "the name of a pattern")
        check_pattern(self.pattern)
        table = {} if self.annotation_patterns is None else self.annotation_patterns
        check_type(table, Mapping, "annotation patterns are a dict of patterns by name")
        for name, pattern in table.items():
            check_name(name, "the name of an annotation pattern")
            check_pattern(pattern)
        for function in (self.check, self.attrs_getter):
            if function is not None and not callable(function):
                raise unexpected(function, "expected a function")
        set_fields(self, annotation_patterns=MappingProxyType(dict(table)))


_registered: list[FusionPattern] = []


@user_facing
def register_patterns(patterns: Iterable[FusionPattern | tuple[object, ...]]) -> None:
    """Register patterns; later ones have a higher priority.

    A tuple has the fields of a FusionPattern: a name, a pattern, annotation patterns, a check.

    Errors:
        MisuseError (also TypeError): an item is of another kind; nothing is registered then.
    """
    check_type(patterns, Iterable, "expected a list of patterns")
    _registered.extend([as_fusion_pattern(item) for item in patterns])


def as_fusion_pattern(item: object) -> FusionPattern:
    """The item as a FusionPattern, from its fields if it is a tuple of them.

    Errors:
        MisuseError (also TypeError): it is neither.
    """
    if isinstance(item, FusionPattern):
        return item
    if isinstance(item, tuple) and 2 <= len(item) <= 5:
        return FusionPattern(*item)
    raise unexpected(item, "expected a FusionPattern, or a name and a pattern")


@user_facing
def get_patterns_with_prefix(prefix: str) -> list[FusionPattern]:
    """The registered patterns whose names begin with `prefix`, the highest priority first."""
    check_name(prefix, "the beginning of a name")
    return [pattern for pattern in reversed(_registered) if pattern.name.startswith(prefix)]


@user_facing
def get_pattern(name: str) -> FusionPattern | None:
    """The registered pattern of this name, of several the last one; None if there is none."""
    check_name(name, "the name of a pattern")
    return next((pattern for pattern in reversed(_registered) if pattern.name == name), None)
