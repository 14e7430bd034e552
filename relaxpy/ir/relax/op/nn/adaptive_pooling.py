"""Adaptive pooling along one to three axes, and its gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from relaxpy.ir.core.dtype import VOID
from relaxpy.ir.relax.nodes import Call, Expr, ShapeExpr, ShapeStructInfo, TensorStructInfo, Var
from relaxpy.ir.relax.op import windows
from relaxpy.ir.relax.op.definition import gradients, rules
from relaxpy.ir.relax.op.definition.layouts import AttributeLayout
from relaxpy.ir.relax.op.definition.registry import OpDef, R
from relaxpy.ir.relax.op.nn.pooling import RANKS, Gradients, Ints, Sizes, require_numbers, sizes_of
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.windows import between_layouts, number, spatial_axes
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.ir.tir.layout import Layout

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

_ADAPTIVE = {1: "adaptive_pool1d", 2: "adaptive_pool", 3: "adaptive_pool3d"}


def _window_counts(count: int, output_size: Ints | None) -> Mapping[str, int] | None:
    """The number of windows along each axis; None for one per element."""
    if output_size is None:
        return None
    return windows.numbers_by_axis(output_size, count, "output_size", 1)


def _adapted(count: int) -> Callable[[dict[str, Any]], None]:
    complete = windows.completed(count)

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
        if not windows.fills_blocks(_adaptive_result(x, count, attrs["output_size"]), out_layout):
            return call
        name = f"adaptive_avg_pool{count}d"
        return rules.te_kernel(builder, _adaptive, name, *call.args, **attrs, count=count)

    return legalize


def _gradient_adaptive(count: int) -> Gradients:
    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        if not gradients.is_differentiable(var):
            return gradients.no_gradient(var, call, gradient, builder)
        backward = getattr(R.grad, f"adaptive_avg_pool{count}d_backward")
        return [backward(gradient, gradients.shape_like(call.args[0]), **call.attrs)]

    return rule


_ADAPTIVE_DOC = """The mean of the elements in each of a number of windows.

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
    source = windows.parsed_layout(layout, axes, "layout")
    return source, windows.parsed_layout(out_layout or layout, axes, "out_layout")


def _register_adaptive(count: int) -> OpDef:
    def adaptive(
        data: TensorStructInfo, output_size: Ints | None, layout: str, out_layout: str | None
    ) -> TensorStructInfo:
        require_numbers(data)
        source, target = _layouts(count, layout, out_layout)
        _window_counts(count, output_size)
        x = windows.sizes_by_axis(data, source, "data")
        has_shape = data.ndim >= 0 or data.shape is not None
        if output_size is None and source.name == target.name and has_shape:
            return data
        if x is None:
            return rules.tensor(None, data.dtype, data.vdevice, len(target))
        result = _adaptive_result(x, count, output_size)
        return rules.tensor(windows.in_blocks(result, target), data.dtype, data.vdevice)

    return windows.enter_windowed(
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
    """The layout of data, and whether the gradient is known to be that of the result.

    Errors:
        StructInfoError: it has another shape.
    """
    source, target = _layouts(count, layout, out_layout)
    x = windows.sizes_by_axis(data, source, "data", proved=True)
    result = None if x is None else _adaptive_result(x, count, output_size)
    return source, windows.is_gradient(gradient, target, result)


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

    windows.enter_windowed(
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


for _count in RANKS:
    _register_adaptive_backward(_count)
