"""The positions and the names in errors about operands and callees."""

from __future__ import annotations

from relaxpy.errors import Span
from relaxpy.plugins.relay import expr as rl
from relaxpy.plugins.relay.op.registry import Op


def place(expr: rl.RelayExpr, user: rl.RelayExpr | rl.Clause) -> Span | None:
    """Return the position of an operand; for a name, whose own is its definition's, of its user."""
    is_name = isinstance(expr, (rl.Var, rl.GlobalVar, rl.Constructor, Op))
    return user.span if is_name else expr.span or user.span


def callee_text(callee: rl.RelayExpr) -> str:
    """Return the name of a callee in messages."""
    match callee:
        case rl.GlobalVar(name_hint=name):
            return f"@{name}"
        case rl.Var(name_hint=name):
            return f"%{name}"
        case rl.Constructor(name_hint=name):
            return name
        case _:
            return "the function"
