"""The Analyzer, and the kinds of facts that it knows."""

from relaxpy.ir.arith.tvm.analyzer import (
    Analyzer as Analyzer,
    CompareResult as CompareResult,
    ConstIntBound as ConstIntBound,
    Extension as Extension,
    ModularSet as ModularSet,
    ProofStrength as ProofStrength,
)
