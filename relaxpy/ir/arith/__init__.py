"""Integer reasoning: canonical forms, bounds, residues, and proofs over PrimExprs."""

from relaxpy.ir.arith.analyzer import (
    Analyzer,
    ConstIntBound,
    Extension,
    ModularSet,
    ProofStrength,
)
from relaxpy.ir.arith.intset import IntervalSet
from relaxpy.ir.arith.prove import prove_equal, simplify

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "IntervalSet",
    "ModularSet",
    "ProofStrength",
    "prove_equal",
    "simplify",
]
