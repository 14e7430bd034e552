"""The language: its nodes and its rules. The names of this package are loaded on first use."""

from typing import TYPE_CHECKING

from relaxpy.lazy import finder as _finder

if TYPE_CHECKING:
    from relaxpy.errors import Span
    from relaxpy.ir.container import Array, Map
    from relaxpy.ir.core.dtype import DataType
    from relaxpy.ir.core.node import Attrs, Attrs as DictAttrs
    from relaxpy.ir.core.source_name import SourceName
    from relaxpy.ir.core.types import PointerType, PrimType
    from relaxpy.ir.equality.access_path import AccessPath
    from relaxpy.ir.equality.structural import (
        assert_structural_equal,
        first_mismatch,
        get_first_structural_mismatch,
        structural_equal,
        structural_hash,
    )
    from relaxpy.ir.global_info import DummyGlobalInfo, GlobalInfo, VDevice
    from relaxpy.ir.make_node import make_node
    from relaxpy.ir.module import IRModule
    from relaxpy.ir.op import Op, register_op_attr
    from relaxpy.ir.relax.nodes import BaseFunc, EnvFunc, GlobalVar
    from relaxpy.ir.relax.nodes.static_type import FuncType, TupleType, Type
    from relaxpy.ir.serialize import load_json, save_json
    from relaxpy.ir.tir.expr import PrimExpr
    from relaxpy.ir.tir.iteration import Range

__all__ = [
    "AccessPath",
    "Array",
    "Attrs",
    "BaseFunc",
    "DataType",
    "DictAttrs",
    "DummyGlobalInfo",
    "EnvFunc",
    "FuncType",
    "GlobalInfo",
    "GlobalVar",
    "IRModule",
    "Map",
    "Op",
    "PointerType",
    "PrimExpr",
    "PrimType",
    "Range",
    "SourceName",
    "Span",
    "TupleType",
    "Type",
    "VDevice",
    "assert_structural_equal",
    "first_mismatch",
    "get_first_structural_mismatch",
    "load_json",
    "make_node",
    "register_op_attr",
    "save_json",
    "structural_equal",
    "structural_hash",
]

_LOCATIONS = {
    "AccessPath": "relaxpy.ir.equality.access_path:AccessPath",
    "Array": "relaxpy.ir.container:Array",
    "Attrs": "relaxpy.ir.core.node:Attrs",
    "BaseFunc": "relaxpy.ir.relax.nodes:BaseFunc",
    "DataType": "relaxpy.ir.core.dtype:DataType",
    "DictAttrs": "relaxpy.ir.core.node:Attrs",
    "DummyGlobalInfo": "relaxpy.ir.global_info:DummyGlobalInfo",
    "EnvFunc": "relaxpy.ir.relax.nodes:EnvFunc",
    "FuncType": "relaxpy.ir.relax.nodes.static_type:FuncType",
    "GlobalInfo": "relaxpy.ir.global_info:GlobalInfo",
    "GlobalVar": "relaxpy.ir.relax.nodes:GlobalVar",
    "IRModule": "relaxpy.ir.module:IRModule",
    "Map": "relaxpy.ir.container:Map",
    "Op": "relaxpy.ir.op:Op",
    "PointerType": "relaxpy.ir.core.types:PointerType",
    "PrimExpr": "relaxpy.ir.tir.expr:PrimExpr",
    "PrimType": "relaxpy.ir.core.types:PrimType",
    "Range": "relaxpy.ir.tir.iteration:Range",
    "SourceName": "relaxpy.ir.core.source_name:SourceName",
    "Span": "relaxpy.errors:Span",
    "TupleType": "relaxpy.ir.relax.nodes.static_type:TupleType",
    "Type": "relaxpy.ir.relax.nodes.static_type:Type",
    "VDevice": "relaxpy.ir.global_info:VDevice",
    "assert_structural_equal": "relaxpy.ir.equality.structural:assert_structural_equal",
    "first_mismatch": "relaxpy.ir.equality.structural:first_mismatch",
    "get_first_structural_mismatch": "relaxpy.ir.equality.structural:get_first_structural_mismatch",
    "load_json": "relaxpy.ir.serialize:load_json",
    "make_node": "relaxpy.ir.make_node:make_node",
    "register_op_attr": "relaxpy.ir.op:register_op_attr",
    "save_json": "relaxpy.ir.serialize:save_json",
    "structural_equal": "relaxpy.ir.equality.structural:structural_equal",
    "structural_hash": "relaxpy.ir.equality.structural:structural_hash",
}

_MODULES = (
    "attrs",
    "base",
    "container",
    "expr",
    "function",
    "global_info",
    "instrument",
    "module",
    "op",
    "transform",
    "type",
)
"""The modules that are attributes without an import of their own."""

if not TYPE_CHECKING:  # it would make a type checker accept every name
    __getattr__ = _finder(globals(), _LOCATIONS | {name: f"{__name__}.{name}" for name in _MODULES})


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__file__", "__name__", "__path__"]
