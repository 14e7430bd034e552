"""Gradients of operators as functions of simpler ones, where PyTorch has no decomposition."""

# ruff: noqa: D103

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import torch

from relaxpy.plugins.torch.ops.linear import each

F: Any = torch.nn.functional
aten: Any = torch.ops.aten
Tensor: TypeAlias = Any
_F = TypeVar("_F", bound=Callable[..., Any])

#: Functions by the names of the operators that they compute, as converters are.
DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}


def decomposition(*names: str, namespace: str = "aten") -> Callable[[_F], _F]:
    """Register a function as the decomposition of operators, if PyTorch has these."""

    def register(function: _F) -> _F:
        DECOMPOSITIONS.update((f"{namespace}.{name}", function) for name in names)
        return function

    return register


# ---- convolutions


@decomposition("convolution_backward")
def convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    count = x.dim() - 2
    strides, pads, dilations = (each(v, count) for v in (stride, padding, dilation))
    window = (strides, pads, dilations)
    of_x = of_weight = of_bias = None
    if mask[0]:
        more = [0] * count
        if not transposed:
            more = [
                x.shape[k + 2]
                - ((grad.shape[k + 2] - 1) * strides[k] - 2 * pads[k])
                - dilations[k] * (weight.shape[k + 2] - 1)
                - 1
                for k in range(count)
            ]
        # of a number that is not known, the largest that it can be: what is too much is cut off
        more = [n if isinstance(n, int) else strides[k] - 1 for k, n in enumerate(more)]
        of_x = aten.convolution(grad, weight, None, *window, not transposed, more, groups)
        of_x = _narrowed(of_x, x.shape)
    if mask[1]:
        images, kernel = (grad, x) if transposed else (x, grad)
        of_weight = _weight_gradient(images, kernel, window, groups)
        of_weight = _narrowed(of_weight, weight.shape)
    if mask[2]:
        of_bias = grad.sum([0, *range(2, count + 2)])
    return of_x, of_weight, of_bias


def _weight_gradient(images: Tensor, grad: Tensor, window: Any, groups: int) -> Tensor:
    """Sums over the batch of images multiplied by the gradient as a kernel of as many channels."""
    strides, pads, dilations = window
    batch, channels, *sizes = images.shape
    inner = channels // groups
    apart = images.reshape(batch, groups, inner, *sizes).transpose(0, 2)
    rows = apart.reshape(inner, groups * batch, *sizes)
    kernel = grad.transpose(0, 1)
    zeros = [0] * len(sizes)
    found = aten.convolution(rows, kernel, None, dilations, pads, strides, False, zeros, groups)
    return found.transpose(0, 1)


