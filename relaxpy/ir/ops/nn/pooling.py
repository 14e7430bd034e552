"""Pooling along one to three axes, adaptive or by windows, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import AttributeLayout
from relaxpy.ir.ops.definition.registry import OpDef, R
from relaxpy.ir.ops.nn import convolution
from relaxpy.ir.ops.nn.convolution import (
    count_windows,
    enter_windowed,
    fills_blocks,
    in_blocks,
    is_gradient,
    numbers_by_axis,
    parsed_layout,
    sizes_by_axis,
    window_attrs,
)
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.windows import Windows, between_layouts, number, spatial_axes
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.op_record import Gradient
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Ints: TypeAlias = tuple[int, ...]
Sizes: TypeAlias = dict[str, PrimExpr]
Kind: TypeAlias = Literal["max", "avg"]

RANKS = (1, 2, 3)


def require_numbers(data: TensorStructInfo) -> None:
    """Refuse Booleans, which have no mean.

    Errors:
        StructInfoTypeError: the data are Booleans.
    """
    if data.dtype.is_bool:
        raise rules.refuse_type(
            f"data holds numbers, found {data}",
            data,
            hint='convert it first: R.astype(data, "float32")',
        )


@dataclass(frozen=True, slots=True)
class _Pool:
    """The attributes of a pool."""

    axes: str
    window: Sizes
    windows: Windows
    ceil_mode: bool
    layout: Layout
    out: Layout

    @staticmethod
    def of(count: int, attrs: Mapping[str, Any]) -> _Pool:
        """The attributes of a call.

        Errors:
            StructInfoError: one has a value that no pool has.
        """
        axes, layout = spatial_axes(count), attrs["layout"]
        sizes = numbers_by_axis(attrs["pool_size"], count, "pool_size", 1)
        return _Pool(
            axes,
            {axis: number(size) for axis, size in sizes.items()},
            window_attrs(count, attrs["strides"], attrs["padding"], attrs["dilation"]),
            attrs["ceil_mode"],
            parsed_layout(layout, f"NC{axes}", "layout"),
            parsed_layout(attrs["out_layout"] or layout, f"NC{axes}", "out_layout"),
        )

    def result(self, x: Sizes) -> Sizes:
        """The dimensions of the result by the letters of its axes.

        Errors:
            StructInfoError: a window is known to be larger than the axis.
        """
        counts = {
            axis: count_windows(
                self.windows, axis, x[axis], self.window[axis], ceil_mode=self.ceil_mode
            )
            for axis in self.axes
        }
        return {"N": x["N"], "C": x["C"], **counts}

    def infer(self, data: TensorStructInfo) -> TensorStructInfo:
        """The struct info of the result."""
        x = sizes_by_axis(data, self.layout, "data")
        if x is None:
            return rules.tensor(None, data.dtype, data.vdevice, len(self.out))
        return rules.tensor(in_blocks(self.result(x), self.out), data.dtype, data.vdevice)


def sizes_of(builder: BlockBuilder, operand: Expr, layout: Layout) -> Sizes | None:
    """The dimensions of an operand for legalisation; None if its blocked axes are symbolic."""
    sinfo = rules.tensor(rules.known_shape(builder, operand), VOID)
    return sizes_by_axis(sinfo, layout, "operand", proved=True)


def _pool_attributes(count: int, *, padded: bool, sides: int = 1) -> Callable[..., None]:
    """A function whose parameters are the attributes of pools and of their gradients.

    By default the padding counts if `padded`, and has a number for each of so many sides.
    """
    axes = spatial_axes(count)

    def attributes(
        pool_size: Ints = (1,) * count,
        strides: Ints = (1,) * count,
        padding: Ints = (0,) * sides * count,
        dilation: Ints = (1,) * count,
        ceil_mode: bool = False,
        count_include_pad: bool = padded,
        layout: str = f"NC{axes}",
        out_layout: str | None = None,
    ) -> None:
        pass

    return attributes


def _pool(
    data: Tensor, layout: str, out_layout: str, *, kind: Kind, count: int, **attrs: Any
) -> Tensor:
    names = ("pool_size", "strides", "dilation", "padding")
    options = (kind, attrs["ceil_mode"], layout, attrs["count_include_pad"])
    pool = getattr(topi.nn, f"pool{count}d")
    return between_layouts(pool(data, *map(attrs.get, names), *options), layout, out_layout)


def _legalize_pool(count: int, kind: Kind) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        pool = _Pool.of(count, attrs)
        x = sizes_of(builder, call.args[0], pool.layout)
        if x is None or not fills_blocks(pool.result(x), pool.out):
            return call
        name = f"{kind}_pool{count}d"
        return rules.te_kernel(builder, _pool, name, *call.args, **attrs, kind=kind, count=count)

    return legalize


_POOL_DOC = """The {} of the elements in each window.

