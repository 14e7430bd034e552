"""Passes that inline global functions, lift local ones, and expand functions that are values."""

from __future__ import annotations

import typing
from typing import Any

from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.core.traverse import map_children, rename, strongly_connected, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import Effects, is_atom
from relaxpy.plugins.relay.analysis.variables import all_type_vars, bound_vars, free_vars
from relaxpy.plugins.relay.infer.module import infer_module
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.normal_forms import basic_block_normal_form
from relaxpy.plugins.relay.transform.passes import (
    RelayPass,
    closed_over_types,
    is_cast,
    map_functions,
)
from relaxpy.plugins.relay.ty import FuncType, Type, TypeKind, TypeVar
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


@dataclass(frozen=True)
class LambdaLift(RelayPass):
    """Make every local function a function of the module.

    A function that captures variables becomes one that takes them and returns the rest; it has the
    attribute `Closure=1`. Functions with the attribute `Primitive` stay where they are.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        # Lets bind what functions share with their surroundings, so that it can be captured.
        effects = Effects(mod)
        bound = map_functions(mod, lambda function: basic_block_normal_form(function, effects))
        typed = infer_module(bound)
        lifter = _Lifter(typed)
        for name, function in typed.functions_by_name.items():
            lifter.lift_all(name, function)
        return lifter.result if lifter.changed else mod


class _Lifter:
    def __init__(self, module: RelayModule) -> None:
        self.result = module.clone()
        self.changed = False

    def lift_all(self, name: str, function: rl.Function) -> None:
        """Lift all functions inside a function of the module, inner ones first."""
        replaced: dict[Node, Node] = {}
        names: dict[int, rl.Var] = {}
        local: list[rl.Function] = []
        for node in walk(function):
            if isinstance(node, rl.Let) and isinstance(node.value, rl.Function):
                names[id(node.value)] = node.var
            elif isinstance(node, rl.Function) and node is not function:
                local.append(node)
        if "Closure" in function.attrs:
            local = [inner for inner in local if inner is not function.body]
        for inner in local:
            if "Primitive" not in inner.attrs:
                variable = names.get(id(inner))
                replaced[inner] = self.lifted(name, rename(inner, replaced), variable)
        if replaced:
            self.changed = True
            self.result[name] = rename(function, replaced)

    def lifted(self, owner: str, function: Node, variable: rl.Var | None) -> rl.RelayExpr:
        """Add a function to the module, and return what stands for it in its place.

        A let binds the function to `variable`, by which it may recurse.
        """
        assert isinstance(function, rl.Function)
        name = self.unique(f"{owner}_{variable.name_hint if variable is not None else 'lambda'}")
        self.result[name] = function
        callee = self.result.get_global_var(name)
        free = free_vars(function)
        captured = tuple(var for var in free if var is not variable)
        calls_itself = variable in free
        params = {var: rl.Var(var.name_hint, _type_of(var), span=var.span) for var in captured}
        place: rl.RelayExpr = rl.Call(callee, captured, span=function.span) if captured else callee
        if calls_itself and not captured:
            assert variable is not None
            function = rename(function, {variable: callee})
        elif calls_itself:
            assert variable is not None
            itself = rl.Var(variable.name_hint, span=variable.span)
            again = rl.Call(callee, captured, span=function.span)
            body = rename(function.body, {variable: itself})
            function = replace(function, body=rl.Let(itself, again, body, span=function.span))
        if captured:
            inner, taken = rename(function, params), tuple(params.values())
            ty = rl.function_type(inner)
            function = rl.Function(taken, inner, ty, attrs=Attrs({"Closure": 1}))
        self.result[name] = closed_over_types(function)
        return place

    def unique(self, name: str) -> str:
        """Return a name that no function of the module has."""
        number, result = 0, name
        while result in self.result:
            number += 1
            result = f"{name}{number}"
        return result


def _type_of(var: rl.Var) -> Type | None:
    return var.type_annotation or var.checked_type_


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
