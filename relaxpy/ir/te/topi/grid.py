"""Images and volumes sampled at the positions of a grid, and grids of affine maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from functools import reduce as folded

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.core.dtype import BOOL, INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype, computed
from relaxpy.ir.te.topi.indexing import load, loops, stored
from relaxpy.ir.te.topi.interpolation import cubic_weights, double, ratio, sum_dtype
from relaxpy.ir.te.topi.shapes import as_sizes, shape_text
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.buffer import Buffer
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.stmt import BufferStore, IfThenElse, Stmt, stmt_seq
from relaxpy.support.dataclass import dataclass

__all__ = ["affine_grid", "grid_sample", "grid_sample_grad_data", "grid_sample_grad_grid"]

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

    A tap that is not `inside` has a weight of 0, and its element is not read.
    """

    index: Tensor
    weight: Tensor
    slope: Tensor
    inside: Tensor


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
                return ops.maximum(ops.minimum(position, double(size - 1)), zero)
            # Farther away nothing changes, and every index is an int64.
            return ops.maximum(ops.minimum(position, double(size + 2)), double(-3.0))

        def growth(n: PrimExpr, *at: PrimExpr) -> PrimExpr:
            """The derivative of the coordinate by the position."""
            folded: PrimExpr = raw(n, *at)
            sign = one
            if self.padding == "zeros" or self.folds_taps:
                return one
            if self.padding == "reflection":
                folded, sign = self._folded(folded, size, is_clipped=False)
            is_between = ops.all_of(folded > zero, folded < double(size - 1))
            return tir.Select(is_between, sign, zero)

        source = self._table(coordinate, "coordinate")
        if self.method == "nearest":
            return [self._tap(size, lambda *i: intrin.round(source(*i)), lambda *i: (one, zero))]

        def weights(number: int, *index: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
            weight, slope = self._weights(source(*index) - intrin.floor(source(*index)))[number]
            return weight, slope * growth(*index)

        offsets = (0, 1) if self.method == "bilinear" else (-1, 0, 1, 2)
        return [
            self._tap(
                size,
                lambda *i, k=offset: intrin.floor(source(*i)) + double(float(k)),
                lambda *i, k=number: weights(k, *i),
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
            folded = ops.maximum(ops.minimum(folded, double(size - 1)), zero)
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
                return tir.Select(is_inside(n, *at), value, ops.const(0, self.wide))

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
            folded = ops.floormod(index, ops.maximum(last * 2, one))
            return tir.Select(folded > last, last * 2 - folded, folded)
        folded = ops.floormod(index, ops.maximum(size * 2, one))
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
