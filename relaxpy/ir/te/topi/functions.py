"""All functions of topi, as users call them: their arguments are checked.

The functions of most modules call each other unchecked.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from relaxpy.ir.te.topi.arguments import checked

if TYPE_CHECKING:
    from relaxpy.ir.te.topi import elementwise, indexing, reduction, transform

    __all__: list[str] = []
    __all__ += elementwise.__all__
    __all__ += indexing.__all__
    __all__ += reduction.__all__
    __all__ += transform.__all__

_MODULES: Final = ("elementwise", "transform", "indexing", "reduction")
"""Each imports only those before it, apart from the last one."""


def find(name: str) -> Any:
    """The function of this name, or the module `image` or `nn`.

    Errors:
        AttributeError: there is none.
    """
    if name == "__all__":
        return names()
    if name in ("image", "nn"):
        return _module(name)
    for module in map(_module, _MODULES):
        if name in module.__all__:
            return checked(vars(module)[name], "relaxpy.ir.te.topi")
    raise AttributeError(f"module 'relaxpy.ir.te.topi' has no attribute {name!r}")


def names() -> list[str]:
    """The names of the functions of all modules but `image` and `nn`."""
    return [name for module in map(_module, _MODULES) for name in module.__all__]


def _module(name: str) -> Any:
    return import_module(f"relaxpy.ir.te.topi.{name}")
