"""Functions of floating-point numbers as vector code, without external libraries."""

from relaxpy.exec.native.maths.emit import LONG, MATHS, emit_maths, narrow, widen

__all__ = ["LONG", "MATHS", "emit_maths", "narrow", "widen"]
