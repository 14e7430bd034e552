"""Operators that return what is known of a tensor."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.inspect")
if TYPE_CHECKING:
    from relaxpy.ir.ops.python_syntax import tensor_byte_offset as tensor_byte_offset, tensor_dtype_bits as tensor_dtype_bits, tensor_dtype_code as tensor_dtype_code, tensor_dtype_lanes as tensor_dtype_lanes, tensor_elem_offset as tensor_elem_offset, tensor_ndim as tensor_ndim, tensor_shape_i as tensor_shape_i, tensor_stride_i as tensor_stride_i
