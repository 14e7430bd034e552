"""Functions, under the path of TVM."""

from relaxpy.ir.relay.expr import Function as Function
