"""The importer of ONNX models."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.frontend.onnx")
if TYPE_CHECKING:
    from relaxpy.plugins.onnx.importer import from_onnx as from_onnx
    from relaxpy.relax.frontend.onnx import backend as backend