Shapes:
    data    batch, channels and spatial axes, in `layout`{}
    result  batch, channels and (n + padding - dilation * (k - 1) - 1) // stride + 1 along an axis
            of n elements, rounded up under `ceil_mode`; in `out_layout`, which is `layout` by
            default
Errors:
    StructInfoError: an attribute has a wrong number of values or a value out of its range, the rank
        is not that of the layout, or a window does not fit in an axis{}.
Rule:
    {}
"""
_RULES: Mapping[Kind, tuple[str, str, str, str]] = {
    "max": ("maximum", "", "", "A NaN is greater than all numbers, and padding is less."),
    "avg": (
        "mean",
        ", not Booleans",
        ", or data holds Booleans",
        """The mean is over all positions of a window, those in the padding included under
    `count_include_pad`; positions beyond the padding never count. Floats narrower than float32
    are summed in float32, integers in int64 and rounded toward zero.""",
    ),
}


def _register_pool(count: int, kind: Kind) -> OpDef:
    def pool(data: TensorStructInfo, **attrs: Any) -> TensorStructInfo:
        if kind == "avg":
            require_numbers(data)
        return _Pool.of(count, attrs).infer(data)

    return enter_windowed(
        f"relax.nn.{kind}_pool{count}d",
        pool,
        {"data": TensorStructInfo},
        _pool_attributes(count, padded=kind == "avg" and count != 2),
        _POOL_DOC.format(*_RULES[kind]),
        count,
        legalize=_legalize_pool(count, kind),
        layout=AttributeLayout(("layout",), "out_layout"),
        gradient=gradients.by_transpose(f"grad.{kind}_pool{count}d_backward", 0),
        precision_policy=1,
    )


max_pool1d, max_pool2d, max_pool3d = (_register_pool(count, "max") for count in RANKS)
avg_pool1d, avg_pool2d, avg_pool3d = (_register_pool(count, "avg") for count in RANKS)


def _pool_backward(
    gradient: Tensor, data: Tensor, layout: str, out_layout: str, *, kind: Kind, **attrs: Any
) -> Tensor:
    gradient = between_layouts(gradient, out_layout, layout)
    windows = map(attrs.get, ("pool_size", "strides", "padding"))
    options = (attrs["ceil_mode"], attrs["count_include_pad"], layout, attrs["dilation"])
    arguments: Any = (*windows, kind, *options)
    return topi.nn.pool_grad(gradient, data, *arguments)


def _legalize_pool_backward(count: int, kind: Kind) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        pool = _Pool.of(count, attrs)
        gradient = rules.tensor(rules.known_shape(builder, call.args[0]), VOID)
        x = sizes_of(builder, call.args[1], pool.layout)
        if not is_gradient(gradient, pool.out, None if x is None else pool.result(x)):
            return call
        name = f"{kind}_pool{count}d_backward"
        return rules.te_kernel(builder, _pool_backward, name, *call.args, **attrs, kind=kind)

    return legalize


_BACKWARD_DOC = """The gradient of the data of `{}`, for that of its result.

