"""Operators that change shapes, under TVM's module name: all operators."""

from relaxpy.ir.relax.op import *
from relaxpy.ir.relax.op import __getattr__ as __getattr__
