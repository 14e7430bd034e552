"""Layers of neural networks without windows or states, as tensor expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import elementwise, padding, reduction, reduction as reductions, transform
from relaxpy.ir.te.topi.elementwise import (
    accumulator,
    add,
    as_dtype,
    computed,
    divide,
    injective,
    multiply,
    subtract,
)
from relaxpy.ir.te.topi.shapes import as_sizes, normal_axis, product, shape_text, tidy
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.iteration import IterVar
from relaxpy.ir.tir.layout import Layout

__all__ = [
    "batch_matmul",
    "batch_norm",
    "dense",
    "depth_to_space",
    "flatten",
    "gelu",
    "gelu_tanh",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "leaky_relu",
    "log_softmax",
    "lrn",
    "matmul",
    "nll_loss",
    "pixel_shuffle",
    "prelu",
    "relu",
    "rms_norm",
    "selu",
    "silu",
    "softmax",
    "softplus",
    "space_to_depth",
    "upsampling",
]

SELU_SCALE, SELU_ALPHA = 1.0507009873554804934193349852946, 1.6732632423543772848170429916717


def matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    bias: Tensor | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
) -> Tensor:
    """Matmul with optionally transposed operands, plus a bias."""
    result = transform.matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)
    return result if bias is None else add(result, bias)


def dense(
    data: Tensor, weight: Tensor, bias: Tensor | None = None, out_dtype: str | None = None
) -> Tensor:
    """data @ weight.T + bias."""
    return matmul(data, weight, bias, out_dtype, transpose_b=True)


def batch_matmul(
    tensor_a: Tensor,
    tensor_b: Tensor,
    oshape: Sequence[ExprLike] | None = None,
    out_dtype: str | None = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
) -> Tensor:
    """Batched matmul, with optionally transposed operands.

    A batch of one matrix is multiplied with every matrix of the other.

    Errors:
        MisuseError: a rank is not 3, or `oshape` is provably another shape than that of the result.
    """
    if tensor_a.ndim != 3 or tensor_b.ndim != 3:
        raise MisuseError(
            f"batch_matmul takes tensors of rank 3, found ranks {tensor_a.ndim} and {tensor_b.ndim}"
        )
    result = transform.matmul(tensor_a, tensor_b, transpose_a, transpose_b, out_dtype)
    if oshape is not None:
        expected = as_sizes(oshape)
        pairs = zip(expected, result.shape, strict=False)
        if len(expected) != 3 or any(prove_equal(a, b) is False for a, b in pairs):
            raise MisuseError(
                f"batch_matmul: oshape is {shape_text(result.shape)}, found {shape_text(expected)}"
            )
    return result


def flatten(data: Tensor) -> Tensor:
    """The elements of each batch along one axis."""
    return transform.reshape(data, (data.shape[0], product(data.shape[1:])))


_RESIZING = {"bilinear": "linear", "trilinear": "linear", "bicubic": "cubic"}


def upsampling(
    data: Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Sequence[ExprLike] | None = None,
) -> Tensor:
    """Images enlarged by factors: the methods are nearest_neighbor, bilinear and bicubic.

    `output_shape` is the number of rows and columns, by default those of the data times the
    factors, rounded.

    Errors:
        MisuseError: there is no such layout or method.
    """
    letters = Layout.of(layout)
    size = output_shape or [
        _enlarged(data.shape[letters.index_of(letter)], scale)
        for letter, scale in (("H", scale_h), ("W", scale_w))
    ]
    mode = "align_corners" if align_corners else "asymmetric"
    from relaxpy.ir.te.topi import image  # which the other layers do not need

    return image.resize2d(
        data, (0.0,) * 4, size, layout, _RESIZING.get(method, method), mode, "", -0.5
    )


def _enlarged(size: PrimExpr, scale: float) -> PrimExpr:
    if float(scale).is_integer():
        return tidy(size * ops.const(int(scale), size.dtype))
    if isinstance(size, tir.IntImm):
        return ops.const(round(size.value * scale), size.dtype)
    exact = ops.cast_to(size, "float64") * ops.const(scale, "float64")
    return tidy(ops.cast_to(intrin.round(exact), "int64"))


def lrn(
    data: Tensor,
    size: int,
    axis: int = 1,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 2,
) -> Tensor:
    """x / (bias + alpha * s / size) ** beta; s sums the squares of `size` neighbours along an axis.

    float16 is computed in float32.

    Errors:
        MisuseError: the size is not an odd number, or the axis is out of range.
    """
    if size <= 0 or size % 2 == 0:
        raise MisuseError(f"lrn: size is an odd number, found {size}", about=size)
    axis, x = normal_axis(axis, data.ndim), _single(data)
    widths = [size // 2 if a == axis else 0 for a in range(data.ndim)]
    squares = padding.pad(multiply(x, x), widths)
    shifted = []
    for offset in range(size):
        begin = [offset if a == axis else 0 for a in range(data.ndim)]
        ends = [n + ops.const(k, n.dtype) for n, k in zip(x.shape, begin, strict=True)]
        shifted.append(transform.strided_slice(squares, begin, ends, assume_inbound=True))
    total = elementwise.elemwise_sum(shifted)
    scaled = add(multiply(total, alpha / size), bias)
    result: Tensor = multiply(x, elementwise.power(scaled, -beta))
    return elementwise.as_dtype(result, data.dtype)


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    zero = ops.const(0, x.dtype)
    return elementwise.map_elements(lambda v: ops.maximum(v, zero), x, "compute")


def leaky_relu(x: Tensor, alpha: float) -> Tensor:
    """x where it is positive, else alpha * x."""

    @elementwise.through_float32
    def element(v: PrimExpr) -> PrimExpr:
        return tir.Select(v > ops.const(0, v.dtype), v, v * ops.const(alpha, v.dtype))

    return elementwise.map_elements(element, x, "compute")


def prelu(x: Tensor, slope: Tensor, axis: int = 1) -> Tensor:
    """x where it is positive, else x times the slope of its channel, or the only slope."""
    axis, zero = normal_axis(axis, x.ndim), ops.const(0, x.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        channel = ops.const(0, "int64") if ops.is_const(slope.shape[0], 1) else index[axis]
        value = x(*index)
        return tir.Select(value > zero, value, value * slope(channel))

    return elementwise.computed(x.shape, element, "compute", elementwise.BROADCAST)


def selu(x: Tensor) -> Tensor:
    """scale * x where x is positive, else scale * alpha * (exp(x) - 1).

    exp(x) - 1 is tanh(x / 2) * (exp(x) + 1), whose factors are exact to the last digits also where
    x is almost 0 (Klambauer, Unterthiner, Mayr & Hochreiter, NeurIPS 2017).
    """

    @elementwise.through_float32
    def element(v: PrimExpr) -> PrimExpr:
        zero, one, half = (ops.const(n, v.dtype) for n in (0, 1, 0.5))
        scale, slope = (ops.const(n, v.dtype) for n in (SELU_SCALE, SELU_SCALE * SELU_ALPHA))
        low = ops.minimum(v, zero)
        below = intrin.tanh(low * half) * (intrin.exp(low) + one)
        return tir.Select(v > zero, scale * v, slope * below)

    return elementwise.map_elements(element, x, "T_selu")


def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta, and x where beta * x is above the threshold.

    With p = beta * x, the logarithm is max(p, 0) + log(1 + exp(-|p|)), where nothing overflows.
    """

    @elementwise.through_float32
    def element(v: PrimExpr) -> PrimExpr:
        by, limit = ops.const(beta, v.dtype), ops.const(threshold, v.dtype)
        power = v * by
        below = intrin.abs(power) * ops.const(-1.0, v.dtype)
        above = ops.maximum(power, ops.const(0.0, v.dtype))
        log_term = above + intrin.log1p(intrin.exp(below))
        return tir.Select(power > limit, v, ops.div(log_term, by))

    return elementwise.map_elements(element, x, "compute")


