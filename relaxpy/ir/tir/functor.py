"""Visitors and mutators of statements and expressions, for user code to derive from.

They recurse on Python's stack, as deep as the kernel, and visit neither binders nor buffers.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children
from relaxpy.ir.tir import expr as tir, stmt
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.stmt import Stmt

C = TypeVar("C", bound=type)
V = TypeVar("V", bound="type[PyStmtExprVisitor]")
M = TypeVar("M", bound="type[PyStmtExprMutator]")

_EXPRS: Final = (
    *(
        tir.Var,
        tir.SizeVar,
        tir.IntImm,
        tir.FloatImm,
        tir.StringImm,
        tir.Cast,
        tir.Select,
        tir.Ramp,
    ),
    *(tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod, tir.Min, tir.Max),
    *(tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or, tir.Not, tir.Broadcast),
    *(tir.Shuffle, tir.Let, tir.Call, BufferLoad, Reduce),
)
_STMTS: Final = (
    *(stmt.LetStmt, stmt.AttrStmt, stmt.AssertStmt, stmt.While, stmt.For, stmt.BufferStore),
    *(stmt.BufferRealize, stmt.Allocate, stmt.AllocateConst, stmt.DeclBuffer, stmt.SeqStmt),
    *(stmt.IfThenElse, stmt.Evaluate, stmt.Block, stmt.BlockRealize),
)


def _method_of(kind: type[Node]) -> str:
    """The name of the method for a class: `visit_floor_div_`, but `visit_attr_` of AttrStmt."""
    name = kind.__name__
    if kind in {stmt.AttrStmt, stmt.AssertStmt}:
        name = name.removesuffix("Stmt")
    return f"visit_{'_'.join(re.findall('[A-Z][a-z]+|[A-Z]+', name)).lower()}_"


_METHODS: Final = {kind: _method_of(kind) for kind in (*_EXPRS, *_STMTS)}


class _Functor:
    """Calls the method for the class of a node, such as `visit_add_`."""

    def visit_expr(self, expr: Any) -> Any:
        """Visit an expression of any kind."""
        check_type(expr, PrimExpr, "expected an expression of TIR")
        return getattr(self, _METHODS.get(type(expr), "_visit"))(expr)

    def visit_stmt(self, stmt: Any) -> Any:
        """Visit a statement of any kind."""
        check_type(stmt, Stmt, "expected a statement of TIR")
        return getattr(self, _METHODS.get(type(stmt), "_visit"))(stmt)

    def _visit(self, op: Any) -> Any:
        """Visit what is in a node whose method is not overridden."""
        raise NotImplementedError

    def _child(self, child: Node) -> Any:
        """Visit an operand, or the operands in a part that is neither of the two."""
        match child:
            case PrimExpr():
                return self.visit_expr(child)
            case Stmt():
                return self.visit_stmt(child)
            case Buffer():
                return child
            case _:
                return self._visit(child)


def _bound(node: Node) -> set[int]:
    """The identities of the variables that a node binds, which are not operands."""
    return {id(getattr(node, name)) for name in node._binds}


class PyStmtExprVisitor(_Functor):
    """Visits the operands of each statement and expression, in order.

    A subclass overrides methods such as `visit_for_`, and calls `super()` to visit the operands.
    """

    @override
    def _visit(self, op: Any) -> None:
        bound = _bound(op)
        for child in children(op):
            if id(child) not in bound:
                self._child(child)


class PyStmtExprMutator(_Functor):
    """Rebuilds statements and expressions whose operands change; others stay the same objects.

    A subclass overrides methods such as `visit_for_`, and calls `super()` to rebuild the operands.
    """

    @override
    def _visit(self, op: Any) -> Any:
        bound = _bound(op)
        return map_children(lambda child: child if id(child) in bound else self._child(child), op)


for _name in _METHODS.values():
    setattr(_Functor, _name, lambda self, op: self._visit(op))
_Functor.visit_size_var_ = lambda self, op: self.visit_var_(op)  # type: ignore[attr-defined]


def visitor(visitor_cls: V) -> V:
    """The class, ready for use: `@tir.functor.visitor` is the decorator of subclasses.

    Errors:
        MisuseError (also TypeError): it is not a subclass of PyStmtExprVisitor.
    """
    return _derived(visitor_cls, PyStmtExprVisitor)


def mutator(mutator_cls: M) -> M:
    """The class, ready for use: `@tir.functor.mutator` is the decorator of subclasses.

    Errors:
        MisuseError (also TypeError): it is not a subclass of PyStmtExprMutator.
    """
    return _derived(mutator_cls, PyStmtExprMutator)


def _derived(cls: C, base: type[_Functor]) -> C:
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise MisuseError(f"the decorator is for classes that inherit from {base.__name__}")
    return cls
