"""Rewriting of one dataflow block of a function."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.binding_rewrite")
if TYPE_CHECKING:
    from relaxpy.tvm.relax.binding_rewrite import DataflowBlockRewrite as DataflowBlockRewrite
