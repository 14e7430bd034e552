"""Operators of networks and images by PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from tests.ir.relax.op.torch_functions.base import (
    NoCounterpartError,
    Table,
    moved,
    of_dtype,
    torch,
    vjp,
)

AXES = "DHW"


def _functions() -> Any:
    return torch.nn.functional


def _layouts(rank: int) -> tuple[str, str, str]:
    axes = AXES[-rank:]
    return f"NC{axes}", f"OI{axes}", f"IO{axes}"


def _pad(x: Any, padding: Sequence[int], value: float = 0.0) -> Any:
    """The last axes with more elements, as many before all of them, then after."""
    rank = len(padding) // 2
    widths = [width for k in reversed(range(rank)) for width in (padding[k], padding[rank + k])]
    return _functions().pad(x, widths, value=value)


def _convolution(rank: int) -> Callable[..., Any]:
    data, kernel, _ = _layouts(rank)

    def convolve(
        x: Any, w: Any, strides: Any, padding: Any, dilation: Any, groups: int, **more: Any
    ) -> Any:
        x, w = moved(x, more["data_layout"], data), moved(w, more["kernel_layout"], kernel)
        if more["out_dtype"]:
            x, w = (v.to(of_dtype(more["out_dtype"])) for v in (x, w))
        conv = getattr(_functions(), f"conv{rank}d")
        out = conv(_pad(x, padding), w, None, strides, 0, dilation, groups)
        return moved(out, data, more["out_layout"])

    return convolve


def _transposed(rank: int) -> Callable[..., Any]:
    data, _, kernel = _layouts(rank)

    def convolve(
        x: Any,
        w: Any,
        strides: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
        **more: Any,
    ) -> Any:
        x, w = moved(x, more["data_layout"], data), moved(w, more["kernel_layout"], kernel)
        if more["out_dtype"]:
            x, w = (v.to(of_dtype(more["out_dtype"])) for v in (x, w))
        conv = getattr(_functions(), f"conv_transpose{rank}d")
        out = conv(x, w, None, strides, 0, output_padding, groups, dilation)
        return moved(_pad(out, [-width for width in padding]), data, more["out_layout"])

    return convolve


def _sizes(x: Any, padding: Any, pool: Any, strides: Any, dilation: Any, ceil: bool) -> list[int]:
    """How many windows there are along each axis."""
    rank, out = len(pool), []
    for k in range(rank):
        free = x.shape[2 + k] + padding[k] + padding[rank + k] - dilation[k] * (pool[k] - 1) - 1
        out.append((free + (strides[k] - 1 if ceil else 0)) // strides[k] + 1)
    return out


def _filled(x: Any, p: Any, *window: Any, value: float) -> Any:
    """The data with its padding, and with more after it that `ceil_mode` needs."""
    pool, strides, dilation, ceil = window
    rank, counts = len(pool), _sizes(x, p, pool, strides, dilation, ceil)
    x = _pad(x, p, value)
    more = [
        max(0, (counts[k] - 1) * strides[k] + dilation[k] * (pool[k] - 1) + 1 - x.shape[2 + k])
        for k in range(rank)
    ]
    return _pad(x, [0] * rank + more, value)


def _max_pool(rank: int) -> Callable[..., Any]:
    data = _layouts(rank)[0]

    def pool(
        x: Any,
        pool_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: str,
    ) -> Any:
        window = (pool_size, strides, dilation, ceil_mode)
        if x.dtype == torch.bool:
            raise NoCounterpartError("Booleans")
        lowest = -math.inf if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
        x = _filled(moved(x, layout, data), padding, *window, value=lowest)
        pool = getattr(_functions(), f"max_pool{rank}d")
        return moved(pool(x, pool_size, strides, 0, dilation), data, out_layout)

    return pool


def _avg_pool(rank: int) -> Callable[..., Any]:
    """The sum of each window over the number of its elements, which is a pool of ones."""
    data = _layouts(rank)[0]

    def pool(
        x: Any,
        pool_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: str,
    ) -> Any:
        x = moved(x, layout, data)
        dtype, whole = x.dtype, not x.dtype.is_floating_point
        x = x.long() if whole else x
        conv = getattr(_functions(), f"conv{rank}d")
        kernel = torch.ones((1, 1, *pool_size), dtype=x.dtype)

        def total(v: Any, p: Any) -> Any:
            v = _filled(v, p, pool_size, strides, dilation, ceil_mode, value=0.0)
            return conv(v.flatten(0, 1).unsqueeze(1), kernel, None, strides, 0, dilation)

        none = [0] * len(padding)
        ones = torch.ones_like(x)
        if count_include_pad:
            ones = _pad(ones, padding, 1.0)
        sums = total(_pad(x, padding), none)
        counts = total(ones if count_include_pad else _pad(ones, padding), none)
        out = torch.div(sums, counts.clamp(min=1), rounding_mode="trunc" if whole else None)
        return moved(out.reshape(*x.shape[:2], *out.shape[2:]), data, out_layout).to(dtype)

    return pool


def _plain_avg_pool(rank: int) -> Callable[..., Any]:
    """PyTorch's pool, where it has the options."""
    data, ours = _layouts(rank)[0], _avg_pool(rank)

    def pool(
        x: Any,
        pool_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: str,
    ) -> Any:
        before, after = padding[:rank], padding[rank:]
        moved_x = moved(x, layout, data)
        counts = _sizes(moved_x, padding, pool_size, strides, dilation, ceil_mode)
        inside = all(
            (counts[k] - 1) * strides[k] < moved_x.shape[2 + k] + before[k] for k in range(rank)
        )
        if (
            x.dtype.is_floating_point
            and tuple(before) == tuple(after)
            and all(2 * p <= n for p, n in zip(before, pool_size, strict=True))
            and set(dilation) == {1}
            and inside
        ):
            function = getattr(_functions(), f"avg_pool{rank}d")
            out = function(moved_x, pool_size, strides, before, ceil_mode, count_include_pad)
            return moved(out, data, out_layout)
        return ours(
            x,
            pool_size,
            strides,
            padding,
            dilation,
            ceil_mode,
            count_include_pad,
            layout,
            out_layout,
        )

    return pool


