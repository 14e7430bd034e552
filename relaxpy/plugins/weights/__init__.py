"""Weights of models as files have them: safetensors, GGUF, npz, Hugging Face folders."""

from relaxpy.plugin import Plugin

PLUGIN = Plugin(
    hooks={
        "open_weights": "relaxpy.plugins.weights.files:open_weights",
        "require_weights_path": "relaxpy.plugins.weights.files:require_weights_path",
        "save_weights": "relaxpy.plugins.weights.files:save_weights",
    }
)
