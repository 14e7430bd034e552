"""Further tools, under TVM's module names."""

from relaxpy.contrib import tvmjs

__all__ = ["tvmjs"]
