"""The operators of nn: elements created, computed and rearranged; the layers of networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Literal, Protocol, TypeAlias

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.ops import builtin, nn as relax_nn
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import ShapeExpr, Var, const
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn.core import (
    Tensor,
    emit_tensor,
    expr_of,
    get_default_dtype,
    items_of,
    wrap_nested,
)
from relaxpy.support.entry import user_facing

IntExpr: TypeAlias = int | tir.PrimExpr
Axes: TypeAlias = int | list[int] | None


@user_facing
def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """The tensor with a new axis of size 1 at `dim`."""
    return emit_tensor(R.expand_dims(expr_of(x), dim), name)


@user_facing
def squeeze(x: Tensor, axis: Axes = -1, name: str = "squeeze") -> Tensor:
    """The tensor without axes of size 1: those of `axis`, or all for None."""
    return emit_tensor(R.squeeze(expr_of(x), axis), name)


@user_facing
def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors one after the other along an axis."""
    return emit_tensor(R.concat([expr_of(tensor) for tensor in items_of(x, "tensors")], dim), name)


@user_facing
def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """`chunks` slices of a tensor along an axis."""
    return wrap_nested(R.split(expr_of(x), chunks, dim), name)  # type: ignore[no-any-return]


@user_facing
def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Slices of a tensor along an axis: their number, or the indices at which later ones begin."""
    return wrap_nested(R.split(expr_of(ary), indices_or_sections, axis), name)  # type: ignore[no-any-return]


@user_facing
def broadcast_to(x: Tensor, shape: Sequence[IntExpr], name: str = "broadcast_to") -> Tensor:
    """The tensor, repeated along axes of size 1 to fill `shape`."""
    return emit_tensor(R.broadcast_to(expr_of(x), shape), name)


@user_facing
def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The tensor with its axes in another order, by default the reverse one.

    Without a `name`, that of the weight of a linear layer is one of the product, as in TVM.
    """
    expr = expr_of(x)
    if name is None:
        weight = expr.name_hint if isinstance(expr, Var) else ""
        name = weight.replace("linear", "matmul") if "linear" in weight else "permute_dims"
    return emit_tensor(R.permute_dims(expr, axes), name)


@user_facing
def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """The tensor with its axes in another order, for None the reverse one."""
    return emit_tensor(R.permute_dims(expr_of(x), axes), name)


@user_facing
def reshape(x: Tensor, shape: Sequence[IntExpr], name: str = "reshape") -> Tensor:
    """The elements in another shape: 0 keeps a dimension, and one may be -1."""
    return emit_tensor(R.reshape(expr_of(x), shape), name)


@user_facing
def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element repeated along an axis, or all in one row for None."""
    return emit_tensor(R.repeat(expr_of(x), repeats, axis), name)


@user_facing
def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """The elements at `indices` along an axis; without one, `x` has rank 1."""
    return emit_tensor(R.take(expr_of(x), expr_of(indices), axis), name)


@user_facing
def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Matrices with zeros below a diagonal; positive numbers are diagonals above the main one."""
    return emit_tensor(R.triu(expr_of(x), diagonal), name)


