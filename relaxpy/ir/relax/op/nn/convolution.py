"""Convolutions along one to three axes, their transposes, and the gradients of both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from relaxpy.errors import counted
from relaxpy.ir.core.dtype import VOID, DataType
from relaxpy.ir.relax.nodes import Call, Expr, TensorStructInfo, Var
from relaxpy.ir.relax.op.definition.gradients import is_differentiable, no_gradient, shape_like
from relaxpy.ir.relax.op.definition.layouts import AttributeLayout
from relaxpy.ir.relax.op.definition.registry import OpDef, R, find
from relaxpy.ir.relax.op.definition.rules import (
    Legalize,
    differ,
    joint_dtype,
    joint_vdevice,
    known_shape,
    refuse,
    same,
    shown,
    te_kernel,
    tensor,
    tensor_sinfo,
)
from relaxpy.ir.relax.op.windows import (
    count_windows,
    enter_windowed,
    fills_blocks,
    in_blocks,
    numbers_by_axis,
    parsed_layout,
    sizes_by_axis,
    window_attrs,
)
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype
from relaxpy.ir.te.topi.windows import Windows, number, spatial_axes
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.layout import Layout
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Ints: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = dict[str, PrimExpr]
Gradients: TypeAlias = Callable[[Var, Call, Expr, "BlockBuilder"], list[Expr]]

_SWAPPED = str.maketrans("IOio", "OIoi")
RANKS = (1, 2, 3)


def swapped(layout: str) -> str:
    """The layout of a filter with its channel letters exchanged, as in the transpose."""
    return layout.translate(_SWAPPED)


@dataclass(frozen=True, slots=True)
class Convolution:
    """The attributes of a convolution, or of a transposed one, along `count` axes."""

    windows: Windows
    groups: int
    data: Layout
    kernel: Layout
    out: Layout
    axes: str

    @staticmethod
    def of(count: int, attrs: Mapping[str, Any]) -> Convolution:
        """The attributes of a call.

        Errors:
            StructInfoError: one has a value that no convolution has.
        """
        axes, groups = spatial_axes(count), attrs["groups"]
        windows = window_attrs(count, attrs["strides"], attrs["padding"], attrs["dilation"])
        if groups < 1:
            raise refuse(f"groups is at least 1, found {groups}", groups)
        data_layout, kernel_layout = attrs["data_layout"], attrs["kernel_layout"]
        out_layout = attrs["out_layout"] or data_layout
        return Convolution(
            windows,
            groups,
            parsed_layout(data_layout, f"NC{axes}", "data_layout"),
            parsed_layout(kernel_layout, f"OI{axes}", "kernel_layout"),
            parsed_layout(out_layout, f"NC{axes}", "out_layout"),
            axes,
        )

    def operands(
        self,
        data: TensorStructInfo,
        weight: TensorStructInfo,
        *,
        transposed: bool = False,
        proved: bool = False,
    ) -> tuple[Sizes, Sizes] | None:
        """The dimensions of data and weight by the letters of their axes, None if one is unknown.

        With `proved`, also None as long as blocks have to be compared with those of a layout.

        Errors:
            StructInfoError: their ranks, blocks or channels do not fit.
        """
        x = sizes_by_axis(data, self.data, "data", proved=proved)
        w = sizes_by_axis(weight, self.kernel, "weight", proved=proved)
        if w is not None:
            kind = "input" if transposed else "output"
            divided = w["I" if transposed else "O"]
            if differ(ops.floormod(divided, number(self.groups)), number(0)):
                raise refuse(
                    f"{self.groups} groups do not divide the {shown(divided)} {kind} channels of "
                    f"the weight, found {weight} in {self.kernel.name}",
                    weight,
                )
        if x is None or w is None:
            return None
        channels = self._channels(w, transposed=transposed)
        if differ(x["C"], channels):
            raise refuse(
                f"data has {shown(x['C'])} channels, the weight is for {shown(channels)} in "
                f"{counted(self.groups, 'group')}: data is {data} in {self.data.name}, weight is "
                f"{weight} in {self.kernel.name}",
                weight,
                hint=None if transposed else _right_groups(x["C"], w["I"], w["O"]),
            )
        return x, w

    def _channels(self, w: Sizes, *, transposed: bool) -> PrimExpr:
        """The number of channels of data that fit a weight."""
        return w["I"] if transposed else ops.mul(w["I"], number(self.groups))

    def result(self, x: Sizes, w: Sizes) -> Sizes:
        """The dimensions of a convolution."""
        counts = {a: count_windows(self.windows, a, x[a], w[a]) for a in self.axes}
        return {"N": x["N"], "C": w["O"], **counts}

    def transposed_result(self, x: Sizes, w: Sizes, output_padding: Ints) -> Sizes:
        """The dimensions of a transposed convolution."""
        sizes = {"N": x["N"], "C": ops.mul(w["O"], number(self.groups))}
        for axis, extra in zip(self.axes, output_padding, strict=True):
            size = sizes[axis] = self.windows.span(axis, x[axis], w[axis], extra)
            if isinstance(size, IntImm) and size.value < 0:
                padding = self.windows.padding(axis)
                raise refuse(
                    f"padding removes {padding} elements of axis {axis}, which without it has "
                    f"size {size.value + padding}"
                )
        return sizes

    def is_decided(self, x: Sizes, w: Sizes, result: Sizes, *, transposed: bool = False) -> bool:
        """Return whether it is known that groups, channels and blocks fit."""
        divided = w["I" if transposed else "O"]
        return (
            same(x["C"], self._channels(w, transposed=transposed))
            and same(ops.floormod(divided, number(self.groups)), number(0))
            and fills_blocks(result, self.out)
        )


def _right_groups(channels: PrimExpr, per_group: PrimExpr, out: PrimExpr) -> str | None:
    """The hint for data whose channels fit another number of groups."""
    match channels, per_group, out:
        case IntImm(value=c), IntImm(value=i), IntImm(value=o) if 0 < i <= c and not c % i:
            return f"write groups={c // i}" if not o % (c // i) else None
        case _:
            return None


def joint_type(
    first: TensorStructInfo,
    second: TensorStructInfo,
    names: tuple[str, str],
    out_dtype: DataType | None,
) -> tuple[DataType, object]:
    """The datatype and the device of the result of two operands.

    Errors:
        StructInfoTypeError: the devices differ, or the datatypes, and `out_dtype` is missing.
    """
    dtype = out_dtype or joint_dtype(first, second, names)
    return dtype, joint_vdevice((first, second), strict=True)


def shapes_of(
    builder: BlockBuilder, operands: Sequence[Expr]
) -> tuple[TensorStructInfo, TensorStructInfo]:
    """The struct info of data and weight, whose shapes are known where a call is legalised."""
    first, second = (tensor(known_shape(builder, arg), VOID) for arg in operands)
    return first, second


def dtype_of(builder: BlockBuilder, call: Call) -> str:
    """The datatype of the result of a call."""
    sinfo = builder.struct_info_of(call)
    assert isinstance(sinfo, TensorStructInfo)
    return str(sinfo.dtype)


def arguments_of(attrs: Any) -> list[Any]:
    """The attributes of windows, groups and layouts, as functions of topi take them."""
    names = ("strides", "padding", "dilation", "groups", "data_layout", "kernel_layout")
    return [*(attrs[name] for name in names), attrs["out_dtype"], attrs["out_layout"]]


def with_dtypes(call: Call, *rules: Callable[[Expr, DataType | None], Any] | None) -> list[Expr]:
    """The gradients of operands, by functions of an operand and its datatype."""
    gradients: list[Expr] = []
    for operand, rule in zip(call.args, rules, strict=True):
        sinfo = tensor_sinfo(operand)
        if rule is None or sinfo is None or not is_differentiable(operand):
            gradients.append(R.grad.no_grad(operand))
        else:
            gradients.append(rule(operand, None if sinfo.dtype.is_void else sinfo.dtype))
    return gradients


# ---- convolutions

_OPERANDS = {"data": TensorStructInfo, "weight": TensorStructInfo}
_LAYOUT = AttributeLayout(("data_layout", "kernel_layout"), "out_layout", desirable=True)


def _conv(x: Tensor, w: Tensor, *attrs: Any, dtype: str) -> Tensor:
    return as_dtype(topi.nn.conv(x, w, *attrs), DataType(dtype))


def _legalize_conv(count: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        convolution = Convolution.of(count, attrs)
        sizes = convolution.operands(*shapes_of(builder, call.args), proved=True)
        if sizes is None or not convolution.is_decided(*sizes, convolution.result(*sizes)):
            return call
        dtype = dtype_of(builder, call)
        name = f"conv{count}d"
        return te_kernel(builder, _conv, name, *call.args, *arguments_of(attrs), dtype=dtype)

    return legalize


def _gradient_conv(count: int) -> Gradients:
    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        if not is_differentiable(var):
            return no_gradient(var, call, gradient, builder)
        data, weight = call.args
        attrs: Any = dict(call.attrs)
        of_data = getattr(R.grad, f"conv{count}d_backward_data")
        of_weight = getattr(R.grad, f"conv{count}d_backward_weight")
        return with_dtypes(
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
    """Rebuild the call with sums and the result in a datatype."""
    operator = find(call.op)  # type: ignore[arg-type]
    assert operator is not None
    attrs: Any = dict(call.attrs) | {"out_dtype": out_dtype}
    return operator.make(*call.args, **attrs, span=call.span)


def conv_attributes(count: int) -> Callable[..., None]:
    """A function whose parameters are the attributes of convolutions and of their gradients."""
    axes = spatial_axes(count)

    def attributes(
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"OI{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> None:
        pass

    return attributes


_CONV_DOC = """The sums of products of the weight with all windows of the padded data.

