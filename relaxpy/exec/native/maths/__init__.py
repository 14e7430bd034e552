"""Functions of floating-point numbers as vector code, without external libraries."""

from relaxpy.exec.native.maths.emit import MATHS, emit_maths, narrow, widen

__all__ = ["MATHS", "emit_maths", "narrow", "widen"]
