"""Replacement of parts of a model."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.frontend.nn.visitor")
if TYPE_CHECKING:
    from relaxpy.plugins.nn.quantization import Mutator as Mutator
