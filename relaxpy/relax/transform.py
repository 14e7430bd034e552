"""The passes over Relax programs."""

from relaxpy.ir.relax.transform import LegalizeOps, Normalize, dataflowblock_pass, function_pass

__all__ = [
    "LegalizeOps",
    "Normalize",
    "dataflowblock_pass",
    "function_pass",
]
