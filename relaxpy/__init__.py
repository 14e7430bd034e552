"""Relax programs written as decorated Python functions, run as NumPy-vectorised Python."""

__version__ = "0.1.0"
