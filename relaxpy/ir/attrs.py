"""Attributes of nodes, under TVM's module name."""

from relaxpy.ir.core.node import Attrs, Attrs as DictAttrs

__all__ = ["Attrs", "DictAttrs"]
