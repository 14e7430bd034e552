"""Reverse-mode gradients of dataflow blocks."""
