"""Loops, which are functions that call themselves in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, counted
from relaxpy.ir.relay.expr import Call, Function, If, Let, RelayExpr, Tuple, Var


@user_facing
def while_loop(
    cond: Callable[..., RelayExpr],
    loop_vars: Sequence[Var],
    loop_bodies: Callable[..., Sequence[RelayExpr]],
) -> RelayExpr:
    """Return a function of the loop variables whose result is the tuple of their last values.

    `cond` returns the condition, and `loop_bodies` the next values, of expressions that stand for
    the present ones.

    Errors:
        MisuseError (also TypeError, ValueError): a loop variable is not a variable, or there is not
            one next value for each of them.
    """
    for var in loop_vars:
        if not isinstance(var, Var):
            raise MisuseError(f"a loop variable is a variable, found {var!r:.60}", about=var)
    present = [Var(var.name_hint, var.type_annotation) for var in loop_vars]
    following = tuple(loop_bodies(*present))
    if len(following) != len(present):
        raise MisuseError(
            f"the body returns {counted(len(following), 'value')} for "
            f"{counted(len(present), 'loop variable')}",
            about=following,
        )
    loop = Var("while_loop")
    again = Call(loop, following)
    return Let(loop, Function(present, If(cond(*present), again, Tuple(present))), loop)  # type: ignore[arg-type]
