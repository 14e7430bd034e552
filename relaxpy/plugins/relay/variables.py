"""Free and bound variables and type parameters, in the order of their first occurrence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, preorder
from relaxpy.plugins.relay.expr import Constructor, Function, Let, PatternVar, Var
from relaxpy.plugins.relay.ty import FuncType, Type, TypeData, TypeVar


def free_vars(expr: Node) -> list[Var]:
    """The variables that an expression uses and does not bind."""
    bound = set(bound_vars(expr))
    return [var for var in _variables(expr) if var not in bound]


class _Owner:
    """The free variables of a function, and the enclosing function."""

    __slots__ = ("free", "parent")

    def __init__(self, parent: _Owner | None) -> None:
        self.parent = parent
        self.free: dict[Var, None] = {}


def free_vars_of_functions(root: Node) -> dict[int, dict[Var, None]]:
    """The free variables of all functions in an expression, by identity, in linear time.

    Functions do not share expressions in which a variable of one of them is free.
    """
    owners: dict[int, _Owner] = {}
    binders: dict[Var, _Owner | None] = {}
    visited: set[int] = set()
    stack: list[tuple[Node, _Owner | None]] = [(root, None)]
    while stack:
        node, owner = stack.pop()
        if isinstance(node, Var):
            while owner is not None and binders.get(node) is not owner and node not in owner.free:
                owner.free[node] = None
                owner = owner.parent
            continue
        if id(node) in visited or isinstance(node, (Type, Constructor)):
            continue
        visited.add(id(node))
        match node:
            case Function(params=params, body=body):
                inner = owners[id(node)] = _Owner(owner)
                binders.update(dict.fromkeys(params, inner))
                stack.append((body, inner))
            case Let(var=var, value=value, body=body):
                binders[var] = owner
                stack += ((body, owner), (value, owner))
            case PatternVar(var=var):
                binders[var] = owner
            case _:
                stack += reversed([(child, owner) for child in children(node)])
    return {key: owner.free for key, owner in owners.items()}


def bound_vars(expr: Node) -> list[Var]:
    """The variables that parameters, lets and patterns in an expression bind."""
    bound: dict[Var, None] = {}
    for node in _nodes(expr):
        match node:
            case Function(params=params):
                bound.update(dict.fromkeys(params))
            case Let(var=var) | PatternVar(var=var):
                bound[var] = None
            case _:
                pass
    return list(bound)


def all_vars(expr: Node) -> list[Var]:
    """All variables in an expression."""
    return _variables(expr)


def free_type_vars(node: Node) -> list[TypeVar]:
    """The type parameters that an expression or a type uses and does not bind."""
    bound = set(bound_type_vars(node))
    return [var for var in all_type_vars(node) if var not in bound]


def bound_type_vars(node: Node) -> list[TypeVar]:
    """The type parameters that functions, function types and data types bind."""
    bound: dict[TypeVar, None] = {}
    for part in _nodes(node):
        match part:
            case Function(type_params=params) | FuncType(type_params=params):
                bound.update(dict.fromkeys(params))
            case TypeData(type_vars=params):
                bound.update(dict.fromkeys(params))
            case _:
                pass
    return list(bound)


def all_type_vars(node: Node) -> list[TypeVar]:
    """All type parameters in an expression or a type."""
    return list(dict.fromkeys(part for part in _nodes(node) if isinstance(part, TypeVar)))


def _variables(expr: Node) -> list[Var]:
    return list(dict.fromkeys(node for node in _nodes(expr) if isinstance(node, Var)))


def _nodes(root: Node) -> Iterator[Node]:
    """Visit the nodes under `root` in pre-order, and enter each once.

    They are told apart by identity, since types are compared, and hashed, by their structure.
    """
    entered: set[int] = set()

    def below(node: Node) -> Iterable[Node]:
        if id(node) in entered:
            return ()
        entered.add(id(node))
        return children(node)

    return preorder([root], below)