def gelu(x: Tensor) -> Tensor:
    """x * (1 + erf(x / sqrt(2))) / 2."""
    wide = _single(x)
    half = ops.const(0.5, wide.dtype)
    scaled = multiply(wide, ops.const(math.sqrt(0.5), wide.dtype))
    result = multiply(wide, add(half, multiply(elementwise.erf(scaled), half)))
    return elementwise.as_dtype(result, x.dtype)


def gelu_tanh(x: Tensor) -> Tensor:
    """x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))) / 2."""
    wide = _single(x)

    def number(value: float) -> PrimExpr:
        return ops.const(value, wide.dtype)

    cubic = add(number(1.0), multiply(multiply(number(0.044715), wide), wide))
    argument = multiply(multiply(number(math.sqrt(2 / math.pi)), wide), cubic)
    result = multiply(multiply(number(0.5), wide), add(number(1.0), elementwise.tanh(argument)))
    return elementwise.as_dtype(result, x.dtype)


def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x)."""
    wide = _single(x)
    return elementwise.as_dtype(multiply(wide, elementwise.sigmoid(wide)), x.dtype)


def _along(x: Tensor, axis: int) -> tuple[list[PrimExpr], IterVar, Callable[..., Any]]:
    """The shape of x without an axis, an axis to reduce it, and the index of an element there.

    The index is a function of the index without the axis, and of the position along it.
    """
    shape = [size for k, size in enumerate(x.shape) if k != axis]
    extent = x.shape[axis]
    reduction = te.reduce_axis((ops.const(0, extent.dtype), extent), "k")

    def index(outer: Sequence[PrimExpr], position: PrimExpr) -> tuple[PrimExpr, ...]:
        return (*outer[:axis], position, *outer[axis:])

    return shape, reduction, index


def _largest(x: Tensor, axis: int) -> Tensor:
    """The maximum along an axis; the least finite number if it is empty or all -inf."""
    shape, k, index = _along(x, axis)
    empty = ops.is_const(x.shape[axis], 0)

    def element(*outer: PrimExpr) -> Any:
        if empty:
            return intrin.min_value(x.dtype)
        return reduce.max(x(*index(outer, k.var)), axis=k)

    return elementwise.computed(shape, element, "T_softmax_maxelem")


def _exp_sum(
    x: Tensor, axis: int, name: str, term: Callable[[tuple[PrimExpr, ...]], PrimExpr]
) -> Tensor:
    """The sum of `term`, a function of an index of x, along an axis."""
    shape, k, index = _along(x, axis)
    empty = ops.is_const(x.shape[axis], 0)

    def element(*outer: PrimExpr) -> Any:
        return ops.const(0, x.dtype) if empty else reduce.sum(term(index(outer, k.var)), axis=k)

    return elementwise.computed(shape, element, name)


def _without(axis: int, index: Sequence[PrimExpr]) -> list[PrimExpr]:
    return [i for k, i in enumerate(index) if k != axis]


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """exp(x - m) / sum(exp(x - m)) with m = max(x), where sum and max are along the axis.

    float16 is computed in float32.
    """
    axis, wide = normal_axis(axis, x.ndim), _single(x)
    largest = _largest(wide, axis)

    powers = elementwise.computed(
        x.shape, lambda *i: intrin.exp(wide(*i) - largest(*_without(axis, i))), "T_softmax_exp"
    )
    total = _exp_sum(wide, axis, "T_softmax_expsum", lambda i: powers(*i))
    result: Tensor = te.compute(
        x.shape,
        lambda *i: ops.div(powers(*i), total(*_without(axis, i))),
        name="T_softmax_norm",
        attrs={"axis": axis},
    )
    return elementwise.as_dtype(result, x.dtype)


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """x - m - log(sum(exp(x - m))) with m = max(x), where sum and max are along the axis.

    float16 is computed in float32.
    """
    axis, wide = normal_axis(axis, x.ndim), _single(x)
    largest = _largest(wide, axis)

    total = _exp_sum(
        wide, axis, "compute", lambda i: intrin.exp(wide(*i) - largest(*_without(axis, i)))
    )

    def element(*index: PrimExpr) -> PrimExpr:
        outer_index = _without(axis, index)
        return wide(*index) - largest(*outer_index) - intrin.log(total(*outer_index))

    result: Tensor = te.compute(x.shape, element, name="compute", attrs={"axis": axis})
    return elementwise.as_dtype(result, x.dtype)


def layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axis: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments along the axes.

    The dimensions of gamma and beta correspond to the axes in their order. The variance is the mean
    of squared distances, which is more accurate than a difference of means. float16 is computed in
    float32.
    """
    axes = [normal_axis(a, data.ndim) for a in axis]
    x = _single(data)
    centered = subtract(x, reduction.mean(x, axes, keepdims=True))
    spread = reduction.mean(multiply(centered, centered), axes, keepdims=True)

    def element(*index: PrimExpr) -> PrimExpr:
        param_index = [index[a] for a in axes]
        moment_index = [ops.const(0, i.dtype) if a in axes else i for a, i in enumerate(index)]
        value = ops.mul(
            centered(*index), intrin.rsqrt(spread(*moment_index) + ops.const(epsilon, x.dtype))
        )
        if scale:
            value = value * ops.cast_to(gamma(*param_index), x.dtype)
        if center:
            value = value + ops.cast_to(beta(*param_index), x.dtype)
        return ops.cast_to(value, data.dtype)

    return elementwise.computed(data.shape, element, "T_layer_norm", elementwise.BROADCAST)


