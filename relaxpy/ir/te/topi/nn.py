"""Layers of neural networks as tensor expressions, as users call them: arguments are checked.

The module of each is loaded when it is used.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.te.topi.convolution import *
    from relaxpy.ir.te.topi.layers import *
    from relaxpy.ir.te.topi.layers import SELU_ALPHA as SELU_ALPHA, SELU_SCALE as SELU_SCALE
    from relaxpy.ir.te.topi.padding import *
    from relaxpy.ir.te.topi.pooling import *
    from relaxpy.ir.te.topi.recurrent import *
else:
    _MODULES = "layers", "padding", "convolution", "pooling", "recurrent"

    def __getattr__(name):
        from relaxpy.ir.te.topi.arguments import checked

        modules = (_import_module(f"relaxpy.ir.te.topi.{module}") for module in _MODULES)
        if name == "__all__":
            value = [name for module in modules for name in module.__all__]
        elif name in ("SELU_ALPHA", "SELU_SCALE"):
            value = getattr(next(modules), name)
        else:
            value = next((vars(m)[name] for m in modules if name in m.__all__), None)
            if value is None:
                raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
            value = checked(value, __name__)
        globals()[name] = value
        return value
