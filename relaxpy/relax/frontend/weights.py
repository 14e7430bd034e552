"""Weights of models in files of safetensors, GGUF and NumPy."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.frontend.weights")
if TYPE_CHECKING:
    from relaxpy.plugins.weights.files import Weights as Weights, open_weights as open_weights, save_weights as save_weights
    from relaxpy.plugins.weights.load import load_weights as load_weights
