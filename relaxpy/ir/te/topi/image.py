"""Resampling of images and volumes to other sizes, or at the positions of a grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce as folded
from typing import TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import BOOL, FLOAT32, FLOAT64, INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.arguments import checked
from relaxpy.ir.te.topi.elementwise import as_dtype, cast, computed, identity, injective
from relaxpy.ir.te.topi.indexing import load, loops, stored
from relaxpy.ir.te.topi.shapes import as_sizes, cubic_weights, double, ratio, shape_text, sum_dtype
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.layout import Layout
from relaxpy.ir.tir.stmt import BufferStore, IfThenElse, Stmt, stmt_seq
from relaxpy.support.dataclass import dataclass

__all__ = [
    "affine_grid",
    "grid_sample",
    "grid_sample_grad_data",
    "grid_sample_grad_grid",
    "resize1d",
    "resize2d",
    "resize3d",
    "resize_grad",
]

METHODS = ("nearest", "bilinear", "bicubic")
PADDINGS = ("zeros", "border", "reflection")
ALPHA = -0.75


def affine_grid(
    data: Tensor, target_shape: Sequence[ExprLike], align_corners: bool = True
) -> Tensor:
    """The positions to which affine maps take those of images or volumes, each from -1 to 1.

    The maps are (batch, 2, 3) matrices, of columns x, y and 1, or (batch, 3, 4) ones; the result is
    (batch, 2 or 3, *sizes). With `align_corners`, -1 and 1 are the centres of the first and last
    elements, else their edges.

    Errors:
        MisuseError: the maps have another rank, or there are not two or three sizes.
    """
    sizes = as_sizes(target_shape)
    count = len(sizes)
    if data.ndim != 3 or count not in (2, 3):
        raise MisuseError(
            f"expected maps of rank 3 and 2 or 3 sizes, found {shape_text(data.shape)} and "
            f"{list(target_shape)}"
        )
    wide = sum_dtype(data.dtype)

    def positions(size: PrimExpr, name: str) -> Tensor:
        def element(i: PrimExpr) -> PrimExpr:
            number, count = ops.cast_to(i, INT64), ops.cast_to(size, INT64)
            steps = ops.maximum(count - 1, ops.const(1, INT64))
            aligned = ratio(number * 2 - (count - 1), steps)
            coordinate = aligned if align_corners else ratio(number * 2 + 1 - count, count)
            return ops.cast_to(coordinate, wide)

        return computed([size], element, name)

    tables = [positions(size, name) for size, name in zip(sizes[::-1], "xyz", strict=False)]

    def element(n: PrimExpr, i: PrimExpr, *at: PrimExpr) -> PrimExpr:
        row = [ops.cast_to(data(n, i, ops.const(k, INT64)), wide) for k in range(count + 1)]
        pairs = zip(row, tables, at[::-1], strict=False)
        terms = [factor * table(place) for factor, table, place in pairs]
        return ops.cast_to(folded(ops.add, [*terms, row[-1]]), data.dtype)

    return computed((*data.shape[:2], *sizes), element, "affine_grid")


@dataclass(frozen=True, slots=True)
class _Tap:
    """Along one axis, the index into the data for each position, its weight and its slope.

    A tap that is not `inside` has a weight of 0, or NaN, and its element is not read.
    """

    index: Tensor
    weight: Tensor
    slope: Tensor
    inside: Tensor


def _clipped(position: PrimExpr, size: PrimExpr) -> PrimExpr:
    """The element nearest to a position; the first one for NaN, as in PyTorch."""
    zero = double(0.0)
    return tir.Select(position > zero, ops.minimum(position, double(size - 1)), zero)


@dataclass(frozen=True, slots=True)
class _Sampled:
    """The positions of a grid in the data."""

    data: Tensor
    grid: Tensor
    method: str
    padding: str
    align_corners: bool
    wide: DataType

    @staticmethod
    def of(
        data: Tensor, grid: Tensor, method: str, layout: str, padding_mode: str, align_corners: bool
    ) -> _Sampled:
        """The positions of a call.

        Errors:
            MisuseError: there is no such method, layout or padding, or a tensor has another rank.
        """
        for name, value, allowed in (
            ("method", method, METHODS),
            ("layout", layout, ("NCHW", "NCDHW")),
            ("padding_mode", padding_mode, PADDINGS),
        ):
            if value not in allowed:
                raise unexpected(value, f"{name} is one of {', '.join(allowed)}")
        if not data.ndim == grid.ndim == len(layout):
            raise MisuseError(
                f"data and grid have the axes of {layout!r}, found {shape_text(data.shape)} and "
                f"{shape_text(grid.shape)}"
            )
        wide = sum_dtype(data.dtype, grid.dtype)
        return _Sampled(data, grid, method, padding_mode, align_corners, wide)

    @property
    def positions(self) -> tuple[PrimExpr, ...]:
        """The sizes of the grid without its coordinates: the batch, then the axes."""
        return (self.grid.shape[0], *self.grid.shape[2:])

    def axes(self) -> list[list[_Tap]]:
        """The taps along each axis of the data; the grid lists the last axis first."""
        count = self.data.ndim - 2
        return [self._taps(axis, count - 1 - axis) for axis in range(count)]

    def combinations(self) -> list[tuple[_Tap, ...]]:
        """One tap along each axis, in all combinations."""
        return list(itertools.product(*self.axes()))

    def scale(self, axis: int) -> PrimExpr:
        """The growth of the index along an axis if the coordinate grows by 1."""
        size = ops.cast_to(self.data.shape[axis + 2], INT64)
        return double(size - 1 if self.align_corners else size) * double(0.5)

    def _table(
        self, element: Callable[[PrimExpr, tuple[PrimExpr, ...]], PrimExpr], name: str
    ) -> Tensor:
        return computed(self.positions, lambda n, *at: element(n, at), name)

    @property
    def keeps_positions(self) -> bool:
        """True if positions outside stay there: no nearest or reflected one is sampled instead."""
        return self.padding == "zeros" or self.folds_taps

    @property
    def folds_taps(self) -> bool:
        """True if each tap outside moves inside by itself, instead of the position before it."""
        return self.method == "bicubic" and self.padding != "zeros"

    def _taps(self, axis: int, row: int) -> list[_Tap]:
        size = ops.cast_to(self.data.shape[axis + 2], INT64)
        zero, one = double(0.0), double(1.0)

        def scaled(n: PrimExpr, at: tuple[PrimExpr, ...]) -> PrimExpr:
            value = ops.cast_to(self.grid(n, ops.const(row, INT64), *at), "float64")
            position = (value + one) * self.scale(axis)
            return position if self.align_corners else position - double(0.5)

        raw = self._table(scaled, "position")

        def coordinate(n: PrimExpr, at: tuple[PrimExpr, ...]) -> PrimExpr:
            position: PrimExpr = raw(n, *at)
            if self.padding == "reflection":
                return position if self.folds_taps else self._folded(position, size)[0]
            if self.padding == "border" and not self.folds_taps:
                return _clipped(position, size)
            # Farther away nothing changes, and every index is an int64.
            return ops.maximum(ops.minimum(position, double(size + 2)), double(-3.0))

        def growth(n: PrimExpr, *at: PrimExpr) -> PrimExpr:
            """The derivative of the coordinate by the position."""
            folded: PrimExpr = raw(n, *at)
            sign = one
            if self.keeps_positions:
                return one
            if self.padding == "reflection":
                folded, sign = self._folded(folded, size, is_clipped=False)
            is_between = ops.all_of(folded > zero, folded < double(size - 1))
            return tir.Select(is_between, sign, zero)

        source = self._table(coordinate, "coordinate")
        if self.method == "nearest":
            return [self._tap(size, lambda *i: intrin.round(source(*i)), lambda *i: (one, zero))]

        # As in PyTorch: images are NaN where floats give NaN; indices into volumes are integers.
        is_undefined = self.keeps_positions and self.data.ndim == 4

        def undefined(*index: PrimExpr) -> PrimExpr:
            return ops.logical_not(intrin.isfinite(raw(*index)))

        def weights(number: int, *index: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
            weight, slope = self._weights(source(*index) - intrin.floor(source(*index)))[number]
            return weight, slope * growth(*index)

        offsets = (0, 1) if self.method == "bilinear" else (-1, 0, 1, 2)
        return [
            self._tap(
                size,
                lambda *i, k=offset: intrin.floor(source(*i)) + double(float(k)),
                lambda *i, k=number: weights(k, *i),
                undefined if is_undefined else None,
            )
            for number, offset in enumerate(offsets)
        ]

    def _folded(
        self, position: PrimExpr, size: PrimExpr, *, is_clipped: bool = True
    ) -> tuple[PrimExpr, PrimExpr]:
        """A position reflected at the centres or edges of the first and last elements, its slope.

        It `is_clipped` to their centres.
        """
        zero, one = double(0.0), double(1.0)
        low = zero if self.align_corners else double(-0.5)
        span = double(ops.maximum(size - 1, ops.const(1, INT64)) if self.align_corners else size)
        distance = ops.maximum(position - low, low - position)
        rest = distance - intrin.floor(distance / (span + span)) * (span + span)
        is_back = rest > span
        folded = tir.Select(is_back, span + span - rest, rest) + low
        sign = tir.Select(is_back, zero - one, one) * tir.Select(position < low, zero - one, one)
        if is_clipped:
            folded = _clipped(folded, size)
        return folded, sign

    def _weights(self, t: PrimExpr) -> list[tuple[PrimExpr, PrimExpr]]:
        """The weights of the taps at a fraction between two elements, and their slopes."""
        if self.method == "bilinear":
            return [(double(1.0) - t, double(-1.0)), (t, double(1.0))]
        a, b, c, d = (double(v) for v in (ALPHA, 3 * ALPHA + 6, 2 * ALPHA + 6, 4 * ALPHA + 6))
        three, four, two = double(3 * ALPHA), double(4 * ALPHA), double(2 * ALPHA)
        slopes = [
            three * t * t - four * t + a,
            b * t * t - c * t,
            d * t - b * t * t - a,
            two * t - three * t * t,
        ]
        return list(zip(cubic_weights(t, ALPHA), slopes, strict=True))

    def _tap(
        self,
        size: PrimExpr,
        source: Callable[..., PrimExpr],
        weight: Callable[..., tuple[PrimExpr, PrimExpr]],
        undefined: Callable[..., PrimExpr] | None = None,
    ) -> _Tap:
        zero = ops.const(0, INT64)

        def index(n: PrimExpr, at: tuple[PrimExpr, ...]) -> PrimExpr:
            nearest = ops.cast_to(source(n, *at), INT64)
            if self.padding == "reflection" and self.folds_taps:
                nearest = self._reflected(nearest, size)
            return ops.maximum(ops.minimum(nearest, size - 1), zero)

        def inside(n: PrimExpr, at: tuple[PrimExpr, ...]) -> PrimExpr:
            position, last = source(n, *at), double(size - 1)
            if self.folds_taps:
                return ops.const(True, BOOL)
            if self.padding == "zeros":
                return ops.all_of(position >= double(0.0), position <= last)
            return ops.logical_not(ops.any_of(position < double(0.0), position > last))

        is_inside = self._table(inside, "inside")

        def table_of(number: int) -> Callable[[PrimExpr, tuple[PrimExpr, ...]], PrimExpr]:
            def element(n: PrimExpr, at: tuple[PrimExpr, ...]) -> PrimExpr:
                value = ops.cast_to(weight(n, *at)[number], self.wide)
                value = tir.Select(is_inside(n, *at), value, ops.const(0, self.wide))
                if number or undefined is None:
                    return value
                return tir.Select(undefined(n, *at), ops.const(math.nan, self.wide), value)

            return element

        return _Tap(
            self._table(index, "index"),
            self._table(table_of(0), "weight"),
            self._table(table_of(1), "slope"),
            is_inside,
        )

    def _reflected(self, index: PrimExpr, size: PrimExpr) -> PrimExpr:
        """An index reflected at the centres or the edges of the first and last elements."""
        one = ops.const(1, INT64)
        if self.align_corners:
            last = size - 1
            folded = index % ops.maximum(last * 2, one)
            return tir.Select(folded > last, last * 2 - folded, folded)
        folded = index % ops.maximum(size * 2, one)
        return tir.Select(folded >= size, size * 2 - 1 - folded, folded)

    def value(
        self, n: PrimExpr, c: PrimExpr, at: Sequence[PrimExpr], taps: Sequence[_Tap]
    ) -> PrimExpr:
        """The element of the data at one combination of taps; 0 if one of them is outside."""
        element = ops.cast_to(self.data(n, c, *(tap.index(n, *at) for tap in taps)), self.wide)
        is_inside = ops.all_of(*(tap.inside(n, *at) for tap in taps))
        return tir.Select(is_inside, element, ops.const(0, self.wide))


def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Tensor:
    """The data sampled at the positions of a grid, interpolated by a method.

    The grid is (batch, axes, *sizes), coordinates from -1 to 1 along the last axis of the data
    first. With `align_corners`, -1 and 1 are the centres of the first and last elements, else their
    edges; positions outside give 0, the nearest element, or the reflected data.

    Errors:
        MisuseError: there is no such method, layout or padding.
    """
    sampled = _Sampled.of(data, grid, method, layout, padding_mode, align_corners)
    taps = sampled.combinations()

    def element(n: PrimExpr, c: PrimExpr, *at: PrimExpr) -> PrimExpr:
        terms = (
            sampled.value(n, c, at, chosen) * _product(tap.weight(n, *at) for tap in chosen)
            for chosen in taps
        )
        return ops.cast_to(folded(ops.add, terms), data.dtype)

    shape = (*data.shape[:2], *grid.shape[2:])
    return computed(shape, element, "grid_sample")


def _product(factors: Iterable[PrimExpr]) -> PrimExpr:
    return folded(ops.mul, factors)


def grid_sample_grad_data(
    grad: Tensor,
    data: Tensor,
    grid: Tensor,
    method: str,
    layout: str,
    padding_mode: str,
    align_corners: bool,
) -> Tensor:
    """The gradient of the data of `grid_sample`, from that of the result."""
    sampled = _Sampled.of(data, grid, method, layout, padding_mode, align_corners)
    wide = sampled.wide
    taps = sampled.combinations()
    tables = [
        table for chosen in taps for tap in chosen for table in (tap.index, tap.weight, tap.inside)
    ]

    def store(ins: list[Buffer], out: Buffer) -> Stmt:
        count = data.ndim - 2

        def clear(index: list[PrimExpr]) -> Stmt:
            return BufferStore(out, ops.const(0, wide), tuple(index))

        def adding(chosen: Sequence[Buffer]) -> Callable[[list[PrimExpr]], Stmt]:
            def add_term(index: list[PrimExpr]) -> Stmt:
                n, c, *at = index
                target = (n, c, *(load(table, (n, *at)) for table in chosen[::3]))
                weight = _product(load(table, (n, *at)) for table in chosen[1::3])
                is_inside = ops.all_of(*(load(table, (n, *at)) for table in chosen[2::3]))
                term = ops.cast_to(load(ins[0], index), wide) * weight
                return IfThenElse(is_inside, BufferStore(out, load(out, target) + term, target))

            return add_term

        groups = [ins[1 + k : 1 + k + 3 * count] for k in range(0, len(tables), 3 * count)]
        return stmt_seq(
            loops(data.shape, clear), *(loops(grad.shape, adding(group)) for group in groups)
        )

    total = stored(data.shape, str(wide), [grad, *tables], "grid_sample_backward", store)
    return as_dtype(total, data.dtype)


def grid_sample_grad_grid(
    grad: Tensor,
    data: Tensor,
    grid: Tensor,
    method: str,
    layout: str,
    padding_mode: str,
    align_corners: bool,
) -> Tensor:
    """The gradient of the grid of `grid_sample`, from that of the result."""
    sampled = _Sampled.of(data, grid, method, layout, padding_mode, align_corners)
    taps, count = sampled.combinations(), data.ndim - 2

    def along(axis: int) -> Tensor:
        def element(n: PrimExpr, *at: PrimExpr) -> PrimExpr:
            c = te.reduce_axis((ops.const(0, data.shape[1].dtype), data.shape[1]), "c")

            def term(taps_of_axes: tuple[_Tap, ...]) -> PrimExpr:
                factors = (
                    (tap.slope if k == axis else tap.weight)(n, *at)
                    for k, tap in enumerate(taps_of_axes)
                )
                return sampled.value(n, c.var, at, taps_of_axes) * _product(factors)

            slope = folded(ops.add, map(term, taps))
            total: PrimExpr = reduce.sum(
                ops.cast_to(grad(n, c.var, *at), sampled.wide) * slope, axis=c
            )
            return total

        return computed(sampled.positions, element, "slope")

    slopes = [along(axis) for axis in range(count)]

    def element(n: PrimExpr, row: PrimExpr, *at: PrimExpr) -> PrimExpr:
        values = [
            slopes[axis](n, *at) * ops.cast_to(sampled.scale(axis), sampled.wide)
            for axis in reversed(range(count))
        ]
        taps_of_axes = values[-1]
        for k in reversed(range(count - 1)):
            is_row = ops.compare(tir.EQ, row, ops.const(k, row.dtype))
            taps_of_axes = tir.Select(is_row, values[k], taps_of_axes)
        return ops.cast_to(taps_of_axes, grid.dtype)

    return computed(grid.shape, element, "grid_gradient")


Table: TypeAlias = Callable[[PrimExpr], PrimExpr]
Finish: TypeAlias = Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr]
CROP = "tf_crop_and_resize"
_ROUNDINGS: dict[str, Callable[[PrimExpr], PrimExpr]] = {
    "round": intrin.round,
    "round_prefer_floor": lambda v: intrin.ceil(v - double(0.5)),
    "round_prefer_ceil": lambda v: intrin.floor(v + double(0.5)),
    "floor": intrin.floor,
    "ceil": intrin.ceil,
}
RESIZE_METHODS = ("nearest_neighbor", "linear", "cubic")
ROUNDINGS = tuple(_ROUNDINGS)


def _half_pixel(x: PrimExpr, old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return ratio((x * 2 + 1) * old - new, new * 2)


def _pytorch_half_pixel(x: PrimExpr, old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return tir.Select(new > ops.const(1, INT64), _half_pixel(x, old, new), double(0.0))


#: The coordinate of element x of `new` elements among `old` ones. Each is rounded by one division,
#: so that integers and halves are exact.
COORDINATES: dict[str, Callable[[PrimExpr, PrimExpr, PrimExpr], PrimExpr]] = {
    "half_pixel": _half_pixel,
    "align_corners": lambda x, old, new: ratio(
        x * (old - 1), ops.maximum(new - 1, ops.const(1, INT64))
    ),
    "asymmetric": lambda x, old, new: ratio(x * old, new),
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_half_pixel_for_nn": lambda x, old, new: ratio((x * 2 + 1) * old, new * 2),
}
MODES = (*COORDINATES, CROP)
_REPEATING = {
    "asymmetric": ("floor",),
    "tf_half_pixel_for_nn": ("floor",),
    "half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
    "pytorch_half_pixel": ("round", "round_prefer_floor", "round_prefer_ceil"),
}
"""The roundings with which upsampling by an integer factor `n` repeats each element `n` times."""
_KEEPS_EQUAL_SIZES = ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")


def multiple_of(old: PrimExpr, new: PrimExpr) -> int | None:
    """new / old; None if `new` is not known to be a multiple of `old`."""
    before, after = as_poly(old).terms, as_poly(new).terms
    factors = {divmod(factor, before.get(monomial, 0) or 1) for monomial, factor in after.items()}
    if before.keys() != after.keys() or len(factors) != 1:
        return None
    [(times, rest)] = factors
    return times if times > 0 and not rest else None


@dataclass(frozen=True, slots=True)
class Sampling:
    """The attributes that define how elements between those of the data are computed."""

    method: str
    mode: str
    rounding: str
    alpha: float
    exclude: bool
    extrapolation: float

    @staticmethod
    def of(
        method: str,
        coordinate_transformation_mode: str,
        rounding_method: str,
        cubic_alpha: float,
        cubic_exclude: int,
        extrapolation_value: float,
    ) -> Sampling:
        """The attributes of a function; without a rounding method, corners are rounded.

        Errors:
            MisuseError: there is no such method, mode or rounding.
        """
        mode = coordinate_transformation_mode
        rounding = rounding_method or ("round" if mode == "align_corners" else "floor")
        for name, value, allowed in (
            ("method", method, RESIZE_METHODS),
            ("coordinate_transformation_mode", mode, MODES),
            ("rounding_method", rounding, ROUNDINGS),
        ):
            if value not in allowed:
                raise unexpected(value, f"{name} is one of {', '.join(allowed)}")
        exclude = bool(cubic_exclude)
        return Sampling(method, mode, rounding, cubic_alpha, exclude, extrapolation_value)


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis that is resampled from `old` elements, or those of a region, to `new` elements."""

    position: int
    old: PrimExpr
    new: PrimExpr
    region: tuple[float, float]
    sampling: Sampling

    @property
    def is_kept(self) -> bool:
        """True if each element is known to equal the element of the data with its index."""
        keeps = self.sampling.mode in _KEEPS_EQUAL_SIZES
        return keeps and prove_equal(self.old, self.new) is True

    @property
    def repeats(self) -> int | None:
        """The repetition factor of each element under nearest interpolation, if known."""
        sampling = self.sampling
        if sampling.method != "nearest_neighbor":
            return None
        if self.is_kept:
            return 1
        if sampling.rounding not in _REPEATING.get(sampling.mode, ()):
            return None
        return multiple_of(self.old, self.new)

    @property
    def shrinks(self) -> bool:
        """True if the result is known to have fewer elements along this axis."""
        match self.old, self.new:
            case tir.IntImm(value=old), tir.IntImm(value=new):
                return new < old
            case _:
                return False

    def coordinate(self, x: PrimExpr) -> PrimExpr:
        """The coordinate of element x of the result in the data."""
        x = ops.cast_to(x, INT64)
        old, new = (ops.cast_to(size, INT64) for size in (self.old, self.new))
        if self.sampling.mode != CROP:
            return COORDINATES[self.sampling.mode](x, old, new)
        start, end = self.region
        last = double(old - 1)
        steps = ops.maximum(new - 1, ops.const(1, INT64))
        middle = double((start + end) / 2) * last
        spread = double(start) * last + double(x) * double(end - start) * last / double(steps)
        return tir.Select(new > ops.const(1, INT64), spread, middle)

    def nearest(self, x: PrimExpr) -> PrimExpr:
        """The rounded coordinate of element x of the result."""
        return _ROUNDINGS[self.sampling.rounding](self.coordinate(x))

    def _table(self, element: Callable[[PrimExpr], PrimExpr], name: str) -> Table:
        return computed([self.new], lambda x: element(x), name)

    def _tables(
        self, elements: Callable[[PrimExpr], list[PrimExpr]], count: int, name: str
    ) -> list[Table]:
        """Several tables as the rows of one tensor.

        Kernels then compute them once, and loop over the data in its own order.
        """

        def element(row: PrimExpr, x: PrimExpr) -> PrimExpr:
            *values, selected = elements(x)
            for k, value in reversed(list(enumerate(values))):
                is_row = ops.compare(tir.EQ, row, ops.const(k, row.dtype))
                selected = tir.Select(is_row, value, selected)
            return selected

        rows: Tensor = te.compute([ops.const(count, INT64), self.new], element, name=name)
        return [partial(rows, ops.const(k, INT64)) for k in range(count)]

    def inside(self) -> Table:
        """For each element, whether it lies in the data."""

        def element(x: PrimExpr) -> PrimExpr:
            at, last = self.coordinate(x), double(ops.cast_to(self.old, INT64) - 1)
            return ops.all_of(at >= double(0.0), at <= last)

        return self._table(element, "inside")

    def taps(self, wide: DataType) -> list[tuple[Table, Table | None]]:
        """The indices into the data for each element, and their weights unless they are 1."""
        sampling = self.sampling
        last = ops.cast_to(self.old, INT64) - 1

        def clamped(index: PrimExpr) -> PrimExpr:
            return ops.maximum(ops.minimum(index, last), ops.const(0, INT64))

        if sampling.method == "nearest_neighbor":
            index = self._table(lambda x: clamped(ops.cast_to(self.nearest(x), INT64)), "index")
            return [(index, None)]
        at = self._table(self.coordinate, "coordinate")
        offsets = (0, 1) if sampling.method == "linear" else (-1, 0, 1, 2)

        def index_of(offset: int, x: PrimExpr) -> PrimExpr:
            return ops.cast_to(intrin.floor(at(x)), INT64) + offset

        def weights(x: PrimExpr) -> list[PrimExpr]:
            t = at(x) - intrin.floor(at(x))
            if sampling.method == "linear":
                return [double(1.0) - t, t]
            values = cubic_weights(t, sampling.alpha)
            if not sampling.exclude:
                return values
            for k, offset in enumerate(offsets):
                position = index_of(offset, x)
                is_inside = ops.all_of(position >= ops.const(0, INT64), position <= last)
                values[k] = tir.Select(is_inside, values[k], double(0.0))
            total = folded(ops.add, values)
            return [value / total for value in values]

        count = len(offsets)
        indices = self._tables(lambda x: [clamped(index_of(o, x)) for o in offsets], count, "index")
        factors = self._tables(
            lambda x: [ops.cast_to(w, wide) for w in weights(x)], count, "weight"
        )
        return list(zip(indices, factors, strict=True))

    def resampled(self, data: Tensor, wide: DataType, finish: Finish, name: str) -> Tensor:
        """The data with this axis resampled, `finish` applied to each element."""
        taps = self.taps(wide)

        def element(*index: PrimExpr) -> PrimExpr:
            before, x, after = (
                index[: self.position],
                index[self.position],
                index[self.position + 1 :],
            )

            def term(position: Table, weight: Table | None) -> PrimExpr:
                value = data(*before, position(x), *after)
                return value if weight is None else ops.cast_to(value, wide) * weight(x)

            return finish(folded(ops.add, (term(*tap) for tap in taps)), index)

        shape = (*data.shape[: self.position], self.new, *data.shape[self.position + 1 :])
        return computed(shape, element, name)

    def matrix(self, wide: DataType) -> Tensor:
        """The weight of each element of the data in each element of the result."""
        taps = self.taps(wide)

        def element(x: PrimExpr, i: PrimExpr) -> PrimExpr:
            def term(position: Table, weight: Table | None) -> PrimExpr:
                value = ops.const(1, wide) if weight is None else weight(x)
                is_source = ops.compare(tir.EQ, position(x), ops.cast_to(i, INT64))
                return tir.Select(is_source, value, ops.const(0, wide))

            return folded(ops.add, (term(*tap) for tap in taps))

        return computed([self.new, self.old], element, "weights")

    def spread(self, grad: Tensor, wide: DataType) -> Tensor:
        """The gradient of the data of `resampled`, from that of the result."""
        weights = self.matrix(wide)

        def element(*index: PrimExpr) -> PrimExpr:
            before, i, after = (
                index[: self.position],
                index[self.position],
                index[self.position + 1 :],
            )
            x = te.reduce_axis((ops.const(0, self.new.dtype), self.new), "x")
            total: PrimExpr = reduce.sum(grad(*before, x.var, *after) * weights(x.var, i), axis=x)
            return total

        shape = (*grad.shape[: self.position], self.old, *grad.shape[self.position + 1 :])
        return computed(shape, element, "resize_grad")


