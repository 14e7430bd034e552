"""The passes over Relax programs."""

from relaxpy.ir.relax.dpl.fusion import FusionPattern, PatternCheckContext
from relaxpy.ir.relax.transform import (
    DataflowBlockPass,
    FunctionPass,
    LegalizeOps,
    Normalize,
    NormalizeGlobalVar,
    dataflowblock_pass,
    function_pass,
)

__all__ = [
    "DataflowBlockPass",
    "FunctionPass",
    "FusionPattern",
    "LegalizeOps",
    "Normalize",
    "NormalizeGlobalVar",
    "PatternCheckContext",
    "dataflowblock_pass",
    "function_pass",
]
