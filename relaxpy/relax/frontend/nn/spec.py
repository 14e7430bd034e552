"""Specifications: the exported methods of a model, and their parameters."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.spec")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.spec import Int as Int, MethodSpec as MethodSpec, ModuleSpec as ModuleSpec, Object as Object, Tensor as Tensor, Tuple as Tuple
