"""Passes that inline, lift, share or remove functions and bindings, or expand functions."""

from __future__ import annotations

import typing
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core import traverse
from relaxpy.ir.core.node import Attrs, Node
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import Effects, Scope, Scopes, is_atom, same_scope, scope_roots
from relaxpy.plugins.relay.infer.whole_module import infer_module
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform import passes
from relaxpy.plugins.relay.transform.normal_forms import basic_block_normal_form
from relaxpy.plugins.relay.ty import FuncType, Type, TypeKind, TypeVar
from relaxpy.plugins.relay.variables import all_type_vars, bound_vars, free_vars
from relaxpy.support.dataclass import dataclass, replace


@dataclass(frozen=True)
class Inline(passes.RelayPass):
    """Replaces calls of the functions whose attribute `Inline` is set by their bodies.

    Lets bind the arguments, and a result whose sizes are checked or forgotten. Functions that call
    themselves, also through others, are left.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        functions = mod.functions_by_name
        graph = {name: tuple(global_names(function)) for name, function in functions.items()}
        ready: dict[str, rl.Function] = {}
        changed: dict[str, rl.Function] = {}
        for group in traverse.strongly_connected(graph):
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
    """True if the result has a `?` and a type parameter, for which calls have no let."""
    return bool(function.type_params) and passes.is_cast(
        function.ret_type, function.body.checked_type_
    )


def _called(function: rl.Function, args: tuple[rl.RelayExpr, ...]) -> rl.RelayExpr:
    """The body of a function, with fresh variables, in which parameters are arguments."""
    returned, actual = function.ret_type, function.body.checked_type_
    function = fresh(function)
    atoms = {
        param: arg
        for param, arg in zip(function.params, args, strict=True)
        if is_atom(arg) and not passes.is_cast(param.type_annotation, arg.checked_type_)
    }
    body = traverse.rename(function.body, atoms)
    if passes.is_cast(returned, actual):
        result = rl.Var("result", returned, span=body.span)
        body = rl.Let(result, body, result, span=body.span)
    for param, arg in reversed(list(zip(function.params, args, strict=True))):
        if param not in atoms:
            body = rl.Let(param, arg, body, span=arg.span)
    return body


def fresh(function: rl.Function) -> rl.Function:
    """A copy with variables of its own.

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
    inside = [
        n for n in traverse.walk(function.body) if isinstance(n, rl.RelayExpr) and not is_atom(n)
    ]
    variables = {var: renewed(var) for var in bound_vars(function)}
    params = tuple(variables[param] for param in function.params)
    body = traverse.rename(function.body, variables, inside)
    if own:
        body = rl.rewrite(body, without_types)
    return rl.Function(params, body, span=function.span)


@dataclass(frozen=True)
class LambdaLift(passes.RelayPass):
    """Makes every local function a function of the module.

    A function that captures variables becomes one that takes them and returns the rest; it has the
    attribute `Closure=1`. Functions with the attribute `Primitive` stay where they are.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        # Lets bind what functions share with their surroundings, so that it can be captured.
        effects = Effects(mod)
        bound = passes.map_functions(
            mod, lambda function: basic_block_normal_form(function, effects)
        )
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
        for node in traverse.walk(function):
            if isinstance(node, rl.Let) and isinstance(node.value, rl.Function):
                names[id(node.value)] = node.var
            elif isinstance(node, rl.Function) and node is not function:
                local.append(node)
        if "Closure" in function.attrs:
            local = [inner for inner in local if inner is not function.body]
        for inner in local:
            if "Primitive" not in inner.attrs:
                variable = names.get(id(inner))
                replaced[inner] = self.lifted(name, traverse.rename(inner, replaced), variable)
        if replaced:
            self.changed = True
            self.result[name] = traverse.rename(function, replaced)

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
            function = traverse.rename(function, {variable: callee})
        elif calls_itself:
            assert variable is not None
            itself = rl.Var(variable.name_hint, span=variable.span)
            again = rl.Call(callee, captured, span=function.span)
            body = traverse.rename(function.body, {variable: itself})
            function = replace(function, body=rl.Let(itself, again, body, span=function.span))
        if captured:
            inner, taken = traverse.rename(function, params), tuple(params.values())
            ty = rl.function_type(inner)
            function = rl.Function(taken, inner, ty, attrs=Attrs({"Closure": 1}))
        self.result[name] = passes.closed_over_types(function)
        return place

    def unique(self, name: str) -> str:
        """A name that no function of the module has."""
        number, result = 0, name
        while result in self.result:
            number += 1
            result = f"{name}{number}"
        return result


def _type_of(var: rl.Var) -> Type | None:
    return var.type_annotation or var.checked_type_


N = typing.TypeVar("N", bound=Node)


@dataclass(frozen=True)
class EtaExpand(passes.RelayPass):
    """Replaces `C` and `@f`, where they are not called, by `fn(%x) { C(%x) }`.

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
                    return traverse.map_children(expanded, node)

        result = passes.map_functions(typed, lambda function: rl.rewrite(function, rule))
        return mod if result is typed else result


