"""Operators of neural networks: matmul, convolutions, normalisations, attention, images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir.relax.nodes import const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.tir import expr as tir
from relaxpy.plugins.nn.core import Tensor, emit_tensor, expr_of, get_default_dtype, items_of
from relaxpy.support.entry import user_facing

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
    return emit_tensor(R.add(result, R.reshape(expr_of(bias), shape)), name)


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
    exponents = R.divide(
        R.multiply(const(-math.log(max_period), "float32"), steps),
        const(half - downscale_freq_shift, "float32"),
    )
    angles = R.multiply(R.expand_dims(times, 1), R.expand_dims(R.exp(exponents), 0))
    if scale != 1:
        angles = R.multiply(const(scale, "float32"), angles)
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
