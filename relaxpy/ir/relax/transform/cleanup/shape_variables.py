"""Known dimensions in place of shape variables that casts bind."""

from __future__ import annotations

from collections.abc import Iterable

from typing_extensions import override

from relaxpy.errors import TransformError
from relaxpy.ir.relax.nodes import Binding, BindingBlock, Function, MatchCast, SeqExpr
from relaxpy.ir.relax.relations.compatibility import provably_disjoint
from relaxpy.ir.relax.relations.mapping import shape_var_map
from relaxpy.ir.relax.relations.shape_vars import definable_shape_vars
from relaxpy.ir.relax.relations.sizes import MAX_REPEATED_NODES, is_large
from relaxpy.ir.relax.rewrite.map_bindings import BindingRewriter
from relaxpy.ir.tir import expr as tir, ops


def with_known_shape_vars(func: Function, *, refuse_contradictions: bool) -> Function:
    """`func` with dimensions of the operand of a match_cast in place of the variables it binds.

    Casts stay, and check these dimensions; those of variables that are bound before are not used.
    A variable stays the name of a large dimension.

    Errors:
        TransformError: contradictions are refused, and the dimensions contradict each other in a
            cast that is always evaluated.
    """
    return _Substitution(refuse_contradictions).expr(func)


class _Substitution(BindingRewriter):
    """Keeps track of the shape variables in scope, and of how deep sequences are nested."""

    def __init__(self, refuse_contradictions: bool) -> None:
        super().__init__()
        self.refuse_contradictions = refuse_contradictions
        self.scope: set[tir.Var] = set()
        self.depth = 0

    @override
    def function(self, func: Function) -> Function:
        outer = set(self.scope)
        sinfos = [p.struct_info for p in func.params if p.struct_info is not None]
        self.scope.update(definable_shape_vars(*sinfos))
        after = super().function(func)
        self.scope = outer
        return after

    @override
    def sequence(self, seq: SeqExpr) -> SeqExpr:
        outer = set(self.scope)
        self.depth += 1
        after = super().sequence(seq)
        self.depth -= 1
        for var in self.scope - outer:
            self._remap.pop(var, None)
        self.scope = outer
        return after

    @override
    def binding(self, binding: Binding, block: BindingBlock) -> Iterable[Binding | BindingBlock]:
        if isinstance(binding, MatchCast):
            self._enter(binding)
        return super().binding(binding, block)

    def _enter(self, cast: MatchCast) -> None:
        """Find the values of the variables that a cast binds."""
        value = self._remapped(cast.value).struct_info
        if value is not None:
            known = shape_var_map(cast.struct_info, value, self.scope)
            self._remap |= {
                var: ops.cast_to(image, var.dtype)
                for var, image in known.items()
                if not is_large(image, MAX_REPEATED_NODES)
            }
        self.scope.update(definable_shape_vars(cast.struct_info))
        sinfo = self._remapped(cast.struct_info)
        if value is None or not self.refuse_contradictions or self.depth != 1:
            return
        if provably_disjoint(value, sinfo):
            raise TransformError(
                f"MatchCast statements must be consistent, but {value} is cast to {sinfo}",
                rule="MC-7",
                span=cast.span,
            )
