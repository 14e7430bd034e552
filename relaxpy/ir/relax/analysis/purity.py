"""The impure calls of an expression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import children, reached
from relaxpy.ir.op import Op
from relaxpy.ir.relax.block_builder.infer import is_pure_call
from relaxpy.ir.relax.expect import expect
from relaxpy.ir.relax.nodes import BaseFunc, Call, Expr, Function, GlobalVar, Var
from relaxpy.ir.relax.relations.context import Context
from relaxpy.support.entry import user_facing

_CONTEXT = Context()


@user_facing
def contains_impure_call(expr: Expr, own_name: Var | GlobalVar | None = None) -> bool:
    """Return whether `expr`, or the body of a function, contains an impure call (PU-15, PU-16).

    Calls of `own_name`, by which a recursive function refers to itself, are ignored. A call of an
    unknown callee is impure.
    """
    expect(expr, Expr)
    body = expr.body if isinstance(expr, Function) else expr
    calls = (call for call in calls_made(body) if call.op is not own_name)
    return not all(is_pure_in(call, {}) for call in calls)


def makes_impure_call(expr: Expr, functions: Mapping[str, BaseFunc] | None = None) -> bool:
    """Return whether evaluating `expr` makes an impure call; a function literal makes none (PU-15).

    A function of the module is as pure as it is declared in `functions`, or else impure.
    """
    return not all(is_pure_in(call, functions or {}) for call in calls_made(expr))


def calls_made(expr: Expr) -> Iterator[Call]:
    """The calls that the evaluation of `expr` makes, which exclude those in nested functions."""

    def operands(node: Node) -> Iterable[Node]:
        return () if node._variable or isinstance(node, Function) else children(node)

    root: Node = expr
    return (node for node in reached([root], operands) if isinstance(node, Call))


def is_pure_in(
    call: Call,
    functions: Mapping[str, BaseFunc],
    *,
    unknown: bool = False,
    context: Context = _CONTEXT,
) -> bool:
    """Return whether a call has no effect but its result, in a module with these functions.

    One of the module is as pure as it is declared. An `unknown` callee may be pure.
    """
    callee = call.op
    if isinstance(callee, GlobalVar) and callee.name_hint in functions:
        func = functions[callee.name_hint]
        return isinstance(func, Function) and func.is_pure
    if isinstance(callee, Op) or callee.struct_info is not None:
        return is_pure_call(call, context)
    return callee.is_pure if isinstance(callee, Function) else unknown
