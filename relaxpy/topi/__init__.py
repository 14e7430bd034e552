"""Common tensor functions as tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.topi")
if TYPE_CHECKING:
    from relaxpy.ir.te.topi import *
    from relaxpy.ir.te.topi.generated import *
    from relaxpy.topi import broadcast as broadcast, image as image, math as math, nn as nn, reduction as reduction, testing as testing, transform as transform, utils as utils
    from relaxpy.tvm.topi import matrix_set_diag as matrix_set_diag, sequence_mask as sequence_mask, sliding_window as sliding_window, sparse_to_dense as sparse_to_dense
