"""NormalizeGlobalVar: the names of public functions are their symbols."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.block_builder.global_names import normalize_global_names


@dataclass(frozen=True)
class NormalizeGlobalVar(Pass):
    """Renames each public function to its `global_symbol`, and private ones that have that name.

    Example:
        @I.ir_module(check_well_formed=False)
        class Before:
            @R.function
            def f(x: R.Tensor((4,), "float32")):
                R.func_attr({"global_symbol": "main"})
                return x

        @I.ir_module
        class After:
            @R.function
            def main(x: R.Tensor((4,), "float32")):
                return x

    Errors:
        TransformError: two public functions have the same symbol.

    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return normalize_global_names(mod)
