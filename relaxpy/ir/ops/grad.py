"""Operators for gradients: limits of differentiation, and backward operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from relaxpy.ir.op_record import Memory
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.registry import R, family, register, rows
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _legalize_identity(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    return call.args[0]


@register(
    "relax.grad.no_grad",
    pure=True,
    memory=Memory.SAME,
    legalize=_legalize_identity,
    gradient=gradients.no_gradient,
)
def no_grad(input: rx.StructInfo) -> rx.StructInfo:
    """The input, to which no gradient is propagated.

    Shapes:
        input   any
        result  as input
    """
    return input


def _checkpoint(input: rx.StructInfo, call: rx.Call) -> rx.StructInfo:
    # Normalisation binds an expression that is not a leaf to a variable; passes put constants in
    # place of variables.
    kinds = (rx.Var, rx.Constant, rx.Call, rx.TupleGetItem, rx.If, rx.SeqExpr)
    if not isinstance(call.args[0], kinds):
        kind = type(call.args[0]).__name__
        raise rules.refuse(f"a checkpoint is a variable, found a {kind}", call.args[0])
    return input


_DOC = """The input, a variable or a constant; {}. Normalisation binds an expression to one.

Shapes:
    input   any
    result  as input
Errors:
    StructInfoError: the input is a tuple, a shape or a scalar literal.
Rule:
    Values between the checkpoints are computed again in the backward pass instead of stored
    (Chen, Xu, Zhang & Guestrin, arXiv:1604.06174, 2016).
"""
_checkpoints = rows(_checkpoint, _DOC, lambda name: _legalize_identity)
start_checkpoint, end_checkpoint = family(
    *(
        _checkpoints(
            f"grad.{name}_checkpoint",
            f"a checkpoint {name}s",
            memory=Memory.SAME,
            gradient=gradients.of_operands(lambda g, x: [g]),
        )
        for name in ("start", "end")
    )
).values()


def _gradient_take_backward(g: Any, _: Any, x: Any, indices: Any, axis: Any) -> list[rx.Expr]:
    return [R.take(g, indices, axis), no_grad(x), no_grad(indices)]


@register(
    "relax.grad.take_backward",
    pure=True,
    legalize=rules.by_te("take_grad", "take_backward"),
    gradient=gradients.of_operands(_gradient_take_backward),
)
def take_backward(
    output_grad: rx.TensorStructInfo,
    x: rx.TensorStructInfo,
    indices: rx.TensorStructInfo,
    axis: int | None = None,
) -> rx.TensorStructInfo:
    """The gradient of x in `take(x, indices, axis)`, from that of the result.

    Shapes:
        output_grad  the shape of `indices` instead of the axis of x
        x            any; rank 1 without an axis
        indices      integers of any shape, inside the axis
        result       as x
    Errors:
        StructInfoError: the indices are known not to be integers, or the axis is out of range.
    """
    rules.require_integer(indices.dtype, "indices", indices)
    if x.ndim >= 0:
        rules.normal_axis(axis or 0, x.ndim)
    return x


def _gradient_cumprod_backward(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The result is before * later: a running product, and a recurrence on the way back."""
    output_grad, x = cast("Any", call.args)
    g, axis, exclusive = cast("Any", gradient), call.attrs["axis"], call.attrs["exclusive"]
    before = R.cumprod(x, axis, exclusive=True)
    later = linear_recurrence(x, output_grad, axis, transposed=True, exclusive=exclusive)
    terms = builder.emit(g * before)
    to_output_grad = linear_recurrence(x, terms, axis, exclusive=exclusive)
    to_x = later * linear_recurrence(x, terms, axis, exclusive=True)
    return [to_output_grad, cumprod_backward(g * later, x, axis, exclusive=True) + to_x]


@register(
    "relax.grad.cumprod_backward",
    pure=True,
    legalize=rules.by_te("cumprod_grad", "cumprod_backward"),
    gradient=gradients.gradient_in_float32(_gradient_cumprod_backward),
)
def cumprod_backward(
    output_grad: rx.TensorStructInfo, data: rx.TensorStructInfo, axis: int, exclusive: bool = False
) -> rx.TensorStructInfo:
    """The gradient of data in `cumprod(data, axis)`, from that of the result.

    Shapes:
        output_grad  as data
        data         rank at least 1
        result       as data
    Errors:
        StructInfoError: the axis is out of range.
    """
    if data.ndim >= 0:
        rules.normal_axis(axis, data.ndim)
    return data


def _gradient_linear_recurrence(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    """The gradient of the terms is the transposed recurrence."""
    factors, terms = call.args
    axis, exclusive = call.attrs["axis"], call.attrs["exclusive"]
    forward = not call.attrs["transposed"]
    to_terms = builder.emit(
        linear_recurrence(factors, gradient, axis, transposed=forward, exclusive=exclusive)
    )
    back, inner = (to_terms, terms) if forward else (var, gradient)
    preceding = linear_recurrence(factors, inner, axis, exclusive=True)
    return [R.multiply(back, preceding), to_terms]


@register(
    "relax.grad.linear_recurrence",
    pure=True,
    legalize=rules.by_te("linear_recurrence", "linear_recurrence"),
    gradient=gradients.gradient_in_float32(_gradient_linear_recurrence),
)
def linear_recurrence(
    factors: rx.TensorStructInfo,
    terms: rx.TensorStructInfo,
    axis: int,
    transposed: bool = False,
    exclusive: bool = False,
) -> rx.TensorStructInfo:
    """y[k] = terms[k] + factors[k] * y[k - 1] along an axis, with 0 before the first element.

    With `transposed`, y[k] = terms[k] + factors[k + 1] * y[k + 1]. With `exclusive`, the result is
    y[k - 1] in position k; of a transposed recurrence, y for terms[k + 1] instead of terms[k].

    Shapes:
        factors  as terms
        terms    rank at least 1, float dtype
        result   as terms
    Errors:
        StructInfoError: the axis is out of range, an operand holds no floats, or datatypes or known
            sizes differ.
    """
    names = ("factors", "terms")
    for name, sinfo in zip(names, (factors, terms), strict=True):
        rules.require_float(sinfo, name)
    rules.joint_dtype(factors, terms, names)
    rules.common_rank((factors, terms), "factors and terms")
    first, second = literal_shape(factors), literal_shape(terms)
    if first is not None and second is not None and any(map(rules.differ, first, second)):
        raise rules.refuse(
            f"factors {rules.shape_text(first)} and terms {rules.shape_text(second)} have one "
            f"shape",
            factors,
        )
    if terms.ndim >= 0:
        rules.normal_axis(axis, terms.ndim)
    return terms


def __getattr__(name: str) -> Any:
    """The operator registered as `relax.grad.` and this name."""
    return getattr(R.grad, name)


def __dir__() -> list[str]:
    return dir(R.grad)