def _axes(
    letters: str,
    layout: str,
    old: Sequence[PrimExpr],
    new: Sequence[ExprLike],
    roi: Sequence[float],
    sampling: Sampling,
) -> list[Axis]:
    """The axes that are resampled, which have these letters in the layout."""
    order = Layout.of(layout).names
    count = len(letters)
    if len(order) != len(old) or not set(letters) <= set(order):
        raise unexpected(
            layout, f"the layout of data {shape_text(old)} has its axes and {', '.join(letters)}"
        )
    if len(new) != count or len(roi) != 2 * count:
        raise MisuseError(
            f"expected {count} sizes and a region of {2 * count} numbers, "
            f"found {list(new)} and {list(roi)}"
        )
    positions = [order.index(letter) for letter in letters]
    regions = zip(roi[:count], roi[count:], strict=True)
    return [
        Axis(position, old[position], size, region, sampling)
        for position, size, region in zip(positions, as_sizes(new), regions, strict=True)
    ]


def _converted(value: PrimExpr, dtype: DataType, slack: float = 0.0) -> PrimExpr:
    """Convert a sum to the datatype of the result; integers are rounded toward zero and clamped.

    Values that are by `slack` nearer to zero than an integer become that integer.
    """
    if value.dtype.is_float and dtype.is_int and not dtype.is_bool:
        if slack:
            small, zero = ops.const(slack, value.dtype), ops.const(0, value.dtype)
            value = value + tir.Select(value < zero, -small, small)
        low, high = ops.int_range(dtype)
        value = ops.minimum(value, ops.const(float(high), value.dtype))
        value = ops.maximum(value, ops.const(float(low), value.dtype))
    return ops.cast_to(value, dtype)


