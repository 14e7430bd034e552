"""The positions that errors about operands have."""

from __future__ import annotations

from relaxpy.errors import Span
from relaxpy.ir.relay import expr as rl
from relaxpy.ir.relay.op.registry import Op


def place(expr: rl.RelayExpr, user: rl.RelayExpr | rl.Clause) -> Span | None:
    """Return the position of an operand; for a name, whose own is its definition's, of its user."""
    is_name = isinstance(expr, (rl.Var, rl.GlobalVar, rl.Constructor, Op))
    return user.span if is_name else expr.span or user.span
