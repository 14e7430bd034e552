"""Integer reasoning over PrimExprs."""

from relaxpy.ir.arith.analyzer import Analyzer, ConstIntBound, Extension, ModularSet, ProofStrength
from relaxpy.ir.arith.iter_expr import (
    IterMapExpr,
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    normalize_iter_map_to_expr,
)
from relaxpy.ir.arith.iter_inverse import inverse_affine_iter_map
from relaxpy.ir.arith.iter_map import (
    IterMapResult,
    detect_iter_map,
    iter_map_simplify,
    normalize_to_iter_sum,
)
from relaxpy.ir.arith.prove import prove_equal, simplify

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "IterMapExpr",
    "IterMapLevel",
    "IterMapResult",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "ModularSet",
    "ProofStrength",
    "detect_iter_map",
    "inverse_affine_iter_map",
    "iter_map_simplify",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "prove_equal",
    "simplify",
]
