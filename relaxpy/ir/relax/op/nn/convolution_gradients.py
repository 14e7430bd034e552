"""The operators that are the gradients of convolutions with respect to data and weight."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import is_differentiable, no_gradient, shape_like
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.relax.op.nn.convolution import (
    RANKS,
    Convolution,
    Gradients,
    Ints,
    arguments_of,
    conv_attributes,
    dtype_of,
    joint_type,
    shapes_of,
    swapped,
    with_dtypes,
)
from relaxpy.ir.relax.op.windows import enter_windowed, is_gradient
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.te.topi.windows import spatial_axes, whole_shape
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _check_gradient(
    convolution: Convolution,
    gradient: TensorStructInfo,
    data: TensorStructInfo,
    weight: TensorStructInfo,
) -> bool:
    """Return whether a gradient is known to have the shape of the result of a convolution.

    Errors:
        StructInfoError: it has another one, or there is no such convolution.
    """
    sizes = convolution.operands(data, weight, proved=True)
    result = None if sizes is None else convolution.result(*sizes)
    if not is_gradient(gradient, convolution.out, result) or sizes is None or result is None:
        return False
    return convolution.is_decided(*sizes, result)


def _backward_data(
    gradient: Tensor,
    weight: Tensor,
    shape: Sequence[PrimExpr],
    strides: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    data_layout: str,
    kernel_layout: str,
    out_dtype: str | None,
    out_layout: str,
    *,
    dtype: str,
) -> Tensor:
    layout = Layout.of(data_layout)
    order = [axis for axis in layout.names if axis.isupper()]
    sizes = dict(zip(order, whole_shape(shape, layout), strict=True))
    result = topi.nn.conv_transpose(
        gradient,
        weight,
        strides,
        padding,
        dilation,
        groups,
        out_layout,
        swapped(kernel_layout),
        out_dtype,
        data_layout,
        0,
        [sizes[axis] for axis in spatial_axes(len(order) - 2)],
    )
    return as_dtype(result, DataType(dtype))


def _backward_weight(
    gradient: Tensor, data: Tensor, shape: Sequence[PrimExpr], *attrs: Any, dtype: str
) -> Tensor:
    result = topi.nn.conv_backward_weight(gradient, data, shape, *attrs)
    return as_dtype(result, DataType(dtype))


def _legalize_backward(count: int, kernel: Callable[..., Tensor], kind: str) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        gradient, other = shapes_of(builder, call.args[:2])
        result = rules.tensor(rules.known_shape(builder, call), VOID)
        data, weight = (result, other) if kind == "data" else (other, result)
        if not _check_gradient(Convolution.of(count, attrs), gradient, data, weight):
            return call
        return rules.te_kernel(
            builder,
            kernel,
            f"conv{count}d_backward_{kind}",
            *call.args[:2],
            ShapeExpr(rules.known_shape(builder, call)),
            *arguments_of(attrs),
            dtype=dtype_of(builder, call),
        )

    return legalize


def _gradient_backward(count: int, kind: str) -> Gradients:
    """A convolution is linear in data and in weight, and so is each of its gradients in both."""

    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        first, other, _ = call.args
        attrs: Any = dict(call.attrs)
        convolve = getattr(R.nn, f"conv{count}d")
        operands = (gradient, other) if kind == "data" else (other, gradient)
        opposite = "weight" if kind == "data" else "data"
        backward = getattr(R.grad, f"conv{count}d_backward_{opposite}")
        return with_dtypes(
            call,
            lambda g, dtype: convolve(*operands, **attrs | {"out_dtype": dtype}),
            lambda x, dtype: backward(
                first, gradient, shape_like(x), **attrs | {"out_dtype": dtype}
            ),
            None,
        )

    return rule


_DOC = """The gradient of the {0} of a convolution, from that of its result.

Shapes:
    output_grad  as the result of the convolution of {1}
    result       `shape`; in `out_dtype`, in which sums are taken
Errors:
    StructInfoError: the convolution refuses the attributes, the shape or the {2}, the shape of
        its result is another one than that of the gradient, or the datatypes differ and `out_dtype`
        is missing.
"""
_OPERANDS = {
    "data": "data of this shape with the weight",
    "weight": "the data with a weight of this shape",
}


def _register_backward(count: int, kind: str) -> None:
    [other] = _OPERANDS.keys() - {kind}

    def backward(
        output_grad: TensorStructInfo, shape: ShapeStructInfo, call: Call, **named: Any
    ) -> TensorStructInfo:
        convolution, operand = Convolution.of(count, named), named[other]
        names = ("output_grad", other)
        dtype, vdevice = joint_type(output_grad, operand, names, named["out_dtype"])
        shaped = rules.tensor(shape.values, VOID, None, shape.ndim)
        data, weight = (shaped, operand) if kind == "data" else (operand, shaped)
        _check_gradient(convolution, output_grad, data, weight)
        result = rules.shape_operand(call.args[2], shape)
        layout = convolution.data if kind == "data" else convolution.kernel
        return rules.tensor(result, dtype, vdevice, len(layout))

    tensor = TensorStructInfo
    enter_windowed(
        f"relax.grad.conv{count}d_backward_{kind}",
        backward,
        {"output_grad": tensor, other: tensor, "shape": ShapeStructInfo, "call": Call},
        conv_attributes(count),
        _DOC.format(kind, _OPERANDS[kind], other),
        count,
        legalize=_legalize_backward(count, _KERNELS[kind], kind),
        gradient=_gradient_backward(count, kind),
        precision_policy=2,
    )


_KERNELS: Mapping[str, Callable[..., Tensor]] = {"data": _backward_data, "weight": _backward_weight}
for _count in RANKS:
    for _kind in _KERNELS:
        _register_backward(_count, _kind)
