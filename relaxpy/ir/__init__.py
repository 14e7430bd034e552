"""The language: its nodes and its laws. The names here are loaded when they are first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.dtype import DataType
    from relaxpy.ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.node import Attrs
    from relaxpy.ir.op import Op
    from relaxpy.ir.relax.nodes import BaseFunc, EnvFunc, GlobalVar
    from relaxpy.ir.serialize import load_json, save_json
    from relaxpy.ir.structural import (
        assert_structural_equal,
        first_mismatch,
        structural_equal,
        structural_hash,
    )
    from relaxpy.ir.tir.buffer import Range
    from relaxpy.ir.tir.expr import PrimExpr
    from relaxpy.ir.types import PointerType, PrimType

__all__ = [
    "Attrs",
    "BaseFunc",
    "DataType",
    "DummyGlobalInfo",
    "EnvFunc",
    "GlobalInfo",
    "GlobalVar",
    "IRModule",
    "Op",
    "PointerType",
    "PrimExpr",
    "PrimType",
    "Range",
    "Span",
    "VDevice",
    "assert_structural_equal",
    "first_mismatch",
    "load_json",
    "save_json",
    "structural_equal",
    "structural_hash",
]

_HOMES = {
    "Attrs": "relaxpy.ir.node:Attrs",
    "BaseFunc": "relaxpy.ir.relax.nodes:BaseFunc",
    "DataType": "relaxpy.ir.dtype:DataType",
    "DummyGlobalInfo": "relaxpy.ir.global_info:DummyGlobalInfo",
    "EnvFunc": "relaxpy.ir.relax.nodes:EnvFunc",
    "GlobalInfo": "relaxpy.ir.global_info:GlobalInfo",
    "GlobalVar": "relaxpy.ir.relax.nodes:GlobalVar",
    "IRModule": "relaxpy.ir.module:IRModule",
    "Op": "relaxpy.ir.op:Op",
    "PointerType": "relaxpy.ir.types:PointerType",
    "PrimExpr": "relaxpy.ir.tir.expr:PrimExpr",
    "PrimType": "relaxpy.ir.types:PrimType",
    "Range": "relaxpy.ir.tir.buffer:Range",
    "Span": "relaxpy.errors:Span",
    "VDevice": "relaxpy.ir.global_info:VDevice",
    "assert_structural_equal": "relaxpy.ir.structural:assert_structural_equal",
    "first_mismatch": "relaxpy.ir.structural:first_mismatch",
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
