"""Weights of models in files of safetensors, GGUF and NumPy."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.frontend.weights.files import open_weights as open_weights
    from relaxpy.frontend.weights.load import load_weights as load_weights
    from relaxpy.frontend.weights.safetensors_file import save_weights as save_weights
    from relaxpy.frontend.weights.tensors import Weights as Weights
else:
    _face(globals(), """
        relaxpy.frontend.weights.files: open_weights
        relaxpy.frontend.weights.load: load_weights
        relaxpy.frontend.weights.safetensors_file: save_weights
        relaxpy.frontend.weights.tensors: Weights
    """)