def _narrowed(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """The beginning of each spatial axis, which has as many elements as another tensor's."""
    for axis in range(2, x.dim()):
        x = x.narrow(axis, 0, shape[axis])
    return x


# ---- maps that are linear along each axis: means of windows, padded and resized images


def _transposed(
    grad: Tensor, sizes: Sequence[Any], along: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """The gradient of the operand of a map that is linear along each of the last axes.

    `along(k, unit)` is the map along the k-th of them, of the columns of the unit matrix, which has
    the shape `(1, size, size, 1)`.
    """
    count = len(sizes)
    for k, size in enumerate(sizes):
        axis = grad.dim() - count + k
        unit = torch.eye(size, dtype=grad.dtype, device=grad.device)[None, :, :, None]
        matrix = along(k, unit)[0, :, :, 0]
        grad = torch.matmul(grad.transpose(axis, -1), matrix.mT).transpose(axis, -1)
    return grad


def _moved(grad: Tensor, sizes: Sequence[Any], along: Callable[[int, Tensor], Tensor]) -> Tensor:
    """The gradient of the operand of a map that selects elements along each of the last axes.

    `along(k, x)` is the map along the k-th of them, of x of the shape `(1, 1, size, 1)`.
    """
    dtype = grad.dtype
    grad = grad.to(torch.promote_types(dtype, torch.float32))
    for k, size in enumerate(sizes):
        axis = grad.dim() - len(sizes) + k
        numbers = torch.arange(size, dtype=torch.float64, device=grad.device)[None, None, :, None]
        zeros = grad.new_zeros([*grad.shape[:axis], size, *grad.shape[axis + 1 :]])
        grad = zeros.index_add(axis, along(k, numbers).flatten().long(), grad)
    return grad.to(dtype)


@decomposition("avg_pool2d_backward", "avg_pool3d_backward")
def avg_pool_backward(
    grad: Tensor,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil: bool,
    inside: bool,
    divisor: int | None,
) -> Tensor:
    count = 2 if x.dim() < 4 else min(len(kernel), x.dim() - 1)
    kernels, pads = each(kernel, count), each(padding, count)
    strides = each(stride, count) if stride else kernels

    def along(k: int, unit: Tensor) -> Tensor:
        window = ([kernels[k], 1], [strides[k], 1], [pads[k], 0])
        return F.avg_pool2d(unit, *window, ceil, inside, divisor and 1)

    found = _transposed(grad, x.shape[-count:], along)
    return found / divisor if divisor else found


def _adaptive_mean_gradient(count: int, grad: Tensor, x: Tensor) -> Tensor:
    sizes, outputs = x.shape[-count:], grad.shape[-count:]
    if all(size == 1 for size in outputs):
        return (grad / math.prod(sizes)).expand(x.shape)

    def along(k: int, unit: Tensor) -> Tensor:
        return aten._adaptive_avg_pool2d(unit, [outputs[k], 1])

    return _transposed(grad, sizes, along)


for _count in (2, 3):
    decomposition(f"_adaptive_avg_pool{_count}d_backward")(partial(_adaptive_mean_gradient, _count))


@decomposition(*(f"replication_pad{count}d_backward" for count in (1, 2, 3)))
def replication_pad_backward(grad: Tensor, x: Tensor, padding: Sequence[int]) -> Tensor:
    count = len(padding) // 2

    def along(k: int, unit: Tensor) -> Tensor:
        before, after = padding[2 * (count - 1 - k) : 2 * (count - k)]
        return F.pad(unit, [0, 0, before, after], mode="replicate")

    return _moved(grad, x.shape[-count:], along)


def _resize_gradient(name: str, options: int = 0) -> Callable[..., Any]:
    """The gradient of resizing by an operator with that many arguments before the scales."""
    resize = getattr(aten, name)
    transposed = _moved if "nearest" in name else _transposed

    def backward(grad: Tensor, size: Any, old: Any, *arguments: Any) -> Tensor:
        scales = arguments[options:]

        def along(k: int, unit: Tensor) -> Tensor:
            scale = scales[k] if k < len(scales) else None
            return resize(unit, [size[k], 1], *arguments[:options], scale, None)

        return transposed(grad, old[2:], along)

    return backward


for _count, _kind in ((1, "linear"), (2, "bilinear"), (3, "trilinear")):
    decomposition(f"upsample_{_kind}{_count}d_backward")(_resize_gradient("upsample_bilinear2d", 1))
    for _prefix in ("upsample_nearest", "_upsample_nearest_exact"):
        decomposition(f"{_prefix}{_count}d_backward")(_resize_gradient(f"{_prefix}2d"))
for _name in ("upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"):
    decomposition(f"{_name}_backward")(_resize_gradient(_name, 1))


# ---- maxima of windows, whose places are known


def _scattered(count: int, grad: Tensor, x: Tensor, *arguments: Any) -> Tensor:
    """The gradients of maxima at their places in each channel, which are the last argument."""
    last = x.dim() - count
    flat = grad.new_zeros([*x.shape[:last], math.prod(x.shape[last:])])
    places = arguments[-1].flatten(last)
    return flat.scatter_add(-1, places, grad.flatten(last)).reshape(x.shape)


for _name, _count in (
    ("adaptive_max_pool2d", 2),
    ("adaptive_max_pool3d", 3),
    ("fractional_max_pool2d", 2),
    ("fractional_max_pool3d", 3),
    ("max_pool3d_with_indices", 3),
):
    decomposition(f"{_name}_backward")(partial(_scattered, _count))


# ---- attention


@decomposition("_scaled_dot_product_flash_attention_for_cpu")
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    key, value = _of_each(key, query), _of_each(value, query)
    scores = _scores(query, key, causal, attn_mask, scale)
    total = scores.logsumexp(-1)
    weights = _weights(scores, total)
    return torch.matmul(weights, value.to(weights.dtype)).to(query.dtype), total


@decomposition("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    total: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    heads = key.shape[1]
    key, value = _of_each(key, query), _of_each(value, query)
    weights = _weights(_scores(query, key, causal, attn_mask, scale), total)
    wide = weights.dtype
    grad, out = grad.to(wide), out.to(wide)
    of_value = torch.matmul(weights.mT, grad)
    of_weights = torch.matmul(grad, value.to(wide).mT)
    of_scores = weights * (of_weights - (grad * out).sum(-1, keepdim=True))
    factor = scale if scale is not None else query.shape[-1] ** -0.5
    of_query = torch.matmul(of_scores, key.to(wide)) * factor
    of_key = torch.matmul(of_scores.mT, query.to(wide)) * factor
    if heads != query.shape[1]:
        of_key, of_value = (x.unflatten(1, (heads, -1)).sum(2) for x in (of_key, of_value))
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


def _of_each(x: Tensor, query: Tensor) -> Tensor:
    """Keys or values with each head as often as queries share it."""
    count = query.shape[1] // x.shape[1]
    return x if count == 1 else x.repeat_interleave(count, 1)


def _scores(
    query: Tensor, key: Tensor, causal: bool, mask: Tensor | None, scale: float | None
) -> Tensor:
    """The attention scores, at least in float32; causal and boolean masks set them to -inf."""
    wide = torch.promote_types(query.dtype, torch.float32)
    factor = scale if scale is not None else query.shape[-1] ** -0.5
    scores = torch.matmul(query.to(wide) * factor, key.to(wide).mT)
    if causal:
        places = [torch.arange(size, device=query.device) for size in scores.shape[-2:]]
        scores = torch.where(places[1] <= places[0][:, None], scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return torch.where(mask, scores, -math.inf)
    return scores + mask


def _weights(scores: Tensor, total: Tensor) -> Tensor:
    """The exponentials of scores over their sum; zeros where all are hidden."""
    hidden = total == -math.inf
    return torch.exp(scores - torch.where(hidden, 0.0, total)[..., None])


# ---- distances


def _distance_gradient(grad: Tensor, apart: Tensor, p: float, distance: Tensor) -> Tensor:
    """The gradient of norms along a last axis with respect to the differences they measure."""
    grad, distance = grad[..., None], distance[..., None]
    if p == 0:
        return torch.zeros_like(apart) * grad
    if p == 1:
        return grad * apart.sign()
    if p == math.inf:
        return grad * apart.sign() * (apart.abs() == distance)
    some = distance != 0
    if p == 2:
        unit = apart / torch.where(some, distance, 1.0)
    else:
        size = apart.abs()
        power = torch.where(size == 0, 0.0, size ** (p - 1))
        unit = apart.sign() * power / torch.where(some, distance, 1.0) ** (p - 1)
    return torch.where(some, grad * unit, 0.0)


@decomposition("_cdist_backward")
def cdist_backward(grad: Tensor, a: Tensor, b: Tensor, p: float, distance: Tensor) -> Tensor:
    apart = a[..., :, None, :] - b[..., None, :, :]
    return _distance_gradient(grad, apart, p, distance).sum(-2)


def pairs_of_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The two rows of each pair in order; `torch.triu_indices` has one program for each size."""
    count = x.shape[0]
    pair = torch.arange(count * (count - 1) // 2, device=x.device)
    # The first pair of row r is r (2 n - 1 - r) / 2, where the root is exact.
    odd = 2 * count - 1
    one = ((odd - torch.sqrt((odd * odd - 8 * pair).double())) / 2).long()
    return one, pair - one * (odd - one) // 2 + one + 1


@decomposition("_pdist_backward")
def pdist_backward(grad: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    one, other = pairs_of_rows(x)
    each = _distance_gradient(grad, x[one] - x[other], p, distance)
    return torch.zeros_like(x).index_add(0, one, each).index_add(0, other, -each)


# ---- rows that are selected


@decomposition("masked_scatter_backward")
def masked_scatter_backward(grad: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    chosen = mask.expand(grad.shape).flatten()
    number = torch.where(chosen, chosen.cumsum(0) - 1, 0)
    kept = torch.where(chosen, grad.flatten(), 0)
    return grad.new_zeros([math.prod(sizes)]).scatter_add(0, number, kept).reshape(sizes)


@decomposition("_embedding_bag_backward")
def embedding_bag_backward(
    grad: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    size: Tensor,
    maxima: Tensor,
    count: Any,
    by_frequency: bool,
    mode: int,
    sparse: bool,
    factors: Tensor | None,
    padding: int = -1,
) -> Tensor:
    if mode != 2:
        bag = _bags(indices, offsets)
    return embedding_bag_dense_backward(
        grad, indices, bag, size, maxima, count, by_frequency, mode, factors, padding
    )


def _bags(indices: Tensor, offsets: Tensor) -> Tensor:
    """The number of the bag that each index is in."""
    places = torch.arange(indices.shape[0], device=indices.device)
    return (places[:, None] >= offsets).sum(-1) - 1


@decomposition("_embedding_bag_dense_backward")
def embedding_bag_dense_backward(
    grad: Tensor,
    indices: Tensor,
    bag: Tensor,
    size: Tensor,
    maxima: Tensor,
    count: Any,
    by_frequency: bool,
    mode: int,
    factors: Tensor | None,
    padding: int = -1,
) -> Tensor:
    zeros = grad.new_zeros([count, grad.shape[1]])
    if mode == 2:
        some = size.reshape(-1, 1) > 0
        at = torch.where(some, maxima, 0).long()
        return zeros.scatter_add(0, at, torch.where(some, grad, 0.0))
    rows = grad[bag]
    if mode == 1:
        rows = rows / size[bag][:, None]
    if factors is not None:
        rows = rows * factors[:, None]
    if by_frequency:
        often = torch.zeros_like(zeros[:, 0]).index_add(0, indices, torch.ones_like(rows[:, 0]))
        rows = rows / often[indices][:, None]
    return zeros.index_add(0, indices, torch.where((indices != padding)[:, None], rows, 0.0))


@decomposition("_embedding_bag_per_sample_weights_backward")
def embedding_bag_factors_backward(
    grad: Tensor,
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    bag: Tensor,
    mode: int,
    padding: int = -1,
) -> Tensor:
    products = (grad[_bags(indices, offsets)] * weight[indices]).sum(-1)
    return torch.where(indices != padding, products, 0.0)


@decomposition("_segment_reduce_backward")
def segment_reduce_backward(
    grad: Tensor,
    out: Tensor,
    x: Tensor,
    reduction: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    if offsets is None:
        assert lengths is not None
        ends = lengths.cumsum(axis)
    else:
        ends = offsets.narrow(axis, 1, offsets.shape[axis] - 1)
        lengths = ends - offsets.narrow(axis, 0, ends.shape[axis])
    places = torch.arange(x.shape[axis], device=x.device)
    segment = (places[:, None] >= ends[..., None, :]).sum(-1)
    inside = segment < ends.shape[-1]
    shape = [*segment.shape, *[1] * (x.dim() - segment.dim())]
    number = torch.where(inside, segment, 0).reshape(shape).expand(x.shape)
    inside = inside.reshape(shape)

    def of_each(values: Tensor) -> Tensor:
        return values.gather(axis, number)

    rows, results = of_each(grad), of_each(out)
    if reduction == "mean":
        counts = lengths.reshape([*lengths.shape, *[1] * (x.dim() - lengths.dim())])
        rows = rows / of_each(counts.expand(out.shape).to(x.dtype))
    elif reduction == "prod":
        rows = rows * results / x
    elif reduction in ("max", "min"):
        found = (x == results) & inside
        equal = torch.zeros_like(out).scatter_add(axis, number, found.to(x.dtype))
        rows = torch.where(found, rows / of_each(equal), 0.0)
    return torch.where(inside, rows, 0.0)


# ---- weights, activations and losses


@decomposition("_weight_norm_interface_backward")
def weight_norm_backward(
    grad: Tensor, direction: Tensor, size: Tensor, norms: Tensor, axis: int
) -> tuple[Tensor, Tensor]:
    others = [k for k in range(direction.dim()) if k != axis % direction.dim()]
    along = (grad * direction).sum(others, keepdim=True)
    scale = size / norms
    return scale * (grad - direction * along / (norms * norms)), along / norms


@decomposition("hardshrink_backward", "softshrink_backward")
def shrink_backward(grad: Tensor, x: Tensor, limit: float) -> Tensor:
    return torch.where((x >= -limit) & (x <= limit), 0.0, grad)


@decomposition("multi_margin_loss_backward")
def multi_margin_loss_backward(
    grad: Tensor,
    x: Tensor,
    target: Tensor,
    p: float,
    margin: float,
    weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    rows = x.reshape(-1, x.shape[-1])
    wanted = target.reshape(-1, 1)
    lack = margin - rows.gather(1, wanted) + rows
    slope = torch.where(lack > 0, 1.0 if p == 1 else 2 * lack, 0.0) / rows.shape[1]
    if weight is not None:
        slope = slope * weight[wanted]
    slope = slope.scatter(1, wanted, 0.0)
    slope = slope.scatter(1, wanted, -slope.sum(1, keepdim=True))
    if reduction == 1:
        slope = slope / rows.shape[0]
    each = grad.reshape(-1, 1) if grad.dim() else grad
    return (slope * each).reshape(x.shape)


@decomposition("_masked_softmax_backward")
def masked_softmax_backward(
    grad: Tensor, out: Tensor, mask: Tensor, axis: int | None = None
) -> Tensor:
    at = -1 if axis is None else axis
    product = torch.where(mask.expand(out.shape), 0.0, grad * out)
    return product - out * product.sum(at, keepdim=True)
