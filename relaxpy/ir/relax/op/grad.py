"""Operators for gradients: bounds of differentiation, and backward operators of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from relaxpy.ir.relax.nodes import Call, Expr, StructInfo, Var
from relaxpy.ir.relax.op.registry import Rows, family, register
from relaxpy.ir.relax.op.rules import refuse

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _legalize_identity(builder: BlockBuilder, call: Call) -> Expr:
    return call.args[0]


def _no_gradient(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    return [no_grad(call.args[0])]


@register("relax.grad.no_grad", pure=True, legalize=_legalize_identity, gradient=_no_gradient)
def no_grad(input: StructInfo) -> StructInfo:
    """The input, to which no gradient is propagated.

    Shapes:
        input   any
        result  as input
    """
    return input


def _checkpoint(input: StructInfo, call: Call) -> StructInfo:
    if not isinstance(call.args[0], Var):
        raise refuse("a checkpoint is a variable, found an expression", call.args[0])
    return input


def _through_checkpoint(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    return [gradient]


_DOC = """The input, a variable; {}.

Shapes:
    input   any
    result  as input
Errors:
    StructInfoError: the input is not a variable.
Rule:
    Values between the checkpoints are computed again in the backward pass instead of stored
    (Chen, Xu, Zhang & Guestrin, arXiv:1604.06174, 2016).
"""
_checkpoints = Rows(_checkpoint, _DOC, lambda name: _legalize_identity)
start_checkpoint, end_checkpoint = family(
    _checkpoints("grad.start_checkpoint", "a checkpoint begins", gradient=_through_checkpoint),
    _checkpoints("grad.end_checkpoint", "a checkpoint ends", gradient=_through_checkpoint),
).values()
