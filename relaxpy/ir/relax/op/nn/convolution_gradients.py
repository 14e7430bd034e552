"""The operators that are the gradients of convolutions with respect to data and weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import is_differentiable, no_gradient, shape_like
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.relax.op.nn.convolution import (
    RANKS,
    Convolution,
    Gradients,
    Ints,
    arguments_of,
    dtype_of,
    joint_type,
    shapes_of,
    swapped,
    with_dtypes,
)
from relaxpy.ir.relax.op.windows import completed, is_gradient, shortest
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.te.topi.windows import spatial_axes, whole_shape
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _from_shape(shape: ShapeStructInfo) -> TensorStructInfo:
    """The struct info of a tensor of this shape."""
    return rules.tensor(shape.values, VOID, None, shape.ndim)


def _check_gradient(
    convolution: Convolution,
    gradient: TensorStructInfo,
    data: TensorStructInfo,
    weight: TensorStructInfo,
) -> bool:
    """Whether a gradient is known to have the shape of the result of a convolution.

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
        if not _check_gradient(Convolution.of(count, **attrs), gradient, data, weight):
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


def _register_backward_data(count: int) -> None:
    axes = spatial_axes(count)

    @register(
        f"relax.grad.conv{count}d_backward_data",
        pure=True,
        adapt=completed(count),
        unmake=shortest,
        legalize=_legalize_backward(count, _backward_data, "data"),
        gradient=_gradient_backward(count, "data"),
        precision_policy=2,
    )
    def backward_data(
        output_grad: TensorStructInfo,
        weight: TensorStructInfo,
        shape: ShapeStructInfo,
        call: Call,
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"OI{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> TensorStructInfo:
        """The gradient of the data of a convolution, from that of its result.

        Shapes:
            output_grad  as the result of the convolution of data of this shape with the weight
            result       `shape`; in `out_dtype`, in which sums are taken
        Errors:
            StructInfoError: the convolution refuses the attributes, the shape or the weight, the
                shape of its result is another one than that of the gradient, or the datatypes
                differ and `out_dtype` is missing.
        """
        convolution = Convolution.of(
            count, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout
        )
        names = ("output_grad", "weight")
        dtype, vdevice = joint_type(output_grad, weight, names, out_dtype)
        _check_gradient(convolution, output_grad, _from_shape(shape), weight)
        result = rules.shape_operand(call.args[2], shape)
        return rules.tensor(result, dtype, vdevice, len(convolution.data))


def _register_backward_weight(count: int) -> None:
    axes = spatial_axes(count)

    @register(
        f"relax.grad.conv{count}d_backward_weight",
        pure=True,
        adapt=completed(count),
        unmake=shortest,
        legalize=_legalize_backward(count, _backward_weight, "weight"),
        gradient=_gradient_backward(count, "weight"),
        precision_policy=2,
    )
    def backward_weight(
        output_grad: TensorStructInfo,
        data: TensorStructInfo,
        shape: ShapeStructInfo,
        call: Call,
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"OI{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> TensorStructInfo:
        """The gradient of the weight of a convolution, from that of its result.

        Shapes:
            output_grad  as the result of the convolution of the data with a weight of this shape
            result       `shape`; in `out_dtype`, in which sums are taken
        Errors:
            StructInfoError: the convolution refuses the attributes, the data or the shape, the
                shape of its result is another one than that of the gradient, or the datatypes
                differ and `out_dtype` is missing.
        """
        convolution = Convolution.of(
            count, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout
        )
        names = ("output_grad", "data")
        dtype, vdevice = joint_type(output_grad, data, names, out_dtype)
        _check_gradient(convolution, output_grad, data, _from_shape(shape))
        result = rules.shape_operand(call.args[2], shape)
        return rules.tensor(result, dtype, vdevice, len(convolution.kernel))


for _count in RANKS:
    _register_backward_data(_count)
    _register_backward_weight(_count)
