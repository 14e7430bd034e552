"""Weights of models as files have them: safetensors, GGUF, npz, folders of Hugging Face."""
