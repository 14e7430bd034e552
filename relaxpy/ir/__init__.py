"""The language: its nodes and its laws. The names here are loaded when they are first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.op import Op
    from relaxpy.ir.relax.nodes import GlobalVar
    from relaxpy.ir.serialize import load_json, save_json
    from relaxpy.ir.structural import assert_structural_equal, structural_equal, structural_hash

__all__ = [
    "DummyGlobalInfo",
    "GlobalInfo",
    "GlobalVar",
    "IRModule",
    "Op",
    "VDevice",
    "assert_structural_equal",
    "load_json",
    "save_json",
    "structural_equal",
    "structural_hash",
]

_HOMES = {
    "DummyGlobalInfo": "relaxpy.ir.global_info:DummyGlobalInfo",
    "GlobalInfo": "relaxpy.ir.global_info:GlobalInfo",
    "GlobalVar": "relaxpy.ir.relax.nodes:GlobalVar",
    "IRModule": "relaxpy.ir.module:IRModule",
    "Op": "relaxpy.ir.op:Op",
    "VDevice": "relaxpy.ir.global_info:VDevice",
    "assert_structural_equal": "relaxpy.ir.structural:assert_structural_equal",
    "load_json": "relaxpy.ir.serialize:load_json",
    "save_json": "relaxpy.ir.serialize:save_json",
    "structural_equal": "relaxpy.ir.structural:structural_equal",
    "structural_hash": "relaxpy.ir.structural:structural_hash",
}

if not TYPE_CHECKING:  # a type checker that saw it would believe in every name

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = _HOMES[name].partition(":")
        value = getattr(import_module(module), attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
