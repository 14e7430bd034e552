"""Convolutions along one to three axes, their transposes, and the gradients of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from relaxpy.errors import counted
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op.gradients import is_differentiable, no_gradient, shape_like, sinfo_of
from relaxpy.ir.relax.op.registry import OpDef, R, find, register
from relaxpy.ir.relax.op.rules import (
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
from relaxpy.ir.relax.op.windows import (
    WindowAttrs,
    completed,
    fills_blocks,
    in_blocks,
    numbers_by_axis,
    parsed_layout,
    shortest,
    sizes_by_axis,
)
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.te.topi.windows import number, spatial_axes, whole_shape, window_span
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.layout import Layout

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Ints: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = dict[str, PrimExpr]
Gradients: TypeAlias = Callable[[Var, Call, Expr, "BlockBuilder"], list[Expr]]

_SWAPPED = str.maketrans("IOio", "OIoi")
_RANKS = (1, 2, 3)


def _swapped(layout: str) -> str:
    """The layout of a filter with the names of its channels exchanged, as its transpose has it."""
    return layout.translate(_SWAPPED)


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The attributes of a convolution, or of a transposed one, along `count` axes."""

    windows: WindowAttrs
    groups: int
    data: Layout
    kernel: Layout
    out: Layout
    axes: str

    @staticmethod
    def of(
        count: int,
        strides: Ints,
        padding: Ints,
        dilation: Ints,
        groups: int,
        data_layout: str,
        kernel_layout: str,
        out_layout: str | None,
        **others: object,
    ) -> _Convolution:
        """The attributes of a call.

        Errors:
            StructInfoError: one has a value that no convolution has.
        """
        axes = spatial_axes(count)
        windows = WindowAttrs.of(count, strides, padding, dilation)
        if groups < 1:
            raise refuse(f"groups is 1 at least, found {groups}", groups)
        return _Convolution(
            windows,
            groups,
            parsed_layout(data_layout, f"NC{axes}", "data_layout"),
            parsed_layout(kernel_layout, f"OI{axes}", "kernel_layout"),
            parsed_layout(out_layout or data_layout, f"NC{axes}", "out_layout"),
            axes,
        )

    def operands(
        self, data: TensorStructInfo, weight: TensorStructInfo, *, transposed: bool = False
    ) -> tuple[Sizes, Sizes] | None:
        """The dimensions of data and weight by the letters of their axes, None if one is unknown.

        Errors:
            StructInfoError: their ranks, blocks or channels do not fit.
        """
        x = sizes_by_axis(data, self.data, "data")
        w = sizes_by_axis(weight, self.kernel, "weight")
        if w is not None:
            what = "input" if transposed else "output"
            divided = w["I" if transposed else "O"]
            if differ(ops.floormod(divided, number(self.groups)), number(0)):
                raise refuse(
                    f"{self.groups} groups do not divide the {shown(divided)} {what} channels of "
                    f"the weight, found {weight} in {self.kernel.name}",
                    weight,
                )
        if x is None or w is None:
            return None
        wanted = self._channels(w, transposed=transposed)
        if differ(x["C"], wanted):
            raise refuse(
                f"data has {shown(x['C'])} channels, the weight is for {shown(wanted)} in "
                f"{counted(self.groups, 'group')}: data is {data} in {self.data.name}, weight is "
                f"{weight} in {self.kernel.name}",
                weight,
                hint=None if transposed else _right_groups(x["C"], w["I"], w["O"]),
            )
        return x, w

    def _channels(self, w: Sizes, *, transposed: bool) -> PrimExpr:
        """How many channels of data a weight is for."""
        return w["I"] if transposed else ops.mul(w["I"], number(self.groups))

    def result(self, x: Sizes, w: Sizes) -> Sizes:
        """The dimensions of a convolution."""
        found = {a: self.windows.count(a, x[a], w[a]) for a in self.axes}
        return {"N": x["N"], "C": w["O"], **found}

    def transposed_result(self, x: Sizes, w: Sizes, more: Ints) -> Sizes:
        """The dimensions of a transposed convolution."""
        found = {"N": x["N"], "C": ops.mul(w["O"], number(self.groups))}
        for axis, extra in zip(self.axes, more, strict=True):
            step, holes = self.windows.strides[axis], self.windows.dilation[axis]
            both = self.windows.padding(axis)
            size = found[axis] = window_span(x[axis], w[axis], step, holes, extra - both)
            if isinstance(size, IntImm) and size.value < 0:
                raise refuse(
                    f"padding takes {both} elements away from axis {axis}, which without it has "
                    f"size {size.value + both}"
                )
        return found

    def is_decided(self, x: Sizes, w: Sizes, result: Sizes, *, transposed: bool = False) -> bool:
        """Whether it is known that groups, channels and blocks fit."""
        divided = w["I" if transposed else "O"]
        return (
            same(x["C"], self._channels(w, transposed=transposed))
            and same(ops.floormod(divided, number(self.groups)), number(0))
            and fills_blocks(result, self.out)
        )


