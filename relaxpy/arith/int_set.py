"""Sets of integers."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.arith.int_set")
if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.intset import IntSet as IntSet, IntervalSet as IntervalSet, PresburgerSet as PresburgerSet, neg_inf as neg_inf, pos_inf as pos_inf, union_lower_bound as union_lower_bound
