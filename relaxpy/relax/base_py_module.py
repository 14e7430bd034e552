"""Modules that also contain Python functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.base_py_module")
if TYPE_CHECKING:
    from relaxpy.tvm.python_module import BasePyModule as BasePyModule
