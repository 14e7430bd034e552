"""Relay, the predecessor of Relax: programs are read, checked, printed and run."""

from typing import TYPE_CHECKING

from relaxpy.absent import attribute_error as _attribute_error, instead_of as _instead_of
from relaxpy.errors import RelayTypeError, Span
from relaxpy.exec.relay.executor import create_executor
from relaxpy.exec.relay.values import ConstructorValue, RefValue
from relaxpy.exec.runtime.params import load_param_dict, save_param_dict
from relaxpy.ir.relay.bind import bind
from relaxpy.ir.relay.expr import (
    Call,
    Clause,
    Constant,
    Constructor,
    Function,
    GlobalVar,
    Id,
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
from relaxpy.ir.relay.tuple_wrapper import TupleWrapper
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
from relaxpy.relay import (
    adt,
    analysis,
    backend,
    expr,
    expr_functor,
    function,
    nn,
    op,
    parser,
    prelude,
    testing,
    transform,
    ty,
)
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
    "Id",
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
    "Span",
    "TempExpr",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "TupleWrapper",
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
    "adt",
    "analysis",
    "backend",
    "bind",
    "const",
    "create_executor",
    "expr",
    "expr_functor",
    "fromtext",
    "function",
    "load_param_dict",
    "nn",
    "op",
    "parse",
    "parse_expr",
    "parser",
    "prelude",
    "save_param_dict",
    "scalar_type",
    "testing",
    "to_relax",
    "transform",
    "ty",
    "var",
]

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        if _instead_of(f"relay.{name}"):
            raise _attribute_error(__name__, name)
        return maker(name)
