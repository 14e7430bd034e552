"""Graph-level expressions, bindings and blocks, and the conversion of Python values to them."""

from relaxpy.ir.relax.nodes import (
    Binding as Binding,
    BindingBlock as BindingBlock,
    Call as Call,
    Constant as Constant,
    DataflowBlock as DataflowBlock,
    DataflowVar as DataflowVar,
    DataTypeImm as DataTypeImm,
    Expr as Expr,
    ExternFunc as ExternFunc,
    Function as Function,
    GlobalVar as GlobalVar,
    Id as Id,
    If as If,
    MatchCast as MatchCast,
    PrimValue as PrimValue,
    SeqExpr as SeqExpr,
    ShapeExpr as ShapeExpr,
    StringImm as StringImm,
    Tuple as Tuple,
    TupleGetItem as TupleGetItem,
    Var as Var,
    VarBinding as VarBinding,
    const as const,
    convert_to_expr as convert_to_expr,
)
from relaxpy.ir.relax.rewrite.update import update_struct_info
from relaxpy.ir.relax.shapes import get_shape_of as get_shape_of, make_shape as make_shape
from relaxpy.ir.relax.utils import extern as extern

_update_struct_info = update_struct_info
prim_value = PrimValue
"""The name that a value has in TVM after v0.22."""
