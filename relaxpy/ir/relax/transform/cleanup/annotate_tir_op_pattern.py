"""AnnotateTIROpPattern: kernels say how they can be fused."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.map_functions import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.op_pattern import op_pattern_kind
from relaxpy.ir.tir.prim_func.function import PrimFunc


@dataclass(frozen=True)
class AnnotateTIROpPattern(Pass):
    """Sets the attribute `op_pattern` of kernels that have none to the number of their kind.

    Example:
        @I.ir_module
        class Before:
            @T.prim_func
            def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
                for i in range(4):
                    with T.block("B"):
                        vi = T.axis.spatial(4, i)
                        b[vi] = a[vi] * T.float32(2)

        @I.ir_module
        class After:
            @T.prim_func
            def double(a: T.Buffer((4,), "float32"), b: T.Buffer((4,), "float32")):
                T.func_attr({"op_pattern": 0})
                for i in range(4):
                    with T.block("B"):
                        vi = T.axis.spatial(4, i)
                        b[vi] = a[vi] * T.float32(2)

    """

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, PrimFunc, _annotated)


def _annotated(func: PrimFunc) -> PrimFunc:
    if "op_pattern" in func.attrs:
        return func
    return func.with_attr("op_pattern", int(op_pattern_kind(func)))
