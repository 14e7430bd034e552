"""Evaluates the calls of operators whose operands are constants."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import RelaxpyError
from relaxpy.ir import hooks
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import preorder
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.analysis.scopes import is_atom
from relaxpy.plugins.relay.module import RelayModule
from relaxpy.plugins.relay.op.registry import Op
from relaxpy.plugins.relay.transform.lets import replace_lets
from relaxpy.plugins.relay.transform.passes import RelayPass, map_typed
from relaxpy.plugins.relay.ty import TupleType
from relaxpy.support.dataclass import dataclass

MAX_BYTES = 1 << 20
"""The largest tensor that a call is replaced by, unless its operands are larger."""


@dataclass(frozen=True)
class FoldConstant(RelayPass):
    """Replace calls of operators on constants by their values, and branches that are known.

    A call stays if it has no operand, as that of `zeros`, if it has state, if its evaluation
    fails, if its value has a more precise type, or if it takes more than 1 MiB and more memory
    than the operands.
    """

    @override
    def apply(self, mod: RelayModule) -> RelayModule:
        return map_typed(mod, lambda function: replace_lets(function, _stays, _folded))


def _stays(let: rl.Let, value: rl.RelayExpr) -> bool:
    annotation = let.var.type_annotation
    return not _is_constant(value) or annotation not in (None, value.checked_type_)


def _is_constant(expr: rl.RelayExpr) -> bool:
    """Return whether an expression is a constant, or a tuple of constants, however deep."""
    parts = preorder([expr], lambda part: part.fields if isinstance(part, rl.Tuple) else ())
    return all(isinstance(part, (rl.Tuple, rl.Constant)) for part in parts)


def _folded(node: Node) -> Node | None:
    match node:
        case rl.Call():
            return evaluated_call(node)
        case rl.TupleGetItem(tuple_value=rl.Tuple(fields=fields), index=index):
            known = all(is_atom(field) or _is_constant(field) for field in fields)
            return fields[index] if known and index < len(fields) else None
        case rl.If(cond=rl.Constant(data=data), true_branch=true, false_branch=false):
            return true if data else false
        case _:
            return None


def evaluated_call(call: rl.Call) -> rl.RelayExpr | None:
    """Return the value of a call of an operator on constants; None if it stays a call."""
    op = call.op
    if not isinstance(op, Op) or not call.args:
        return None
    if not all(map(_is_constant, call.args)):
        return None
    values = [_value(arg) for arg in call.args]
    try:
        result = hooks.call("relay_operator", op, values, call.attrs, call.checked_type_)
    except RelaxpyError:
        return None  # it fails when the program runs
    if _bytes(result) > max(MAX_BYTES, sum(map(_bytes, values))):
        return None
    folded = _expression(result)
    return folded if folded.checked_type_ == call.checked_type_ else None


def _value(expr: rl.RelayExpr) -> Any:
    if isinstance(expr, rl.Tuple):
        return tuple(map(_value, expr.fields))
    assert isinstance(expr, rl.Constant)
    return expr.data


def _expression(value: Any) -> rl.RelayExpr:
    if isinstance(value, tuple):
        fields = tuple(map(_expression, value))
        types = tuple(field.checked_type for field in fields)
        return rl.Tuple(fields, checked_type_=TupleType(types))
    return rl.Constant(np.asarray(value))


def _bytes(value: Any) -> int:
    return sum(map(_bytes, value)) if isinstance(value, tuple) else np.asarray(value).nbytes
