"""relaxpy as a backend of ONNX (`onnx.backend.base`)."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.onnx.backend")
if TYPE_CHECKING:
    from relaxpy.plugins.onnx.backend import RelaxpyBackend as RelaxpyBackend, RelaxpyRep as RelaxpyRep, prepare as prepare, run_model as run_model, run_node as run_node, supports_device as supports_device
