"""Tail calls: the recursive calls of functions that become loops or jumps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import TypeAlias

from relaxpy.exec.runtime.checks import declared_result
from relaxpy.ir.core.traverse import occurrences, strongly_connected, walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.support.dataclass import dataclass

FunctionKey: TypeAlias = tuple[str, rx.Var | None]
"""The name of a global function, and the variable of a local function in it or None."""


def split_result(seq: rx.Expr) -> tuple[list[rx.Binding], rx.Expr]:
    """The call or If that computes the result of a sequence, and the bindings before it.

    If there is none, all bindings and the expression of the result.
    """
    if not isinstance(seq, rx.SeqExpr):
        return [], seq
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    before, result = list(bindings), seq.body
    while before and _is_plain(before[-1]) and before[-1].var is result:
        result = before.pop().value
        if isinstance(result, (rx.Call, rx.If)):
            return before, result
    return bindings, seq.body


def calls_itself_last(func: rx.Function, name: rx.Var) -> bool:
    """True if all calls of a local function in itself compute its result."""
    calls = (*occurrences(func.body, rx.Call),)
    return {call for call in calls if call.op is name} <= {*_results(func.body)}


def _is_plain(binding: rx.Binding) -> bool:
    """True if a binding has no check, and its variable is visible after its block."""
    return isinstance(binding, rx.VarBinding) and not isinstance(binding.var, rx.DataflowVar)


@dataclass(frozen=True, slots=True)
class Jumps:
    """The tail calls of one function that are eliminated.

    They jump to the start of the function or, if `by_steps`, return to a trampoline that makes the
    call.
    """

    calls: frozenset[rx.Call] = frozenset()
    by_steps: bool = False


def find_jumps(functions: Mapping[str, rx.Function]) -> dict[FunctionKey, Jumps]:
    """The recursive tail calls of the functions of a module, local functions included.

    A function that calls itself becomes a loop, unless it defines functions, which capture the
    variables of their iteration. Infinite recursion, which no path leaves, has no jumps.
    """
    members: dict[FunctionKey, rx.Function] = {}
    for name, func in functions.items():
        members[name, None] = func
        members |= {(name, var): inner for var, inner in _local_functions(func.body)}
    results = {key: list(_results(func.body)) for key, func in members.items()}
    callees = {key: [_callee(r, key[0], members) for r in results[key]] for key in members}
    graph = {key: [c for c in callees[key] if c is not None] for key in members}
    jumps = {}
    for group in map(frozenset, strongly_connected(graph)):
        if all(callee in group for key in group for callee in callees[key]):
            continue
        for key in group:
            pairs = zip(results[key], callees[key], strict=True)
            calls = frozenset(r for r, c in pairs if c in group and isinstance(r, rx.Call))
            if calls:
                by_steps = len(group) > 1 or _defines_functions(members[key])
                jumps[key] = Jumps(calls, by_steps)
    return jumps


def _callee(
    result: rx.Expr, name: str, members: Mapping[FunctionKey, rx.Function]
) -> FunctionKey | None:
    """The function of the module that `result`, in the function `name`, calls."""
    if not isinstance(result, rx.Call) or declared_result(result) is not None:
        return None
    match result.op:
        case rx.GlobalVar(name_hint=other):
            key: FunctionKey = (other, None)
        case rx.Var() as var:
            key = (name, var)
        case _:
            return None
    func = members.get(key)
    return key if func is not None and len(func.params) == len(result.args) else None


def _local_functions(expr: rx.Expr) -> Iterator[tuple[rx.Var, rx.Function]]:
    """The functions defined in `expr`, at any depth, with their variables."""
    match expr:
        case rx.SeqExpr(blocks=blocks):
            for binding in chain.from_iterable(block.bindings for block in blocks):
                if binding.var is not None and isinstance(binding.value, rx.Function):
                    yield binding.var, binding.value
                yield from _local_functions(binding.value)
        case rx.If(true_branch=yes, false_branch=no):
            yield from _local_functions(yes)
            yield from _local_functions(no)
        case rx.Function(body=body):
            yield from _local_functions(body)
        case _:
            pass


def _defines_functions(func: rx.Function) -> bool:
    return any(isinstance(node, rx.Function) for node in walk(func.body))


def _results(seq: rx.Expr) -> Iterator[rx.Expr]:
    _, result = split_result(seq)
    if isinstance(result, rx.If):
        yield from _results(result.true_branch)
        yield from _results(result.false_branch)
    else:
        yield result
