"""Sets of integers."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.arith.tvm.intset import (
        IntervalSet as IntervalSet,
        IntSet as IntSet,
        PresburgerSet as PresburgerSet,
        neg_inf as neg_inf,
        pos_inf as pos_inf,
        union_lower_bound as union_lower_bound,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.arith.tvm.intset: IntervalSet IntSet PresburgerSet neg_inf pos_inf union_lower_bound
        """,
    )