def eta_expanded(callee: rl.RelayExpr, ty: Type | None) -> rl.Function:
    """The function of a function type that calls an expression."""
    assert isinstance(ty, FuncType)
    fresh = {var: TypeVar(var.name_hint, var.kind) for var in ty.type_params}
    ty = traverse.rename(ty, fresh)
    params = tuple(rl.Var(f"eta{number}", arg) for number, arg in enumerate(ty.arg_types))
    call = rl.Call(callee, params, span=callee.span)
    return rl.Function(
        params, call, ty.ret_type, ty.type_params, constraints=ty.type_constraints, span=callee.span
    )


def is_polymorphic(expr: Node) -> bool:
    """True if an expression is a function with parameters that stand for any type."""
    return isinstance(expr, rl.Function) and any(
        param.kind is TypeKind.Type for param in expr.type_params
    )


def values_expanded(function: rl.Function, module: RelayModule) -> rl.RelayExpr:
    """A function in which values that are operators or polymorphic are `fn`s."""
    polymorphic = {
        node.var
        for node in traverse.walk(function)
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
                return traverse.map_children(value, node)
            case _:
                return None

    return rl.rewrite(function, rule)


def _function_of(callee: rl.RelayExpr, count: int, attrs: Attrs) -> rl.Function:
    params = tuple(rl.Var(f"a{number}") for number in range(count))
    return rl.Function(params, rl.Call(callee, params, attrs, span=callee.span), span=callee.span)


@dataclass(frozen=True)
class DeadCodeElimination(passes.RelayPass):
    """Removes lets whose variable is not used and whose value touches no cell (RLY-108).

    The value may be one whose evaluation would fail (RLY-55, RLY-88) or not end: only the use of
    cells is an effect (RLY-1), as in TVM, so that a program may succeed that failed before.

    With `inline_once`, a variable that is used once, in the same function, is replaced by its
    value. With `ignore_impurity`, unused lets go whatever their values do.
    """

    inline_once: bool = False
    ignore_impurity: bool = False

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        effects = Effects(mod)
        return passes.map_functions(mod, lambda f: self._cleaned(f, effects.entered(f)))

    def _cleaned(self, function: rl.Function, effects: Effects) -> rl.RelayExpr:

        def is_pure(let: rl.Let) -> bool:
            return self.ignore_impurity or not effects.of(let.value)

        live, visited = _live(function, is_pure)
        calls_itself = passes.recursive_functions(function)
        once = _used_once(function, visited) if self.inline_once else set()

        def stays(let: rl.Let, _value: rl.RelayExpr) -> bool:
            if let.var not in live:
                return False
            if let.var not in once or effects.of(let.value) or calls_itself(let):
                return True
            return passes.is_cast(let.var.type_annotation, let.value.checked_type_)

        return passes.replace_lets(function, stays)


def _live(function: rl.Function, is_pure: Callable[[rl.Let], bool]) -> tuple[set[rl.Var], set[int]]:
    """The variables of lets that are needed, and the identities of the needed nodes."""
    values: dict[rl.Var, rl.RelayExpr] = {}
    live: set[rl.Var] = set()
    visited: set[int] = set()
    used: set[rl.Var] = set()
    stack: list[Node] = [function]
    while stack:
        node = stack.pop()
        if id(node) in visited or isinstance(node, (Type, rl.Constructor)):
            continue
        visited.add(id(node))
        match node:
            case rl.Let(var=var, value=value, body=body):
                values[var] = value
                stack.append(body)
                if var in used or not is_pure(node):
                    live.add(var)
                    stack.append(value)
            case rl.Var():
                used.add(node)
                if node in values and node not in live:
                    live.add(node)
                    stack.append(values[node])
            case rl.Function(body=body):
                stack.append(body)
            case _:
                stack += traverse.children(node)
    return live, visited


def _used_once(root: rl.Function, needed: set[int]) -> set[rl.Var]:
    """The variables of lets with one use, in the function in which they are bound."""
    scopes = Scopes(root)
    bodies = {id(scopes.inner[id(f)][0]) for f in scopes.nodes if isinstance(f, rl.Function)}
    functions: dict[int, Scope] = {}

    def function_of(scope: Scope) -> Scope:
        passed = []
        while id(scope) not in functions and id(scope) not in bodies and scope.parent is not None:
            passed.append(scope)
            scope = scope.parent
        result = functions.get(id(scope), scope)
        functions.update({id(inner): result for inner in passed})
        return result

    uses: dict[rl.Var, list[Scope]] = {}
    for node in scopes.nodes:
        if id(node) not in needed:
            continue
        scope = scopes.of[id(node)]
        inner = scopes.inner.get(id(node), ())
        uses_here = [(operand, scope) for operand in same_scope(node)]
        uses_here += zip(scope_roots(node), inner, strict=True)
        for operand, place in uses_here:
            if isinstance(operand, rl.Var):
                uses.setdefault(operand, []).append(place)
    return {
        let.var
        for let in scopes.lets
        if len(places := uses.get(let.var, [])) == 1
        and function_of(places[0]) is function_of(scopes.of[id(let)])
    }


@dataclass(frozen=True)
class RemoveUnusedFunctions(passes.RelayPass):
    """Removes the functions that the entry functions do not reach.

    Errors:
        MisuseError (also ValueError): the module does not have an entry function.
    """

    entry_functions: Sequence[str] = ("main",)

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        functions = mod.functions_by_name
        for name in self.entry_functions:
            if name not in functions:
                raise MisuseError(
                    f"the entry function @{name} is not in the module, "
                    f"which has {', '.join(functions) or 'no functions'}",
                    rule="RLY-95",
                    about=name,
                )
        graph = {name: global_names(f) & functions.keys() for name, f in functions.items()}
        needed = {*traverse.reached(self.entry_functions, graph.__getitem__)}
        if len(needed) == len(functions):
            return mod
        kept = {name: function for name, function in functions.items() if name in needed}
        return mod.with_fields(functions_by_name=kept)


@dataclass(frozen=True)
class EliminateCommonSubexpr(passes.RelayPass):
    """Shares the calls of operators that have the same operands and equal attributes.

    Projections and tuples of the same operands are shared too. Operators with state are not, and
    neither are expressions for which `fskip` returns True.
    """

    fskip: Callable[[rl.RelayExpr], bool] | None = None

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return passes.map_functions(mod, self._shared)

    def _shared(self, function: rl.Function) -> rl.RelayExpr:
        table: dict[Hashable, list[rl.RelayExpr]] = {}

        def rule(node: Node) -> Node | None:
            key = _key(node)
            if key is None or not isinstance(node, rl.RelayExpr):
                return None
            if self.fskip is not None and self.fskip(node):
                return None
            equals = table.setdefault(key, [])
            for known in equals:
                if not isinstance(node, rl.Call) or _same_attributes(node, known):
                    return known
            equals.append(node)
            return None

        return rl.rewrite(function, rule)


def _key(node: Node) -> Hashable:
    """The key that equal expressions have in common; None for those that are not shared.

    The expressions of the table keep their operands alive, so that identities are unique.
    """
    match node:
        case rl.Call(op=Op() as op, args=args):
            return (op.name, *map(_operand_key, args))
        case rl.TupleGetItem(tuple_value=value, index=index):
            return (index, id(value))
        case rl.Tuple(fields=fields):
            return ("tuple", *map(_operand_key, fields))
        case _:
            return None


def _operand_key(operand: rl.RelayExpr) -> Hashable:
    """The number of a scalar constant, or the identity of another operand."""
    if isinstance(operand, rl.Constant) and operand.is_scalar:
        return str(operand.data.dtype), np.asarray(operand.data).tobytes()
    return id(operand)


def _same_attributes(one: rl.Call, other: rl.RelayExpr) -> bool:
    assert isinstance(other, rl.Call)
    a, b = (rl.Call(one.op, (), call.attrs) for call in (one, other))
    return one.type_args == other.type_args and structural_equal(a, b)
