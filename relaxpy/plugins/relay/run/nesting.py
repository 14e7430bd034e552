"""The functions of Relay that may nest calls more deeply than Python's stack allows."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import Final

from relaxpy.ir.core.traverse import children, strongly_connected, walk
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis import Scopes, same_scope, scope_roots
from relaxpy.plugins.relay.module import RelayModule, global_names
from relaxpy.plugins.relay.ty import FuncType, Type

MAX_CHAIN: Final = 100
"""The number of compiled functions, or of closures in one, that call each other in a chain."""


def nesting_functions(module: RelayModule) -> set[str]:
    """The functions in which calls may nest more deeply than Python's stack allows.

    They call themselves, directly or through others, other than in the last place of their body,
    contain a local function that does, are the first of a long chain of functions, contain a long
    chain of closures, or refer to such a function. Compiled code has only the stack of Python for
    this.
    """
    functions = module.functions_by_name
    graph = {name: tuple(global_names(function)) for name, function in functions.items()}
    found: set[str] = set()
    depths: dict[str, int] = {}
    for group in strongly_connected(graph):  # callees first
        callees = set(group)
        depth = 1 + max(
            (depths.get(called, 0) for name in group for called in graph[name]), default=0
        )
        depths |= dict.fromkeys(group, depth)
        if depth > MAX_CHAIN or any(
            _nests(functions[name], callees)
            or _has_nesting_closure(functions[name])
            or _chain_of_closures(functions[name]) > MAX_CHAIN
            or found & set(graph[name])
            for name in group
        ):
            found |= callees
    return found


def _has_nesting_closure(function: rl.Function) -> bool:
    return any(
        isinstance(node, rl.Let)
        and isinstance(node.value, rl.Function)
        and _nests(node.value, {node.var})
        for node in walk(function)
    )


def _chain_of_closures(function: rl.Function) -> int:
    """The number of closures of a function that may call each other in a chain.

    A `fn`, and what a call returns, may call all functions that are mentioned in it.
    """
    scopes = Scopes(function)
    values = {let.var: let.value for let in scopes.lets}
    chains: dict[int, int] = {}

    def chain(operand: rl.RelayExpr) -> int:
        while isinstance(operand, rl.Var) and operand in values:
            if not _has_functions(operand.type_annotation or values[operand].checked_type_):
                return 0
            operand = values[operand]
        return chains.get(id(operand), 0)

    for node in scopes.nodes:
        longest = max(map(chain, (*same_scope(node), *scope_roots(node))), default=0)
        is_new = isinstance(node, (rl.Function, rl.Call)) and _has_functions(node.checked_type_)
        chains[id(node)] = longest + is_new
    return max(chains.values())


def _has_functions(ty: Type | None) -> bool:
    return ty is not None and any(isinstance(part, FuncType) for part in walk(ty))


def _nests(function: rl.Function, callees: Set[object]) -> bool:
    """True if a function uses variables or globals other than for calls in the last place.

    `callees` are variables, and names of global functions.
    """
    calls = {id(node) for node in _last(function.body) if isinstance(node, rl.Call)}
    for node in walk(function):
        operands = node.args if isinstance(node, rl.Call) and id(node) in calls else children(node)
        for operand in operands:
            known = operand.name_hint if isinstance(operand, rl.GlobalVar) else operand
            if known in callees:
                return True
    return False


def _last(root: rl.RelayExpr) -> Iterator[rl.RelayExpr]:
    """Visit the expressions whose value is that of the body they stand in."""
    stack = [root]
    while stack:
        node = stack.pop()
        match node:
            case rl.Let(body=body):
                stack.append(body)
            case rl.If() | rl.Match():
                stack += scope_roots(node)
            case _:
                yield node
