"""Copies of the functions of a module for the polymorphic functions that calls pass to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from relaxpy.dataclass import replace
from relaxpy.errors import RelayTypeError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, rename, walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.variables import free_type_vars, free_vars
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.to_relax.instances import instance_of
from relaxpy.ir.relay.transform.eta_expand import is_polymorphic
from relaxpy.ir.relay.transform.lets import closed_over_types, replace_lets, with_fresh_variables
from relaxpy.ir.relay.ty import FuncType, TypeKind

_MAX_COPIES: Final = 256
"""The number of functions that are added to a module."""


def with_known_arguments(module: RelayModule) -> tuple[RelayModule, dict[str, str]]:
    """Return a typed module whose calls pass no known polymorphic functions, and owners by name.

    `@f(@id, %x)` becomes `@f_0(%x)`, whose body is that of `@f` with `@id` for the parameter. Known
    are functions of the module, function expressions, and what lets bind to these; variables that
    such a function captures become operands of the copy. Local functions with polymorphic
    parameters become functions of the module before. The module is the given one if there are no
    such calls, or there would be too many copies.
    """
    functions = module.functions_by_name.values()
    if not any(_takes_polymorphic(node) for function in functions for node in walk(function)):
        return module, {}
    copies = _Copies(module)
    waiting = list(module.functions_by_name)
    for name in waiting:
        copies.lift(name)
    waiting += copies.owners
    while waiting:
        copies.rewrite(waiting.pop(), waiting)
        if len(copies.owners) > _MAX_COPIES:
            return module, {}
    if not copies.owners:
        return module, {}
    try:
        return infer_module(copies.module), copies.owners
    except RelayTypeError:  # the type of a captured variable is not known outside its function
        return module, {}


class _Known(NamedTuple):
    """A polymorphic function that a call passes.

    Copies of a function have the same `key`. The value is a GlobalVar, or a function that captures
    variables and calls itself by the name `itself`, if it does.
    """

    key: Hashable
    value: rl.RelayExpr
    captured: tuple[rl.Var, ...] = ()
    itself: rl.Var | None = None


class _Copies:
    """A module with copies; `owners` are the functions that new ones are parts of."""

    def __init__(self, module: RelayModule) -> None:
        self.module = module.clone()
        self.owners: dict[str, str] = {}
        self.names: dict[tuple[Hashable, ...], str] = {}
        self.keys: dict[rl.Var, Hashable] = {}

    def lift(self, name: str) -> None:
        """Make the local functions that have polymorphic parameters functions of the module.

        They are those that lets bind, and whose variables are only called.
        """
        function = _with_named_functions(self.module[name])
        captured = _captured_by_lifted(function)
        lifted = {var: rl.GlobalVar(self._free_name(name, k)) for k, var in enumerate(captured)}

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(op=rl.Var() as op, args=args) if op in lifted:
                    args = (*captured[op], *args)
                    return replace(node, op=lifted[op], args=args, type_args=())
                case rl.Let(var=var, value=rl.Function() as value, body=body) if var in lifted:
                    params = {v: _parameter(v) for v in captured[var]}
                    value = rename(with_fresh_variables(value), params)
                    value = replace(value, params=(*params.values(), *value.params))
                    self._enter(lifted[var], value, name)
                    return body
                case _:
                    return None

        if lifted:
            self.module[name] = rl.rewrite(function, rule)

    def rewrite(self, name: str, waiting: list[str]) -> None:
        """Let the calls in a function call copies; new functions are added to `waiting`."""
        function = self.module[name]
        lets = {node.var: node.value for node in walk(function) if isinstance(node, rl.Let)}

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(op=rl.GlobalVar(name_hint=callee), args=args):
                    known = self._known(self.module[callee].params, args, lets, name)
                    if not known:
                        return None
                    rest = [arg for k, arg in enumerate(args) if k not in known]
                    rest += (var for k in known for var in known[k].captured)
                    copy = self._copy(callee, node.type_args, known, waiting)
                    return replace(node, op=copy, args=tuple(rest), type_args=())
                case _:
                    return None

        result = rl.rewrite(function, rule)
        if result is not function:
            self.module[name] = result
            waiting.append(name)  # what a function captures may be polymorphic, too

    def _known(
        self,
        params: Sequence[rl.Var],
        args: Sequence[rl.RelayExpr],
        lets: Mapping[rl.Var, rl.RelayExpr],
        owner: str,
    ) -> dict[int, _Known]:
        """Return the arguments of polymorphic types that are known, by their indices."""
        found: dict[int, _Known] = {}
        for index, (param, arg) in enumerate(zip(params, args, strict=True)):
            if not _stands_for_polymorphic(param):
                continue
            name: rl.Var | None = None
            while isinstance(arg, rl.Var) and arg in lets:
                name, arg = arg, lets[arg]
            if is_polymorphic(arg):
                assert isinstance(arg, rl.Function)
                captured = tuple(var for var in free_vars(arg) if var is not name)
                if captured or name in free_vars(arg) or free_type_vars(arg):
                    key = arg if name is None else self.keys.get(name, name)
                    found[index] = _Known(key, arg, captured, name)
                    continue
                arg = self._added(with_fresh_variables(arg), owner)
            if isinstance(arg, rl.GlobalVar):
                found[index] = _Known(arg.name_hint, arg)
        return found

    def _copy(
        self,
        callee: str,
        types: tuple[Any, ...],
        known: Mapping[int, _Known],
        waiting: list[str],
    ) -> rl.GlobalVar:
        """Return the copy of a function for type arguments, as far as known, and some arguments."""
        key = callee, types, *((index, arg.key) for index, arg in known.items())
        if key not in self.names:
            function = self.module[callee]
            function = instance_of(function, types) if types else with_fresh_variables(function)
            params = [p for index, p in enumerate(function.params) if index not in known]
            lets: list[tuple[rl.Var, rl.RelayExpr]] = []
            table: dict[rl.Var, rl.RelayExpr] = {}
            for index, arg in known.items():
                param, value = function.params[index], arg.value
                if isinstance(value, rl.Function):
                    captured = {var: _parameter(var) for var in arg.captured}
                    name = rl.Var(param.name_hint, param.type_annotation, span=param.span)
                    again = {} if arg.itself is None else {arg.itself: name}
                    lets.append((name, rename(with_fresh_variables(value), captured | again)))
                    params += captured.values()
                    self.keys[name] = arg.key
                    value = name
                table[param] = value
            body = rename(function.body, table)
            for name, value in reversed(lets):
                body = rl.Let(name, value, body, span=value.span)
            copy = replace(function, params=tuple(params), body=body, checked_type_=None)
            self.names[key] = self._added(copy, callee).name_hint
            waiting.append(self.names[key])
        return self.module.get_global_var(self.names[key])

    def _added(self, function: rl.Function, owner: str) -> rl.GlobalVar:
        return self._enter(rl.GlobalVar(self._free_name(owner)), function, owner)

    def _enter(self, var: rl.GlobalVar, function: rl.Function, owner: str) -> rl.GlobalVar:
        self.owners[var.name_hint] = self.owners.get(owner, owner)
        self.module[var] = closed_over_types(replace(function, checked_type_=None))
        return var

    def _free_name(self, owner: str, after: int = 0) -> str:
        number = len(self.owners) + after
        while (name := f"{owner}_{number}") in self.module:
            number += 1
        return name


def _with_named_functions(function: rl.Function) -> rl.Function:
    """Return a function in which lets bind the functions with polymorphic parameters, once."""

    def rule(node: Node) -> Node | None:
        match node:
            case rl.Call(op=rl.Function(params=params)) if any(
                map(_stands_for_polymorphic, params)
            ):
                name = rl.Var("f", node.op.checked_type_, span=node.span)
                return rl.Let(name, node.op, replace(node, op=name), span=node.span)
            case _:
                return None

    def stays(let: rl.Let, value: rl.RelayExpr) -> bool:
        return not (isinstance(value, rl.Var) and isinstance(let.value.checked_type_, FuncType))

    named = replace_lets(rl.rewrite(function, rule), stays)
    assert isinstance(named, rl.Function)
    return named


def _captured_by_lifted(function: rl.Function) -> dict[rl.Var, tuple[rl.Var, ...]]:
    """Return the variables of the local functions that are lifted, with those they capture."""
    found: dict[rl.Var, rl.RelayExpr] = {}
    values: set[rl.Var] = set()
    for node in walk(function):
        match node:
            case rl.Let(var=var, value=value, body=body):
                operands: Iterable[Node] = (value, body)
                if _takes_polymorphic(value):
                    found[var] = value
            case rl.Call(args=args):
                operands = args
            case _:
                operands = () if isinstance(node, rl.Pattern) else children(node)
        values.update(part for part in operands if isinstance(part, rl.Var))
    lifted = {var: value for var, value in found.items() if var not in values}
    captured = {var: dict.fromkeys(free_vars(value)) for var, value in lifted.items()}
    changed = True
    while changed:
        sizes = list(map(len, captured.values()))
        for variables in captured.values():
            for inner_var in [v for v in variables if v in lifted]:
                variables.update(captured[inner_var])
        changed = sizes != list(map(len, captured.values()))
    return {var: tuple(v for v in found if v not in lifted) for var, found in captured.items()}


def _parameter(var: rl.Var) -> rl.Var:
    """Return the parameter that stands for a captured variable."""
    return rl.Var(var.name_hint, var.type_annotation or var.checked_type_, span=var.span)


def _takes_polymorphic(expr: Node) -> bool:
    """Return whether an expression is a function with a parameter of a polymorphic type."""
    return isinstance(expr, rl.Function) and any(map(_stands_for_polymorphic, expr.params))


def _stands_for_polymorphic(param: rl.Var) -> bool:
    ty = param.type_annotation
    return isinstance(ty, FuncType) and any(p.kind is TypeKind.Type for p in ty.type_params)