def _single(x: Tensor) -> Tensor:
    """Convert float16 to float32."""
    return elementwise.as_dtype(x, elementwise.accumulator(x.dtype))


def rms_norm(data: Tensor, weight: Tensor, axis: Sequence[int], epsilon: float = 1e-5) -> Tensor:
    """x / sqrt(mean(x * x) + epsilon) * weight, with the mean along the axes.

    The dimensions of weight correspond to the axes in their order. float16 is computed in float32.
    """
    axes = [normal_axis(a, data.ndim) for a in axis]
    x = _single(data)
    scale = elementwise.as_dtype(weight, x.dtype)
    total = reduction.sum(multiply(x, x), axes)
    count = ops.cast_to(product([x.shape[a] for a in axes]), x.dtype)

    def inverse_root(*index: PrimExpr) -> PrimExpr:
        mean = tir.Div(total(*index), count)
        return intrin.rsqrt(mean + ops.const(epsilon, x.dtype))

    inverse = elementwise.computed(total.shape, inverse_root, "rsqrt", elementwise.INJECTIVE)

    def element(*index: PrimExpr) -> PrimExpr:
        kept = [i for a, i in enumerate(index) if a not in axes]
        return inverse(*kept) * x(*index) * scale(*(index[a] for a in axes))

    result = elementwise.computed(x.shape, element, "T_rms_norm", elementwise.INJECTIVE)
    return elementwise.as_dtype(result, data.dtype)


