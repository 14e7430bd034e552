"""The base class of nodes."""

from relaxpy.ir.core.node import Node as Object

__all__ = ["Object"]
