"""Parameters in files."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.params")
if TYPE_CHECKING:
    from relaxpy.tvm.tensor_cache import dump_tensor_cache as dump_tensor_cache, load_param_dict as load_param_dict, load_param_dict_from_file as load_param_dict_from_file, load_tensor_cache as load_tensor_cache, save_param_dict as save_param_dict, save_param_dict_to_file as save_param_dict_to_file
