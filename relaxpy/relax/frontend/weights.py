"""Weights of models in files of safetensors, GGUF and NumPy."""

from relaxpy.frontend.weights.files import open_weights as open_weights
from relaxpy.frontend.weights.load import load_weights as load_weights
from relaxpy.frontend.weights.safetensors_file import save_weights as save_weights
from relaxpy.frontend.weights.tensors import Weights as Weights
