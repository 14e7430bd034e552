"""Shapes of values."""

from relaxpy.exec.runtime.values import ShapeTuple as ShapeTuple
