"""Folders of weights, as TVM and MLC store them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.contrib.tvmjs")
if TYPE_CHECKING:
    from relaxpy.tvm.tensor_cache import dump_tensor_cache as dump_tensor_cache, load_tensor_cache as load_tensor_cache
