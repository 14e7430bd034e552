"""Replaces calls of global functions by their bodies."""

from __future__ import annotations

from typing_extensions import override

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rename, strongly_connected, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import is_atom
from relaxpy.plugins.relay.analysis.variables import all_type_vars, bound_vars
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.transform.lets import is_cast
from relaxpy.plugins.relay.transform.passes import RelayPass
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class Inline(RelayPass):
    """Replace calls of the functions whose attribute `Inline` is set by their bodies.

    Lets bind the arguments, and a result whose sizes are checked or forgotten. Functions that call
    themselves, also through others, are left.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        functions = mod.functions_by_name
        graph = {name: tuple(global_names(function)) for name, function in functions.items()}
        ready: dict[str, rl.Function] = {}
        changed: dict[str, rl.Function] = {}
        for group in strongly_connected(graph):
            for name in group:
                new = rl.rewrite(functions[name], _Calls(ready))
                if new is not functions[name]:
                    changed[name] = new
                recursive = len(group) > 1 or name in graph[name]
                if functions[name].attrs.get("Inline") and not recursive and not _is_open(new):
                    ready[name] = new
        if not changed:
            return mod
        return mod.with_fields(functions_by_name={**functions, **changed})


class _Calls:
    """The rule that replaces calls of some functions."""

    def __init__(self, functions: dict[str, rl.Function]) -> None:
        self.functions = functions

    def __call__(self, node: Node) -> Node | None:
        match node:
            case rl.Call(op=rl.GlobalVar(name_hint=name), args=args) if name in self.functions:
                return _called(self.functions[name], args)
            case _:
                return None


def _is_open(function: rl.Function) -> bool:
    """Return whether the result has a `?` and a type parameter, for which calls have no let."""
    return bool(function.type_params) and is_cast(function.ret_type, function.body.checked_type_)


def _called(function: rl.Function, args: tuple[rl.RelayExpr, ...]) -> rl.RelayExpr:
    """Return the body of a function, with fresh variables, in which parameters are arguments."""
    returned, actual = function.ret_type, function.body.checked_type_
    function = fresh(function)
    atoms = {
        param: arg
        for param, arg in zip(function.params, args, strict=True)
        if is_atom(arg) and not is_cast(param.type_annotation, arg.checked_type_)
    }
    body = rename(function.body, atoms)
    if is_cast(returned, actual):
        result = rl.Var("result", returned, span=body.span)
        body = rl.Let(result, body, result, span=body.span)
    for param, arg in reversed(list(zip(function.params, args, strict=True))):
        if param not in atoms:
            body = rl.Let(param, arg, body, span=arg.span)
    return body


def fresh(function: rl.Function) -> rl.Function:
    """Return a copy with variables of its own.

    The types that mention type parameters of the function are left to inference, which finds them
    from the arguments of each call.
    """
    own = set(function.type_params)

    def mentions(item: object) -> bool:
        return isinstance(item, Node) and not own.isdisjoint(all_type_vars(item))

    def without_types(node: Node) -> Node | None:
        match node:
            case rl.Function(ret_type=ty) if node is not function and mentions(ty):
                return replace(node, ret_type=None)
            case rl.Call(type_args=types) if any(map(mentions, types)):
                return replace(node, type_args=())
            case _:
                return None

    def renewed(var: rl.Var) -> rl.Var:
        kept = not mentions(var.type_annotation)
        return rl.Var(var.name_hint, var.type_annotation if kept else None, span=var.span)

    # Shared expressions are evaluated once, and each call evaluates the whole body.
    inside = [n for n in walk(function.body) if isinstance(n, rl.RelayExpr) and not is_atom(n)]
    variables = {var: renewed(var) for var in bound_vars(function)}
    params = tuple(variables[param] for param in function.params)
    body = rename(function.body, variables, inside)
    if own:
        body = rl.rewrite(body, without_types)
    return rl.Function(params, body, span=function.span)
