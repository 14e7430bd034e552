"""Sets of integers."""

from relaxpy.ir.arith.tvm.intset import (
    IntervalSet as IntervalSet,
    IntSet as IntSet,
    PresburgerSet as PresburgerSet,
    neg_inf as neg_inf,
    pos_inf as pos_inf,
    union_lower_bound as union_lower_bound,
)
