"""Relay, the predecessor of Relax: programs are read, checked, printed and run."""

from typing import TYPE_CHECKING

from relaxpy.errors import RelayTypeError
from relaxpy.exec.relay.build import build
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
from relaxpy.ir.relay.functors import (
    ExprFunctor,
    ExprMutator,
    ExprVisitor,
    TypeFunctor,
    TypeMutator,
    TypeVisitor,
)
from relaxpy.ir.relay.module import Prelude, RelayModule as IRModule
from relaxpy.ir.relay.op.makers import maker
from relaxpy.ir.relay.scope_builder import ScopeBuilder
from relaxpy.ir.relay.to_relax.translation import to_relax
from relaxpy.ir.relay.ty import (  # noqa: N812
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
    shape_var as ShapeVar,
)
from relaxpy.relay import analysis, dataflow_pattern, nn, op, random, testing, transform
from relaxpy.script.relay.parser import fromtext, parse, parse_expr

__all__ = [
    "Any",
    "Call",
    "Clause",
    "Constant",
    "Constructor",
    "ConstructorValue",
    "Expr",
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
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
    "Prelude",
    "RefCreate",
    "RefRead",
    "RefType",
    "RefValue",
    "RefWrite",
    "RelayExpr",
    "RelayRefType",
    "RelayTypeError",
    "ScopeBuilder",
    "ShapeVar",
    "TempExpr",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "TypeCall",
    "TypeData",
    "TypeFunctor",
    "TypeKind",
    "TypeMutator",
    "TypeRelation",
    "TypeVar",
    "TypeVisitor",
    "Var",
    "analysis",
    "bind",
    "build",
    "const",
    "create_executor",
    "dataflow_pattern",
    "fromtext",
    "nn",
    "op",
    "parse",
    "parse_expr",
    "random",
    "scalar_type",
    "testing",
    "to_relax",
    "transform",
    "var",
]

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        return maker(name)