def _right_groups(channels: PrimExpr, own: PrimExpr, out: PrimExpr) -> str | None:
    """What to write where the data has as many channels as some groups."""
    match channels, own, out:
        case IntImm(value=c), IntImm(value=i), IntImm(value=o) if 0 < i <= c and not c % i:
            return f"write groups={c // i}" if not o % (c // i) else None
        case _:
            return None


def _of_operands(
    builder: BlockBuilder, operands: Sequence[Expr]
) -> tuple[TensorStructInfo, TensorStructInfo]:
    """The struct info of data and weight, whose shapes are known where a call is legalised."""
    first, second = (tensor(known_shape(builder, arg), VOID) for arg in operands)
    return first, second


def _dtype_of(builder: BlockBuilder, call: Call) -> str:
    sinfo = builder.struct_info_of(call)
    assert isinstance(sinfo, TensorStructInfo)
    return str(sinfo.dtype)


def _arguments(attrs: Any) -> list[Any]:
    """The attributes of windows, groups and layouts, as functions of topi take them."""
    names = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
    return [*(attrs[name] for name in names), attrs["out_dtype"], attrs["out_layout"]]


def _with_dtypes(call: Call, *rules: Callable[[Expr, DataType | None], Any] | None) -> list[Expr]:
    """The gradients of operands, by functions of an operand and of its datatype."""
    found: list[Expr] = []
    for operand, rule in zip(call.args, rules, strict=True):
        sinfo = sinfo_of(operand)
        if rule is None or sinfo is None or not is_differentiable(operand):
            found.append(R.grad.no_grad(operand))
        else:
            found.append(rule(operand, None if sinfo.dtype.is_void else sinfo.dtype))
    return found


# ---- convolutions


def _conv(x: Tensor, w: Tensor, *attrs: Any, dtype: str) -> Tensor:
    return as_dtype(topi.nn.conv(x, w, *attrs), DataType(dtype))


def _legalize_conv(count: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        convolution = _Convolution.of(count, **attrs)
        sizes = convolution.operands(*_of_operands(builder, call.args))
        assert sizes is not None
        if not convolution.is_decided(*sizes, convolution.result(*sizes)):
            return call
        dtype = _dtype_of(builder, call)
        name = f"conv{count}d"
        return te_kernel(builder, _conv, name, *call.args, *_arguments(attrs), dtype=dtype)

    return legalize


def _gradient_conv(count: int) -> Gradients:
    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        data, weight = call.args
        attrs: Any = dict(call.attrs)
        of_data = getattr(R.grad, f"conv{count}d_backward_data")
        of_weight = getattr(R.grad, f"conv{count}d_backward_weight")
        return _with_dtypes(
            call,
            lambda x, dtype: of_data(
                gradient, weight, shape_like(x), **attrs | {"out_dtype": dtype}
            ),
            lambda w, dtype: of_weight(
                gradient, data, shape_like(w), **attrs | {"out_dtype": dtype}
            ),
        )

    return rule


def _in_precision(call: Call, out_dtype: str) -> Expr:
    """The call with sums and the result in a datatype."""
    operator = find(call.op)  # type: ignore[arg-type]
    assert operator is not None
    attrs: Any = dict(call.attrs) | {"out_dtype": out_dtype}
    return operator.make(*call.args, **attrs, span=call.span)


def _register_conv(count: int) -> OpDef:
    axes = spatial_axes(count)

    @register(
        f"relax.nn.conv{count}d",
        pure=True,
        adapt=completed(count),
        unmake=shortest,
        legalize=_legalize_conv(count),
        gradient=_gradient_conv(count),
        precision_policy=0,
        mixed_precision=_in_precision,
    )
    def conv(
        data: TensorStructInfo,
        weight: TensorStructInfo,
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"OI{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> TensorStructInfo:
        """The sums of products of the weight with all windows of the padded data.

        Shapes:
            data    batch, channels and spatial axes, in `data_layout`
            weight  output channels, input channels of one group and spatial axes, in
                    `kernel_layout`; there is one group for each of so many equal parts of the
                    channels of data and result
            result  batch, output channels and (n + padding - dilation * (k - 1) - 1) // stride + 1
                    along an axis of n elements, in `out_layout`, which is that of data by default;
                    in `out_dtype`, in which sums are taken
        Errors:
            StructInfoError: an attribute has a wrong number of values or a value out of its range,
                a rank is not that of the layout, the channels do not fit the weight and the
                groups, a window does not fit in an axis, or the datatypes differ and `out_dtype` is
                missing.
        """
        convolution = _Convolution.of(
            count, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout
        )
        dtype = out_dtype or joint_dtype(data, weight, ("data", "weight"))
        vdevice = joint_vdevice((data, weight), strict=True)
        sizes = convolution.operands(data, weight)
        if sizes is None:
            return tensor(None, dtype, vdevice, len(convolution.out))
        return tensor(in_blocks(convolution.result(*sizes), convolution.out), dtype, vdevice)

    return conv


conv1d, conv2d, conv3d = map(_register_conv, _RANKS)


# ---- transposed convolutions


def _transposed(x: Tensor, w: Tensor, more: Ints, *attrs: Any, dtype: str) -> Tensor:
    arguments: list[Any] = [x, w, *attrs, more]
    return as_dtype(topi.nn.conv_transpose(*arguments), DataType(dtype))


def _legalize_transposed(count: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        convolution = _Convolution.of(count, **attrs)
        sizes = convolution.operands(*_of_operands(builder, call.args), transposed=True)
        assert sizes is not None
        more = tuple(numbers_by_axis(attrs["output_padding"], count, "output_padding", 0).values())
        result = convolution.transposed_result(*sizes, more)
        if not convolution.is_decided(*sizes, result, transposed=True):
            return call
        return te_kernel(
            builder,
            _transposed,
            f"conv{count}d_transpose",
            *call.args,
            more,
            *_arguments(attrs),
            dtype=_dtype_of(builder, call),
        )

    return legalize


def _gradient_transposed(count: int) -> Gradients:
    """The transpose of the transpose is the convolution."""

    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        data, weight = call.args
        attrs: Any = dict(call.attrs)
        del attrs["output_padding"]
        attrs |= {
            "data_layout": attrs["out_layout"],
            "kernel_layout": _swapped(attrs["kernel_layout"]),
            "out_layout": attrs["data_layout"],
        }
        convolve = getattr(R.nn, f"conv{count}d")
        of_weight = getattr(R.grad, f"conv{count}d_backward_weight")
        return _with_dtypes(
            call,
            lambda x, dtype: convolve(gradient, weight, **attrs | {"out_dtype": dtype}),
            lambda w, dtype: of_weight(
                data, gradient, shape_like(w), **attrs | {"out_dtype": dtype}
            ),
        )

    return rule


def _register_transposed(count: int) -> OpDef:
    axes = spatial_axes(count)

    @register(
        f"relax.nn.conv{count}d_transpose",
        pure=True,
        adapt=completed(count),
        unmake=shortest,
        legalize=_legalize_transposed(count),
        gradient=_gradient_transposed(count),
        precision_policy=2,
    )
    def conv_transpose(
        data: TensorStructInfo,
        weight: TensorStructInfo,
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        output_padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"IO{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> TensorStructInfo:
        """Each element of data times the weight, added where windows of a convolution lie.

        Shapes:
            data    batch, channels and spatial axes, in `data_layout`
            weight  the channels of data, output channels of one group and spatial axes, in
                    `kernel_layout`
            result  batch, output channels of all groups and
                    (n - 1) * stride + dilation * (k - 1) + 1 - padding + output_padding along an
                    axis of n elements, in `out_layout`, which is that of data by default; in
                    `out_dtype`, in which sums are taken
        Errors:
            StructInfoError: an attribute has a wrong number of values or a value out of its range,
                a rank is not that of the layout, the channels do not fit the weight and the
                groups, an output padding is not less than the stride, padding leaves nothing, or
                the datatypes differ and `out_dtype` is missing.
        """
        convolution = _Convolution.of(
            count, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout
        )
        more = numbers_by_axis(output_padding, count, "output_padding", 0)
        for axis, extra in more.items():
            step = convolution.windows.strides[axis]
            if extra >= step:
                raise refuse(
                    f"output_padding is less than the stride, found {extra} and stride {step} "
                    f"along axis {axis}",
                    output_padding,
                )
        dtype = out_dtype or joint_dtype(data, weight, ("data", "weight"))
        vdevice = joint_vdevice((data, weight), strict=True)
        sizes = convolution.operands(data, weight, transposed=True)
        if sizes is None:
            return tensor(None, dtype, vdevice, len(convolution.out))
        result = convolution.transposed_result(*sizes, tuple(more.values()))
        return tensor(in_blocks(result, convolution.out), dtype, vdevice)

    return conv_transpose


conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_register_transposed, _RANKS)


# ---- gradients


def _from_shape(shape: ShapeStructInfo) -> TensorStructInfo:
    """A tensor of this shape."""
    return tensor(shape.values, VOID, None, shape.ndim)


def _check_gradient(
    convolution: _Convolution,
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
        _swapped(kernel_layout),
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
        gradient, other = _of_operands(builder, call.args[:2])
        result = tensor(known_shape(builder, call), VOID)
        data, weight = (result, other) if kind == "data" else (other, result)
        if not _check_gradient(_Convolution.of(count, **attrs), gradient, data, weight):
            return call
        return te_kernel(
            builder,
            kernel,
            f"conv{count}d_backward_{kind}",
            *call.args[:2],
            ShapeExpr(known_shape(builder, call)),
            *_arguments(attrs),
            dtype=_dtype_of(builder, call),
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
        return _with_dtypes(
            call,
            lambda g, dtype: convolve(*operands, **attrs | {"out_dtype": dtype}),
            lambda x, dtype: backward(
                first, gradient, shape_like(x), **attrs | {"out_dtype": dtype}
            ),
            None,
        )

    return rule


def _register_backward_data(count: int) -> OpDef:
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
        convolution = _Convolution.of(
            count, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout
        )
        dtype = out_dtype or joint_dtype(output_grad, weight, ("output_grad", "weight"))
        vdevice = joint_vdevice((output_grad, weight), strict=True)
        _check_gradient(convolution, output_grad, _from_shape(shape), weight)
        ndim = len(convolution.data)
        return tensor(shape_operand(call.args[2], shape), dtype, vdevice, ndim)

    return backward_data


def _register_backward_weight(count: int) -> OpDef:
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
        convolution = _Convolution.of(
            count, strides, padding, dilation, groups, data_layout, kernel_layout, out_layout
        )
        dtype = out_dtype or joint_dtype(output_grad, data, ("output_grad", "data"))
        vdevice = joint_vdevice((output_grad, data), strict=True)
        _check_gradient(convolution, output_grad, data, _from_shape(shape))
        ndim = len(convolution.kernel)
        return tensor(shape_operand(call.args[2], shape), dtype, vdevice, ndim)

    return backward_weight


for _count in _RANKS:
    _register_backward_data(_count)
    _register_backward_weight(_count)
