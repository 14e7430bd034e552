"""Calls that give the result of the function which makes them, so that they may be jumps."""

from __future__ import annotations

from collections.abc import Iterator

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.traverse import walk


def split_result(seq: rx.Expr) -> tuple[list[rx.Binding], rx.Expr]:
    """The bindings of a sequence up to the call or If that gives its result, and that.

    Where there is no such call or If, all bindings and the expression that is the result.
    """
    if not isinstance(seq, rx.SeqExpr):
        return [], seq
    bindings = [binding for block in seq.blocks for binding in block.bindings]
    first, found = list(bindings), seq.body
    while first and _is_plain(first[-1]) and first[-1].var is found:
        found = first.pop().value
        if isinstance(found, (rx.Call, rx.If)):
            return first, found
    return bindings, seq.body


def _is_plain(binding: rx.Binding) -> bool:
    """Whether a binding only gives its value to its variable, which outlives its block."""
    return isinstance(binding, rx.VarBinding) and not isinstance(binding.var, rx.DataflowVar)


def self_tail_calls(func: rx.Function, itself: rx.Var | rx.GlobalVar | None) -> frozenset[rx.Call]:
    """The calls by which `func` goes by the name `itself` to its own beginning.

    There are none where each path through it takes such a call, which never ends, and none where
    local functions hold on to its variables.
    """
    results = list(_results(func.body))
    calls = [r for r in results if isinstance(r, rx.Call) and _is(r.op, itself)]
    calls = [call for call in calls if len(call.args) == len(func.params)]
    if not calls or len(calls) == len(results):
        return frozenset()
    local = any(isinstance(node, rx.Function) for node in walk(func.body))
    return frozenset(() if local else calls)


def _results(seq: rx.Expr) -> Iterator[rx.Expr]:
    _, found = split_result(seq)
    if isinstance(found, rx.If):
        yield from _results(found.true_branch)
        yield from _results(found.false_branch)
    else:
        yield found


def _is(callee: object, itself: rx.Var | rx.GlobalVar | None) -> bool:
    if isinstance(itself, rx.GlobalVar):
        return isinstance(callee, rx.GlobalVar) and callee.name_hint == itself.name_hint
    return itself is not None and callee is itself