Shapes:
    output_grad  as the result of the pool
    data         batch, channels and spatial axes, in `layout`
    result       as data
Errors:
    StructInfoError: the pool refuses the attributes or the data, or the gradient has another shape
        or datatype than its result.
Rule:
    {}
"""
_BACKWARD_RULES: Mapping[Kind, str] = {
    "max": "Of the largest elements of a window, the first in row-major order has the gradient.",
    "avg": "All elements of a window have an equal part of the gradient.",
}


def _register_pool_backward(count: int, kind: Kind) -> None:
    def backward(
        output_grad: TensorStructInfo, data: TensorStructInfo, **attrs: Any
    ) -> TensorStructInfo:
        if kind == "avg":
            require_numbers(data)
        pool = _Pool.of(count, attrs)
        rules.joint_dtype(output_grad, data, ("output_grad", "data"))
        x = sizes_by_axis(data, pool.layout, "data")
        is_gradient(output_grad, pool.out, None if x is None else pool.result(x))
        return data

    if kind == "avg":  # it depends on the data only by their shape
        gradient = gradients.by_transpose(f"nn.avg_pool{count}d")
    else:  # small changes of the data select the same elements
        gradient = gradients.by_transpose(f"grad.max_pool{count}d_selected", 1)
    enter_windowed(
        f"relax.grad.{kind}_pool{count}d_backward",
        backward,
        {"output_grad": TensorStructInfo, "data": TensorStructInfo},
        _pool_attributes(count, padded=kind == "avg" and count != 2, sides=2),
        _BACKWARD_DOC.format(f"{kind}_pool{count}d", _BACKWARD_RULES[kind]),
        count,
        legalize=_legalize_pool_backward(count, kind),
        gradient=gradient,
        precision_policy=2,
    )


def _selected(values: Tensor, data: Tensor, layout: str, out_layout: str, **attrs: Any) -> Tensor:
    windows = map(attrs.get, ("pool_size", "strides", "dilation", "padding", "ceil_mode"))
    arguments: Any = (*windows, layout)
    result = topi.nn.pool_selected(values, data, *arguments)
    return between_layouts(result, layout, out_layout)


def _legalize_selected(count: int) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        pool = _Pool.of(count, attrs)
        values, data = (sizes_of(builder, arg, pool.layout) for arg in call.args)
        if values is None or data is None:
            return call
        alike = all(rules.same(size, data[axis]) for axis, size in values.items())
        if not alike or not fills_blocks(pool.result(data), pool.out):
            return call
        return rules.te_kernel(
            builder, _selected, f"max_pool{count}d_selected", *call.args, **attrs
        )

    return legalize


_SELECTED_DOC = """The values at the positions that `max_pool{}d` of the data selects.

Shapes:
    values  the shape of data
    data    batch, channels and spatial axes, in `layout`
    result  the shape of the result of the pool, in the datatype of the values; 0 where a window is
            in the padding
Errors:
    StructInfoError: the pool refuses the attributes or the data, or the values have another shape.
