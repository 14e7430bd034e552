"""What the gradient rules of operators share: derivatives of elements, and sums over broadcasts.

A rule returns, for the gradient of the result of a call, those of its operands (reverse mode). An
operand without a gradient gets `relax.grad.no_grad` of itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from relaxpy.ir.relax.nodes import Call, Expr, StructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.registry import R
from relaxpy.ir.relax.op.rules import literal_shape, same

if TYPE_CHECKING:
    from relaxpy.ir.op_record import Gradient
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Derivative: TypeAlias = Callable[..., Any] | None


def sinfo_of(expr: Expr) -> TensorStructInfo | None:
    """The struct info of a tensor; None for anything else."""
    sinfo: StructInfo | None = expr.struct_info
    return sinfo if isinstance(sinfo, TensorStructInfo) else None


def is_differentiable(expr: Expr) -> bool:
    """Whether `expr` is a tensor that is not known to hold something else than floats."""
    sinfo = sinfo_of(expr)
    return sinfo is not None and (sinfo.dtype.is_float or sinfo.dtype.is_void)


def shape_like(expr: Expr) -> Expr:
    """The shape of a tensor: a literal if it is known, else evaluated at run time."""
    sinfo = sinfo_of(expr)
    known = None if sinfo is None else sinfo.shape
    return known if known is not None else cast("Expr", R.shape_of(expr))


def unbroadcast(gradient: Expr, operand: Expr) -> Expr:
    """The gradient of an operand that was broadcast to the shape of `gradient`."""
    target, source = sinfo_of(operand), sinfo_of(gradient)
    assert target is not None
    assert source is not None
    wanted, sizes = literal_shape(target), literal_shape(source)
    known = wanted is not None and sizes is not None and len(wanted) == len(sizes)
    if known and all(map(same, wanted or (), sizes or ())):
        return gradient
    return cast("Expr", R.collapse_sum_to(gradient, shape_like(operand)))


def masked(gradient: Expr, condition: Expr) -> Expr:
    """The gradient where the condition is true, else 0."""
    return cast("Expr", R.where(condition, gradient, R.zeros_like(gradient)))


def no_gradient(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
    """The rule of an operator whose result is piecewise constant, or holds no floats."""
    return [R.grad.no_grad(arg) for arg in call.args]


def elementwise(*derivatives: Derivative) -> Gradient:
    """The rule of an operator on elements, from one function for each operand.

    It returns the gradient of the operand from that of the result, the operands, and the result,
    before sums over broadcasts; None for an operand without a gradient.
    """

    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> Sequence[Expr]:
        out: list[Expr] = []
        for operand, derivative in zip(call.args, derivatives, strict=True):
            if derivative is None or not is_differentiable(operand):
                out.append(R.grad.no_grad(operand))
            else:
                out.append(unbroadcast(derivative(gradient, *call.args, var), operand))
        return out

    return rule
