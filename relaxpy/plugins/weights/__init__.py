"""Weights of models as files have them: safetensors, GGUF, npz, Hugging Face folders."""
