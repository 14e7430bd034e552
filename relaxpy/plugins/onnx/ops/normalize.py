"""Normalisations: by batches, instances, groups, layers, norms and neighbouring channels."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TupleGetItem
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context, converter
from relaxpy.plugins.onnx.view import dtype_of as dtype_of_code


def _along_channels(vector: Expr, rank: int) -> Expr:
    """A number for each channel, in a shape that broadcasts to images."""
    return R.reshape(vector, (1, -1, *[1] * (rank - 2)))


def _behind(rank: int, first: int) -> list[int]:
    return list(range(first, rank))


@converter("BatchNormalization")
def batch_normalization_1(
    cx: Context,
    x: Expr,
    scale: Expr,
    bias: Expr,
    mean: Expr,
    var: Expr,
    *,
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
) -> Expr:
    if spatial:
        return _normalized_by(cx, x, scale, bias, mean, var, epsilon)
    return _scaled(x, mean, var, scale, bias, epsilon)


def _normalized_by(
    cx: Context, x: Expr, scale: Expr, bias: Expr, mean: Expr, var: Expr, epsilon: float
) -> Expr:
    """The batch normalised by statistics that are given."""
    dtype, statistics = tensors.dtype_of(x), tensors.dtype_of(mean)
    data, gamma, beta = (tensors.as_dtype(part, statistics) for part in (x, scale, bias))
    if tensors.rank_of(x) == 1:
        return tensors.as_dtype(_scaled(data, mean, var, gamma, beta, epsilon), dtype)
    y = cx.emit(R.nn.batch_norm(data, gamma, beta, mean, var, 1, epsilon, training=False))
    return tensors.as_dtype(TupleGetItem(y, 0), dtype)


def _scaled(x: Expr, mean: Expr, var: Expr, scale: Expr, bias: Expr, epsilon: float) -> Expr:
    """(x - mean) / sqrt(var + epsilon) * scale + bias."""
    deviation = R.sqrt(var + tensors.scalar(epsilon, var))
    return (x - mean) / deviation * scale + bias


@converter("BatchNormalization", since=9)
def batch_normalization(
    cx: Context,
    x: Expr,
    scale: Expr,
    bias: Expr,
    mean: Expr,
    var: Expr,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
) -> list[Expr]:
    if not training_mode:
        return [_normalized_by(cx, x, scale, bias, mean, var, epsilon)]
    rank, statistics = tensors.rank_of(x), tensors.dtype_of(mean)
    axes = [0, *_behind(rank, 2)]
    wide = tensors.as_dtype(x, statistics)
    batch_mean = cx.emit(R.mean(wide, axes))
    batch_var = cx.emit(R.variance(wide, axes))
    centre, spread, gamma, beta = (
        _along_channels(tensors.as_dtype(part, statistics), rank)
        for part in (batch_mean, batch_var, scale, bias)
    )
    y = _scaled(wide, centre, spread, gamma, beta, epsilon)
    old, new = tensors.scalar(momentum, mean), tensors.scalar(1 - momentum, mean)
    running = [
        before * old + tensors.as_dtype(now, tensors.dtype_of(before)) * new
        for before, now in ((mean, batch_mean), (var, batch_var))
    ]
    return [tensors.as_dtype(y, tensors.dtype_of(x)), *running]


@converter("InstanceNormalization")
def instance_normalization(
    cx: Context, x: Expr, scale: Expr, bias: Expr, *, epsilon: float = 1e-5
) -> Expr:
    return R.nn.instance_norm(x, scale, bias, 1, _behind(tensors.rank_of(x), 2), epsilon)


@converter("GroupNormalization", since=18, ignored=["stash_type"])
def group_normalization_18(
    cx: Context, x: Expr, scale: Expr, bias: Expr, *, num_groups: int, epsilon: float = 1e-5
) -> Expr:
    channels = tensors.shape_of(x)[1]
    if not isinstance(channels, int):
        raise UnsupportedError("the number of channels is symbolic")
    each = channels // num_groups
    scale, bias = (cx.emit(R.repeat(part, each, 0)) for part in (scale, bias))
    return group_normalization(cx, x, scale, bias, num_groups=num_groups, epsilon=epsilon)


@converter("GroupNormalization", since=21, ignored=["stash_type"])
def group_normalization(
    cx: Context, x: Expr, scale: Expr, bias: Expr, *, num_groups: int, epsilon: float = 1e-5
) -> Expr:
    return R.nn.group_norm(x, scale, bias, num_groups, 1, _behind(tensors.rank_of(x), 2), epsilon)


def _fits(parameter: Expr | None, sizes: Sequence[tensors.Size]) -> bool:
    """True if a parameter has the shape of the axes that are normalised."""
    return parameter is None or tensors.are_equal(tensors.shape_of(parameter), sizes)


@converter("LayerNormalization")
def layer_normalization(
    cx: Context,
    x: Expr,
    scale: Expr,
    bias: Expr | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> list[Expr]:
    rank, dtype, stash = tensors.rank_of(x), tensors.dtype_of(x), dtype_of_code(stash_type)
    first = tensors.normal_axis(axis, rank)
    axes = _behind(rank, first)
    sizes = tensors.shape_of(x)[first:]
    wanted = [k for k, name in enumerate(cx.node.outputs) if name]
    # Results in float64 are rounded to the datatype of the statistics at the end.
    wide_type = "float64" if dtype == "float64" else stash
    as_operator = dtype == wide_type or (dtype == "float16" and stash == "float32")
    simple = as_operator and _fits(scale, sizes) and _fits(bias, sizes)
    if simple and max(wanted, default=0) == 0:
        zeros = bias if bias is not None else R.zeros_like(scale)
        return [R.nn.layer_norm(x, scale, zeros, axes, epsilon)]
    wide = tensors.as_dtype(x, wide_type)
    mean = cx.emit(R.mean(wide, axes, keepdims=True))
    centred = cx.emit(wide - mean)
    var = R.mean(R.square(centred), axes, keepdims=True)
    inverse = cx.emit(1 / R.sqrt(var + tensors.scalar(epsilon, wide)))
    normal = tensors.as_dtype(centred * inverse, dtype)
    y = normal * scale
    statistics = [tensors.as_dtype(part, stash) for part in (mean, inverse)]
    return [y if bias is None else y + bias, *statistics]


@converter("RMSNormalization")
def rms_normalization(
    cx: Context, x: Expr, scale: Expr, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Expr:
    rank, dtype = tensors.rank_of(x), tensors.dtype_of(x)
    stash = "float64" if dtype == "float64" else dtype_of_code(stash_type)
    first = tensors.normal_axis(axis, rank)
    axes = _behind(rank, first)
    if dtype == tensors.dtype_of(scale) == stash and _fits(scale, tensors.shape_of(x)[first:]):
        return R.nn.rms_norm(x, scale, axes, epsilon)
    wide = tensors.as_dtype(x, stash)
    square = R.mean(R.square(wide), axes, keepdims=True)
    normal = wide / R.sqrt(square + tensors.scalar(epsilon, wide))
    return tensors.as_dtype(normal, tensors.dtype_of(scale)) * scale


@converter("MeanVarianceNormalization")
def mean_variance_normalization(cx: Context, x: Expr, *, axes: Sequence[int] = (0, 2, 3)) -> Expr:
    over, wide = (
        tensors.normal_axes(axes, tensors.rank_of(x)),
        tensors.as_dtype(x, tensors.wide_dtype(x)),
    )
    centred = cx.emit(wide - R.mean(wide, over, keepdims=True))
    deviation = R.sqrt(R.mean(R.square(centred), over, keepdims=True))
    return tensors.as_dtype(centred / (deviation + tensors.scalar(1e-9, wide)), tensors.dtype_of(x))


@converter("LpNormalization")
def lp_normalization(cx: Context, x: Expr, *, axis: int = -1, p: int = 2) -> Expr:
    wide = tensors.as_dtype(x, tensors.wide_dtype(x))
    if p == 1:
        norm = R.sum(R.abs(wide), axis, keepdims=True)
    elif p == 2:
        norm = R.sqrt(R.sum(R.square(wide), axis, keepdims=True))
    else:
        raise UnsupportedError(f"p is {p}, expected 1 or 2")
    bound = cx.emit(norm)
    zero = tensors.scalar(0, wide)
    quotient = R.where(R.equal(bound, zero), zero, wide / bound)
    return tensors.as_dtype(quotient, tensors.dtype_of(x))


#: How many channels a sum of neighbours is unrolled over.
_MOST_CHANNELS = 1024


@converter("LRN")
def lrn(
    cx: Context, x: Expr, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Expr:
    dtype, channels = tensors.dtype_of(x), tensors.shape_of(x)[1]
    x = cx.emit(tensors.as_dtype(x, tensors.wide_dtype(dtype)))
    most = _MOST_CHANNELS if not isinstance(channels, int) else max(channels - 1, 0)
    before, after = min((size - 1) // 2, most), min(size // 2, most)
    if before + after >= _MOST_CHANNELS:
        raise UnsupportedError(f"the sum over {size} channels is not imported")
    pads = [0, 0, before, after, *[0] * (2 * tensors.rank_of(x) - 4)]
    squares = cx.emit(R.nn.pad(R.square(x), pads))
    shifted = [
        R.strided_slice(squares, [1], [k], [channels + k]) for k in range(before + after + 1)
    ]
    total = shifted[0]
    for term in shifted[1:]:
        total = total + term
    scaled = total * tensors.scalar(alpha / size, x) + tensors.scalar(bias, x)
    return tensors.as_dtype(x * scaled ** tensors.scalar(-beta, x), dtype)