Shapes:
    data    batch, channels and spatial axes, in `data_layout`
    weight  output channels, input channels of one group and spatial axes, in `kernel_layout`; there
            is one group for each of so many equal parts of the channels of data and result
    result  batch, output channels and (n + padding - dilation * (k - 1) - 1) // stride + 1 along an
            axis of n elements, in `out_layout`, which is that of data by default; in `out_dtype`,
            in which sums are taken
Errors:
    StructInfoError: an attribute has a wrong number of values or a value out of its range, a rank
        is not that of the layout, the channels do not fit the weight and the groups, a window does
        not fit in an axis, or the datatypes differ and `out_dtype` is missing.
"""


def _register_conv(count: int) -> OpDef:
    def conv(data: TensorStructInfo, weight: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        convolution = Convolution.of(count, attrs)
        dtype, vdevice = joint_type(data, weight, ("data", "weight"), attrs["out_dtype"])
        sizes = convolution.operands(data, weight)
        if sizes is None:
            return tensor(None, dtype, vdevice, len(convolution.out))
        return tensor(in_blocks(convolution.result(*sizes), convolution.out), dtype, vdevice)

    return enter_windowed(
        f"relax.nn.conv{count}d",
        conv,
        _OPERANDS,
        conv_attributes(count),
        _CONV_DOC,
        count,
        legalize=_legalize_conv(count),
        layout=_LAYOUT,
        gradient=_gradient_conv(count),
        precision_policy=0,
        mixed_precision=_in_precision,
    )


conv1d, conv2d, conv3d = map(_register_conv, RANKS)


# ---- transposed convolutions


def _transposed(x: Tensor, w: Tensor, output_padding: Ints, *attrs: Any, dtype: str) -> Tensor:
    arguments: list[Any] = [x, w, *attrs, output_padding]
    return as_dtype(topi.nn.conv_transpose(*arguments), DataType(dtype))


def _legalize_transposed(count: int) -> Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        convolution = Convolution.of(count, attrs)
        operands = shapes_of(builder, call.args)
        sizes = convolution.operands(*operands, transposed=True, proved=True)
        if sizes is None:
            return call
        output_padding = tuple(
            numbers_by_axis(attrs["output_padding"], count, "output_padding", 0).values()
        )
        result = convolution.transposed_result(*sizes, output_padding)
        if not convolution.is_decided(*sizes, result, transposed=True):
            return call
        return te_kernel(
            builder,
            _transposed,
            f"conv{count}d_transpose",
            *call.args,
            output_padding,
            *arguments_of(attrs),
            dtype=dtype_of(builder, call),
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
            "kernel_layout": swapped(attrs["kernel_layout"]),
            "out_layout": attrs["data_layout"],
        }
        convolve = getattr(R.nn, f"conv{count}d")
        of_weight = getattr(R.grad, f"conv{count}d_backward_weight")
        return with_dtypes(
            call,
            lambda x, dtype: convolve(gradient, weight, **attrs | {"out_dtype": dtype}),
            lambda w, dtype: of_weight(
                data, gradient, shape_like(w), **attrs | {"out_dtype": dtype}
            ),
        )

    return rule


_TRANSPOSED_DOC = """Add the weight times each element of data to the window of that element.

