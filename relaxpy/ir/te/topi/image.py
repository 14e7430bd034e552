"""Resampling of images and volumes to other sizes, or at the positions of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce as folded
from typing import TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.arith.algebra.affine import as_poly
from relaxpy.ir.arith.prove import prove_equal
from relaxpy.ir.core.dtype import FLOAT32, FLOAT64, INT64, DataType
from relaxpy.ir.te import tensor as te
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.elementwise import as_dtype, cast, computed, identity, injective
from relaxpy.ir.te.topi.grid import (
    affine_grid,
    grid_sample,
    grid_sample_grad_data,
    grid_sample_grad_grid,
)
from relaxpy.ir.te.topi.interpolation import cubic_weights, double, ratio, sum_dtype
from relaxpy.ir.te.topi.shapes import as_sizes, shape_text
from relaxpy.ir.tir import expr as tir, intrin, ops, reduce
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.ir.tir.layout import Layout
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

Table: TypeAlias = Callable[[PrimExpr], PrimExpr]
Finish: TypeAlias = Callable[[PrimExpr, Sequence[PrimExpr]], PrimExpr]
CROP = "tf_crop_and_resize"
_ROUNDINGS: dict[str, Callable[[PrimExpr], PrimExpr]] = {
    "round": intrin.round,
    "round_prefer_floor": lambda v: intrin.ceil(ops.sub(v, double(0.5))),
    "round_prefer_ceil": lambda v: intrin.floor(ops.add(v, double(0.5))),
    "floor": intrin.floor,
    "ceil": intrin.ceil,
}
METHODS = ("nearest_neighbor", "linear", "cubic")
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
            ("method", method, METHODS),
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
            value = value + tir.Select(ops.compare(tir.LT, value, zero), -small, small)
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
            ops.floordiv(i, ops.const(repeats[n], i.dtype)) if n in repeats else i
            for n, i in enumerate(index)
        ]
        return _converted(data(*source), dtype)

    return injective([sizes.get(n, size) for n, size in enumerate(data.shape)], element, name)


def _inside(axes: Sequence[Axis]) -> Callable[[Sequence[PrimExpr]], PrimExpr] | None:
    """Return whether the element at an index lies in the data; None if all elements do."""
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
