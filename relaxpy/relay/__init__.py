"""Relay, the predecessor of Relax: programs are read, checked, printed and run."""

from typing import TYPE_CHECKING

from relaxpy.errors import RelayTypeError
from relaxpy.exec.relay.executor import create_executor
from relaxpy.exec.relay.values import ConstructorValue, RefValue
from relaxpy.ir.relay.bind import bind
from relaxpy.ir.relay.expr import (
    Call,
    Clause,
    Constant,
    Constructor,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    RefCreate,
    RefRead,
    RefWrite,
    RelayExpr,
    RelayExpr as Expr,
    TempExpr,
    Tuple,
    TupleGetItem,
    Var,
    const,
    var,
)
from relaxpy.ir.relay.module import RelayModule as IRModule
from relaxpy.ir.relay.op.makers import maker
from relaxpy.ir.relay.ty import (
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    RefType as RelayRefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeData,
    TypeKind,
    TypeRelation,
    TypeVar,
    UnknownDim as Any,
    scalar_type,
)
from relaxpy.relay import analysis, nn, op, transform
from relaxpy.script.relay.parser import fromtext, parse, parse_expr

__all__ = [
    "Any",
    "Call",
    "Clause",
    "Constant",
    "Constructor",
    "ConstructorValue",
    "Expr",
    "FuncType",
    "Function",
    "GlobalTypeVar",
    "GlobalVar",
    "IRModule",
    "If",
    "IncompleteType",
    "Let",
    "Match",
    "Pattern",
    "PatternConstructor",
    "PatternTuple",
    "PatternVar",
    "PatternWildcard",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefValue",
    "RefWrite",
    "RelayExpr",
    "RelayRefType",
    "RelayTypeError",
    "TempExpr",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeKind",
    "TypeRelation",
    "TypeVar",
    "Var",
    "analysis",
    "bind",
    "const",
    "create_executor",
    "fromtext",
    "nn",
    "op",
    "parse",
    "parse_expr",
    "scalar_type",
    "transform",
    "var",
]

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(name)
