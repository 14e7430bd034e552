"""Operators of neural networks."""

from relaxpy.ir.relax.op.nn import __dir__ as __dir__, __getattr__ as __getattr__, relu6 as relu6
