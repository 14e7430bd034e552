"""The nodes of Relax, all under one name; each kind has its home in a module of its own."""

from typing import TypeAlias

from relaxpy.ir.op import Op
from relaxpy.ir.relax.nodes.base import Expr, StructInfo, as_struct_info
from relaxpy.ir.relax.nodes.expr import (
    MASKED,
    Array,
    Call,
    Constant,
    DataflowVar,
    DataTypeImm,
    GlobalVar,
    Id,
    PrimValue,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    const,
    convert_to_expr,
    is_masked,
)
from relaxpy.ir.relax.nodes.function import (
    BaseFunc,
    Binding,
    BindingBlock,
    DataflowBlock,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxpy.ir.relax.nodes.struct_info import (
    DEFAULT_DERIVE,
    EMPTY_DERIVE,
    DeriveFunc,
    EnvFunc,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_shape,
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

__all__ = [
    "DEFAULT_DERIVE",
    "EMPTY_DERIVE",
    "MASKED",
    "AnyExpr",
    "AnyStructInfo",
    "Array",
    "BaseFunc",
    "Binding",
    "BindingBlock",
    "Call",
    "Constant",
    "DataTypeImm",
    "DataflowBlock",
    "DataflowVar",
    "DeriveFunc",
    "EnvFunc",
    "Expr",
    "ExternFunc",
    "FuncStructInfo",
    "Function",
    "GlobalVar",
    "Id",
    "If",
    "MatchCast",
    "ObjectStructInfo",
    "PrimStructInfo",
    "PrimValue",
    "SeqExpr",
    "ShapeExpr",
    "ShapeStructInfo",
    "StringImm",
    "StructInfo",
    "TensorStructInfo",
    "Tuple",
    "TupleGetItem",
    "TupleStructInfo",
    "Var",
    "VarBinding",
    "as_shape",
    "as_struct_info",
    "const",
    "convert_to_expr",
    "is_masked",
]
