"""Integer reasoning over PrimExprs."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.arith")
if TYPE_CHECKING:
    from relaxpy.arith import analyzer as analyzer, bound as bound, int_set as int_set, iter_affine_map as iter_affine_map, pattern as pattern
    from relaxpy.ir.arith.prove import prove_equal as prove_equal, simplify as simplify
    from relaxpy.ir.arith.tvm.analyzer import Analyzer as Analyzer, CompareResult as CompareResult, ConstIntBound as ConstIntBound, Extension as Extension, ModularSet as ModularSet, ProofStrength as ProofStrength
    from relaxpy.ir.arith.tvm.intset import IntSet as IntSet, IntervalSet as IntervalSet, PresburgerSet as PresburgerSet, neg_inf as neg_inf, pos_inf as pos_inf, union_lower_bound as union_lower_bound
    from relaxpy.ir.arith.tvm.iter_map import IterMapResult as IterMapResult, detect_iter_map as detect_iter_map, inverse_affine_iter_map as inverse_affine_iter_map, iter_map_simplify as iter_map_simplify, normalize_to_iter_sum as normalize_to_iter_sum, subspace_divide as subspace_divide
    from relaxpy.ir.arith.tvm.iter_reader import IterMapExpr as IterMapExpr, IterMapLevel as IterMapLevel, IterMark as IterMark, IterSplitExpr as IterSplitExpr, IterSumExpr as IterSumExpr, normalize_iter_map_to_expr as normalize_iter_map_to_expr
    from relaxpy.tvm.patterns import detect_clip_bound as detect_clip_bound, detect_common_subexpr as detect_common_subexpr, detect_linear_equation as detect_linear_equation
    from relaxpy.tvm.tir.facts import domain_touched as domain_touched
