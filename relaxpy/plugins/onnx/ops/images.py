"""Images: decoded files, other sizes, other positions: grids, affine maps, blocks, crops.

Those of the domain com.microsoft have channels last, some of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from typing_extensions import Unpack, override

from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.ops.definition.registry import R
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo, const
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import image
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.image import CROP, Axis, Sampling
from relaxpy.ir.te.topi.padding import pad
from relaxpy.ir.te.topi.shapes import FILTERS, as_sizes, double
from relaxpy.ir.te.topi.transform import reshape
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing import tensors
from relaxpy.plugins.importing.images import FORMATS
from relaxpy.plugins.importing.tensors import (
    Size,
    dtype_of,
    literal,
    normal_axes,
    number,
    rank_of,
    require_count,
    shape_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.importing.windows import (
    FilterAttributes,
    WindowAttributes,
    added,
    simple,
    whole,
)
from relaxpy.plugins.onnx.context import MICROSOFT as DOMAIN, Context, Value, call, converter
from relaxpy.plugins.onnx.ops.conv import max_pool
from relaxpy.plugins.onnx.ops.quantized import qlinear_conv
from relaxpy.support.dataclass import dataclass

_METHODS = {
    "nearest": "nearest",
    "bilinear": "bilinear",
    "linear": "bilinear",
    "bicubic": "bicubic",
    "cubic": "bicubic",
}


_SAMPLES = {"mode": _METHODS, "padding_mode": ("zeros", "border", "reflection")}


@converter("GridSample", domain="com.microsoft", admitted=_SAMPLES)
@converter("GridSample", admitted=_SAMPLES)
def grid_sample(
    cx: Context,
    x: Expr,
    grid: Expr,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Expr:
    rank = tensors.rank_of(x)
    if rank not in (4, 5):
        raise UnsupportedError(f"expected images of rank 4 or 5, found rank {rank}")
    first = R.permute_dims(grid, [0, rank - 1, *range(1, rank - 1)])
    layout = "NCHW" if rank == 4 else "NCDHW"
    aligned = bool(align_corners)
    return R.image.grid_sample(x, cx.emit(first), _METHODS[mode], layout, padding_mode, aligned)


@converter("AffineGrid")
def affine_grid(cx: Context, theta: Expr, size: Value, *, align_corners: int = 0) -> Expr:
    rows = tensors.shape_of(theta)[1]
    if rows not in (2, 3):
        raise UnsupportedError(f"affine maps of {rows} axes")
    count = whole(rows)
    sizes = cx.sizes(size, "size")
    spatial, aligned = sizes[2:], bool(align_corners)
    tensors.require_count("size", sizes, count + 2)
    theta = cx.shaped(theta, "theta", [sizes[0], count, count + 1])
    if count == 2:
        grid = R.image.affine_grid(theta, tuple(spatial), aligned)
    else:
        grid = cx.te(
            lambda maps: image.affine_grid(maps, as_sizes(spatial), aligned),
            theta,
            name="affine_grid",
        )
    return R.permute_dims(cx.emit(grid), [0, *range(2, count + 2), 1])


@converter("Col2Im")
def col2im(
    cx: Context,
    x: Expr,
    image_shape: Value,
    block_shape: Value,
    *,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Expr:
    image, block = cx.sizes(image_shape, "size"), cx.sizes(block_shape, "size")
    count = len(image)
    steps, holes = list(strides or [1] * count), list(dilations or [1] * count)
    widths = list(pads or [0] * 2 * count)
    batch, depth, _ = tensors.shape_of(x, 3)
    tensors.require_count("block_shape", block, count)
    tensors.require_count("strides", steps, count)
    tensors.require_count("dilations", holes, count)
    tensors.require_count("pads", widths, 2 * count)
    rooms = [
        simple(image[k] + widths[k] + widths[k + count] - (block[k] - 1) * holes[k] - 1)
        for k in range(count)
    ]
    windows = [simple(room // step + 1) for room, step in zip(rooms, steps, strict=True)]
    channels, positions = simple(depth // tensors.product(block)), tensors.product(windows)
    x = cx.shaped(x, "input", [batch, simple(channels * tensors.product(block)), positions])

    def kernel(columns: Tensor) -> Tensor:
        y = reshape(columns, as_sizes([batch, channels, *block, *windows]))
        return added(y, as_sizes(image), steps, holes, widths)

    return cx.te(kernel, x, name="col2im")


@converter("CenterCropPad", strings=True)
def center_crop_pad(
    cx: Context, x: Expr, shape: Value, *, axes: Sequence[int] | None = None
) -> Expr:
    sizes = tensors.shape_of(x)
    chosen = tensors.normal_axes(axes, len(sizes))
    wanted = cx.sizes(shape, "size", len(chosen))
    tensors.require_count("shape", wanted, len(chosen))
    before: list[tensors.Size] = [0] * len(sizes)
    after: list[tensors.Size] = [0] * len(sizes)
    for axis, new in zip(chosen, wanted, strict=True):
        change = simple(new - sizes[axis])
        if isinstance(change, int):
            before[axis] = math.trunc(change / 2)
        else:
            before[axis] = simple(tir.Div(change, ops.const(2, "int64")))
        after[axis] = simple(change - before[axis])
    return cx.te(lambda t: pad(t, before, after, 0), x, name="center_crop_pad")


@converter("Det")
def det(cx: Context, x: Expr) -> Expr:
    *batch, _, _ = tensors.shape_of(x)
    dtype = tensors.dtype_of(x)
    wide = R.astype(x, "float32") if dtype == "float16" else x
    return tensors.call("linalg_det", [wide], [(0, batch, dtype, False)], factors=False)


@converter("ImageDecoder", admitted={"pixel_format": FORMATS})
def image_decoder(cx: Context, encoded: Expr, *, pixel_format: str = "RGB") -> Expr:
    info = TensorStructInfo(ndim=3, dtype=DataType("uint8"))
    return call("decode_image", info, encoded, pixel_format)


def with_channels_first(cx: Context, x: Expr, op: Callable[[Expr], Expr]) -> Expr:
    """The result of `op`, which takes channels first, on a tensor that has them last."""
    rank = rank_of(x)
    moved = cx.emit(R.permute_dims(x, [0, rank - 1, *range(1, rank - 1)]))
    return R.permute_dims(cx.emit(op(moved)), [0, *range(2, rank), 1])


@converter("NhwcMaxPool", domain=DOMAIN)
def nhwc_max_pool(
    cx: Context,
    x: Expr,
    *,
    kernel_shape: Sequence[int],
    ceil_mode: int = 0,
    **spans: Unpack[WindowAttributes],
) -> Expr:
    def pooled(images: Expr) -> Expr:
        (y,) = max_pool(cx, images, kernel_shape=kernel_shape, ceil_mode=ceil_mode, **spans)
        return y

    return with_channels_first(cx, x, pooled)


@converter("QLinearConv", domain=DOMAIN)
def qlinear_conv_of_layout(
    cx: Context,
    x: Expr,
    x_scale: Expr,
    x_zero_point: Expr,
    w: Expr,
    w_scale: Expr,
    w_zero_point: Expr,
    y_scale: Expr,
    y_zero_point: Expr,
    B: Expr | None = None,
    *,
    channels_last: int = 0,
    **filters: Unpack[FilterAttributes],
) -> Expr:
    def convolved(images: Expr) -> Expr:
        return qlinear_conv(
            *(cx, images, x_scale, x_zero_point, w, w_scale, w_zero_point),
            *(y_scale, y_zero_point, B),
            **filters,
        )

    return with_channels_first(cx, x, convolved) if channels_last else convolved(x)


@converter("CropAndResize", domain=DOMAIN, admitted={"mode": ("bilinear", "nearest")})
def crop_and_resize(
    cx: Context,
    x: Expr,
    rois: Expr,
    batch_indices: Expr,
    crop_size: Value,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Expr:
    """Regions of images, sampled so that corners are corners of the region."""
    counts = cx.sizes(crop_size, "size", 2)
    count, channels = shape_of(rois, 2)[0], shape_of(x, 4)[1]

    def kernel(data: Tensor, regions: Tensor, batches: Tensor) -> Tensor:
        rows_and_columns = as_sizes(counts)

        def at(r: PrimExpr, k: int, step: PrimExpr) -> PrimExpr:
            """The position of a sample along the rows (0) or columns (1)."""
            last = ops.cast_to(data.shape[2 + k] - 1, "float32")
            low, high = (regions(r, ops.const(j, "int64")) for j in (k, k + 2))
            number = rows_and_columns[k]
            width = (high - low) * last / ops.cast_to(ops.maximum(number - 1, 1), "float32")
            middle = (low + high) * last * 0.5
            return intrin.if_then_else(
                number > 1, low * last + ops.cast_to(step, "float32") * width, middle
            )

        def element(r: PrimExpr, c: PrimExpr, i: PrimExpr, j: PrimExpr) -> PrimExpr:
            image = ops.cast_to(batches(r), "int64")
            places, bounds = [at(r, 0, i), at(r, 1, j)], []
            for k, place in enumerate(places):
                last = ops.cast_to(data.shape[2 + k] - 1, "float32")
                bounds += [place >= 0.0, place <= last]

            def sample(y: PrimExpr, x: PrimExpr) -> PrimExpr:
                return data(image, c, ops.cast_to(y, "int64"), ops.cast_to(x, "int64"))

            if mode == "nearest":
                value = sample(*(intrin.floor(place + 0.5) for place in places))
            else:
                (top, low), (left, near) = (
                    (intrin.floor(place), place - intrin.floor(place)) for place in places
                )
                bottom, right = (intrin.ceil(place) for place in places)
                above = sample(top, left) + (sample(top, right) - sample(top, left)) * near
                below = sample(bottom, left) + (sample(bottom, right) - sample(bottom, left)) * near
                value = above + (below - above) * low
            nothing = ops.const(extrapolation_value, data.dtype)
            return intrin.if_then_else(ops.all_of(*bounds), value, nothing)

        return computed(as_sizes([count, channels, *counts]), element, "crop_and_resize")

    return cx.te(kernel, x, rois, batch_indices, name="crop_and_resize")


_RESIZE_METHODS = {
    "nearest": "nearest_neighbor",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
}
_SYMMETRIC = "half_pixel_symmetric"
#: How far from the middle of two elements ONNX Runtime takes a coordinate for the middle.
_MIDDLE = 1e-6


def single(value: tir.ExprLike) -> PrimExpr:
    """A number in float32."""
    return ops.cast_to(double(value), FLOAT32)


@dataclass(frozen=True, slots=True)
class _Scaled(Axis):
    """An axis whose scale is given, and need not be the ratio of its sizes."""

    scale: PrimExpr
    bounds: tuple[PrimExpr, PrimExpr]
    #: True if filters are as wide as the distance between elements of the result (antialias).
    antialias: bool
    #: The scale where it is known.
    ratio: float | None

    @property
    @override
    def is_kept(self) -> bool:
        return False

    @property
    @override
    def repeats(self) -> int | None:
        return None

    @override
    def coordinate(self, x: PrimExpr) -> PrimExpr:
        # What is discontinuous (the nearest element, the border of a region) is computed in the
        # roundings of ONNX Runtime, as the text of ONNX states none.
        if isinstance(self.old, tir.IntImm) and not self.old.value:
            return double(0.0)
        sampling = self.sampling
        is_rounded = sampling.method == "nearest_neighbor" or sampling.mode == CROP
        real: Callable[[tir.ExprLike], PrimExpr] = single if is_rounded else double
        at, one, half, scale = real(x), real(1.0), real(0.5), real(self.scale)
        old, new = real(self.old), real(self.new)
        match sampling.mode:
            case "half_pixel":
                return (at + half) / scale - half
            case "pytorch_half_pixel":
                return tir.Select(new > one, (at + half) / scale - half, real(0.0))
            case "half_pixel_symmetric":
                offset = old * half * (one - new / (scale * old))
                wide = (double(at) + double(0.5)) / double(scale) - double(0.5)
                return real(double(offset) + wide)
            case "align_corners":
                return at * (old - one) / ops.maximum(new - one, one)
            case "asymmetric":
                return at / scale
            case "asymmetric_rounded":
                exact = at / scale
                return tir.Select(scale < one, intrin.ceil(exact), intrin.floor(exact))
            case "tf_half_pixel_for_nn":
                return (at + half) / scale
            case _:
                start, end = map(real, self.bounds)
                last = old - one
                spread = at * (end - start) * last / ops.maximum(new - one, one)
                middle = half * (start + end) * last
                return tir.Select(new > one, start * last + spread, middle)

    @override
    def nearest(self, x: PrimExpr) -> PrimExpr:
        at = self.coordinate(x)
        below = intrin.floor(at)
        match self.sampling.rounding:
            case "floor":
                return below
            case "ceil":
                return intrin.ceil(at)
            case "round_prefer_floor":
                is_above = at - below >= single(0.5 + _MIDDLE)
            case _:
                is_above = at - below > single(0.5 - _MIDDLE)
        return below + tir.Select(is_above, single(1.0), single(0.0))

    @override
    def resampled(
        self, data: Tensor, wide: DataType, finish: Callable[..., PrimExpr], name: str
    ) -> Tensor:
        if not self.antialias or (self.ratio is not None and self.ratio >= 1):
            return Axis.resampled(self, data, wide, finish, name)
        return self._filtered(data, wide, finish, name)

    def _filtered(
        self, data: Tensor, wide: DataType, finish: Callable[..., PrimExpr], name: str
    ) -> Tensor:
        """The data under filters whose width depends on the scale."""
        narrow = ops.minimum(self.scale, double(1.0))
        reach, filtered = FILTERS[self.sampling.method]
        zero, last = ops.const(0, "int64"), ops.cast_to(self.old, "int64") - 1
        if self.ratio is not None:
            below = math.floor(-reach / self.ratio) + 1
            count: PrimExpr = ops.const(2 * reach - 2 * below, "int64")
        else:
            below, count = 0, ops.cast_to(self.old, "int64") * (2 * reach + 1)
        source = computed([self.new], self.coordinate, "coordinate")

        def position(x: PrimExpr, k: PrimExpr) -> PrimExpr:
            if self.ratio is not None:
                return ops.cast_to(intrin.floor(source(x)), "int64") + k + below
            return k - ops.cast_to(self.old, "int64") * reach

        def weight(x: PrimExpr, k: PrimExpr) -> PrimExpr:
            at = position(x, k)
            distance = (double(at) - source(x)) * narrow
            value = filtered(ops.maximum(distance, -distance), self.sampling.alpha)
            if not self.sampling.exclude:
                return value
            return tir.Select(ops.all_of(at >= zero, at <= last), value, double(0.0))

        weights = computed([self.new, count], weight, "weight")

        def total(x: PrimExpr) -> PrimExpr:
            k = te.reduce_axis((zero, count), "k")
            return reduce.sum(weights(x, k.var), axis=k)

        totals = computed([self.new], total, "weight_sum")
        # As tables, since each of them is used for all elements along the other axes.
        shares = computed(
            [count, self.new], lambda k, x: ops.cast_to(weights(x, k) / totals(x), wide), "share"
        )
        positions = computed([count, self.new], lambda k, x: position(x, k), "position")
        shape = (*data.shape[: self.position], self.new, *data.shape[self.position + 1 :])

        def element(*index: PrimExpr) -> PrimExpr:
            x = index[self.position]
            k = te.reduce_axis((zero, count), "k")
            source_index = [*index]
            source_index[self.position] = ops.maximum(ops.minimum(positions(k.var, x), last), zero)
            return reduce.sum(ops.cast_to(data(*source_index), wide) * shares(k.var, x), axis=k)

        sums = computed(shape, element, "filtered")
        return computed(shape, lambda *index: finish(sums(*index), index), name)


@dataclass(frozen=True)
class _Plan:
    """The arguments of a resize: axes, their sizes, and the scales and regions that are known."""

    axes: tuple[int, ...]
    sizes: tuple[Size, ...]
    #: Numbers, or a vector that is computed; None where the sizes define them.
    scales: Sequence[float] | Expr | None
    region: Sequence[float] | Expr | None
    sampling: Sampling
    antialias: bool

    def changed(self, x: Expr) -> _Plan:
        """The plan without the axes that do not change."""
        if isinstance(self.scales, Expr) or self.sampling.mode == CROP:
            return self
        old = shape_of(x)
        kept = [
            k
            for k, axis in enumerate(self.axes)
            if not (_equal(old[axis], self.sizes[k]) and (not self.scales or self.scales[k] == 1))
        ]
        scales = None if self.scales is None else [self.scales[k] for k in kept]
        axes = tuple(self.axes[k] for k in kept)
        sizes = tuple(self.sizes[k] for k in kept)
        return _Plan(axes, sizes, scales, None, self.sampling, self.antialias)

    def has_ratios(self, x: Expr) -> bool:
        """True if the coordinates are known to follow from the sizes, in any rounding."""
        old = shape_of(x)
        if self.sampling.mode == "align_corners":
            return True
        if self.scales is None:
            before, after = as_sizes([old[axis] for axis in self.axes]), as_sizes(self.sizes)
            is_nearest = self.sampling.method == "nearest_neighbor"
            return not is_nearest or all(map(image.multiple_of, before, after))
        return not isinstance(self.scales, Expr) and all(
            _equal(number(size * _exact(scale)) if _exact(scale) else -1, new)
            for size, new, scale in zip(
                (old[axis] for axis in self.axes), self.sizes, self.scales, strict=True
            )
        )

    def kernel(self, x: Tensor, *tensors: Tensor) -> Tensor:
        """The kernel's result; `tensors` are the scales and the region if they are computed."""
        rest = list(tensors)
        scales = rest.pop(0) if isinstance(self.scales, Expr) else None
        region = rest.pop(0) if isinstance(self.region, Expr) else None
        axes: list[Axis] = []
        count = len(self.axes)

        def at(k: int, table: Tensor | None, values: Any) -> PrimExpr:
            if table is not None:
                return double(table(ops.const(k, "int64")))
            return double(float(values[k]))

        for k, (axis, size) in enumerate(zip(self.axes, as_sizes(self.sizes), strict=True)):
            old = x.shape[axis]
            ratio = None
            if self.scales is None:
                nothing = isinstance(old, tir.IntImm) and not old.value
                scale = double(1.0) if nothing else double(size) / double(old)
                if isinstance(size, tir.IntImm) and isinstance(old, tir.IntImm) and old.value:
                    ratio = size.value / old.value
            else:
                ratio = None if isinstance(self.scales, Expr) else float(self.scales[k])
                scale = at(k, scales, self.scales)
            bounds = (double(0.0), double(1.0))
            if self.region is not None:
                bounds = (at(k, region, self.region), at(count + k, region, self.region))
            axes.append(
                _Scaled(
                    axis, old, size, (0.0, 1.0), self.sampling, scale, bounds, self.antialias, ratio
                )
            )
        return image.resampled(x, axes, self.sampling, None, "resize")


