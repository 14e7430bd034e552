"""From text to IR."""

from importlib import import_module
from types import ModuleType

_NAMESPACES = ("ir", "relax", "tir")


def __getattr__(name: str) -> ModuleType:
    """The namespaces of programs, where users of TVM look for them."""
    if name not in _NAMESPACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"relaxpy.script.{name}")
