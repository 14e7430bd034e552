"""Helpers of tensor expressions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.topi.utils")
if TYPE_CHECKING:
    from relaxpy.tvm.topi import ceil_div as ceil_div, const_matrix as const_matrix, const_vector as const_vector, equal_const_int as equal_const_int, get_const_float as get_const_float, get_const_int as get_const_int, get_const_tuple as get_const_tuple, get_shape as get_shape, prod as prod, ravel_index as ravel_index, simplify as simplify, unravel_index as unravel_index
