"""The base class of functions, under TVM's module name."""

from relaxpy.ir.relax.nodes import BaseFunc

__all__ = ["BaseFunc"]
