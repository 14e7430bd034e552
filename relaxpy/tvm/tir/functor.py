"""Visitors and mutators of statements and expressions, as classes or as plain functions.

They recurse on Python's stack, as deep as the kernel, and visit neither binders nor buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any, Final, TypeAlias, TypeVar, cast

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.arith.tvm.analyzer import Analyzer
from relaxpy.ir.core import traverse
from relaxpy.ir.core.node import Node
from relaxpy.ir.op import Op
from relaxpy.ir.tir import expr as tir, ops, stmt, substitution
from relaxpy.ir.tir.buffer import Buffer, BufferLoad
from relaxpy.ir.tir.expr import ExprLike, PrimExpr, Var
from relaxpy.ir.tir.iteration import Range
from relaxpy.ir.tir.reduce import Reduce
from relaxpy.ir.tir.stmt import Stmt
from relaxpy.support.entry import user_facing

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


_METHODS: Final = traverse.visit_methods((*_EXPRS, *_STMTS), "_") | {
    stmt.AttrStmt: "visit_attr_",
    stmt.AssertStmt: "visit_assert_",
}


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
        """Visit the operands of a node whose method is not overridden."""
        raise NotImplementedError

    def _operand(self, op: Node, child: Node) -> Any:
        """Visit an operand of `op`."""
        return self._child(child)

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
        for child in traverse.children(op):
            if id(child) not in bound:
                self._operand(op, child)


class PyStmtExprMutator(_Functor):
    """Rebuilds statements and expressions whose operands change; others stay the same objects.

    A subclass overrides methods such as `visit_for_`, and calls `super()` to rebuild the operands.
    """

    @override
    def _visit(self, op: Any) -> Any:
        bound = _bound(op)
        return traverse.map_children(
            lambda child: child if id(child) in bound else self._operand(op, child), op
        )


class _WithAnalyzer(_Functor):
    """Keeps an `analyzer` of the ranges, values and conditions that enclose the visited operand."""

    def __init__(self) -> None:
        super().__init__()
        self.analyzer = Analyzer()

    @override
    def _operand(self, op: Node, child: Node) -> Any:
        condition: PrimExpr | None = None
        no: Node | None = None
        match op:
            case stmt.For(loop_var=var, min=first, extent=extent, body=body) if child is body:
                self.analyzer.bind(var, Range.from_min_extent(first, extent), True)
            case (
                stmt.LetStmt(var=var, value=value, body=body)
                | tir.Let(var=var, value=value, body=body)
            ) if child is body and _is_stable_integer(value):
                self.analyzer.bind(var, value, True)
            case stmt.Block(iter_vars=iter_vars):
                for it in iter_vars:
                    if it.dom is not None:
                        self.analyzer.bind(it.var, it.dom, True)
            case stmt.AssertStmt(condition=condition) | stmt.While(condition=condition):
                pass
            case stmt.IfThenElse(condition=condition, else_case=no):
                pass
            case tir.Select(condition=condition, false_value=no):
                pass
            case tir.Call(op=Op(name="tir.if_then_else"), args=(condition, _, no)):
                pass
            case _:
                pass
        if condition is None or child is condition:  # which a branch may consist of, too
            return self._child(child)
        with self.analyzer.constraint_scope(
            ops.logical_not(condition) if child is no else condition
        ):
            return self._child(child)


def _is_stable_integer(value: PrimExpr) -> bool:
    """True if a value is an integer that does not depend on memory or calls."""
    stable = next(traverse.occurrences(value, BufferLoad, tir.Call), None) is None
    return stable and value.dtype.family in ("int", "uint")


class PyStmtExprVisitorWithAnalyzer(_WithAnalyzer, PyStmtExprVisitor):
    """A visitor whose `analyzer` has the facts that hold at the visited operand."""


class PyStmtExprMutatorWithAnalyzer(_WithAnalyzer, PyStmtExprMutator):
    """A mutator whose `analyzer` has the facts that hold at the visited operand."""


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


N = TypeVar("N", bound=Node)
Change: TypeAlias = Callable[[Any], Any]


@user_facing
def post_order_visit(stmt: Node, fvisit: Callable[[Any], object]) -> None:
    """Call `fvisit` with every statement and expression once, children before parents.

    The shapes of buffers are not visited.
    """
    _check(stmt, fvisit)
    for child in traverse.walk(stmt):
        if isinstance(child, (PrimExpr, Stmt)):
            fvisit(child)


@user_facing
def pre_order_visit(stmt: Node, fvisit: Callable[[Any], bool]) -> None:
    """Call `fvisit` with every statement and expression once; visit its children if it is true."""
    _check(stmt, fvisit)
    visited: set[int] = set()
    stack: list[Node] = [stmt]
    while stack:
        child = stack.pop()
        if id(child) in visited:
            continue
        visited.add(id(child))
        if isinstance(child, (PrimExpr, Stmt)) and not fvisit(child):
            continue
        if not child._variable:
            stack += reversed(list(traverse.children(child)))


@user_facing
def ir_transform(
    stmt: Stmt,
    preorder: Change | None,
    postorder: Change | None,
    only_enable: Container[str] | None = None,
) -> Node:
    """Rewrite the statements and expressions of `stmt`; a function returns None for no change.

    A result of `preorder` is final, and its children are not visited. `postorder` is called with
    nodes whose children are rewritten. Both are called only with the node classes in `only_enable`,
    such as "tir.Add".
    """
    _check(stmt, *(f for f in (preorder, postorder) if f is not None))

    def change(node: Node) -> Node:
        enabled = isinstance(node, (PrimExpr, Stmt)) and (
            only_enable is None or f"tir.{type(node).__name__}" in only_enable
        )
        replaced = preorder(node) if enabled and preorder is not None else None
        if replaced is not None:
            return _node(replaced)
        rebuilt = node if node._variable else traverse.map_children(change, node)
        rewritten = postorder(rebuilt) if enabled and postorder is not None else None
        return rebuilt if rewritten is None else _node(rewritten)

    return change(stmt)


def _check(node: object, *functions: object) -> None:
    """Errors: MisuseError (also TypeError) if `node` is not a node or a function not callable."""
    check_type(node, Node, "expected a statement or an expression")
    for function in functions:
        if not callable(function):
            raise unexpected(function, "expected a function of nodes")


def _node(value: object) -> Node:
    """Convert the result of a rewrite. Errors: MisuseError (also TypeError) if it is not a node."""
    return value if isinstance(value, Node) else ops.convert(value)


def _uses(node: Node, var: Var) -> bool:
    """True if `substitute` replaces `var` anywhere in `node`, shapes of buffers included."""
    return substitution.substitute(node, {var: Var(var.name, var.dtype)}) is not node


@user_facing
def substitute(node: N, vmap: Mapping[Var, ExprLike]) -> N:
    """Replace variables by values at every use in `node`; nothing is folded.

    An integer may have the place of one of another datatype, as int64 sizes of a call have that of
    the int32 sizes of a kernel. Arithmetic on it is then done in the wider datatype; other uses
    cast it.

    Errors:
        MisuseError (also TypeError): a value has another datatype than its variable, which is
            used in `node` and whose datatype is known, and not both are integers.
    """
    _check(node)
    check_type(vmap, Mapping, "vmap maps variables to values")
    values, casts = dict[Var, PrimExpr](), dict[Var, PrimExpr]()
    for var, value in vmap.items():
        ops.check_variable(var, "a substitution")
        new_value = ops.const(value, var.dtype) if type(value) is int else ops.convert(value)
        values[var] = casts[var] = new_value
        if new_value.dtype == var.dtype or var.dtype.is_void:
            continue
        if var.dtype.is_int and new_value.dtype.is_int:
            casts[var] = ops.cast_to(new_value, var.dtype)
        elif _uses(node, var):
            raise MisuseError(
                f"{var.name} of {var.dtype} cannot be {new_value.dtype} `{new_value}`", about=value
            )
    if all(casts[var] is value for var, value in values.items()) or not isinstance(node, PrimExpr):
        return substitution.substitute(node, casts)

    def retyped(expr: PrimExpr) -> PrimExpr:
        match expr:
            case Var():
                return values.get(expr, expr)
            case tir.BinaryOpExpr(a=a, b=b) | tir.Junction(a=a, b=b):
                return type(expr)(*ops.match_dtypes(retyped(a), retyped(b)))
            case tir.Cast(value=operand, dtype=dtype):
                return tir.Cast(dtype, retyped(operand))
            case tir.Select(condition=condition, true_value=first, false_value=second):
                chosen = ops.match_dtypes(retyped(first), retyped(second))
                return tir.Select(retyped(condition), *chosen)
            case _:
                return substitution.substitute(expr, casts)

    return cast("N", retyped(node))
