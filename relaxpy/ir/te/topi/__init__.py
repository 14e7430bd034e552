"""Common tensor functions as tensor expressions, to which operators are legalised.

They are loaded when the first of them is used: parsing and inference need none.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.te.topi import image as image, nn as nn
    from relaxpy.ir.te.topi.contraction import *
    from relaxpy.ir.te.topi.elementwise import *
    from relaxpy.ir.te.topi.functions import __all__ as __all__
    from relaxpy.ir.te.topi.indexing import *
    from relaxpy.ir.te.topi.reduction import *
    from relaxpy.ir.te.topi.transform import *
else:

    def __getattr__(name):
        functions = vars(_import_module(f"{__name__}.functions"))
        names = functions.get("__all__", ())  # a module of this folder may be loading right now
        if name in {"image", "nn"} and names:
            return functions[name]
        if name != "__all__" and name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals().update({"__all__": names}, **{name: functions[name] for name in names})
        return globals()[name]


def __dir__() -> list[str]:
    names = {"image", "nn", *globals(), *_import_module(f"{__name__}.functions").__all__}
    return sorted(names - {"TYPE_CHECKING"})