"""


def _register_selected(count: int) -> None:
    def selected(
        values: TensorStructInfo, data: TensorStructInfo, **attrs: Any
    ) -> TensorStructInfo:
        pool = _Pool.of(count, attrs)
        v, x = (
            sizes_by_axis(values, pool.layout, "values"),
            sizes_by_axis(data, pool.layout, "data"),
        )
        if v is not None and x is not None and any(rules.differ(v[axis], x[axis]) for axis in x):
            raise rules.refuse(f"values has the shape of data, found {values} and {data}", values)
        return rules.with_dtype(pool.infer(data), values.dtype)

    enter_windowed(
        f"relax.grad.max_pool{count}d_selected",
        selected,
        {"values": TensorStructInfo, "data": TensorStructInfo},
        _pool_attributes(count, padded=False),
        _SELECTED_DOC.format(count),
        count,
        legalize=_legalize_selected(count),
        gradient=gradients.by_transpose(f"grad.max_pool{count}d_backward", 1),
        precision_policy=2,
    )


for _count in RANKS:
    _register_pool_backward(_count, "max")
    _register_pool_backward(_count, "avg")
    _register_selected(_count)


_ADAPTIVE = {1: "adaptive_pool1d", 2: "adaptive_pool", 3: "adaptive_pool3d"}


def _window_counts(count: int, output_size: Ints | None) -> Mapping[str, int] | None:
    """The number of windows along each axis; None for one per element."""
    if output_size is None:
        return None
    return convolution.numbers_by_axis(output_size, count, "output_size", 1)


def _adapted(count: int) -> Callable[[dict[str, Any]], None]:
    complete = convolution.completed(count)

    def adapt(arguments: dict[str, Any]) -> None:
        size = arguments["output_size"]
        complete(arguments)
        if size is not None:
            values = tuple(size) if isinstance(size, (list, tuple)) else (size,)
            arguments["output_size"] = values * count if len(values) == 1 else values

    return adapt


def _adaptive_result(x: Sizes, count: int, output_size: Ints | None) -> Sizes:
    counts = _window_counts(count, output_size)
    return x if counts is None else x | {axis: number(size) for axis, size in counts.items()}


def _adaptive(
    data: Tensor, output_size: Ints | None, layout: str, out_layout: str, *, count: int
) -> Tensor:
    sizes = output_size or (None,) * count
    pool = getattr(topi.nn, _ADAPTIVE[count])
    return between_layouts(pool(data, sizes, "avg", layout), layout, out_layout)


def _legalize_adaptive(count: int) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        layout, out_layout = _layouts(count, attrs["layout"], attrs["out_layout"])
        x = sizes_of(builder, call.args[0], layout)
        if x is None:
            return call
        if not convolution.fills_blocks(
            _adaptive_result(x, count, attrs["output_size"]), out_layout
        ):
            return call
        name = f"adaptive_avg_pool{count}d"
        return rules.te_kernel(builder, _adaptive, name, *call.args, **attrs, count=count)

    return legalize


def _gradient_adaptive(count: int) -> Gradient:
    def derivative(g: Expr, x: Expr, y: Expr, call: Call) -> Any:
        backward = getattr(R.grad, f"adaptive_avg_pool{count}d_backward")
        return backward(g, gradients.shape_like(x), **call.attrs)

    return gradients.of_operand(derivative)


_ADAPTIVE_DOC = """The mean of the elements in each window; `output_size` is the number of windows.

Shapes:
    data    batch, channels and spatial axes, in `layout`, not Booleans
    result  batch, channels and `output_size`, by default as data; in `out_layout`, which is
            `layout` by default
Errors:
    StructInfoError: an attribute has a wrong number of values or a value out of its range, the rank
        is not that of the layout, or data holds Booleans.
Rule:
    Window k of m in an axis of n elements runs from floor(k * n / m) to ceil((k + 1) * n / m).
    Floats narrower than float32 are summed in float32, integers in int64 and rounded toward zero.
    A window in an axis without elements has the mean 0.
