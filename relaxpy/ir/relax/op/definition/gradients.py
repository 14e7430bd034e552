"""Helpers of gradient rules: elementwise derivatives, and sums over broadcast axes.

A rule maps the gradient of the result of a call to those of its operands (reverse mode). The
gradient of an operand without one is `relax.grad.no_grad` of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.definition.widening import gradient_in_float32
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.op_record import Gradient
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Derivative: TypeAlias = Callable[..., Any] | None


def is_differentiable(expr: rx.Expr) -> bool:
    """Return whether `expr` is a tensor of floats or of unknown datatype."""
    sinfo = rules.tensor_sinfo(expr)
    return sinfo is not None and (sinfo.dtype.is_float or sinfo.dtype.is_void)


def require_rank(expr: rx.Expr, name: str) -> int:
    """The rank of a tensor, which the gradient of the operator `name` needs.

    Errors:
        StructInfoError: it is unknown.
    """
    sinfo = rules.tensor_sinfo(expr)
    if sinfo is None or sinfo.ndim < 0:
        raise rules.refuse(
            f"the gradient of {name} needs the rank of its operands, found {sinfo}",
            expr,
            hint="state it by R.match_cast",
        )
    return sinfo.ndim


def require_shape(expr: rx.Expr, name: str) -> rules.Sizes:
    """The shape of a tensor, which the gradient of the operator `name` needs.

    Errors:
        StructInfoError: it is unknown.
    """
    sinfo = rules.tensor_sinfo(expr)
    shape = None if sinfo is None else rules.literal_shape(sinfo)
    if shape is None:
        raise rules.refuse(
            f"the gradient of {name} needs the shape of its operand, found {sinfo}",
            expr,
            hint="state it by R.match_cast",
        )
    return shape


def shape_like(expr: rx.Expr) -> rx.Expr:
    """The shape of a tensor: a literal if it is known, else evaluated at run time."""
    sinfo = rules.tensor_sinfo(expr)
    known = None if sinfo is None else sinfo.shape
    return known if known is not None else cast("rx.Expr", R.shape_of(expr))


def unbroadcast(gradient: rx.Expr, operand: rx.Expr) -> rx.Expr:
    """The gradient of an operand that was broadcast to the shape of `gradient`."""
    target, source = rules.tensor_sinfo(operand), rules.tensor_sinfo(gradient)
    assert target is not None
    assert source is not None
    target_shape, source_shape = rules.literal_shape(target), rules.literal_shape(source)
    is_comparable = (
        target_shape is not None
        and source_shape is not None
        and len(target_shape) == len(source_shape)
    )
    if is_comparable and all(map(rules.same, target_shape or (), source_shape or ())):
        return gradient
    return cast("rx.Expr", R.collapse_sum_to(gradient, shape_like(operand)))


def with_reduced_axes(reduced: rx.Expr, call: rx.Call) -> rx.Expr:
    """Insert axes of size 1 for the reduced ones into the result of `call`, or its gradient.

    If the call has no axis, the result has rank 0 and broadcasts without them.
    """
    axis = call.attrs["axis"]
    if call.attrs["keepdims"] or axis is None:
        return reduced
    return cast("rx.Expr", R.expand_dims(reduced, axis))


def count_reduced(call: rx.Call, dtype: DataType) -> Any:
    """The number of elements that the reduction `call` combines into one, a scalar of `dtype`."""
    [x] = call.args
    sinfo, axis = rules.tensor_sinfo(x), call.attrs["axis"]
    shape = None if sinfo is None else rules.literal_shape(sinfo)
    if shape is None:
        return R.sum(R.ones_like(x), axis, keepdims=True)
    axes = range(len(shape)) if axis is None else rules.normal_axes(cast("Any", axis), len(shape))
    return scalar(product([shape[a] for a in axes]), dtype)


def scalar(size: PrimExpr, dtype: DataType) -> rx.Expr:
    """A size as a scalar of `dtype`: a constant tensor if it is a literal, as in TVM."""
    if isinstance(size, IntImm) and dtype.bits >= 32:
        return rx.const(size.value, dtype)
    return rx.PrimValue(ops.cast_to(size, dtype))


def tuple_fields(gradients: rx.Expr, count: int) -> list[rx.Expr]:
    """The fields of the gradient of a result of `count` tensors; a single one is not a tuple."""
    if isinstance(gradients, rx.Tuple):
        return list(gradients.fields)
    return [gradients] if count == 1 else [rx.TupleGetItem(gradients, k) for k in range(count)]


def masked(gradient: rx.Expr, condition: rx.Expr) -> rx.Expr:
    """The gradient where the condition is true, else 0."""
    return cast("rx.Expr", R.where(condition, gradient, R.zeros_like(gradient)))


def no_gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The rule of an operator whose result is piecewise constant or does not contain floats."""
    return [R.grad.no_grad(arg) for arg in call.args]


def identity_gradient(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The rule of an operator whose result has the elements of its first operand."""
    if not is_differentiable(call.args[0]):
        return no_gradient(var, call, gradient, builder)
    return [gradient, *map(R.grad.no_grad, call.args[1:])]


def of_operand(derivative: Callable[[rx.Expr, rx.Expr, rx.Expr, rx.Call], Any]) -> Gradient:
    """The rule of an operator on one tensor, from a function of four arguments.

    It returns the gradient of the operand from that of the result, the operand, the result and the
    call.
    """

    def rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        if not is_differentiable(call.args[0]) or not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        others = (R.grad.no_grad(arg) for arg in call.args[1:])
        return [derivative(gradient, call.args[0], var, call), *others]

    return rule


def by_transpose(name: str, *kept: int) -> Gradient:
    """The rule of an operator that is linear in its first operand, by its transpose `relax.<name>`.

    The transpose has the same attributes, and after the gradient the `kept` operands. An operator
    that selects elements, such as a maximum, is linear near almost all values of the operand.
    """

    def rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        operator = attrgetter(name)(R)
        back = operator(gradient, *(call.args[k] for k in kept), **call.attrs)
        return [back, *map(R.grad.no_grad, call.args[1:])]

    return rule


def elementwise(*derivatives: Derivative, exact: bool = False) -> Gradient:
    """The rule of an operator on elements, from one function for each operand.

    It returns the gradient of the operand from that of the result, the operands, and the result,
    before sums over broadcasts; None for an operand without a gradient. Those that are `exact`
    only select or negate, so that narrow floats need no float32.
    """

    def rule(
        var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
    ) -> Sequence[rx.Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        out: list[rx.Expr] = []
        for operand, derivative in zip(call.args, derivatives, strict=True):
            if derivative is None or not is_differentiable(operand):
                out.append(R.grad.no_grad(operand))
            else:
                out.append(unbroadcast(derivative(gradient, *call.args, var), operand))
        return out

    return rule if exact else gradient_in_float32(rule)
