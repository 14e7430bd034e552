"""Images with other sizes: the elements between those of the operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.ir.core.dtype import FLOAT32, DataType
from relaxpy.ir.relax.nodes import Expr, const
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi import image
from relaxpy.ir.te.topi.elementwise import computed
from relaxpy.ir.te.topi.image import CROP, Axis, Sampling
from relaxpy.ir.te.topi.shapes import FILTERS, as_sizes, double
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.expr import ExprLike
from relaxpy.ir.tir.prim_expr import PrimExpr
from relaxpy.plugins.importing.contents import number
from relaxpy.plugins.importing.tensors import (
    Size,
    dtype_of,
    literal,
    normal_axes,
    rank_of,
    require_count,
    shape_of,
)
from relaxpy.plugins.importing.unsupported import UnsupportedError
from relaxpy.plugins.onnx.context import Context
from relaxpy.plugins.onnx.registry import Value, converter
from relaxpy.support.dataclass import dataclass

_METHODS = {
    "nearest": "nearest_neighbor",
    "linear": "linear",
    "bilinear": "linear",
    "cubic": "cubic",
}
_SYMMETRIC = "half_pixel_symmetric"
#: How far from the middle of two elements ONNX Runtime takes a coordinate for the middle.
_MIDDLE = 1e-6


def single(value: ExprLike) -> PrimExpr:
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
        real: Callable[[ExprLike], PrimExpr] = single if is_rounded else double
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
        shape = (*data.shape[: self.position], self.new, *data.shape[self.position + 1 :])

        def element(*index: PrimExpr) -> PrimExpr:
            x = index[self.position]
            k = te.reduce_axis((zero, count), "k")
            at = ops.maximum(ops.minimum(position(x, k.var), last), zero)
            source_index = [*index]
            source_index[self.position] = at
            share = ops.cast_to(weights(x, k.var) / totals(x), wide)
            return reduce.sum(ops.cast_to(data(*source_index), wide) * share, axis=k)

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
    sizes = R.astype(R.floor(R.multiply(lengths, vector)), "int64")
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
    ratios = R.divide(sizes, lengths)
    extreme = R.min if policy == "not_larger" else R.max
    scales = cx.emit(R.broadcast_to(extreme(ratios, 0, keepdims=True), (count,)))
    rounded = R.floor(R.add(R.multiply(lengths, scales), const(0.5, "float64")))
    return cx.sizes_at_run_time(cx.emit(R.astype(rounded, "int64")), count, "size"), scales


def _given(cx: Context, value: Value) -> bool:
    """True if an operand is present and not empty."""
    return value is not None and shape_of(cx.tensor(value))[:1] != [0]


def _has_unknown_size(cx: Context, value: Value) -> bool:
    return not isinstance(shape_of(cx.tensor(value))[0], int)


_ADMITTED = {
    "coordinate_transformation_mode": (*image.MODES, _SYMMETRIC),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "mode": _METHODS,
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
        _METHODS[mode],
        coordinate_transformation_mode,
        nearest_mode,
        cubic_coeff_a,
        bool(exclude_outside),
        extrapolation_value,
    )
    smooth = bool(antialias) and mode != "nearest"
    return _resized(cx, x, _Plan(tuple(chosen), tuple(new), factors, region, sampling, smooth))


_MODE = {"mode": _METHODS}


@converter("Upsample", since=9, admitted=_MODE)
@converter("Resize", since=10, admitted=_MODE)
def resize_10(cx: Context, x: Expr, scales: Value, *, mode: str = "nearest") -> Expr:
    sizes, factors = _scaled_sizes(cx, x, range(rank_of(x)), scales)
    grows = not isinstance(factors, Expr) and min(factors, default=1) >= 1
    # What shrinks takes the next element, as in ONNX Runtime and the tests of that version.
    positions = "asymmetric" if grows or mode != "nearest" else "asymmetric_rounded"
    sampling = Sampling(_METHODS[mode], positions, "floor", -0.75, False, 0.0)
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