"""


def _attributes(count: int) -> Callable[..., None]:
    """A function whose parameters are the attributes of these pools and of their gradients."""
    axes = spatial_axes(count)

    def attributes(
        output_size: Ints | None = None, layout: str = f"NC{axes}", out_layout: str | None = None
    ) -> None:
        pass

    return attributes


def _layouts(count: int, layout: str, out_layout: str | None) -> tuple[Layout, Layout]:
    """The layouts of data and of the result. Errors: StructInfoError if there is no such one."""
    axes = f"NC{spatial_axes(count)}"
    source = convolution.parsed_layout(layout, axes, "layout")
    return source, convolution.parsed_layout(out_layout or layout, axes, "out_layout")


def _register_adaptive(count: int) -> OpDef:
    def adaptive(
        data: TensorStructInfo, output_size: Ints | None, layout: str, out_layout: str | None
    ) -> TensorStructInfo:
        require_numbers(data)
        source, target = _layouts(count, layout, out_layout)
        _window_counts(count, output_size)
        x = convolution.sizes_by_axis(data, source, "data")
        has_shape = data.ndim >= 0 or data.shape is not None
        if output_size is None and source.name == target.name and has_shape:
            return data
        if x is None:
            return rules.tensor(None, data.dtype, data.vdevice, len(target))
        result = _adaptive_result(x, count, output_size)
        return rules.tensor(convolution.in_blocks(result, target), data.dtype, data.vdevice)

    return convolution.enter_windowed(
        f"relax.nn.adaptive_avg_pool{count}d",
        adaptive,
        {"data": TensorStructInfo},
        _attributes(count),
        _ADAPTIVE_DOC,
        count,
        adapt=_adapted(count),
        legalize=_legalize_adaptive(count),
        layout=AttributeLayout(("layout",), "out_layout"),
        gradient=_gradient_adaptive(count),
        precision_policy=1,
    )


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = map(_register_adaptive, RANKS)


def _adaptive_backward(
    gradient: Tensor,
    shape: Sequence[PrimExpr],
    output_size: Ints | None,
    layout: str,
    out_layout: str,
) -> Tensor:
    return topi.nn.adaptive_pool_grad(between_layouts(gradient, out_layout, layout), shape, layout)


def _check_adaptive(
    count: int,
    gradient: TensorStructInfo,
    data: TensorStructInfo,
    output_size: Ints | None,
    layout: str,
    out_layout: str | None,
) -> tuple[Layout, bool]:
    """The layout of data, and whether the gradient is known to be that of the result."""
    source, target = _layouts(count, layout, out_layout)
    x = convolution.sizes_by_axis(data, source, "data", proved=True)
    result = None if x is None else _adaptive_result(x, count, output_size)
    return source, convolution.is_gradient(gradient, target, result)


def _legalize_adaptive_backward(count: int) -> rules.Legalize:
    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs: Any = call.attrs
        gradient = rules.tensor(rules.known_shape(builder, call.args[0]), VOID)
        shape = rules.known_shape(builder, call)
        if not _check_adaptive(count, gradient, rules.tensor(shape, VOID), **attrs)[1]:
            return call
        name = f"adaptive_avg_pool{count}d_backward"
        operands = (call.args[0], ShapeExpr(shape))
        return rules.te_kernel(builder, _adaptive_backward, name, *operands, **attrs)

    return legalize


def _register_adaptive_backward(count: int) -> None:
    def backward(
        output_grad: TensorStructInfo, shape: ShapeStructInfo, call: Call, **attrs: Any
    ) -> TensorStructInfo:
        require_numbers(output_grad)
        data = rules.tensor(shape.values, VOID, None, shape.ndim)
        source, _ = _check_adaptive(count, output_grad, data, **attrs)
        sizes = rules.shape_operand(call.args[1], shape)
        return rules.tensor(sizes, output_grad.dtype, output_grad.vdevice, len(source))

    convolution.enter_windowed(
        f"relax.grad.adaptive_avg_pool{count}d_backward",
        backward,
        {"output_grad": TensorStructInfo, "shape": ShapeStructInfo, "call": Call},
        _attributes(count),
        _ADAPTIVE_BACKWARD_DOC.format(count),
        count,
        adapt=_adapted(count),
        legalize=_legalize_adaptive_backward(count),
        gradient=gradients.by_transpose(f"nn.adaptive_avg_pool{count}d"),
        precision_policy=2,
    )


_ADAPTIVE_BACKWARD_DOC = """The gradient of data in `adaptive_avg_pool{}d`, for that of the result.

Shapes:
    output_grad  as the result of the pool of data of this shape
    result       `shape`
Errors:
    StructInfoError: the pool refuses the attributes or the shape, or the gradient has another shape
        than its result, or holds Booleans.
"""


for _adaptive_count in RANKS:
    _register_adaptive_backward(_adaptive_count)
