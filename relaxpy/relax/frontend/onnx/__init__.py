"""The importer of ONNX models."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.onnx")
if TYPE_CHECKING:
    from relaxpy.plugins.onnx.importer import from_onnx as from_onnx
    from relaxpy.relax.frontend.onnx import backend as backend
