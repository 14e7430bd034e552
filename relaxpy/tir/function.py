"""Kernels, and maps of indices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.tir.function")
if TYPE_CHECKING:
    from relaxpy.ir.tir.analysis.index_map import IndexMap as IndexMap
    from relaxpy.ir.tir.prim_func import PrimFunc as PrimFunc
