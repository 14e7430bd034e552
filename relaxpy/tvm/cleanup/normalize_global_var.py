"""NormalizeGlobalVar: the names of public functions are their symbols."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.global_names import normalize_global_names
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class NormalizeGlobalVar(Pass):
    """Renames each public function to its `global_symbol`, and private ones that have that name.

    Errors:
        TransformError: two public functions have the same symbol.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return normalize_global_names(mod)
