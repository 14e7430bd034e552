"""The gradient of `grad.grid_sample_backward`, composed of operators that have gradients."""

from __future__ import annotations

from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, ShapeExpr, const
from relaxpy.ir.relax.op.definition.gradients import require_shape
from relaxpy.ir.relax.op.definition.registry import R
from relaxpy.ir.te.topi.grid import ALPHA
from relaxpy.ir.te.topi.interpolation import sum_dtype
from relaxpy.ir.te.topi.shapes import product
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import PrimExpr
from relaxpy.support.dataclass import dataclass

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

#: For each method the first tap, counted from the element before a position, and the weights of the
#: taps: polynomials in the fraction between two elements; each row has the coefficients of one.
_POLYNOMIALS = {
    "bilinear": (0, np.array([[1.0, -1.0], [0.0, 1.0]])),
    "bicubic": (
        -1,
        np.array(
            [
                [0.0, ALPHA, -2 * ALPHA, ALPHA],
                [1.0, 0.0, -(ALPHA + 3), ALPHA + 2],
                [0.0, -ALPHA, 2 * ALPHA + 3, -(ALPHA + 2)],
                [0.0, 0.0, ALPHA, -ALPHA],
            ]
        ),
    ),
}


def _derivative(polynomials: Any) -> Any:
    """The coefficients of the derivatives, padded to the same number of powers."""
    out = np.zeros_like(polynomials)
    out[:, :-1] = polynomials[:, 1:] * np.arange(1, polynomials.shape[1])
    return out


@dataclass(frozen=True, slots=True)
class _Taps:
    """The elements around the positions along one axis, each tensor (batch, taps, positions)."""

    index: Any
    weights: tuple[Any, Any, Any]
    """The weights of each tap, and their first and second derivatives by the coordinate."""


class _Samples:
    """The positions of a call of `grid_sample`, as vectors, and the taps around them."""

    def __init__(self, builder: BlockBuilder, call: Call) -> None:
        _, data, grid = call.args
        self.attrs = call.attrs
        self.builder = builder
        self.sizes = require_shape(data, "grid_sample_backward")
        sizes = require_shape(grid, "grid_sample_backward")
        self.dtype = sum_dtype(dtype_of(data), dtype_of(grid))
        self.axes = len(self.sizes) - 2
        self.count = product(sizes[2:])
        self.first, self.polynomials = _POLYNOMIALS[str(call.attrs["method"])]
        flat = self.flat(grid)
        rows = [
            R.strided_slice(flat, [1], [self.axes - 1 - k], [self.axes - k])
            for k in range(self.axes)
        ]
        self.taps = [self._taps(R.astype(row, "float64"), k) for k, row in enumerate(rows)]
        self.index = self._flat_index()

    def emit(self, x: Any) -> Any:
        return self.builder.emit(x)

    def flat(self, x: Any) -> Any:
        """A tensor with all axes after the second joined."""
        sizes = require_shape(x, "grid_sample_backward")
        return R.reshape(x, shape_of(*sizes[:2], product(sizes[2:])))

    def wide(self, x: Any) -> Any:
        return as_dtype(x, self.dtype)

    def _taps(self, row: Any, axis: int) -> _Taps:
        size = self.sizes[axis + 2]
        aligned, padding = self.attrs["align_corners"], self.attrs["padding_mode"]
        scale = PrimValue(ops.cast_to(size - 1 if aligned else size, "float64") * 0.5)
        source = (row + 1.0) * scale
        if not aligned:
            source = source - 0.5
        if padding != "reflection":
            # Farther away nothing changes, and every index is an int64.
            source = R.minimum(R.maximum(source, -3.0), PrimValue(_double(size + 2)))
        source = self.emit(source)
        before = self.emit(R.floor(source))
        fraction = self.emit(source - before)
        count, degree = self.polynomials.shape
        offsets = const(np.arange(self.first, self.first + count)[:, None], "float64")
        places = self.emit(before + offsets)
        powers = [R.ones_like(fraction), fraction]
        for _ in range(degree - 2):
            powers.append(self.emit(powers[-1] * fraction))
        powers = self.emit(R.concat(powers, axis=1))
        weights, polynomials = [], self.polynomials
        for order in range(3):
            values = R.matmul(const(polynomials, "float64"), powers)
            for _ in range(order):
                values = values * scale
            if padding == "zeros":
                last = PrimValue(_double(size - 1))
                inside = R.logical_and(R.greater_equal(places, 0.0), R.less_equal(places, last))
                values = R.where(inside, values, R.zeros_like(values))
            weights.append(self.emit(self.wide(values)))
            polynomials = _derivative(polynomials)
        index = self._inside(R.astype(places, "int64"), size)
        return _Taps(self.emit(index), (weights[0], weights[1], weights[2]))

    def _inside(self, index: Any, size: PrimExpr) -> Any:
        """Indices reflected or moved to the ends of an axis."""
        one = ops.const(1, size.dtype)
        if self.attrs["padding_mode"] == "reflection":
            if self.attrs["align_corners"]:
                last, period = size - 1, ops.maximum((size - 1) * 2, one)
            else:
                last, period = size * 2 - 1, size * 2
            folded = R.floor_mod(index, PrimValue(period))
            other = PrimValue(period if self.attrs["align_corners"] else last) - folded
            index = R.minimum(folded, other)
        return R.maximum(R.minimum(index, PrimValue(size - 1)), 0)

    def along(self, axis: int, x: Any) -> Any:
        """A tensor of the taps along one axis that broadcasts to those along all axes."""
        taps = [len(self.polynomials) if k == axis else 1 for k in range(self.axes)]
        return R.reshape(x, shape_of(self.sizes[0], *taps, self.count))

    def joined(self, x: Any) -> Any:
        """A tensor of the taps along all axes, (batch, taps, positions)."""
        taps = len(self.polynomials) ** self.axes
        return self.emit(R.reshape(x, shape_of(self.sizes[0], taps, self.count)))

    def weights(self, *derivatives: int) -> Any:
        """The weights of all taps, derived along each of these axes."""
        factors = [
            self.along(k, taps.weights[derivatives.count(k)]) for k, taps in enumerate(self.taps)
        ]
        return self.joined(reduce(mul, factors))

    def _flat_index(self) -> Any:
        strides = [product(self.sizes[k + 3 :]) for k in range(self.axes)]
        terms = [
            self.along(k, taps.index * PrimValue(stride))
            for k, (taps, stride) in enumerate(zip(self.taps, strides, strict=True))
        ]
        taps = len(self.polynomials) ** self.axes
        index = R.reshape(reduce(add, terms), shape_of(self.sizes[0], 1, taps * self.count))
        shape = (*self.sizes[:2], taps * self.count)
        return self.emit(R.broadcast_to(index, ShapeExpr(shape)))

    def gathered(self, data: Any) -> Any:
        """The elements of data at all taps, (batch, channels, taps, positions)."""
        taps = len(self.polynomials) ** self.axes
        elements = R.gather_elements(self.flat(self.wide(data)), self.index, axis=2)
        shape = shape_of(*self.sizes[:2], taps, self.count)
        return self.emit(R.reshape(elements, shape))

    def scattered(self, elements: Any) -> Any:
        """Data with (batch, channels, taps, positions) added at all taps."""
        taps = len(self.polynomials) ** self.axes
        zeros = R.zeros(shape_of(*self.sizes[:2], product(self.sizes[2:])), self.dtype)
        updates = R.reshape(elements, shape_of(*self.sizes[:2], taps * self.count))
        total = R.scatter_elements(zeros, self.index, updates, axis=2, reduction="add")
        return R.reshape(total, ShapeExpr(self.sizes))


