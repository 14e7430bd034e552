"""The gradients of convolutions with respect to data and weight, as operators of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition.gradients import is_differentiable, no_gradient, shape_like
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.relax.op.definition.rules import (
    Legalize,
    differ,
    joint_dtype,
    joint_vdevice,
    known_shape,
    refuse,
    same,
    shape_operand,
    shown,
    te_kernel,
    tensor,
)
from relaxpy.ir.relax.op.nn.convolution import (
    RANKS,
    Convolution,
    Gradients,
    Ints,
    arguments_of,
    dtype_of,
    shapes_of,
    swapped,
    with_dtypes,
)
from relaxpy.ir.relax.op.windows import completed, shortest, sizes_by_axis
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.te.topi.windows import spatial_axes, whole_shape
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder


def _from_shape(shape: ShapeStructInfo) -> TensorStructInfo:
    """A tensor of this shape."""
    return tensor(shape.values, VOID, None, shape.ndim)


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
    found = sizes_by_axis(gradient, convolution.out, "output_grad")
    sizes = convolution.operands(data, weight)
    if sizes is None or found is None:
        return False
    result = convolution.result(*sizes)
    for axis, size in result.items():
        if differ(size, found[axis]):
            raise refuse(
                f"output_grad has the shape of the result, whose axis {axis} has size "
                f"{shown(size)}, found {gradient} in {convolution.out.name}",
                gradient,
            )
    alike = all(same(size, found[axis]) for axis, size in result.items())
    return alike and convolution.is_decided(*sizes, result)


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
    found = topi.nn.conv_transpose(
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
    return as_dtype(found, DataType(dtype))


def _backward_weight(
    gradient: Tensor, data: Tensor, shape: Sequence[PrimExpr], *attrs: Any, dtype: str
) -> Tensor:
    found = topi.nn.conv_backward_weight(gradient, data, shape, *attrs)
    return as_dtype(found, DataType(dtype))


def _legalize_backward(count: int, kernel: Callable[..., Tensor], kind: str) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        gradient, other = shapes_of(builder, call.args[:2])
        result = tensor(known_shape(builder, call), VOID)
        data, weight = (result, other) if kind == "data" else (other, result)
        if not _check_gradient(Convolution.of(count, **attrs), gradient, data, weight):
            return call
        return te_kernel(
            builder,
            kernel,
            f"conv{count}d_backward_{kind}",
            *call.args[:2],
            ShapeExpr(known_shape(builder, call)),
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
        """The gradient of the data of a convolution, for that of its result.

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
        dtype = out_dtype or joint_dtype(output_grad, weight, ("output_grad", "weight"))
        vdevice = joint_vdevice((output_grad, weight), strict=True)
        _check_gradient(convolution, output_grad, _from_shape(shape), weight)
        ndim = len(convolution.data)
        return tensor(shape_operand(call.args[2], shape), dtype, vdevice, ndim)


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
        """The gradient of the weight of a convolution, for that of its result.

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
        dtype = out_dtype or joint_dtype(output_grad, data, ("output_grad", "data"))
        vdevice = joint_vdevice((output_grad, data), strict=True)
        _check_gradient(convolution, output_grad, data, _from_shape(shape))
        ndim = len(convolution.kernel)
        return tensor(shape_operand(call.args[2], shape), dtype, vdevice, ndim)


for _count in RANKS:
    _register_backward_data(_count)
    _register_backward_weight(_count)
