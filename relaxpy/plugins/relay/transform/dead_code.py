"""Removes lets and functions that nothing uses, and shares equal expressions."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, reached
from relaxpy.ir.equality.structural import structural_equal
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import Effects, Scope, Scopes, same_scope, scope_roots
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.passes import (
    RelayPass,
    is_cast,
    map_functions,
    recursive_functions,
    replace_lets,
)
from relaxpy.plugins.relay.ty import Type
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True)
class DeadCodeElimination(RelayPass):
    """Remove lets whose variable is not used and whose value touches no cell (RLY-108).

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
        return map_functions(mod, lambda f: self._cleaned(f, effects.entered(f)))

    def _cleaned(self, function: rl.Function, effects: Effects) -> rl.RelayExpr:

        def is_pure(let: rl.Let) -> bool:
            return self.ignore_impurity or not effects.of(let.value)

        live, visited = _live(function, is_pure)
        calls_itself = recursive_functions(function)
        once = _used_once(function, visited) if self.inline_once else set()

        def stays(let: rl.Let, _value: rl.RelayExpr) -> bool:
            if let.var not in live:
                return False
            if let.var not in once or effects.of(let.value) or calls_itself(let):
                return True
            return is_cast(let.var.type_annotation, let.value.checked_type_)

        return replace_lets(function, stays)


def _live(function: rl.Function, is_pure: Callable[[rl.Let], bool]) -> tuple[set[rl.Var], set[int]]:
    """Return the variables of lets that are needed, and the identities of the needed nodes."""
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
                stack += children(node)
    return live, visited


def _used_once(root: rl.Function, needed: set[int]) -> set[rl.Var]:
    """Return the variables of lets with one use, in the function in which they are bound."""
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
class RemoveUnusedFunctions(RelayPass):
    """Remove the functions that the entry functions do not reach.

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
        needed = {*reached(self.entry_functions, graph.__getitem__)}
        if len(needed) == len(functions):
            return mod
        kept = {name: function for name, function in functions.items() if name in needed}
        return mod.with_fields(functions_by_name=kept)


@dataclass(frozen=True)
class EliminateCommonSubexpr(RelayPass):
    """Share the calls of operators that have the same operands and equal attributes.

    Projections and tuples of the same operands are shared too. Operators with state are not, and
    neither are expressions for which `fskip` returns True.
    """

    fskip: Callable[[rl.RelayExpr], bool] | None = None

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_functions(mod, self._shared)

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
    """Return what equal expressions have in common; None for those that are not shared.

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
    """Return the number of a scalar constant, or the identity of another operand."""
    if isinstance(operand, rl.Constant) and operand.is_scalar:
        return str(operand.data.dtype), np.asarray(operand.data).tobytes()
    return id(operand)


def _same_attributes(one: rl.Call, other: rl.RelayExpr) -> bool:
    assert isinstance(other, rl.Call)
    a, b = (rl.Call(one.op, (), call.attrs) for call in (one, other))
    return one.type_args == other.type_args and structural_equal(a, b)
