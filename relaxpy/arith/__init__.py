"""Integer reasoning over PrimExprs."""

from relaxpy.arith import analyzer as analyzer, int_set as int_set
from relaxpy.ir.arith.prove import prove_equal as prove_equal, simplify as simplify
from relaxpy.ir.arith.tvm.analyzer import (
    Analyzer as Analyzer,
    CompareResult as CompareResult,
    ConstIntBound as ConstIntBound,
    Extension as Extension,
    ModularSet as ModularSet,
    ProofStrength as ProofStrength,
)
from relaxpy.ir.arith.tvm.intset import (
    IntervalSet as IntervalSet,
    IntSet as IntSet,
    PresburgerSet as PresburgerSet,
    neg_inf as neg_inf,
    pos_inf as pos_inf,
    union_lower_bound as union_lower_bound,
)
from relaxpy.ir.arith.tvm.iter_expr import (
    IterMapExpr as IterMapExpr,
    IterMapLevel as IterMapLevel,
    IterMark as IterMark,
    IterSplitExpr as IterSplitExpr,
    IterSumExpr as IterSumExpr,
    normalize_iter_map_to_expr as normalize_iter_map_to_expr,
)
from relaxpy.ir.arith.tvm.iter_inverse import inverse_affine_iter_map as inverse_affine_iter_map
from relaxpy.ir.arith.tvm.iter_map import (
    IterMapResult as IterMapResult,
    detect_iter_map as detect_iter_map,
    iter_map_simplify as iter_map_simplify,
    normalize_to_iter_sum as normalize_to_iter_sum,
)
from relaxpy.ir.arith.tvm.iter_subspace import subspace_divide as subspace_divide
from relaxpy.ir.arith.tvm.patterns import (
    detect_clip_bound as detect_clip_bound,
    detect_common_subexpr as detect_common_subexpr,
    detect_linear_equation as detect_linear_equation,
)
from relaxpy.ir.tir.analysis.touched import domain_touched as domain_touched
from relaxpy.missing import hint_at_absent as _hint_at_absent

# isort: split
# These have all names of this module.
from relaxpy.arith import bound as bound, iter_affine_map as iter_affine_map, pattern as pattern

_hint_at_absent(globals())
