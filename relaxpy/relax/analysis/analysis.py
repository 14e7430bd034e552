"""Analyses, under TVM's module name: all names of `relax.analysis`."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.analysis.analysis")
if TYPE_CHECKING:
    from relaxpy.relax.analysis import *
