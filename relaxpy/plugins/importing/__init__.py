"""Shared by importers: names, integers known at import, the error listing unsupported nodes."""

MATRICES = "relaxpy.matrices."
"""The beginning of the names of packed functions on matrices."""