def _double(size: PrimExpr) -> PrimExpr:
    return ops.cast_to(size, "float64")


def second_gradients(builder: BlockBuilder, call: Call, to_data: Expr, to_grid: Expr) -> list[Expr]:
    """The gradients of a call of `grad.grid_sample_backward`, from those of its two results.

    Let S(data, grid) be the sample. The call has the gradients of <g, S>, so those of its operands
    are the gradients of <g, D>, where D is the derivative of S in the direction (to_data, to_grid):
    the sample of `to_data`, and the data weighted by the derivatives of the weights.
    """
    g, data, grid = call.args
    attrs = call.attrs
    sampled = R.image.grid_sample(to_data, grid, **attrs)
    back = R.grad.grid_sample_backward(g, to_data, grid, **attrs)
    grid_gradient: Any = builder.emit(builder.emit(back)[1])
    if attrs["method"] == "nearest":
        return [sampled, R.zeros_like(data), grid_gradient]
    samples = _Samples(builder, call)
    flat = samples.flat(samples.wide(to_grid))
    count = samples.axes
    moves = [
        builder.emit(R.strided_slice(flat, [1], [count - 1 - k], [count - k])) for k in range(count)
    ]
    taps: Any = builder.emit(reduce(add, (samples.weights(k) * moves[k] for k in range(count))))
    elements = samples.gathered(data)
    gradient: Any = builder.emit(samples.flat(samples.wide(g)))
    moved_sample = R.sum(elements * R.expand_dims(taps, 1), 2)
    products = R.expand_dims(gradient, 2) * R.expand_dims(taps, 1)
    by_taps: Any = builder.emit(R.sum(R.expand_dims(gradient, 2) * elements, 1))
    rows = []
    for axis in reversed(range(count)):
        slopes = reduce(add, (samples.weights(axis, k) * moves[k] for k in range(count)))
        rows.append(R.sum(by_taps * slopes, 1, keepdims=True))
    shape = ShapeExpr(require_shape(grid, "grid_sample_backward"))
    curvature = R.reshape(R.concat(rows, axis=1), shape)
    sample_shape = shape_of(*samples.sizes[:2], *shape.values[2:])
    return [
        sampled + _like(R.reshape(moved_sample, sample_shape), g),
        _like(samples.scattered(products), data),
        grid_gradient + _like(curvature, grid),
    ]


def shape_of(*sizes: PrimExpr | int) -> ShapeExpr:
    """The shape of these sizes."""
    return ShapeExpr(cast("Any", sizes))


def dtype_of(x: Any) -> DataType:
    """The datatype of a tensor."""
    dtype: DataType = x.struct_info.dtype
    return dtype


def as_dtype(x: Any, dtype: DataType) -> Any:
    """A tensor in a datatype."""
    return x if dtype_of(x) == dtype else R.astype(x, dtype)


def _like(x: Any, other: Any) -> Any:
    """A tensor in the datatype of another one."""
    return as_dtype(x, dtype_of(other))
