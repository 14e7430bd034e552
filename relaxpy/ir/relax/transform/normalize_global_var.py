"""NormalizeGlobalVar: public functions under their symbols."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.global_names import normalize_global_names


@dataclass(frozen=True)
class NormalizeGlobalVar(Pass):
    """The module with each public function under its `global_symbol`, private ones out of the way.

    Errors:
        TransformError: two public functions have one symbol.
    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return normalize_global_names(mod)
