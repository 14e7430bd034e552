"""The dataflow pattern language: patterns, contexts, rewriting."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.dpl")
if TYPE_CHECKING:
    from relaxpy.relax.dpl import context as context, pattern as pattern, rewrite as rewrite
    from relaxpy.relax.dpl.context import *
    from relaxpy.relax.dpl.pattern import *
    from relaxpy.relax.dpl.rewrite import *
