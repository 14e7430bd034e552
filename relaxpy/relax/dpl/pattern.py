"""Patterns of expressions, and the functions that create them."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.dpl.pattern")
if TYPE_CHECKING:
    from relaxpy.ir.relax.dpl.pattern import AndPattern as AndPattern, AttrPattern as AttrPattern, CallPattern as CallPattern, ConstantPattern as ConstantPattern, DFPattern as DFPattern, DataTypePattern as DataTypePattern, DataflowVarPattern as DataflowVarPattern, ExprPattern as ExprPattern, ExternFuncPattern as ExternFuncPattern, FunctionPattern as FunctionPattern, GlobalVarPattern as GlobalVarPattern, NotPattern as NotPattern, OrPattern as OrPattern, PatternSeq as PatternSeq, PrimArrPattern as PrimArrPattern, SameShapeConstraint as SameShapeConstraint, ShapePattern as ShapePattern, StructInfoPattern as StructInfoPattern, TupleGetItemPattern as TupleGetItemPattern, TuplePattern as TuplePattern, UnorderedTuplePattern as UnorderedTuplePattern, VarPattern as VarPattern, WildcardPattern as WildcardPattern, has_attr as has_attr, has_dtype as has_dtype, is_call_dps_packed as is_call_dps_packed, is_call_packed as is_call_packed, is_call_tir as is_call_tir, is_const as is_const, is_dfv as is_dfv, is_expr as is_expr, is_gv as is_gv, is_op as is_op, is_shape as is_shape, is_tuple as is_tuple, is_tuple_get_item as is_tuple_get_item, is_var as is_var, make_fused_bias_activation_pattern as make_fused_bias_activation_pattern, reject as reject, wildcard as wildcard
    from relaxpy.ir.relax.dpl.pattern import StructInfoPattern as TypePattern
    __all__ = ['AndPattern', 'AttrPattern', 'CallPattern', 'ConstantPattern', 'DFPattern', 'DataTypePattern', 'DataflowVarPattern', 'ExprPattern', 'ExternFuncPattern', 'FunctionPattern', 'GlobalVarPattern', 'NotPattern', 'OrPattern', 'PatternSeq', 'PrimArrPattern', 'SameShapeConstraint', 'ShapePattern', 'StructInfoPattern', 'TupleGetItemPattern', 'TuplePattern', 'TypePattern', 'UnorderedTuplePattern', 'VarPattern', 'WildcardPattern', 'has_attr', 'has_dtype', 'is_call_dps_packed', 'is_call_packed', 'is_call_tir', 'is_const', 'is_dfv', 'is_expr', 'is_gv', 'is_op', 'is_shape', 'is_tuple', 'is_tuple_get_item', 'is_var', 'make_fused_bias_activation_pattern', 'reject', 'wildcard']
