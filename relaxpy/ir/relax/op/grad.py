"""Operators for gradients: bounds of differentiation, and backward operators of others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxpy.ir.relax.nodes import Call, Expr, StructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition.registry import R, Rows, family, register
from relaxpy.ir.relax.op.definition.rules import by_te, normal_axis, refuse, require_integer
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor

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


def _take_grad(output_grad: Tensor, x: Tensor, indices: Tensor, axis: int | None) -> Tensor:
    return topi.take_grad(output_grad, x, indices, axis)


def _gradient_take_backward(
    var: Var, call: Call, gradient: Expr, builder: BlockBuilder
) -> list[Expr]:
    _, x, indices = call.args
    taken = R.take(gradient, indices, call.attrs["axis"])
    return [taken, no_grad(x), no_grad(indices)]


@register(
    "relax.grad.take_backward",
    pure=True,
    legalize=by_te(_take_grad, "take_backward"),
    gradient=_gradient_take_backward,
)
def take_backward(
    output_grad: TensorStructInfo,
    x: TensorStructInfo,
    indices: TensorStructInfo,
    axis: int | None = None,
) -> TensorStructInfo:
    """The gradient of x in `take(x, indices, axis)`, from that of the result.

    Shapes:
        output_grad  the shape of `indices` in place of the axis of x
        x            any; rank 1 without an axis
        indices      integers of any shape, inside the axis
        result       as x
    Errors:
        StructInfoError: the indices are known not to be integers, or the axis is out of range.
    """
    require_integer(indices.dtype, "indices", indices)
    if x.ndim >= 0:
        normal_axis(axis or 0, x.ndim)
    return x


@register(
    "relax.grad.cumprod_backward",
    pure=True,
    legalize=by_te(topi.cumprod_grad, "cumprod_backward"),
)
def cumprod_backward(
    output_grad: TensorStructInfo, data: TensorStructInfo, axis: int, exclusive: bool = False
) -> TensorStructInfo:
    """The gradient of data in `cumprod(data, axis)`, from that of the result.

    Shapes:
        output_grad  as data
        data         rank 1 at least
        result       as data
    Errors:
        StructInfoError: the axis is out of range.
    """
    if data.ndim >= 0:
        normal_axis(axis, data.ndim)
    return data


def __getattr__(name: str) -> Any:
    """The operator registered as `relax.grad.` and this name, beside the one that it is for."""
    return getattr(R.grad, name)


def __dir__() -> list[str]:
    return dir(R.grad)
