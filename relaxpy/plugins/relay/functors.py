"""Visitors and mutators of Relay expressions and types, and substitution of variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from typing_extensions import override

from relaxpy.errors import MisuseError, check_type
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, visit_methods
from relaxpy.plugins.relay import expr as rl, ty
from relaxpy.plugins.relay.expr import Function, RelayExpr, Var, rewrite
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.support.dataclass import replace
from relaxpy.support.entry import user_facing

_EXPRS = """
    Function Call Let Var GlobalVar If Tuple TupleGetItem Constant RefCreate RefRead
    RefWrite Constructor Match
"""
_TYPES = """
    TypeVar IncompleteType TensorType FuncType TupleType TypeRelation RefType GlobalTypeVar
    TypeCall TypeData
"""
_METHODS = visit_methods(
    (*(getattr(rl, n) for n in _EXPRS.split()), Op, *(getattr(ty, n) for n in _TYPES.split()))
)


class _Functor:
    """Calls the method `visit_...` for the kind of a node, or else `visit_default`."""

    def __init__(self) -> None:
        self.memo_map: dict[Node, Any] = {}

    def visit(self, node: Any) -> Any:
        """The result for a node, which is computed once."""
        check_type(node, Node, "expected a node of Relay")
        if node not in self.memo_map:
            method = getattr(self, _METHODS.get(type(node), "visit_default"))
            self.memo_map[node] = method(node)
        return self.memo_map[node]

    def visit_default(self, node: Any) -> Any:
        """The result for the kinds without a method.

        Errors:
            MisuseError (also TypeError): the class does not define it either.
        """
        name = _METHODS.get(type(node))
        raise MisuseError(
            f"{type(self).__name__} does not define {name or 'visit_default'}", about=node
        )

    def _visit(self, node: Any) -> Any:
        """The result for a kind whose method is not overridden."""
        return self.visit_default(node)


for _name in _METHODS.values():
    setattr(_Functor, _name, _Functor._visit)


class ExprFunctor(_Functor):
    """A function on expressions, with a method for each kind: `visit_call`, `visit_let`..."""


class TypeFunctor(_Functor):
    """A function on types, with a method for each kind: `visit_tensor_type`..."""


class ExprVisitor(ExprFunctor):
    """Visits the operands of each expression, in order, but neither types nor binders.

    A method that is overridden visits the operands with `super()`.
    """

    @override
    def visit_default(self, node: Any) -> Any:
        """Visit the operands of an expression."""
        for child in children(node):
            if isinstance(child, rl.Clause):
                self.visit(child.rhs)
            elif isinstance(child, rl.RelayExpr):
                self.visit(child)


class ExprMutator(ExprFunctor):
    """Rebuilds expressions whose operands change; the others stay the same objects.

    A method that is overridden rebuilds the operands with `super()`. The result has no types,
    which `relay.transform.InferType` finds.
    """

    @override
    def visit_default(self, node: Any) -> Any:
        """An expression with its operands visited."""
        return map_children(self._operand, node)

    def _operand(self, child: Node) -> Node:
        match child:
            case rl.Clause(rhs=rhs):
                new = self.visit(rhs)
                return child if new is rhs else replace(child, rhs=new)
            case rl.RelayExpr():
                visited: Node = self.visit(child)
                return visited
            case _:
                return child


class TypeVisitor(TypeFunctor):
    """Visits the types inside each type, in order."""

    @override
    def visit_default(self, node: Any) -> Any:
        """Visit the types in a type."""
        for child in children(node):
            if isinstance(child, ty.Type):
                self.visit(child)


class TypeMutator(TypeFunctor):
    """Rebuilds types in which a type changes; the others stay the same objects."""

    @override
    def visit_default(self, node: Any) -> Any:
        """A type with the types in it visited."""
        return map_children(
            lambda child: self.visit(child) if isinstance(child, ty.Type) else child, node
        )


E = TypeVar("E", bound=RelayExpr)


@user_facing
def bind(expr: E, binds: Mapping[Var, RelayExpr]) -> RelayExpr:
    """An expression in which variables are replaced: free ones, or parameters of a function.

    The function that is returned does not have the parameters that are replaced.

    Errors:
        MisuseError (also TypeError): `binds` is not a mapping, a key is not a variable, or a
            value is not an expression.
    """
    check_type(binds, Mapping, "expected expressions by variables")
    for var, value in binds.items():
        if not isinstance(var, Var) or not isinstance(value, RelayExpr):
            raise MisuseError(
                f"expected expressions by variables, found {var!r:.60}: {value!r:.60}", about=var
            )

    def replaced(node: Node) -> Node | None:
        return binds.get(node) if isinstance(node, Var) else None

    if isinstance(expr, Function) and any(param in binds for param in expr.params):
        body = rewrite(expr.body, replaced)
        params = tuple(param for param in expr.params if param not in binds)
        return replace(expr, params=params, body=body, checked_type_=None)
    return rewrite(expr, replaced)
