"""Integer reasoning: canonical forms, bounds, residues, and proofs over PrimExprs.

The Analyzer and integer sets are loaded on first use: parsing and inference need only proofs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from relaxpy.ir.arith.prove import prove_equal, simplify

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

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "intset" if name == "IntervalSet" else "analyzer"
        return getattr(import_module(f"{__name__}.tvm.{module}"), name)
