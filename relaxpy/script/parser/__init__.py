"""From text to IR."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.script import ir as ir, relax as relax, tir as tir
    from relaxpy.script.ir import ir_module as ir_module
    from relaxpy.script.read import from_source as parse  # noqa: F401
    from relaxpy.script.tir import prim_func as prim_func

#: What users of TVM look for here: the namespaces of programs, and how programs are read.
_LOCATIONS = {
    "ir": "ir",
    "ir_module": "ir:ir_module",
    "parse": "read:from_source",
    "prim_func": "tir:prim_func",
    "relax": "relax",
    "tir": "tir",
}

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        if name not in _LOCATIONS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _LOCATIONS[name].partition(":")
        found = import_module(f"relaxpy.script.{module}")
        return getattr(found, attribute) if attribute else found
