"""Common tensor functions as tensor expressions, which operators are legalised to.

They are loaded when the first of them is used: parsing and inference need none.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.te.topi.functions import *
    from relaxpy.ir.te.topi.functions import __all__ as __all__
else:

    def __getattr__(name):
        functions = vars(import_module(f"{__name__}.functions"))
        names = functions.get("__all__", ())  # a module of this folder may be loading right now
        if name != "__all__" and name not in names:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals().update({"__all__": names}, **{name: functions[name] for name in names})
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
