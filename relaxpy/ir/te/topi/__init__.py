"""Common tensor functions as tensor expressions, to which operators are legalised.

The module of each is loaded when it is used: parsing and inference need none.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.te.topi import image as image, nn as nn
    from relaxpy.ir.te.topi.elementwise import *
    from relaxpy.ir.te.topi.functions import __all__ as __all__
    from relaxpy.ir.te.topi.indexing import *
    from relaxpy.ir.te.topi.reduction import *
    from relaxpy.ir.te.topi.transform import *
else:
    _MODULES = {
        *("arguments", "convolution", "elementwise", "functions", "indexing"),
        *("padding", "pooling", "recurrent", "reduction", "shapes", "transform", "windows"),
    }

    def __getattr__(name):
        if name in _MODULES:  # which is not loaded yet
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = _import_module(f"{__name__}.functions").find(name)
        return value


def __dir__() -> list[str]:
    names = {"image", "nn", *globals(), *_import_module(f"{__name__}.functions").names()}
    return sorted(names - {"TYPE_CHECKING"})
