"""Relax functions as Python functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.relax_to_pyfunc_converter")
if TYPE_CHECKING:
    from relaxpy.tvm.python_module import RelaxToPyFuncConverter as RelaxToPyFuncConverter
