"""Replaces variables of lets by their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, map_children, rename, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import is_atom
from relaxpy.plugins.relay.analysis.variables import (
    bound_vars,
    free_type_vars,
    free_vars_of_functions,
)
from relaxpy.plugins.relay.ty import Type, TypeVar, UnknownDim
from relaxpy.support.dataclass import replace


def recursive_functions(root: rl.RelayExpr) -> Callable[[rl.Let], bool]:
    """Return whether a let in an expression binds a function that mentions its own variable."""
    free = free_vars_of_functions(root)
    return lambda let: let.var in free.get(id(let.value), ())


def is_cast(annotation: Type | None, actual: Type | None) -> bool:
    """Return whether a variable has another type than the value that it is bound to.

    One of them has `?` where the other has a size (RLY-88): the size is checked, or forgotten.
    """
    if annotation is None or actual is None or annotation is actual:
        return False
    is_open = any(isinstance(part, UnknownDim) for ty in (annotation, actual) for part in walk(ty))
    return is_open and annotation != actual


def with_fresh_variables(function: rl.Function) -> rl.Function:
    """Return a copy of a function that shares neither variables nor other expressions with it."""
    variables = {
        var: rl.Var(var.name_hint, var.type_annotation, span=var.span)
        for var in bound_vars(function)
    }
    inside = [n for n in walk(function) if isinstance(n, rl.RelayExpr) and not is_atom(n)]
    return rename(function, variables, inside)


def closed_over_types(function: rl.Function) -> rl.Function:
    """Return a function whose first type parameters are those that were free in it."""
    types = {var: TypeVar(var.name_hint, var.kind) for var in free_type_vars(function)}
    if not types:
        return function
    params = (*types.values(), *function.type_params)
    return replace(rename(function, types), type_params=params)


def replace_lets(
    expr: rl.RelayExpr,
    stays: Callable[[rl.Let, rl.RelayExpr], bool],
    rule: Callable[[Node], Node | None] = lambda node: None,
) -> rl.RelayExpr:
    """Return an expression without the lets that do not stay; shared nodes stay shared.

    `stays` receives a let and its new value. `rule` is applied once to each other expression,
    children first, after the variables in it were replaced; None leaves it unchanged.
    """
    done: dict[int, Any] = {}
    replaced: set[rl.Var] = set()
    # A let is visited before its value, before its body, and after both; other nodes twice.
    stack: list[tuple[Node, int]] = [(expr, 0)]
    while stack:
        node, visit = stack.pop()
        if id(node) in done:
            continue
        if isinstance(node, rl.Var):
            done[id(node)] = node  # it has another value from its let on
        elif isinstance(node, (Type, rl.Constructor)):
            done[id(node)] = node
        elif isinstance(node, rl.Let):
            if visit == 0:
                stack += [(node, 1), (node.value, 0)]
            elif visit == 1:
                value = done[id(node.value)]
                if not stays(node, value):
                    replaced.add(node.var)
                    done[id(node.var)] = value
                stack += [(node, 2), (node.body, 0)]
            else:
                done[id(node)] = _rebuilt(node, done, replaced=node.var in replaced)
        elif visit == 0:
            stack.append((node, 1))
            stack += [(c, 0) for c in reversed(list(children(node))) if id(c) not in done]
        else:
            rebuilt = map_children(lambda child: done.get(id(child), child), node)
            result = rule(rebuilt)
            done[id(node)] = rebuilt if result is None else result
    new: rl.RelayExpr = done[id(expr)]
    return new


def _rebuilt(let: rl.Let, done: dict[int, Any], *, replaced: bool) -> rl.RelayExpr:
    value, body = done[id(let.value)], done[id(let.body)]
    if replaced:
        return body  # type: ignore[no-any-return]
    same = value is let.value and body is let.body
    return let if same else rl.Let(let.var, value, body, span=let.span)
