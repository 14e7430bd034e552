"""The passes over Relax programs."""

from relaxpy.ir.relax.dpl.fusion import FusionPattern, PatternCheckContext
from relaxpy.ir.relax.transform import (
    BindingRewriter,
    DataflowBlockPass,
    FunctionPass,
    LegalizeOps,
    Normalize,
    NormalizeGlobalVar,
    dataflowblock_pass,
    function_pass,
    map_bindings,
)

__all__ = [
    "BindingRewriter",
    "DataflowBlockPass",
    "FunctionPass",
    "FusionPattern",
    "LegalizeOps",
    "Normalize",
    "NormalizeGlobalVar",
    "PatternCheckContext",
    "dataflowblock_pass",
    "function_pass",
    "map_bindings",
]
