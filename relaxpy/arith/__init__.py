"""Integer reasoning over PrimExprs."""

from relaxpy.arith import analyzer, int_set
from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.arith.tvm.analyzer import (
    Analyzer,
    ConstIntBound,
    Extension,
    ModularSet,
    ProofStrength,
)
from relaxpy.ir.arith.tvm.constraints import IntConstraints, IntConstraintsTransform, IntGroupBounds
from relaxpy.ir.arith.tvm.deduce import deduce_bound
from relaxpy.ir.arith.tvm.equations import solve_linear_equations
from relaxpy.ir.arith.tvm.inequalities import solve_linear_inequalities
from relaxpy.ir.arith.tvm.intset import (
    IntervalSet,
    IntSet,
    PresburgerSet,
    neg_inf,
    pos_inf,
    union_lower_bound,
)
from relaxpy.ir.arith.tvm.iter_expr import (
    IterMapExpr,
    IterMapLevel,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    normalize_iter_map_to_expr,
)
from relaxpy.ir.arith.tvm.iter_inverse import inverse_affine_iter_map
from relaxpy.ir.arith.tvm.iter_map import (
    IterMapResult,
    detect_iter_map,
    iter_map_simplify,
    normalize_to_iter_sum,
)
from relaxpy.ir.arith.tvm.iter_subspace import subspace_divide
from relaxpy.ir.arith.tvm.narrow import narrow_predicate_expression
from relaxpy.ir.arith.tvm.patterns import (
    detect_clip_bound,
    detect_common_subexpr,
    detect_linear_equation,
)
from relaxpy.ir.arith.tvm.region import (
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
)
from relaxpy.ir.tir.analysis.touched import domain_touched

# isort: split
# These have all names of this module.
from relaxpy.arith import (
    bound as bound,
    int_solver as int_solver,
    iter_affine_map as iter_affine_map,
    pattern as pattern,
)

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "IntConstraints",
    "IntConstraintsTransform",
    "IntGroupBounds",
    "IntSet",
    "IntervalSet",
    "IterMapExpr",
    "IterMapLevel",
    "IterMapResult",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "ModularSet",
    "PresburgerSet",
    "ProofStrength",
    "analyzer",
    "deduce_bound",
    "detect_clip_bound",
    "detect_common_subexpr",
    "detect_iter_map",
    "detect_linear_equation",
    "domain_touched",
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "int_set",
    "inverse_affine_iter_map",
    "iter_map_simplify",
    "narrow_predicate_expression",
    "neg_inf",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "pos_inf",
    "prove_equal",
    "simplify",
    "solve_linear_equations",
    "solve_linear_inequalities",
    "subspace_divide",
    "union_lower_bound",
]
