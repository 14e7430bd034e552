"""Relay, the predecessor of Relax: programs are read, checked, printed and run."""

from typing import TYPE_CHECKING

from relaxpy.absent import instead_of as _instead_of
from relaxpy.errors import RelayTypeError as RelayTypeError, Span as Span
from relaxpy.exec.relay.executor import create_executor as create_executor
from relaxpy.exec.relay.values import ConstructorValue as ConstructorValue, RefValue as RefValue
from relaxpy.exec.runtime.params import (
    load_param_dict as load_param_dict,
    save_param_dict as save_param_dict,
)
from relaxpy.ir.relay.expr import (
    Clause as Clause,
    Constructor as Constructor,
    Function as Function,
    Id as Id,
    Match as Match,
    Pattern as Pattern,
    PatternConstructor as PatternConstructor,
    PatternTuple as PatternTuple,
    PatternVar as PatternVar,
    PatternWildcard as PatternWildcard,
)
from relaxpy.ir.relay.functors import (
    ExprFunctor as ExprFunctor,
    ExprMutator as ExprMutator,
    ExprVisitor as ExprVisitor,
    TypeFunctor as TypeFunctor,
    TypeMutator as TypeMutator,
    TypeVisitor as TypeVisitor,
)
from relaxpy.ir.relay.module import Prelude as Prelude, RelayModule as _RelayModule
from relaxpy.ir.relay.op.makers import maker as _maker
from relaxpy.ir.relay.scope_builder import ScopeBuilder as ScopeBuilder
from relaxpy.ir.relay.to_relax.translation import to_relax as to_relax
from relaxpy.lazy import lister as _lister
from relaxpy.missing import attribute_error as _attribute_error
from relaxpy.relay import (
    adt as adt,
    analysis as analysis,
    backend as backend,
    expr as expr,
    expr_functor as expr_functor,
    function as function,
    nn as nn,
    op as op,
    parser as parser,
    prelude as prelude,
    testing as testing,
    transform as transform,
    ty as ty,
)
from relaxpy.relay.expr import *
from relaxpy.relay.ty import *
from relaxpy.script.relay.parser import (
    fromtext as fromtext,
    parse as parse,
    parse_expr as parse_expr,
)

IRModule = _RelayModule

if not TYPE_CHECKING:  # it would make a type checker accept every name

    def __getattr__(name):
        if _instead_of(f"relay.{name}"):
            raise _attribute_error(__name__, name)
        return _maker(name)

    __dir__ = _lister(globals(), {})
