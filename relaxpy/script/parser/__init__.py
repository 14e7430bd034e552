"""From text to IR."""

from typing import TYPE_CHECKING

from relaxpy.support.lazy import finder as _finder

if TYPE_CHECKING:
    from relaxpy.script import ir as ir, relax as relax, s_tir as s_tir, tir as tir, tirx as tirx
    from relaxpy.script.ir import ir_module as ir_module
    from relaxpy.script.read import (
        from_source as from_source,
        from_source as parse,  # noqa: F401
    )
    from relaxpy.script.tir import prim_func as prim_func

#: Names of TVM's module: the namespaces of programs, and the functions that read programs.
_LOCATIONS = {
    "from_source": "relaxpy.script.read:from_source",
    "ir": "relaxpy.script.ir",
    "ir_module": "relaxpy.script.ir:ir_module",
    "parse": "relaxpy.script.read:from_source",
    "prim_func": "relaxpy.script.tir:prim_func",
    "relax": "relaxpy.script.relax",
    "tir": "relaxpy.script.tir",
    "s_tir": "relaxpy.script.tir",
    "tirx": "relaxpy.script.tir",
}

if not TYPE_CHECKING:  # it would make a type checker accept every name
    __getattr__ = _finder(globals(), _LOCATIONS)