def resampled(
    data: Tensor, axes: Sequence[Axis], sampling: Sampling, out_dtype: str | None, name: str
) -> Tensor:
    dtype = DataType(out_dtype or data.dtype)
    wide, slack = sum_dtype(data.dtype, dtype), 0.0
    if data.dtype.is_int and dtype.is_int:
        # Sums of integers that are integers again are one too small if their roundings add up.
        wide, slack = (FLOAT32, 2.0**-10) if data.dtype.bits <= 8 else (FLOAT64, 2.0**-20)
    changed = [axis for axis in axes if not axis.is_kept]
    if not changed:
        return identity(data) if data.dtype == dtype else cast(data, str(dtype))
    repeats = {axis.position: axis.repeats or 0 for axis in changed}
    if all(repeats.values()):
        return _repeated(data, changed, repeats, dtype, name)
    is_inside = _inside(axes)

    def finish(value: PrimExpr, index: Sequence[PrimExpr]) -> PrimExpr:
        result = _converted(value, dtype, slack)
        if is_inside is None:
            return result
        extrapolated = _converted(double(sampling.extrapolation), dtype)
        return tir.Select(is_inside(index), result, extrapolated)

    # If axes shrink before the last one and grow after it, the fewest elements are moved along the
    # last axis, where they are moved one at a time.
    changed = [axis for axis in changed if axis.shrinks] + [
        axis for axis in reversed(changed) if not axis.shrinks
    ]
    for axis in changed[:-1]:
        data = axis.resampled(data, wide, lambda value, index: value, name)
    return changed[-1].resampled(data, wide, finish, name)