@user_facing
def arange(
    start: IntExpr,
    end: IntExpr | None = None,
    step: IntExpr = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """The numbers from `start` to before `end`; with one bound, from 0 to before it."""
    return emit_tensor(R.arange(start, end, step, dtype), name)


@user_facing
def full(
    shape: Sequence[IntExpr],
    fill_value: Tensor | float | tir.PrimExpr,
    dtype: str = "float32",
    name: str = "full",
) -> Tensor:
    """A tensor that has the same value, a number or a tensor of rank 0, everywhere."""
    if isinstance(fill_value, (tir.IntImm, tir.FloatImm)):
        fill_value = fill_value.value
    if isinstance(fill_value, (int, float)):
        return emit_tensor(R.full(shape, const(fill_value, dtype), dtype), name)
    return emit_tensor(R.full(shape, expr_of(fill_value), dtype), name)


@user_facing
def zeros(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """A tensor of zeros."""
    return emit_tensor(R.zeros(shape, dtype), name)


@user_facing
def ones(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "ones") -> Tensor:
    """A tensor of ones."""
    return emit_tensor(R.ones(shape, dtype), name)


@user_facing
def empty(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "empty") -> Tensor:
    """A tensor with arbitrary elements."""
    allocation = builtin.alloc_tensor(ShapeExpr(tuple(shape)), dtype, runtime_device_index=0)
    return emit_tensor(allocation, name)


@user_facing
def sum(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "sum") -> Tensor:
    """The sum along some axes, or all for None."""
    return emit_tensor(R.sum(expr_of(x), axis, keepdims), name)


@user_facing
def max(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "max") -> Tensor:
    """The maximum along some axes, or all for None."""
    return emit_tensor(R.max(expr_of(x), axis, keepdims), name)


@user_facing
def min(x: Tensor, axis: Axes = None, keepdims: bool = False, name: str = "min") -> Tensor:
    """The least element along some axes, or all for None."""
    return emit_tensor(R.min(expr_of(x), axis, keepdims), name)


@user_facing
def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Running sums along an axis, or of all elements for None; `exclusive` ones begin with 0."""
    return emit_tensor(R.cumsum(expr_of(data), axis, dtype, bool(exclusive)), name)


@user_facing
def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """The elements in order along an axis."""
    return emit_tensor(R.sort(expr_of(x), axis, descending), name)


@user_facing
def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:
    """The indices of the elements in order along an axis."""
    return emit_tensor(R.argsort(expr_of(data), axis, descending, dtype), name)


@user_facing
def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: Literal["both", "values", "indices"] = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The `k` largest or smallest elements along an axis, their indices, or a tuple of both."""
    return wrap_nested(R.topk(expr_of(data), k, axis, ret_type, largest, dtype), name)


class Unary(Protocol):
    """An operator on one tensor; `name` is the hint for the variable."""

    def __call__(self, x: Tensor, name: str = ...) -> Tensor:
        """The result of the operator."""


class Binary(Protocol):
    """An operator on two tensors that broadcast; `name` is the hint for the variable."""

    def __call__(self, a: Tensor, b: Tensor, name: str = ...) -> Tensor:
        """The result of the operator."""


def _unary(op: str, hint: str | None = None) -> Unary:
    leaf = op.rpartition(".")[2]

    @user_facing
    def function(x: Tensor, name: str = hint or leaf) -> Tensor:
        operator: Any = reduce(getattr, op.split("."), R)
        return emit_tensor(operator(expr_of(x)), name)

    function.__name__ = function.__qualname__ = leaf
    function.__doc__ = f"`relax.{op}` of a tensor. Errors: as for the operator."
    return function


def _binary(op: str, hint: str | None = None) -> Binary:
    @user_facing
    def function(a: Tensor, b: Tensor, name: str = hint or op) -> Tensor:
        return emit_tensor(getattr(R, op)(expr_of(a), expr_of(b)), name)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = f"`relax.{op}` of two tensors. Errors: as for the operator."
    return function


add = _binary("add")
subtract = _binary("subtract")
multiply = _binary("multiply", "mul")
divide = _binary("divide")
less = _binary("less")
less_equal = _binary("less_equal")
greater = _binary("greater")
greater_equal = _binary("greater_equal")
equal = _binary("equal")
not_equal = _binary("not_equal")

relu = _unary("nn.relu")
silu = _unary("nn.silu")
sigmoid = _unary("sigmoid")
tanh = _unary("tanh")
exp = _unary("exp")
log = _unary("log")
floor = _unary("floor")
negative = _unary("negative", "neg")
square = _unary("square")
sqrt = _unary("sqrt")


@user_facing
def maximum(x1: Tensor, x2: Tensor, name: str = "maximum") -> Tensor:
    """The greater of each two elements."""
    return emit_tensor(R.maximum(expr_of(x1), expr_of(x2)), name)


@user_facing
def minimum(x1: Tensor, x2: Tensor, name: str = "minimum") -> Tensor:
    """The lesser of each two elements."""
    return emit_tensor(R.minimum(expr_of(x1), expr_of(x2)), name)


@user_facing
def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """min(max(x, 0), 6)."""
    return emit_tensor(relax_nn.relu6(expr_of(x)), name)


@user_facing
def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """x times the distribution function of the normal distribution at x.

    With `approximate="tanh"` the function is approximated.
    """
    op = R.nn.gelu_tanh if approximate == "tanh" else R.nn.gelu
    return emit_tensor(op(expr_of(x)), name)


@user_facing
def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x itself where beta * x exceeds `threshold`."""
    return emit_tensor(R.nn.softplus(expr_of(x), beta=beta, threshold=threshold), name)


@user_facing
def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x where it is positive, and `alpha * x` elsewhere, with an `alpha` for each channel."""
    return emit_tensor(R.nn.prelu(expr_of(x), expr_of(alpha)), name)


@user_facing
def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """The tensor in another datatype, or itself if it has this one."""
    expr = expr_of(x)
    return x if x.dtype == dtype else emit_tensor(R.astype(expr, dtype), name)


@user_facing
def where(condition: Tensor, x1: Tensor, x2: Tensor, name: str = "where") -> Tensor:
    """The elements of `x1` where `condition` is not zero, and of `x2` elsewhere."""
    chosen = astype(condition, "bool")
    return emit_tensor(R.where(expr_of(chosen), expr_of(x1), expr_of(x2)), name)


Sizes: TypeAlias = int | Sequence[int]


@user_facing
def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """Matrix multiplication of the last two axes; the other axes broadcast."""
    return emit_tensor(R.matmul(expr_of(a), expr_of(b), out_dtype=out_dtype), name)


@user_facing
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Tensor:
    """A convolution along one axis, plus a `bias` for each channel.

    Shapes:
        x       (batch, channels, width)
        weight  (channels of the result, channels / groups, width of the window)
    """
    options = {"strides": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return _convolved(R.nn.conv1d, (x, weight, bias), "NCW", name, **options)


def _with_layout(axes: str, words: str) -> Callable[..., Tensor]:
    """The convolution along these axes, of data in any layout."""
    op = f"conv{len(axes)}d"

    @user_facing
    def convolution(
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        data_layout: str = f"NC{axes}",
        name: str = op,
    ) -> Tensor:
        options = {"strides": stride, "padding": padding, "dilation": dilation}
        others = {"groups": groups, "data_layout": data_layout}
        return _convolved(
            getattr(R.nn, op), (x, weight, bias), data_layout, name, **options, **others
        )

    convolution.__name__ = convolution.__qualname__ = op
    convolution.__doc__ = f"""A convolution along {len(axes)} axes, plus a `bias` for each channel.

    Shapes:
        x       (batch, channels, {words}), or as `data_layout` says
        weight  (channels of the result, channels / groups, {words} of the window)
    """
    return convolution


conv2d = _with_layout("HW", "height, width")
conv3d = _with_layout("DHW", "depth, height, width")


@user_facing
def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """A transposed convolution along one axis, plus a `bias` for each channel.

    Shapes:
        x       (batch, channels, width)
        weight  (channels, channels of the result / groups, width of the window)
    """
    options = {"strides": stride, "padding": padding, "output_padding": output_padding}
    options |= {"dilation": dilation, "groups": groups}
    return _convolved(R.nn.conv1d_transpose, (x, weight, bias), "NCW", name, **options)


def _convolved(
    op: Any, operands: tuple[Tensor, Tensor, Tensor | None], layout: str, name: str, **options: Any
) -> Tensor:
    """The convolution, plus a bias along the axis of channels."""
    x, weight, bias = operands
    result = op(expr_of(x), expr_of(weight), **options)
    if bias is None:
        return emit_tensor(result, name)
    shape = [-1 if axis == "C" else 1 for axis in layout]
    if shape.count(-1) != 1 or not layout.isupper():
        raise MisuseError(
            f"a bias is added along one axis C, found layout {layout!r}", about=layout
        )
    return emit_tensor(result + R.reshape(expr_of(bias), shape), name)


@user_facing
def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x), divided by its sum along an axis."""
    return emit_tensor(R.nn.softmax(expr_of(x), axis), name)


@user_facing
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """The tensor with mean 0 and variance 1 along its last axes, times `weight`, plus `bias`.

    Shapes:
        normalized_shape  the dimensions of these axes, or one of them
        weight, bias      `normalized_shape`
    """
    if isinstance(normalized_shape, int):
        normalized_shape = [normalized_shape]
    data, dims = expr_of(x), items_of(normalized_shape, "dimensions")
    gamma = R.ones(dims, x.dtype) if weight is None else expr_of(weight)
    beta = R.zeros(dims, x.dtype) if bias is None else expr_of(bias)
    axes = list(range(-len(dims), 0))
    return emit_tensor(R.nn.layer_norm(data, gamma, beta, axes=axes, epsilon=eps), name)


@user_facing
def rms_norm(
    x: Tensor, weight: Tensor, axes: Sizes, epsilon: float = 1e-5, name: str = "rms_norm"
) -> Tensor:
    """The tensor, divided by the root of the mean of squares along `axes`, times `weight`."""
    return emit_tensor(R.nn.rms_norm(expr_of(x), expr_of(weight), axes, epsilon), name)


@user_facing
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """The tensor with mean 0 and variance 1 in groups of channels, times `weight`, plus `bias`.

    Shapes:
        axes          the axes in a group besides the channels, by default all after the second
        weight, bias  (channels,); without them the result is neither multiplied nor shifted
    """
    data = expr_of(x)
    if not -x.ndim <= channel_axis < x.ndim:
        raise MisuseError(f"group_norm: {x} has no axis {channel_axis}", about=channel_axis)
    channels = x.shape[channel_axis]
    gamma = R.ones((channels,), x.dtype) if weight is None else expr_of(weight)
    beta = R.zeros((channels,), x.dtype) if bias is None else expr_of(bias)
    options = {
        "channel_axis": channel_axis,
        "axes": list(range(2, x.ndim)) if axes is None else axes,
        "epsilon": eps,
    }
    return emit_tensor(R.nn.group_norm(data, gamma, beta, num_groups, **options), name)


@user_facing
def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad"
) -> Tensor:
    """The tensor with elements added before and after it along each axis.

    `pad` has two numbers for each axis. `value` is that of new elements in mode "constant".
    """
    padded = R.nn.pad(expr_of(x), pad_width=pad, pad_mode=mode, pad_value=value)
    return emit_tensor(padded, name)


@user_facing
def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sines and cosines of times at falling frequencies, for each time of a vector.

    Shapes:
        x       (n,)
        result  (n, embedding_dim), in the default datatype; a column of 0 makes odd sizes full
    Rule:
        Ho, Jain & Abbeel, Denoising Diffusion Probabilistic Models, 2020.
    Errors:
        MisuseError: embedding_dim is not an integer >= 2.
    """
    if not isinstance(embedding_dim, int) or embedding_dim < 2:
        raise unexpected(embedding_dim, "embedding_dim is an integer >= 2")
    half = embedding_dim // 2
    times = R.astype(expr_of(x), "float32")
    steps = R.arange(0, half, dtype="float32")
    exponents = (
        const(-math.log(max_period), "float32")
        * steps
        / const(half - downscale_freq_shift, "float32")
    )
    angles = R.expand_dims(times, 1) * R.expand_dims(R.exp(exponents), 0)
    if scale != 1:
        angles = const(scale, "float32") * angles
    waves = [R.cos, R.sin] if flip_sin_to_cos else [R.sin, R.cos]
    result = R.concat([wave(angles) for wave in waves], axis=-1)
    if embedding_dim % 2 == 1:
        result = R.nn.pad(result, (0, 0, 0, 1))
    return emit_tensor(R.astype(result, get_default_dtype()), name)


@user_facing
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """softmax(query @ key^T * scale) @ value for each head.

    Shapes:
        query       (batch, positions, heads, size)
        key, value  (batch, other positions, heads, size)
    Errors:
        MisuseError: there is a mask; `is_causal` is the mask that is supported.
    """
    if attn_mask is not None:
        raise MisuseError(
            "scaled_dot_product_attention takes no attn_mask",
            hint="is_causal=True masks later positions; R.nn.attention has a bias",
            about=attn_mask,
        )
    operands = (expr_of(query), expr_of(key), expr_of(value))
    mask = "TopLeft" if is_causal else None
    return emit_tensor(R.nn.attention(*operands, scale=scale, causal_mask=mask), name)


@user_facing
def interpolate(
    x: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """An image resized to `size`, or by `scale_factor`.

    The mode is "nearest", "bilinear" or "bicubic".

    Errors:
        MisuseError: neither or both of `size` and `scale_factor` are passed, a dimension to scale
            is symbolic, or `recompute_scale_factor` or `antialias` is set.
    """
    for option, setting in (
        ("recompute_scale_factor", recompute_scale_factor),
        ("antialias", antialias),
    ):
        if setting is not None:
            raise MisuseError(f"interpolate takes no {option}", about=setting)
    check_type(mode, str, 'a mode is "nearest", "bilinear" or "bicubic"')
    if (size is None) == (scale_factor is None):
        raise MisuseError("interpolate takes either a size or a scale_factor")
    if size is None:
        assert scale_factor is not None
        size = _scaled(x, scale_factor, data_layout)
    method = "nearest_neighbor" if mode.startswith("nearest") else mode.removeprefix("bi")
    coordinates = "align_corners" if align_corners else "half_pixel"
    if method == "nearest_neighbor":
        coordinates = "asymmetric"
    resized = R.image.resize2d(
        expr_of(x),
        size,
        layout=data_layout,
        method=method,
        coordinate_transformation_mode=coordinates,
    )
    return emit_tensor(resized, name)


def _scaled(x: Tensor, factor: float | Sequence[float], layout: str) -> list[int]:
    """The spatial dimensions times one factor, or a factor each."""
    if len(layout) != x.ndim:
        raise MisuseError(f"an image in layout {layout} has rank {len(layout)}, found {x}", about=x)
    dims: list[Any] = [d for d, axis in zip(x.shape, layout, strict=True) if axis not in "NC"]
    factors = list(factor) if isinstance(factor, Sequence) else [factor] * len(dims)
    if len(factors) != len(dims) or not all(isinstance(f, (int, float)) for f in factors):
        raise unexpected(factor, f"scale_factor is a number, or {len(dims)} of them")
    if any(isinstance(dim, tir.PrimExpr) for dim in dims):
        raise MisuseError(f"only literal dimensions are scaled, found shape {x.shape}", about=x)
    return [int(dim * f) for dim, f in zip(dims, factors, strict=True)]


@user_facing
def ccl_allreduce(
    x: Tensor, op_type: str = "sum", in_group: bool = True, name: str = "ccl_allreduce"
) -> Tensor:
    """The sum, or another reduction, of the tensors of all workers."""
    return emit_tensor(R.ccl.allreduce(expr_of(x), op_type, in_group), name)


@user_facing
def ccl_allgather(x: Tensor, num_workers: int, name: str = "ccl_allgather") -> Tensor:
    """The tensors of all workers, one after the other."""
    return emit_tensor(R.ccl.allgather(expr_of(x), num_workers), name)


@user_facing
def ccl_broadcast_from_worker0(x: Tensor, name: str = "broadcast_from_worker") -> Tensor:
    """The tensor of the first worker."""
    return emit_tensor(R.ccl.broadcast_from_worker0(expr_of(x)), name)
