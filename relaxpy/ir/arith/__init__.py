"""Integer reasoning: canonical forms, bounds, residues, and proofs over PrimExprs.

The Analyzer and integer sets are loaded on first use: parsing and inference need only proofs.
"""

from typing import TYPE_CHECKING

from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.support.lazy import finder as _finder

if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.analyzer import (
        Analyzer,
        ConstIntBound,
        Extension,
        ModularSet,
        ProofStrength,
    )
    from relaxpy.ir.arith.tvm.intset import IntervalSet

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

if not TYPE_CHECKING:  # it would make a type checker accept every name
    _LOCATIONS = {name: f"{__name__}.tvm.analyzer:{name}" for name in __all__}
    _LOCATIONS["IntervalSet"] = f"{__name__}.tvm.intset:IntervalSet"
    __getattr__ = _finder(globals(), _LOCATIONS)
