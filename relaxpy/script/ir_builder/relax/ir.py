"""The names of `relaxpy.script.ir_builder.relax` in the module where TVM defines them."""

from builtins import print as py_print

from relaxpy.script.ir_builder.relax import *  # noqa: F403
from relaxpy.script.ir_builder.relax import __all__ as _all

__all__ = ["py_print", *_all]