def _exact(scale: float) -> int:
    """The scale if it is a whole number, else 0."""
    return int(scale) if float(scale).is_integer() else 0


def _equal(a: Any, b: Any) -> bool:
    difference = number(a - b)
    return not isinstance(difference, PrimExpr) and difference == 0


def _resized(cx: Context, x: Expr, plan: _Plan) -> Expr:
    plan = plan.changed(x)
    sampling = plan.sampling
    if not plan.axes:
        return x
    by_operator = (
        set(plan.axes) <= {2, 3}
        and rank_of(x) == 4
        and not plan.antialias
        and sampling.mode in image.COORDINATES
        and plan.has_ratios(x)
    )
    if by_operator:
        sizes = shape_of(x)
        for axis, size in zip(plan.axes, plan.sizes, strict=True):
            sizes[axis] = size
        return R.image.resize2d(
            x,
            tuple(sizes[2:]),
            None,
            "NCHW",
            sampling.method,
            sampling.mode,
            sampling.rounding,
            sampling.alpha,
            int(sampling.exclude),
            sampling.extrapolation,
        )
    tensors = [t for t in (plan.scales, plan.region) if isinstance(t, Expr)]
    return cx.te(plan.kernel, x, *tensors, name="resize")


#: Scales are positive.
_LEAST = 1e-9


