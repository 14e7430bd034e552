"""Integer reasoning over PrimExprs."""

from relaxpy.ir.arith.analyzer import Analyzer, ConstIntBound, Extension, ModularSet, ProofStrength
from relaxpy.ir.arith.prove import prove_equal, simplify

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "ModularSet",
    "ProofStrength",
    "prove_equal",
    "simplify",
]
