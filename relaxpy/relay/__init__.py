"""Relay, the predecessor of Relax: programs are read, checked, printed and run."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay", "relaxpy.plugins.relay.op.makers:public_name")
if TYPE_CHECKING:
    from relaxpy.errors import RelayTypeError as RelayTypeError, Span as Span
    from relaxpy.plugins.relay.expr import Clause as Clause, Constructor as Constructor, Function as Function, Id as Id, Match as Match, Pattern as Pattern, PatternConstructor as PatternConstructor, PatternTuple as PatternTuple, PatternVar as PatternVar, PatternWildcard as PatternWildcard
    from relaxpy.plugins.relay.functors import ExprFunctor as ExprFunctor, ExprMutator as ExprMutator, ExprVisitor as ExprVisitor, TypeFunctor as TypeFunctor, TypeMutator as TypeMutator, TypeVisitor as TypeVisitor
    from relaxpy.plugins.relay.module import Prelude as Prelude
    from relaxpy.plugins.relay.module import RelayModule as IRModule
    from relaxpy.plugins.relay.run.executor import create_executor as create_executor
    from relaxpy.plugins.relay.run.values import ConstructorValue as ConstructorValue, RefValue as RefValue
    from relaxpy.plugins.relay.scope_builder import ScopeBuilder as ScopeBuilder
    from relaxpy.plugins.relay.text.parser import fromtext as fromtext, parse as parse, parse_expr as parse_expr
    from relaxpy.plugins.relay.to_relax import to_relax as to_relax
    from relaxpy.relay import adt as adt, analysis as analysis, backend as backend, expr as expr, expr_functor as expr_functor, function as function, nn as nn, op as op, parser as parser, prelude as prelude, testing as testing, transform as transform, ty as ty
    from relaxpy.relay.expr import *
    from relaxpy.relay.ty import *
    from relaxpy.tvm.tensor_cache import load_param_dict as load_param_dict, save_param_dict as save_param_dict

    def __getattr__(name: str) -> _Any: ...
    __all__ = ['Any', 'Call', 'Clause', 'Constant', 'Constructor', 'ConstructorValue', 'Expr', 'ExprFunctor', 'ExprMutator', 'ExprVisitor', 'FuncType', 'Function', 'GlobalTypeVar', 'GlobalVar', 'IRModule', 'Id', 'If', 'IncompleteType', 'Let', 'Match', 'Pattern', 'PatternConstructor', 'PatternTuple', 'PatternVar', 'PatternWildcard', 'Prelude', 'RefCreate', 'RefRead', 'RefType', 'RefValue', 'RefWrite', 'RelayExpr', 'RelayRefType', 'RelayTypeError', 'ScopeBuilder', 'ShapeVar', 'Span', 'TempExpr', 'TensorType', 'Tuple', 'TupleGetItem', 'TupleType', 'Type', 'TypeCall', 'TypeData', 'TypeFunctor', 'TypeKind', 'TypeMutator', 'TypeRelation', 'TypeVar', 'TypeVisitor', 'Var', 'adt', 'analysis', 'backend', 'bind', 'const', 'create_executor', 'expr', 'expr_functor', 'fromtext', 'function', 'load_param_dict', 'nn', 'op', 'parse', 'parse_expr', 'parser', 'prelude', 'save_param_dict', 'scalar_type', 'testing', 'to_relax', 'transform', 'ty', 'var']
