"""The language: its nodes and its rules. The names of this package are loaded on first use."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.ir")
if TYPE_CHECKING:
    from relaxpy.errors import Span as Span
    from relaxpy.ir import attrs as attrs, base as base, container as container, expr as expr, function as function, global_info as global_info, instrument as instrument, module as module, op as op, transform as transform, type as type
    from relaxpy.ir.container import Array as Array, Map as Map
    from relaxpy.ir.core.dtype import DataType as DataType
    from relaxpy.ir.core.node import Attrs as Attrs
    from relaxpy.ir.core.node import Attrs as DictAttrs
    from relaxpy.ir.core.types import PointerType as PointerType, PrimType as PrimType
    from relaxpy.ir.equality.mismatch import AccessPath as AccessPath
    from relaxpy.ir.equality.structural import assert_structural_equal as assert_structural_equal, first_mismatch as first_mismatch, get_first_structural_mismatch as get_first_structural_mismatch, structural_equal as structural_equal, structural_hash as structural_hash
    from relaxpy.ir.global_info import DummyGlobalInfo as DummyGlobalInfo, GlobalInfo as GlobalInfo, VDevice as VDevice
    from relaxpy.ir.module import IRModule as IRModule
    from relaxpy.ir.op import Op as Op, register_op_attr as register_op_attr
    from relaxpy.ir.relax.nodes import BaseFunc as BaseFunc, EnvFunc as EnvFunc, GlobalVar as GlobalVar
    from relaxpy.ir.relax.nodes.static_type import FuncType as FuncType, TupleType as TupleType, Type as Type
    from relaxpy.ir.serialize import load_json as load_json, save_json as save_json
    from relaxpy.ir.tir.expr import PrimExpr as PrimExpr
    from relaxpy.ir.tir.iteration import Range as Range
    from relaxpy.tvm.relax.helpers import SourceName as SourceName, make_node as make_node
    __all__ = ['AccessPath', 'Array', 'Attrs', 'BaseFunc', 'DataType', 'DictAttrs', 'DummyGlobalInfo', 'EnvFunc', 'FuncType', 'GlobalInfo', 'GlobalVar', 'IRModule', 'Map', 'Op', 'PointerType', 'PrimExpr', 'PrimType', 'Range', 'SourceName', 'Span', 'TupleType', 'Type', 'VDevice', 'assert_structural_equal', 'attrs', 'base', 'container', 'expr', 'first_mismatch', 'function', 'get_first_structural_mismatch', 'global_info', 'instrument', 'load_json', 'make_node', 'module', 'op', 'register_op_attr', 'save_json', 'structural_equal', 'structural_hash', 'transform', 'type']