def pixel_shuffle(data: Tensor, upscale_factor: int, name: str = "PixelShuffle") -> Tensor:
    """Turn channel (c * r + i) * r + j into row i, column j of blocks of r * r pixels of channel c.

    Errors:
        MisuseError: the data has rank 2 or less, or the factor is not positive.
    """
    if data.ndim < 3 or upscale_factor <= 0:
        raise MisuseError(
            f"pixel_shuffle takes a tensor of rank 3 or more and a positive factor, found rank "
            f"{data.ndim} and {upscale_factor}"
        )
    *lead, channels, height, width = data.shape
    factor = ops.const(upscale_factor, "int64")
    square = factor * factor
    shape = (*lead, tidy(channels // square), tidy(height * factor), tidy(width * factor))

    def element(*index: PrimExpr) -> PrimExpr:
        *outer, c, y, x = index
        i, j = y % factor, x % factor
        channel = c * square + (i * factor + j)
        return data(*outer, channel, y // factor, x // factor)

    return injective(shape, element, name)


def _image_axes(layout: str, name: str) -> tuple[int, int, int]:
    """The axes of channels, rows and columns."""
    if layout not in ("NCHW", "NHWC"):
        raise unexpected(layout, f"{name}: layout is 'NCHW' or 'NHWC'")
    return (1, 2, 3) if layout == "NCHW" else (3, 1, 2)


def _check_image(data: Tensor, block_size: int, name: str) -> None:
    if data.ndim != 4 or block_size <= 0:
        raise MisuseError(
            f"{name} takes a tensor of rank 4 and a positive block size, found rank {data.ndim} "
            f"and {block_size}"
        )


def _parts(size: PrimExpr, by: int, name: str) -> PrimExpr:
    """A dimension divided by `by`, which divides it where it is known."""
    if isinstance(size, tir.IntImm) and size.value % by:
        raise MisuseError(f"{name}: a dimension of {size.value} is not a multiple of {by}")
    return tidy(size // ops.const(by, "int64"))


def depth_to_space(
    data: Tensor, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> Tensor:
    """Turn channels of images into pixels of blocks of `block_size` rows and columns.

    Channel (i * b + j) * C + c becomes row i and column j of blocks of channel c in mode "DCR", and
    channel c * b * b + i * b + j in mode "CRD".

    Errors:
        MisuseError: the rank is not 4, there is no such layout, mode or block size, or its square
            does not divide the number of channels.
    """
    _check_image(data, block_size, "depth_to_space")
    if mode not in ("DCR", "CRD"):
        raise unexpected(mode, "depth_to_space: mode is 'DCR' or 'CRD'")
    channels, rows, columns = _image_axes(layout, "depth_to_space")
    block = ops.const(block_size, "int64")
    square = block * block
    shape = list(data.shape)
    shape[channels] = depth = _parts(shape[channels], block_size**2, "depth_to_space")
    shape[rows], shape[columns] = (tidy(shape[a] * block) for a in (rows, columns))

    def element(*index: PrimExpr) -> PrimExpr:
        source, c, y, x = list(index), index[channels], index[rows], index[columns]
        offset = y % block * block + x % block
        source[channels] = offset * depth + c if mode == "DCR" else c * square + offset
        source[rows], source[columns] = y // block, x // block
        return data(*source)

    return injective(shape, element, "depth_to_space")


def space_to_depth(data: Tensor, block_size: int, layout: str = "NCHW") -> Tensor:
    """Turn pixels of blocks of `block_size` rows and columns into channels.

    Row i and column j of the blocks of channel c become channel (i * b + j) * C + c.

    Errors:
        MisuseError: the rank is not 4, there is no such layout or block size, or it does not divide
            the rows and columns.
    """
    _check_image(data, block_size, "space_to_depth")
    channels, rows, columns = _image_axes(layout, "space_to_depth")
    block = ops.const(block_size, "int64")
    shape, depth = list(data.shape), data.shape[channels]
    shape[channels] = tidy(depth * (block * block))
    for axis in (rows, columns):
        shape[axis] = _parts(shape[axis], block_size, "space_to_depth")

    def element(*index: PrimExpr) -> PrimExpr:
        source, channel = list(index), index[channels]
        offset = channel // depth
        source[channels] = channel % depth
        source[rows] = index[rows] * block + offset // block
        source[columns] = index[columns] * block + offset % block
        return data(*source)

    return injective(shape, element, "space_to_depth")


def _terms(
    predictions: Tensor, targets: Tensor, weights: Tensor | None, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """The loss of each target, and its weight; both are 0 where the target is ignored."""
    wide = accumulator(predictions.dtype)

    def class_of(*index: PrimExpr) -> PrimExpr:
        target = targets(*index)
        return ops.cast_to(target, "int32") if target.dtype.is_bool else target

    def is_ignored(target: PrimExpr) -> PrimExpr:
        """Unsigned targets are compared as int64, which can represent a negative `ignore_index`."""
        return ops.compare(tir.EQ, ops.cast_to(target, "int64"), ops.const(ignore_index, "int64"))

    def weight(*index: PrimExpr) -> PrimExpr:
        target = class_of(*index)
        class_weight = ops.const(1, wide) if weights is None else ops.cast_to(weights(target), wide)
        return intrin.if_then_else(is_ignored(target), ops.const(0, wide), class_weight)

    def loss(*index: PrimExpr) -> PrimExpr:
        target = class_of(*index)
        index_of_class = (*index[:1], target, *index[1:])
        value = ops.cast_to(predictions(*index_of_class), wide) * ops.const(-1, wide)
        if weights is not None:
            value = value * ops.cast_to(weights(target), wide)
        return intrin.if_then_else(is_ignored(target), ops.const(0, wide), value)

    return (
        computed(targets.shape, loss, "nll_loss"),
        computed(targets.shape, weight, "nll_weight"),
    )


def nll_loss(
    predictions: Tensor,
    targets: Tensor,
    weights: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int = -100,
) -> Tensor:
    """The negative log-likelihood of targets, of the log-probabilities of classes along axis 1.

    A single instance has them along axis 0. Losses are multiplied by the weights of their classes;
    "mean" divides their sum by the sum of the weights, and targets that are ignored count for
    neither. float16 is computed in float32.

    Errors:
        MisuseError: the reduction is not "none", "sum" or "mean".
    """
    terms, weight = _terms(predictions, targets, weights, ignore_index)
    if reduction == "none":
        return as_dtype(terms, predictions.dtype)
    total = reductions.sum(terms)
    if reduction == "mean":
        total = divide(total, reductions.sum(weight))
    elif reduction != "sum":
        raise unexpected(reduction, "a reduction is 'none', 'sum' or 'mean'")
    return as_dtype(total, predictions.dtype)


def _moments(x: Tensor, axes: Sequence[int], *, keepdims: bool) -> tuple[Tensor, Tensor]:
    """The mean along axes, and the mean of squared distances from it."""
    mean = reduction.mean(x, axes, keepdims=True)
    centered = subtract(x, mean)
    spread = reduction.mean(multiply(centered, centered), axes, keepdims=keepdims)
    return mean if keepdims else reduction.mean(x, axes, keepdims=False), spread


def _scaled(value: PrimExpr, gamma: PrimExpr | None, beta: PrimExpr | None) -> PrimExpr:
    if gamma is not None:
        value = value * ops.cast_to(gamma, value.dtype)
    return value if beta is None else value + ops.cast_to(beta, value.dtype)


def _normalized(
    x: Tensor,
    axes: Sequence[int],
    epsilon: float,
    params: tuple[Tensor | None, Tensor | None],
    param_index: Callable[[Sequence[PrimExpr]], PrimExpr],
    dtype: DataType,
    name: str,
) -> Tensor:
    """x normalised by its moments along axes, then scaled and shifted by the parameters."""
    mean, variance = _moments(x, axes, keepdims=True)

    def element(*index: PrimExpr) -> PrimExpr:
        moment_index = [ops.const(0, i.dtype) if a in axes else i for a, i in enumerate(index)]
        inverse = intrin.rsqrt(variance(*moment_index) + ops.const(epsilon, x.dtype))
        value = (x(*index) - mean(*moment_index)) * inverse
        channel = param_index(index)
        gamma, beta = (None if param is None else param(channel) for param in params)
        return ops.cast_to(_scaled(value, gamma, beta), dtype)

    return computed(x.shape, element, name, "broadcast")


def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    momentum: float = 0.1,
) -> list[Tensor]:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta along a channel axis.

    In training, the moments are those of the batch, and the moving moments approach them by
    `momentum`; otherwise the moving moments are used and returned unchanged. float16 is
    computed in float32.
    """
    axis = normal_axis(axis, data.ndim)
    wide = accumulator(data.dtype)
    x = as_dtype(data, wide)
    if training:
        mean, variance = _moments(x, [a for a in range(data.ndim) if a != axis], keepdims=False)
    else:
        mean, variance = as_dtype(moving_mean, wide), as_dtype(moving_var, wide)

    def element(*index: PrimExpr) -> PrimExpr:
        channel = index[axis]
        inverse = intrin.rsqrt(variance(channel) + ops.const(epsilon, wide))
        # One factor for each channel: that is one product for each element.
        factor = _scaled(inverse, gamma(channel) if scale else None, None)
        value = (x(*index) - mean(channel)) * factor
        return ops.cast_to(_scaled(value, None, beta(channel) if center else None), data.dtype)

    def moved(moving: Tensor, current: Tensor) -> Tensor:
        def element(channel: PrimExpr) -> PrimExpr:
            if not training:
                return moving(channel)
            previous = ops.cast_to(moving(channel), wide) * ops.const(1 - momentum, wide)
            new = current(channel) * ops.const(momentum, wide)
            return ops.cast_to(previous + new, moving.dtype)

        return computed(moving.shape, element, "moving")

    out = computed(data.shape, element, "T_batch_norm", "broadcast")
    return [out, moved(moving_mean, mean), moved(moving_var, variance)]


def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    channel_axis: int,
    axis: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments along the axes.

    gamma and beta belong to the channel axis. float16 is computed in float32.
    """
    channel = normal_axis(channel_axis, data.ndim)
    axes = [normal_axis(a, data.ndim) for a in axis]
    x = as_dtype(data, accumulator(data.dtype))
    params = gamma if scale else None, beta if center else None
    return _normalized(
        x, axes, epsilon, params, lambda index: index[channel], data.dtype, "T_instance_norm"
    )


def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    channel_axis: int,
    axes: Sequence[int],
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Tensor:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, with the moments of groups of channels.

    The moments are taken along the axes and within each group. float16 is computed in float32.
    """
    channel = normal_axis(channel_axis, data.ndim)
    size = data.shape[channel]
    groups = ops.const(num_groups, size.dtype)
    width = size // groups
    split = (*data.shape[:channel], groups, width, *data.shape[channel + 1 :])
    split_axes = [a + (a > channel) for a in (normal_axis(a, data.ndim) for a in axes)]
    reduced = [*split_axes, channel + 1]
    x = transform.reshape(as_dtype(data, accumulator(data.dtype)), split)
    params = gamma if scale else None, beta if center else None

    def param_index(index: Sequence[PrimExpr]) -> PrimExpr:
        return index[channel] * width + index[channel + 1]

    result = _normalized(x, reduced, epsilon, params, param_index, data.dtype, "T_group_norm")
    return transform.reshape(result, data.shape)
