"""AnnotateTIROpPattern: kernels are annotated with their op pattern, for fusion."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.module import IRModule
from relaxpy.ir.pass_infra.functional import map_functions
from relaxpy.ir.pass_infra.passes import Pass, PassContext
from relaxpy.ir.relax.analysis.op_pattern import op_pattern_kind
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class AnnotateTIROpPattern(Pass):
    """Sets the attribute `op_pattern` of kernels that have none to the number of their kind."""

    @override
    def transform(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return map_functions(mod, PrimFunc, _annotated)


def _annotated(func: PrimFunc) -> PrimFunc:
    if "op_pattern" in func.attrs:
        return func
    return func.with_attr("op_pattern", int(op_pattern_kind(func)))
