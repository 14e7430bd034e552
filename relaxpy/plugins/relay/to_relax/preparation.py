"""Rewrites Relay functions so that they have translations: instances of polymorphic ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from relaxpy.errors import RelayTypeError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rename, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.transform.eta_expand import is_polymorphic, values_expanded
from relaxpy.plugins.relay.transform.fuse_ops import defused
from relaxpy.plugins.relay.transform.lets import with_fresh_variables
from relaxpy.plugins.relay.transform.passes import map_functions
from relaxpy.plugins.relay.ty import Type, TypeKind
from relaxpy.support.dataclass import replace

_MAX_INSTANCES: Final = 4096
"""The number of instances of local functions in a function."""


def prepared(module: RelayModule) -> RelayModule:
    """Return a typed module for translation.

    Operators and polymorphic functions that are values become functions that call them. Local
    polymorphic functions are replaced by their instances.
    """
    result = _inferred(module, defused)
    with suppress(RelayTypeError):  # the use of a value does not say its whole type
        result = _inferred(result, partial(values_expanded, module=result))
    return _inferred(result, _specialised)


def _inferred(module: RelayModule, transform: Callable[[rl.Function], rl.RelayExpr]) -> RelayModule:
    """Return the typed module of transformed functions; the given one if none changed."""
    new = map_functions(module, transform)
    return module if new is module else infer_module(new)


# Instances of local functions


def _specialised(function: rl.Function) -> rl.RelayExpr:
    """Return a function in which calls of local polymorphic functions call instances of these.

    It is the function itself if there are none, or none whose types are known.
    """

    def rule(node: Node) -> Node | None:
        match node:
            case rl.Call(op=rl.Function() as callee) if is_polymorphic(callee) and node.type_args:
                instance = instance_of(callee, node.type_args)
                return replace(node, op=instance, type_args=other_type_args(callee, node.type_args))
            case _:
                return None

    return _Specialisation(rl.rewrite(function, rule)).result()


class _Specialisation:
    """The instances of the polymorphic functions that lets bind in a function.

    Each has its own let, instead of that of the polymorphic function. Its body is a copy, in which
    calls demand instances of other functions.
    """

    def __init__(self, function: rl.Function) -> None:
        self.function = function
        self.templates: dict[rl.Var, rl.Function] = {}
        self.names: dict[rl.Var, dict[tuple[Any, ...], rl.Var]] = {}
        self.instances: dict[rl.Var, rl.RelayExpr] = {}

    def result(self) -> rl.RelayExpr:
        """Return the function with the instances; itself if there are none, or too many."""
        waiting: list[rl.RelayExpr] = [self.function]
        while waiting:
            for var, args in self._demanded(waiting.pop()):
                names, template = self.names[var], self.templates[var]
                if args in names or args in ((), template.type_params):  # or it calls itself
                    continue
                if len(self.instances) == _MAX_INSTANCES:
                    return self.function
                name = names[args] = rl.Var(f"{var.name_hint}_{len(names)}", span=var.span)
                instance = instance_of(rename(template, {var: name}), args)
                self.instances[name] = _without_type_args(instance, name)
                waiting.append(self.instances[name])
        if not self.templates:
            return self.function
        for name, body in reversed(list(self.instances.items())):  # instances inside others first
            self.instances[name] = self._rewritten(body)
        return self._rewritten(self.function)

    def _demanded(self, root: rl.RelayExpr) -> list[tuple[rl.Var, tuple[Any, ...]]]:
        """Return the callees and type arguments of calls in `root`, outside polymorphic functions.

        There are none if one of these functions is not translated: it is not bound by a let, calls
        itself with other types, or is used as a value.
        """
        found: dict[rl.Var, rl.Function] = {}
        uses: list[rl.Var] = []
        calls: list[rl.Var] = []
        closures = 0
        for node in walk(root):
            closures += node is not self.function and is_polymorphic(node)
            uses += (part for part in children(node) if isinstance(part, rl.Var))
            if isinstance(node, rl.Call) and isinstance(node.op, rl.Var):
                calls.append(node.op)
            elif isinstance(node, rl.Let) and is_polymorphic(node.value):
                assert isinstance(node.value, rl.Function)
                found[node.var] = node.value
                calls.append(node.var)
        as_values = Counter(uses) - Counter(calls)
        if closures > len(found) or any(var in as_values for var in found):
            return []
        if any(map(_is_polymorphic_recursion, found, found.values())):
            return []
        self.templates |= found
        self.names |= {var: {} for var in found}
        templates = set(map(id, found.values()))
        demanded: list[tuple[rl.Var, tuple[Any, ...]]] = []
        visited: set[int] = set()
        stack: list[Node] = [root]
        while stack:
            node = stack.pop()
            if id(node) in visited or id(node) in templates or isinstance(node, Type):
                continue
            visited.add(id(node))
            if isinstance(node, rl.Call) and node.op in self.templates:
                demanded.append((node.op, node.type_args))
            stack += children(node)
        return demanded

    def _rewritten(self, expr: rl.RelayExpr) -> rl.RelayExpr:
        """Return an expression that binds and calls instances."""

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(op=rl.Var() as op, type_args=args) if op in self.names:
                    name = self.names[op].get(args)
                    others = other_type_args(self.templates[op], args) if name is not None else ()
                    return None if name is None else replace(node, op=name, type_args=others)
                case rl.Let(var=var, body=body) if var in self.names:
                    for name in reversed(self.names[var].values()):
                        body = rl.Let(name, self.instances[name], body, span=node.span)
                    return body
                case _:
                    return None

        return rl.rewrite(expr, rule)


def _is_polymorphic_recursion(var: rl.Var, function: rl.Function) -> bool:
    """Return whether a function calls itself with other type arguments than its parameters."""
    return any(
        isinstance(node, rl.Call)
        and node.op is var
        and node.type_args not in ((), function.type_params)
        for node in walk(function)
    )


def _without_type_args(function: rl.Function, var: rl.Var) -> rl.RelayExpr:
    """Return an instance whose calls of itself have no type arguments any more."""

    def rule(node: Node) -> Node | None:
        is_call = isinstance(node, rl.Call) and node.op is var
        return replace(node, type_args=()) if is_call else None  # type: ignore[type-var]

    return rl.rewrite(function, rule)


def instance_of(function: rl.Function, args: tuple[Any, ...]) -> rl.Function:
    """Return a copy of a function, with variables of its own, for these type arguments."""
    types: dict[Node, Node] = {
        param: arg
        for param, arg in zip(function.type_params, args, strict=True)
        if param.kind is TypeKind.Type
    }
    rest = tuple(param for param in function.type_params if param not in types)
    mono = rename(replace(function, type_params=rest, checked_type_=None), types)
    return with_fresh_variables(mono)


def other_type_args(function: rl.Function, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of the type parameters that an instance still has."""
    pairs = zip(function.type_params, args, strict=True)
    return tuple(arg for param, arg in pairs if param.kind is not TypeKind.Type)
