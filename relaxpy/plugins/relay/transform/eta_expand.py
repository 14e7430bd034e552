"""Replaces constructors, operators and functions that are values by functions that call them."""

from __future__ import annotations

import typing
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import map_children, rename, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.passes import RelayPass, map_functions
from relaxpy.plugins.relay.ty import FuncType, Type, TypeKind, TypeVar
from relaxpy.support.dataclass import dataclass, replace

N = typing.TypeVar("N", bound=Node)


@dataclass(frozen=True)
class EtaExpand(RelayPass):
    """Replace `C` and `@f`, where they are not called, by `fn(%x) { C(%x) }`.

    A constructor without fields is an instance, and stays.
    """

    expand_constructor: bool = False
    expand_global_var: bool = False

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        typed = infer_module(mod)

        def expanded(node: N) -> N | rl.Function:
            match node:
                case rl.Constructor(inputs=inputs) if self.expand_constructor and inputs:
                    return eta_expanded(node, node.checked_type_)
                case rl.GlobalVar(name_hint=name) if self.expand_global_var and name in mod:
                    return eta_expanded(node, typed[name].checked_type_)
                case _:
                    return node

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(args=args):
                    new = tuple(map(expanded, args))
                    same = all(a is b for a, b in zip(new, args, strict=True))
                    return None if same else replace(node, args=new)
                case rl.PatternConstructor():
                    return None
                case _:
                    return map_children(expanded, node)

        result = map_functions(typed, lambda function: rl.rewrite(function, rule))
        return mod if result is typed else result


def eta_expanded(callee: rl.RelayExpr, ty: Type | None) -> rl.Function:
    """Return the function of a function type that calls an expression."""
    assert isinstance(ty, FuncType)
    fresh = {var: TypeVar(var.name_hint, var.kind) for var in ty.type_params}
    ty = rename(ty, fresh)
    params = tuple(rl.Var(f"eta{number}", arg) for number, arg in enumerate(ty.arg_types))
    call = rl.Call(callee, params, span=callee.span)
    return rl.Function(
        params, call, ty.ret_type, ty.type_params, constraints=ty.type_constraints, span=callee.span
    )


def is_polymorphic(expr: Node) -> bool:
    """Return whether an expression is a function with parameters that stand for any type."""
    return isinstance(expr, rl.Function) and any(
        param.kind is TypeKind.Type for param in expr.type_params
    )


def values_expanded(function: rl.Function, module: RelayModule) -> rl.RelayExpr:
    """Return a function in which values that are operators or polymorphic are `fn`s."""
    polymorphic = {
        node.var
        for node in walk(function)
        if isinstance(node, rl.Let) and is_polymorphic(node.value)
    }

    def value(node: Any) -> Any:
        match node:
            case Op(record=record) as op:
                try:
                    attrs = Attrs(record.text_attrs({}))
                except MisuseError:  # an attribute that has no default
                    return op
                return _function_of(op, len(record.operands), attrs)
            case rl.GlobalVar(name_hint=name) if name in module and is_polymorphic(module[name]):
                return _function_of(node, len(module[name].params), Attrs())
            case rl.Var() if node in polymorphic and isinstance(node.checked_type_, FuncType):
                return _function_of(node, len(node.checked_type_.arg_types), Attrs())
            case rl.Function(params=params) if is_polymorphic(node):
                return _function_of(node, len(params), Attrs())
            case _:
                return node

    def rule(node: Node) -> Node | None:
        match node:
            case rl.Call(args=args):
                new = tuple(map(value, args))
                same = all(a is b for a, b in zip(new, args, strict=True))
                return None if same else replace(node, args=new)
            case rl.Let(var=var, value=bound, body=body):
                new_value = bound if isinstance(bound, rl.Function) else value(bound)
                new_body, ty = value(body), var.type_annotation
                if new_value is not bound and isinstance(ty, FuncType) and ty.type_params:
                    new_value = eta_expanded(bound, ty)
                same = new_value is bound and new_body is body
                return None if same else replace(node, value=new_value, body=new_body)
            case rl.Function():
                new_body = value(node.body)
                return None if new_body is node.body else replace(node, body=new_body)
            case rl.Pattern():
                return None
            case rl.RelayExpr() | rl.Clause():
                return map_children(value, node)
            case _:
                return None

    return rl.rewrite(function, rule)


def _function_of(callee: rl.RelayExpr, count: int, attrs: Attrs) -> rl.Function:
    params = tuple(rl.Var(f"a{number}") for number in range(count))
    return rl.Function(params, rl.Call(callee, params, attrs, span=callee.span), span=callee.span)
