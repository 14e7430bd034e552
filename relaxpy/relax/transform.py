"""The passes over Relax programs."""

from relaxpy.ir.relax.transform import (
    LegalizeOps,
    Normalize,
    NormalizeGlobalVar,
    dataflowblock_pass,
    function_pass,
)

__all__ = [
    "LegalizeOps",
    "Normalize",
    "NormalizeGlobalVar",
    "dataflowblock_pass",
    "function_pass",
]
