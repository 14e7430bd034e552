"""Weights of models in files of safetensors, GGUF and NumPy."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.plugins.weights.files import open_weights as open_weights
    from relaxpy.plugins.weights.load import load_weights as load_weights
    from relaxpy.plugins.weights.safetensors_file import save_weights as save_weights
    from relaxpy.plugins.weights.tensors import Weights as Weights
else:
    _face(globals(), """
        relaxpy.plugins.weights.files: open_weights
        relaxpy.plugins.weights.load: load_weights
        relaxpy.plugins.weights.safetensors_file: save_weights
        relaxpy.plugins.weights.tensors: Weights
    """)
