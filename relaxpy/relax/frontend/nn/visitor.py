"""Replacement of parts of a model."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.nn.visitor")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.quantization import Mutator as Mutator