def _repeated(
    data: Tensor, axes: Sequence[Axis], repeats: Mapping[int, int], dtype: DataType, name: str
) -> Tensor:
    """The data with elements repeated along axes; `repeats` maps positions of axes to factors."""
    sizes = {axis.position: axis.new for axis in axes}

    def element(*index: PrimExpr) -> PrimExpr:
        source = [
            i // ops.const(repeats[n], i.dtype) if n in repeats else i for n, i in enumerate(index)
        ]
        return _converted(data(*source), dtype)

    return injective([sizes.get(n, size) for n, size in enumerate(data.shape)], element, name)


def _inside(axes: Sequence[Axis]) -> Callable[[Sequence[PrimExpr]], PrimExpr] | None:
    """True if the element at an index lies in the data; None if all elements do."""
    if axes[0].sampling.mode != CROP:
        return None
    tables = {axis.position: axis.inside() for axis in axes}
    return lambda index: ops.all_of(*(table(index[position]) for position, table in tables.items()))


def _resize(letters: str) -> Callable[..., Tensor]:
    def resize(
        data: Tensor,
        roi: Sequence[float],
        size: Sequence[ExprLike],
        layout: str = f"NC{letters}",
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.75,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
    ) -> Tensor:
        sampling = Sampling.of(
            method,
            coordinate_transformation_mode,
            rounding_method,
            bicubic_alpha,
            bicubic_exclude,
            extrapolation_value,
        )
        axes = _axes(letters, layout, data.shape, size, roi, sampling)
        return resampled(data, axes, sampling, out_dtype, resize.__name__)

    resize.__name__ = resize.__qualname__ = f"resize{len(letters)}d"
    resize.__doc__ = f"""The data with other sizes along the axes {", ".join(letters)} of a layout.

    Elements are those at the nearest index, or sums of the two or four nearest ones along each axis
    with weights; an index outside the data is that of its border. `roi` lists the starts of a
    region along the axes and then its ends, for {CROP!r}.

    Errors:
        MisuseError: there is no such method, mode or rounding; the region or the sizes do not
            belong to the axes.
    """
    return resize


