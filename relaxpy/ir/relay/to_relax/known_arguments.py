"""Copies of the functions of a module for the polymorphic functions that calls pass to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rename, rewrite, walk
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.analysis.variables import free_type_vars, free_vars
from relaxpy.ir.relay.infer.module import infer_module
from relaxpy.ir.relay.module import RelayModule
from relaxpy.ir.relay.transform.eta_expand import is_polymorphic
from relaxpy.ir.relay.transform.lets import with_fresh_variables
from relaxpy.ir.relay.ty import FuncType, TypeKind

_MAX_COPIES: Final = 256
"""The number of functions that are added to a module."""
_Key = tuple[str, tuple[tuple[int, str], ...]]
"""The name of a function, and those of the arguments at some indices."""


def with_known_arguments(module: RelayModule) -> tuple[RelayModule, dict[str, str]]:
    """Return a typed module whose calls pass no known polymorphic functions, and owners by name.

    `@f(@id, %x)` becomes `@f_0(%x)`, whose body is that of `@f` with `@id` for the parameter. Known
    are functions of the module, functions without free variables, and what lets bind to these. The
    module is the given one if there are no such calls, or there would be too many copies.
    """
    params = (p for function in module.functions_by_name.values() for p in function.params)
    if not any(map(_stands_for_polymorphic, params)):
        return module, {}
    copies = _Copies(module)
    waiting = list(module.functions_by_name)
    while waiting:
        copies.rewrite(waiting.pop(), waiting)
        if len(copies.owners) > _MAX_COPIES:
            return module, {}
    return (infer_module(copies.module) if copies.owners else module), copies.owners


class _Copies:
    """A module with copies; `owners` are the functions that new ones are parts of."""

    def __init__(self, module: RelayModule) -> None:
        self.module = module.clone()
        self.owners: dict[str, str] = {}
        self.names: dict[_Key, str] = {}

    def rewrite(self, name: str, waiting: list[str]) -> None:
        """Let the calls in a function call copies; new functions are added to `waiting`."""
        function = self.module[name]
        lets = {node.var: node.value for node in walk(function) if isinstance(node, rl.Let)}

        def rule(node: Node) -> Node | None:
            match node:
                case rl.Call(op=rl.GlobalVar(name_hint=callee)):
                    params = self.module[callee].params
                    known = self._known(params, node.args, lets, name)
                    if not known:
                        return None
                    rest = tuple(arg for k, arg in enumerate(node.args) if k not in known)
                    return replace(node, op=self._copy(callee, known, waiting), args=rest)
                case _:
                    return None

        result = rewrite(function, rule)
        assert isinstance(result, rl.Function)
        if result is not function:
            self.module[name] = result

    def _known(
        self,
        params: Sequence[rl.Var],
        args: Sequence[rl.RelayExpr],
        lets: Mapping[rl.Var, rl.RelayExpr],
        owner: str,
    ) -> dict[int, rl.GlobalVar]:
        """Return the arguments of polymorphic types that are known, by their indices."""
        found: dict[int, rl.GlobalVar] = {}
        for index, (param, arg) in enumerate(zip(params, args, strict=True)):
            if not _stands_for_polymorphic(param):
                continue
            while isinstance(arg, rl.Var) and arg in lets:
                arg = lets[arg]
            if is_polymorphic(arg) and not free_vars(arg) and not free_type_vars(arg):
                assert isinstance(arg, rl.Function)
                arg = self._added(with_fresh_variables(arg), owner)
            if isinstance(arg, rl.GlobalVar):
                found[index] = arg
        return found

    def _copy(
        self, callee: str, known: Mapping[int, rl.GlobalVar], waiting: list[str]
    ) -> rl.GlobalVar:
        """Return the copy of a function for some arguments."""
        key = callee, tuple((index, arg.name_hint) for index, arg in known.items())
        if key not in self.names:
            function = with_fresh_variables(self.module[callee])
            table = {function.params[index]: arg for index, arg in known.items()}
            rest = tuple(p for p in function.params if p not in table)
            body = rename(function.body, table)
            copy = replace(function, params=rest, body=body, checked_type_=None)
            self.names[key] = self._added(copy, callee).name_hint
            waiting.append(self.names[key])
        return self.module.get_global_var(self.names[key])

    def _added(self, function: rl.Function, owner: str) -> rl.GlobalVar:
        number = len(self.owners)
        while (name := f"{owner}_{number}") in self.module:
            number += 1
        self.owners[name] = self.owners.get(owner, owner)
        self.module[name] = function
        return self.module.get_global_var(name)


def _stands_for_polymorphic(param: rl.Var) -> bool:
    ty = param.type_annotation
    return isinstance(ty, FuncType) and any(p.kind is TypeKind.Type for p in ty.type_params)
