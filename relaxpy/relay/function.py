"""Functions, under the path of TVM."""

from relaxpy.ir.relay.expr import Function

__all__ = ["Function"]