resize1d, resize2d, resize3d = map(_resize, ("W", "HW", "DHW"))


def resize_grad(
    grad: Tensor,
    data: Tensor,
    letters: str,
    roi: Sequence[float],
    layout: str,
    method: str,
    coordinate_transformation_mode: str,
    rounding_method: str,
    bicubic_alpha: float,
    bicubic_exclude: int,
    extrapolation_value: float,
) -> Tensor:
    """The gradient of the data that was resized along axes of a layout, from that of the result."""
    sampling = Sampling.of(
        method,
        coordinate_transformation_mode,
        rounding_method,
        bicubic_alpha,
        bicubic_exclude,
        extrapolation_value,
    )
    order = Layout.of(layout).names
    size = [grad.shape[order.index(letter)] for letter in letters]
    axes = _axes(letters, layout, data.shape, size, roi, sampling)
    wide = sum_dtype(grad.dtype, data.dtype)
    is_inside = _inside(axes)

    def element(*index: PrimExpr) -> PrimExpr:
        value = ops.cast_to(grad(*index), wide)
        if is_inside is None:
            return value
        return tir.Select(is_inside(index), value, ops.const(0, wide))

    total: Tensor = te.compute(grad.shape, element, name="T_inside")
    for axis in axes:
        if not axis.is_kept:
            total = axis.spread(total, wide)
    return as_dtype(total, data.dtype)


# Users call functions that check their arguments.
globals().update({_name: checked(globals()[_name], __name__) for _name in __all__})
