"""Relax functions as Python functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.relax_to_pyfunc_converter")
if TYPE_CHECKING:
    from relaxpy.tvm.python_module import RelaxToPyFuncConverter as RelaxToPyFuncConverter
