"""The operators of Relax as functions that build calls."""

from relaxpy.ir.relax.op import *
from relaxpy.ir.relax.op import __all__ as __all__, __dir__ as __dir__, __getattr__ as __getattr__