def _scaled_sizes(cx: Context, x: Expr, axes: Sequence[int], scales: Value) -> tuple[Any, Any]:
    """The sizes that scales give, and the scales: numbers, or a vector."""
    known, vector = cx.array(scales), cx.within(cx.tensor(scales), "scales", _LEAST)
    old = [shape_of(x)[axis] for axis in axes]
    if known is not None:
        # The decimal number that is meant, so that positions between elements are exact.
        values = [float(str(scale)) for scale in known.reshape(-1)]
        require_count("scales", values, len(axes))
        return [_scaled(size, scale) for size, scale in zip(old, values, strict=True)], values
    lengths = R.astype(cx.tensor(cx.contents(old, [len(old)], "int64")), dtype_of(vector))
    sizes = R.astype(R.floor(lengths * vector), "int64")
    return cx.sizes_at_run_time(cx.emit(sizes), len(old), "size"), vector


def _scaled(size: Size, scale: float) -> Size:
    if isinstance(size, int):
        return int(np.floor(np.float32(size) * np.float32(scale)))
    exact = Fraction(scale).limit_denominator(1 << 16)
    return number(size * exact.numerator // exact.denominator)  # type: ignore[return-value]


def _fitted(
    cx: Context, x: Expr, axes: Sequence[int], wanted: Sequence[Size], policy: str
) -> tuple[Any, Any]:
    """The sizes that keep the ratio of the axes, and the scales."""
    old = [shape_of(x)[axis] for axis in axes]
    pairs = list(zip(wanted, old, strict=True))
    if all(isinstance(a, int) and isinstance(b, int) for a, b in pairs):
        choose = min if policy == "not_larger" else max
        scale = choose(float(a) / float(b) for a, b in pairs)  # type: ignore[arg-type]
        return [int(float(b) * scale + 0.5) for _, b in pairs], [scale] * len(pairs)  # type: ignore[arg-type]
    count = len(axes)
    sizes, lengths = (
        R.astype(cx.tensor(cx.contents(list(items), [count], "int64")), "float64")
        for items in zip(*pairs, strict=True)
    )
    ratios = sizes / lengths
    extreme = R.min if policy == "not_larger" else R.max
    scales = cx.emit(R.broadcast_to(extreme(ratios, 0, keepdims=True), (count,)))
    rounded = R.floor(lengths * scales + const(0.5, "float64"))
    return cx.sizes_at_run_time(cx.emit(R.astype(rounded, "int64")), count, "size"), scales


def _given(cx: Context, value: Value) -> bool:
    """True if an operand is present and not empty."""
    return value is not None and shape_of(cx.tensor(value))[:1] != [0]


def _has_unknown_size(cx: Context, value: Value) -> bool:
    return not isinstance(shape_of(cx.tensor(value))[0], int)


_ADMITTED = {
    "coordinate_transformation_mode": (*image.MODES, _SYMMETRIC),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "mode": _RESIZE_METHODS,
    "nearest_mode": image.ROUNDINGS,
}


@converter("Resize", since=11, admitted=_ADMITTED)
def resize(
    cx: Context,
    x: Expr,
    roi: Value = None,
    scales: Value = None,
    sizes: Value = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Expr:
    rank = rank_of(x)
    chosen = normal_axes(axes, rank)
    factors: Any = None
    # With sizes, there are no scales: a number of them that is not known is 0.
    if _given(cx, scales) and not (_given(cx, sizes) and _has_unknown_size(cx, scales)):
        if _given(cx, sizes) and not _has_unknown_size(cx, sizes):
            raise UnsupportedError("there are both scales and sizes")
        new, factors = _scaled_sizes(cx, x, chosen, scales)
    elif _given(cx, sizes):
        wanted = cx.integers(sizes)
        if wanted is None:
            wanted = cx.sizes_at_run_time(cx.tensor(sizes), len(chosen), "size")
        require_count("sizes", wanted, len(chosen))
        new = wanted
        if keep_aspect_ratio_policy != "stretch":
            new, factors = _fitted(cx, x, chosen, wanted, keep_aspect_ratio_policy)
    else:
        raise UnsupportedError("there are neither scales nor sizes")
    region: Any = None
    if coordinate_transformation_mode == CROP:
        if not _given(cx, roi):
            raise UnsupportedError(f"{CROP} needs a region")
        array = cx.array(roi)
        region = [float(v) for v in array.reshape(-1)] if array is not None else cx.tensor(roi)
    sampling = Sampling(
        _RESIZE_METHODS[mode],
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
    )
    smooth = bool(antialias) and mode != "nearest"
    return _resized(cx, x, _Plan(tuple(chosen), tuple(new), factors, region, sampling, smooth))


_MODE = {"mode": _RESIZE_METHODS}


@converter("Upsample", since=9, admitted=_MODE)
@converter("Resize", since=10, admitted=_MODE)
def resize_10(cx: Context, x: Expr, scales: Value, *, mode: str = "nearest") -> Expr:
    sizes, factors = _scaled_sizes(cx, x, range(rank_of(x)), scales)
    grows = not isinstance(factors, Expr) and min(factors, default=1) >= 1
    # What shrinks takes the next element, as in ONNX Runtime and the tests of that version.
    positions = "asymmetric" if grows or mode != "nearest" else "asymmetric_rounded"
    sampling = Sampling(_RESIZE_METHODS[mode], positions, "floor", -0.75, False, 0.0)
    axes = tuple(range(rank_of(x)))
    return _resized(cx, x, _Plan(axes, tuple(sizes), factors, None, sampling, False))


@converter("Upsample", since=7, admitted=_MODE)
def upsample_7(cx: Context, x: Expr, *, scales: Sequence[float], mode: str = "nearest") -> Expr:
    return resize_10(cx, x, literal(np.array(scales, np.float32)), mode=mode)


@converter("Upsample", admitted=_MODE)
def upsample_1(
    cx: Context, x: Expr, *, height_scale: float, width_scale: float, mode: str = "nearest"
) -> Expr:
    return upsample_7(cx, x, scales=[1.0, 1.0, height_scale, width_scale], mode=mode)


# Experimental until opset 9, in files of the converter of CoreML:


@converter("ImageScaler")
def image_scaler(cx: Context, x: Expr, *, bias: Sequence[float], scale: float = 1.0) -> Expr:
    shifts = const(np.array(bias).reshape(1, -1, 1, 1), dtype_of(x))
    return x * tensors.scalar(scale, x) + shifts


@converter("Crop")
def crop(cx: Context, x: Expr, *, border: Sequence[int], scale: Sequence[int] = ()) -> Expr:
    """The image without borders: left, top, right, bottom; or what is `scale` high and wide."""
    require_count("border", border, 4)
    if min(border) < 0:
        raise UnsupportedError(f"the border {list(border)} has negative numbers")
    left, top, right, bottom = border
    height, width = shape_of(x, 4)[2:]
    for name, size, cut in (("height", height, top + bottom), ("width", width, left + right)):
        if isinstance(size, int) and cut > size:
            raise UnsupportedError(f"the border takes {cut} of the {name} {size}")
    # Negative ends, since those that are computed of too small sizes would count from the end.
    ends = [-bottom if bottom else height, -right if right else width]
    if scale:
        ends = [top + scale[0], left + scale[1]]
    return R.strided_slice(x, [2, 3], [top, left], ends)
