"""The passes over Relax programs."""

from relaxpy.ir.relax.transform import Normalize, dataflowblock_pass, function_pass

__all__ = [
    "Normalize",
    "dataflowblock_pass",
    "function_pass",
]
