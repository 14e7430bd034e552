"""Replaces constructors and global functions that are values by functions that call them."""

from __future__ import annotations

import typing
from dataclasses import replace

from typing_extensions import override

from relaxpy.dataclass import dataclass
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import map_children, rename, rewrite
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.transform.passes import RelayPass, map_functions
from relaxpy.ir.relay.ty import FuncType, Type, TypeVar

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

        def rewritten(function: rl.Function) -> rl.RelayExpr:
            result = rewrite(function, rule)
            assert isinstance(result, rl.RelayExpr)
            return result

        result = map_functions(typed, rewritten)
        return mod if result is typed else result


def eta_expanded(callee: rl.RelayExpr, ty: Type | None) -> rl.Function:
    """Return the function of a function type that calls an expression."""
    assert isinstance(ty, FuncType)
    fresh = {var: TypeVar(var.name_hint, var.kind) for var in ty.type_params}
    ty = rename(ty, fresh)
    params = tuple(rl.Var(f"eta{number}", arg) for number, arg in enumerate(ty.arg_types))
    call = rl.Call(callee, params, span=callee.span)
    return rl.Function(
        params,
        call,
        ty.ret_type,
        ty.type_params,
        constraints=ty.type_constraints,
        span=callee.span,
    )
