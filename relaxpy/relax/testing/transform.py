"""Analyses that tests of passes use."""

from relaxpy.ir.relax.analysis.variables import (
    dataflow_liveness_analysis as dataflow_liveness_analysis,
)
