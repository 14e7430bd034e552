"""Common tensor functions as tensor expressions."""

from relaxpy.ir.te.topi import *
from relaxpy.ir.te.topi import __all__ as _operators
from relaxpy.ir.te.topi.masks_and_blocks import (
    matrix_set_diag as matrix_set_diag,
    sequence_mask as sequence_mask,
    sliding_window as sliding_window,
    sparse_to_dense as sparse_to_dense,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.topi import (
    broadcast as broadcast,
    image as image,
    math as math,
    nn as nn,
    reduction as reduction,
    testing as testing,
    transform as transform,
    utils as utils,
)

__all__ = ["matrix_set_diag", "sequence_mask", "sliding_window", "sparse_to_dense"]
__all__ += _operators

_hint_at_absent(globals())