Shapes:
    data    batch, channels and spatial axes, in `data_layout`
    weight  the channels of data, output channels of one group and spatial axes, in `kernel_layout`
    result  batch, output channels of all groups and
            (n - 1) * stride + dilation * (k - 1) + 1 - padding + output_padding along an axis of n
            elements, in `out_layout`, which is that of data by default; in `out_dtype`, in which
            sums are taken
Errors:
    StructInfoError: an attribute has a wrong number of values or a value out of its range, a rank
        is not that of the layout, the channels do not fit the weight and the groups, an output
        padding is not less than the stride, padding leaves nothing, or the datatypes differ and
        `out_dtype` is missing.
"""


def _register_transposed(count: int) -> OpDef:
    axes = spatial_axes(count)

    def attributes(
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * count,
        output_padding: Ints = (0,) * count,
        dilation: Ints = (1,) * count,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        kernel_layout: str = f"IO{axes}",
        out_layout: str | None = None,
        out_dtype: DataType | None = None,
    ) -> None:
        pass

    def conv_transpose(
        data: TensorStructInfo, weight: TensorStructInfo, **attrs: Any
    ) -> TensorStructInfo:
        convolution, output_padding = Convolution.of(count, attrs), attrs["output_padding"]
        paddings = numbers_by_axis(output_padding, count, "output_padding", 0)
        for axis, extra in paddings.items():
            step = convolution.windows.strides[axis]
            if extra >= step:
                raise refuse(
                    f"output_padding is less than the stride, found {extra} and stride {step} "
                    f"along axis {axis}",
                    output_padding,
                )
        dtype, vdevice = joint_type(data, weight, ("data", "weight"), attrs["out_dtype"])
        sizes = convolution.operands(data, weight, transposed=True)
        if sizes is None:
            return tensor(None, dtype, vdevice, len(convolution.out))
        result = convolution.transposed_result(*sizes, tuple(paddings.values()))
        return tensor(in_blocks(result, convolution.out), dtype, vdevice)

    return enter_windowed(
        f"relax.nn.conv{count}d_transpose",
        conv_transpose,
        _OPERANDS,
        attributes,
        _TRANSPOSED_DOC,
        count,
        legalize=_legalize_transposed(count),
        layout=_LAYOUT,
        gradient=_gradient_transposed(count),
        precision_policy=2,
    )


conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_register_transposed, RANKS)
