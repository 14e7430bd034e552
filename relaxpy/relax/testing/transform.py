"""What passes over dataflow blocks ask before they reuse memory."""

from relaxpy.ir.relax.analysis.variables import dataflow_liveness_analysis

__all__ = [
    "dataflow_liveness_analysis",
]
