"""Analyses, under TVM's module name: all names of `relax.analysis`."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.analysis.analysis")
if TYPE_CHECKING:
    from relaxpy.relax.analysis import *
