"""The nodes of Relax; the modules of this package define them."""

from typing import TypeAlias

from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes.base_classes import (
    Expr as Expr,
    StructInfo as StructInfo,
    as_struct_info as as_struct_info,
)
from relaxpy.ir.relax.nodes.expr import (
    Call as Call,
    Constant as Constant,
    DataflowVar as DataflowVar,
    DataTypeImm as DataTypeImm,
    GlobalVar as GlobalVar,
    Id as Id,
    PrimValue as PrimValue,
    StringImm as StringImm,
    Tuple as Tuple,
    TupleGetItem as TupleGetItem,
    Var as Var,
    const as const,
    convert_to_expr as convert_to_expr,
    is_call_of as is_call_of,
)
from relaxpy.ir.relax.nodes.function import (
    BaseFunc as BaseFunc,
    Binding as Binding,
    BindingBlock as BindingBlock,
    DataflowBlock as DataflowBlock,
    ExternFunc as ExternFunc,
    Function as Function,
    If as If,
    MatchCast as MatchCast,
    SeqExpr as SeqExpr,
    VarBinding as VarBinding,
)
from relaxpy.ir.relax.nodes.struct_info import (
    DEFAULT_DERIVE as DEFAULT_DERIVE,
    DERIVATIONS as DERIVATIONS,
    EMPTY_DERIVE as EMPTY_DERIVE,
    DeriveFunc as DeriveFunc,
    EnvFunc as EnvFunc,
    FuncStructInfo as FuncStructInfo,
    ObjectStructInfo as ObjectStructInfo,
    PrimStructInfo as PrimStructInfo,
    ShapeExpr as ShapeExpr,
    ShapeStructInfo as ShapeStructInfo,
    TensorStructInfo as TensorStructInfo,
    TupleStructInfo as TupleStructInfo,
    as_shape as as_shape,
    known_derivation as known_derivation,
)

AnyExpr: TypeAlias = (
    GlobalVar
    | Var
    | DataflowVar
    | Constant
    | PrimValue
    | StringImm
    | DataTypeImm
    | ShapeExpr
    | Tuple
    | TupleGetItem
    | Call
    | If
    | SeqExpr
    | Function
    | ExternFunc
    | Op
)
AnyStructInfo: TypeAlias = (
    ObjectStructInfo
    | PrimStructInfo
    | ShapeStructInfo
    | TensorStructInfo
    | TupleStructInfo
    | FuncStructInfo
)