def _adaptive_pool(rank: int) -> Callable[..., Any]:
    data = _layouts(rank)[0]

    def pool(x: Any, output_size: Any, layout: str, out_layout: str) -> Any:
        x = moved(x, layout, data)
        if not x.dtype.is_floating_point:
            raise NoCounterpartError("integers")
        sizes = x.shape[2:] if output_size is None else output_size
        function = getattr(_functions(), f"adaptive_avg_pool{rank}d")
        return moved(function(x, tuple(sizes)), data, out_layout)

    return pool


def _backward(function: Callable[..., Any], wrt: int) -> Callable[..., Any]:
    """The gradient of an operand of `function` whose other operand is known."""

    def gradient(g: Any, other: Any, shape: Any, **attrs: Any) -> Any:
        x = torch.zeros(tuple(shape), dtype=g.dtype)
        return vjp(lambda v: function(*((v, other) if wrt == 0 else (other, v)), **attrs), g, x)

    return gradient


def _of_shape(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradient of the operand of a linear function."""

    def gradient(g: Any, shape: Any, **attrs: Any) -> Any:
        x = torch.zeros(tuple(shape), dtype=g.dtype)
        return vjp(lambda v: function(v, **attrs), g, x)

    return gradient


def _selected(rank: int) -> Callable[..., Any]:
    data = _layouts(rank)[0]

    def select(
        values: Any,
        x: Any,
        pool_size: Any,
        strides: Any,
        padding: Any,
        dilation: Any,
        ceil_mode: bool,
        count_include_pad: bool,
        layout: str,
        out_layout: str,
    ) -> Any:
        window = (pool_size, strides, dilation, ceil_mode)
        x = _filled(moved(x, layout, data), padding, *window, value=-math.inf)
        values = _filled(moved(values, layout, data), padding, *window, value=0.0)
        pool = getattr(_functions(), f"max_pool{rank}d")
        _, index = pool(x, pool_size, strides, 0, dilation, return_indices=True)
        out = values.flatten(2).gather(2, index.flatten(2)).reshape(index.shape)
        return moved(out, data, out_layout)

    return select


def _normalized(x: Any, axes: Any, epsilon: float) -> Any:
    variance, mean = torch.var_mean(x, dim=tuple(axes), correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon)


def _along(parameter: Any, x: Any, axis: int) -> Any:
    """A parameter of channels as a tensor that broadcasts."""
    return parameter.reshape([-1 if k == axis % x.ndim else 1 for k in range(x.ndim)])


def _layer_norm(
    x: Any, gamma: Any, beta: Any, axes: Any, epsilon: float, center: bool, scale: bool
) -> Any:
    order = [a % x.ndim for a in axes]
    rest = [k for k in range(x.ndim) if k not in order]
    back = [(rest + order).index(k) for k in range(x.ndim)]
    out = _functions().layer_norm(
        x.permute(rest + order),
        gamma.shape,
        gamma if scale else None,
        beta if center else None,
        epsilon,
    )
    return out.permute(back)


def _rms_norm(x: Any, weight: Any, axes: Any, epsilon: float) -> Any:
    order = [a % x.ndim for a in axes]
    rest = [k for k in range(x.ndim) if k not in order]
    back = [(rest + order).index(k) for k in range(x.ndim)]
    out = _functions().rms_norm(x.permute(rest + order), weight.shape, weight, epsilon)
    return out.permute(back)


def _batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    mean: Any,
    var: Any,
    axis: int,
    epsilon: float,
    center: bool,
    scale: bool,
    momentum: float,
    training: bool,
) -> Any:
    """PyTorch moves the variance by that of a sample, so the moments are computed here."""
    if not training:
        out = (x - _along(mean, x, axis)) / torch.sqrt(_along(var, x, axis) + epsilon)
        out = out * _along(gamma, x, axis) if scale else out
        return out + _along(beta, x, axis) if center else out, mean, var
    channels = x.movedim(axis, 1) if x.ndim > 1 else x
    out = _functions().batch_norm(
        channels,
        None,
        None,
        gamma if scale else torch.ones_like(gamma),
        beta if center else None,
        True,
        momentum,
        epsilon,
    )
    out = out.movedim(1, axis) if x.ndim > 1 else out
    others = tuple(k for k in range(x.ndim) if k != axis % x.ndim)
    batch_var, batch_mean = torch.var_mean(x, dim=others, correction=0)
    return (
        out,
        (1 - momentum) * mean + momentum * batch_mean,
        (1 - momentum) * var + momentum * batch_var,
    )


def _group_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    channel_axis %= x.ndim
    axes = [a % x.ndim for a in axes]
    others = [k for k in range(x.ndim) if k != channel_axis and k not in axes]
    order = [*others, channel_axis, *axes]
    moved_x = x.permute(order)
    batch = moved_x.reshape(-1, *moved_x.shape[len(others) :]) if others else moved_x[None]
    out = _functions().group_norm(
        batch, num_groups, gamma if scale else None, beta if center else None, epsilon
    )
    return out.reshape(moved_x.shape).permute([order.index(k) for k in range(x.ndim)])


def _instance_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    channel_axis: int,
    axes: Any,
    epsilon: float,
    center: bool,
    scale: bool,
) -> Any:
    out = _normalized(x, axes, epsilon)
    out = out * _along(gamma, x, channel_axis) if scale else out
    return out + _along(beta, x, channel_axis) if center else out


def _pixel_shuffle(x: Any, upscale_factor: int) -> Any:
    return _functions().pixel_shuffle(x, upscale_factor)


def _pad_nd(x: Any, pad_width: Any, pad_mode: str, pad_value: float) -> Any:
    pairs = [tuple(pad_width[2 * k : 2 * k + 2]) for k in range(x.ndim)]
    if pad_mode == "constant":
        flat = [width for pair in reversed(pairs) for width in pair]
        return _functions().pad(x, flat, value=pad_value)
    if any(width < 0 for pair in pairs for width in pair):
        raise NoCounterpartError("negative widths")
    for k, pair in enumerate(pairs):  # PyTorch pads the last axis of three in these modes
        if pair != (0, 0):
            line = x.movedim(k, -1)
            flat = line.reshape(1, -1, line.shape[-1])
            flat = _functions().pad(flat, pair, mode=pad_mode)
            x = flat.reshape(*line.shape[:-1], flat.shape[-1]).movedim(-1, k)
    return x


def _nll_loss(
    predictions: Any, targets: Any, weights: Any = None, *, reduction: str, ignore_index: int
) -> Any:
    if weights is not None and weights.requires_grad:  # PyTorch does not derive by them
        used = targets.long() != ignore_index
        classes = torch.where(used, targets.long(), 0)
        axis = min(predictions.ndim - 1, 1)
        chosen = predictions.gather(axis, classes.unsqueeze(axis)).squeeze(axis)
        share = torch.where(used, weights[classes], 0)
        losses = -share * chosen
        if reduction == "none":
            return losses
        return losses.sum() / (share.sum() if reduction == "mean" else 1)
    return _functions().nll_loss(
        predictions, targets.long(), weights, reduction=reduction, ignore_index=ignore_index
    )


def _cross_entropy(predictions: Any, labels: Any) -> Any:
    rows = predictions.shape[0] if predictions.ndim > 1 else 1
    return -(predictions * labels).sum() / rows


def _mask(queries: int, keys: int, causal_mask: str | None, window_size: int | None) -> Any:
    rows = torch.arange(queries)[:, None] + (keys - queries if causal_mask == "BottomRight" else 0)
    columns = torch.arange(keys)
    allowed = torch.ones((queries, keys), dtype=torch.bool)
    if causal_mask:
        allowed &= columns <= rows
    if window_size:
        allowed &= columns > rows - window_size
    return allowed


def _attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    *,
    scale: Any,
    causal_mask: Any,
    window_size: Any,
) -> Any:
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    if not query.shape[3]:
        raise NoCounterpartError("heads of width 0")
    mask = _mask(q.shape[2], k.shape[2], causal_mask, window_size)
    if bias is not None:
        mask = torch.where(mask, bias, -math.inf)
    elif causal_mask is None and window_size is None:
        mask = None
    out = _functions().scaled_dot_product_attention(
        q, k, v, mask, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return out.transpose(1, 2)


def _sequences(
    queries: Any, keys: Any, values: Any, starts: Any, key_starts: Any, **attrs: Any
) -> Any:
    rows, columns = (
        [b - a for a, b in pairwise(s)] for s in (starts.tolist(), key_starts.tolist())
    )
    total = [
        x.split([*sizes, x.shape[1] - sum(sizes)], 1)[:-1]
        for x, sizes in ((queries, rows), (keys, columns), (values, columns))
    ]
    out = [_attention(*operands, **attrs) for operands in zip(*total, strict=True)]
    rest = queries.new_zeros(
        (queries.shape[0], queries.shape[1] - sum(rows), queries.shape[2], values.shape[3])
    )
    return torch.cat([*out, rest], 1)


def _var_len(
    queries: Any,
    keys: Any,
    values: Any,
    starts: Any,
    length: Any,
    key_starts: Any = None,
    key_length: Any = None,
    **attrs: Any,
) -> Any:
    return _sequences(
        queries, keys, values, starts, starts if key_starts is None else key_starts, **attrs
    )


def _var_len_backward(
    g: Any, queries: Any, keys: Any, values: Any, starts: Any, key_starts: Any = None, **attrs: Any
) -> Any:
    others = starts if key_starts is None else key_starts
    return vjp(lambda *x: _sequences(*x, starts, others, **attrs), g, queries, keys, values)


def _interpolate(rank: int) -> Callable[..., Any]:
    """PyTorch has three ways to place the elements."""
    target = _layouts(rank)[0]
    linear = {2: "bilinear", 3: "trilinear"}[rank]

    def resize(
        data: Any,
        size: Any,
        roi: Any,
        layout: str,
        method: str,
        coordinate_transformation_mode: str,
        rounding_method: str,
        cubic_alpha: float,
        cubic_exclude: int,
        extrapolation_value: float,
        out_dtype: Any,
    ) -> Any:
        x = moved(data, layout, target)
        mode, place = method, coordinate_transformation_mode
        if not x.dtype.is_floating_point or out_dtype:
            raise NoCounterpartError("datatypes")
        if mode == "nearest_neighbor" and (place, rounding_method) == ("asymmetric", "floor"):
            out = _functions().interpolate(x, tuple(size), mode="nearest")
        elif mode == "nearest_neighbor" and (place, rounding_method) == (
            "half_pixel",
            "round_prefer_ceil",
        ):
            out = _functions().interpolate(x, tuple(size), mode="nearest-exact")
        elif mode == "linear" and place in ("half_pixel", "align_corners"):
            out = _functions().interpolate(
                x, tuple(size), mode=linear, align_corners=place == "align_corners"
            )
        elif (
            mode == "cubic"
            and place in ("half_pixel", "align_corners")
            and rank == 2
            and cubic_alpha == -0.75
            and not cubic_exclude
        ):
            out = _functions().interpolate(
                x, tuple(size), mode="bicubic", align_corners=place == "align_corners"
            )
        else:
            raise NoCounterpartError(f"{mode}, {place}, {rounding_method}")
        return moved(out, target, layout)

    return resize


def _resize_backward(rank: int) -> Callable[..., Any]:
    resize = _interpolate(rank)

    def backward(g: Any, data: Any, **attrs: Any) -> Any:
        layout = attrs["layout"]
        size = [g.shape[layout.index(axis)] for axis in AXES[-rank:]]
        return vjp(lambda v: resize(v, size, out_dtype=None, **attrs), g, data)

    return backward


def _grid_sample(
    data: Any, grid: Any, method: str, layout: str, padding_mode: str, align_corners: bool
) -> Any:
    if 0 in (*data.shape, *grid.shape):
        raise NoCounterpartError("empty data")
    return _functions().grid_sample(data, grid.movedim(1, -1), method, padding_mode, align_corners)


def _by_backward(function: Callable[..., Any]) -> Callable[..., Any]:
    """The gradients of the operands of `function`."""
    return lambda g, *x, **attrs: vjp(lambda *v: function(*v, **attrs), g, *x)


def _nll_backward(g: Any, predictions: Any, *others: Any, **attrs: Any) -> Any:
    return vjp(lambda x: _nll_loss(x, *others, **attrs), g, predictions)


TABLE: Table = {
    **{f"nn.conv{n}d": _convolution(n) for n in (1, 2, 3)},
    **{f"nn.conv{n}d_transpose": _transposed(n) for n in (1, 2, 3)},
    **{f"grad.conv{n}d_backward_data": _backward(_convolution(n), 0) for n in (1, 2, 3)},
    **{f"grad.conv{n}d_backward_weight": _backward(_convolution(n), 1) for n in (1, 2, 3)},
    **{f"nn.max_pool{n}d": _max_pool(n) for n in (1, 2, 3)},
    **{f"grad.max_pool{n}d_backward": _by_backward(_max_pool(n)) for n in (1, 2, 3)},
    **{f"grad.max_pool{n}d_selected": _selected(n) for n in (1, 2, 3)},
    **{f"nn.avg_pool{n}d": _plain_avg_pool(n) for n in (1, 2, 3)},
    **{f"grad.avg_pool{n}d_backward": _by_backward(_plain_avg_pool(n)) for n in (1, 2, 3)},
    **{f"nn.adaptive_avg_pool{n}d": _adaptive_pool(n) for n in (1, 2, 3)},
    **{f"grad.adaptive_avg_pool{n}d_backward": _of_shape(_adaptive_pool(n)) for n in (1, 2, 3)},
    "nn.relu": lambda x: torch.relu(x),
    "nn.leakyrelu": lambda x, alpha: _functions().leaky_relu(x, alpha),
    "nn.prelu": lambda x, alpha, axis: (
        _functions().prelu(x.movedim(axis, 1), alpha).movedim(1, axis)
        if x.ndim > 1
        else torch.where(x > 0, x, alpha * x)
    ),
    "nn.selu": lambda x: torch.selu(x),
    "nn.silu": lambda x: _functions().silu(x),
    "nn.gelu": lambda x: _functions().gelu(x),
    "nn.gelu_tanh": lambda x: _functions().gelu(x, approximate="tanh"),
    "nn.softplus": lambda x, beta, threshold: _functions().softplus(x, beta, threshold),
    "nn.softmax": lambda x, axis: torch.softmax(x, axis),
    "nn.log_softmax": lambda x, axis: torch.log_softmax(x, axis),
    "nn.dropout": lambda x, rate: (
        _functions().dropout(x, rate, training=False),
        torch.ones_like(x),
    ),
    "nn.layer_norm": _layer_norm,
    "nn.rms_norm": _rms_norm,
    "nn.batch_norm": _batch_norm,
    "nn.group_norm": _group_norm,
    "nn.instance_norm": _instance_norm,
    "nn.pixel_shuffle": _pixel_shuffle,
    "nn.pad": _pad_nd,
    "nn.nll_loss": _nll_loss,
    "grad.nll_loss_backward": _nll_backward,
    "nn.cross_entropy_with_logits": _cross_entropy,
    "nn.attention": _attention,
    "nn.attention_bias": _attention,
    "nn.attention_var_len": _var_len,
    "grad.attention_var_len_backward": _var_len_backward,
    "image.resize2d": _interpolate(2),
    "image.resize3d": _interpolate(3),
    "grad.resize2d_backward": _resize_backward(2),
    "grad.resize3d_backward": _resize_backward(3),
    "image.grid_sample": _grid_sample,
    "grad.grid_sample_backward": _by_backward(_grid_sample),
    "image.affine_grid": lambda x, size, align_corners: (
        _functions().affine_grid(x, (x.shape[0], 1, *size), align_corners).movedim(-1, 1)
    ),
}
