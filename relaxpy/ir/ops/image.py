"""Operators on images and volumes: resampling to other sizes, or at the positions of a grid."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import add, mul
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.op_record import OpRecord
from relaxpy.ir.ops.definition import rules
from relaxpy.ir.ops.definition.axis_rules import AttributeLayout
from relaxpy.ir.ops.definition.gradients import of_operand, require_shape, tuple_fields
from relaxpy.ir.ops.definition.registry import R, enter, register
from relaxpy.ir.ops.definition.rules import Legalize, refuse, te_kernel, tensor
from relaxpy.ir.ops.definition.signature import number_literal
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.relax.nodes import (
    Call,
    Expr,
    PrimValue,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    Var,
    const,
)
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.image import ALPHA, CROP
from relaxpy.ir.te.topi.shapes import product, shape_text, sum_dtype
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr
from relaxpy.ir.tir.layout import Layout
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


Method: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
Padding: TypeAlias = Literal["zeros", "border", "reflection"]
GridLayout: TypeAlias = Literal["NCHW", "NCDHW"]


def _require_rank(sinfo: rx.TensorStructInfo, name: str, rank: int, reason: str) -> None:
    if sinfo.ndim not in (-1, rank):
        raise rules.refuse(f"{name} has rank {rank}{reason}, found {sinfo}", sinfo)


def _require_size(
    sinfo: rx.TensorStructInfo, name: str, axis: int, expected: int, meaning: str
) -> None:
    shape = literal_shape(sinfo)
    if shape is not None and rules.differ(shape[axis], ops.const(expected, "int64")):
        raise rules.refuse(
            f"dimension {axis} of {name} {shape_text(shape)} is {expected}, {meaning}; found "
            f"{rules.shown(shape[axis])}",
            sinfo,
        )


def _sampled(
    data: rx.TensorStructInfo, grid: rx.TensorStructInfo, method: Method, layout: GridLayout
) -> rx.TensorStructInfo:
    """The struct info of data at the positions of a grid, if the two fit."""
    rank = len(layout)
    for name, sinfo in (("data", data), ("grid", grid)):
        rules.require_float(sinfo, name)
        _require_rank(sinfo, name, rank, f" for layout {layout!r}")
    _require_size(grid, "grid", 1, rank - 2, "a coordinate for each axis")
    if method == "bicubic" and layout != "NCHW":
        raise rules.refuse(
            "'bicubic' is a method for layout 'NCHW'", method, hint="write 'bilinear'"
        )
    sizes, positions = literal_shape(data), literal_shape(grid)
    if sizes is None or positions is None:
        return rules.tensor(None, data.dtype, data.vdevice, rank)
    if rules.differ(sizes[0], positions[0]):
        raise rules.refuse(
            f"data {shape_text(sizes)} and grid {shape_text(positions)} have one batch, found "
            f"{rules.shown(sizes[0])} and {rules.shown(positions[0])}",
            grid,
        )
    return rules.tensor((*sizes[:2], *positions[2:]), data.dtype, data.vdevice)


def _fit(data: rx.TensorStructInfo, grid: rx.TensorStructInfo) -> bool:
    """True if data and a grid of known shapes are known to fit."""
    sizes, positions = literal_shape(data), literal_shape(grid)
    assert sizes is not None
    assert positions is not None
    return rules.same(sizes[0], positions[0]) and ops.is_const(positions[1], len(positions) - 2)


def _legalize_grid_sample(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    if not _fit(*cast("Any", map(builder.struct_info_of, call.args))):
        return call
    return rules.te_kernel(builder, topi.image.grid_sample, "grid_sample", *call.args, **call.attrs)


def _gradient_grid_sample(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    data, grid = call.args
    both = builder.emit(R.grad.grid_sample_backward(gradient, data, grid, **call.attrs))
    return [rx.TupleGetItem(both, 0), rx.TupleGetItem(both, 1)]


@register(
    "relax.image.grid_sample",
    pure=True,
    legalize=_legalize_grid_sample,
    gradient=_gradient_grid_sample,
)
def grid_sample(
    data: rx.TensorStructInfo,
    grid: rx.TensorStructInfo,
    method: Method = "bilinear",
    layout: GridLayout = "NCHW",
    padding_mode: Padding = "zeros",
    align_corners: bool = False,
) -> rx.TensorStructInfo:
    """The data sampled at the positions of a grid, interpolated by a method.

    A position has a coordinate for each axis, that of the last axis first. With `align_corners`, -1
    and 1 are the centres of the first and last elements, else their edges. Positions outside data
    give 0, the nearest element, or the data reflected at these ends.

    Shapes:
        data    (batch, channels, *sizes), float dtype: two sizes, or three for "NCDHW"
        grid    (batch, 2, *sizes) or (batch, 3, *sizes), float dtype
        result  (batch, channels, *sizes of grid), in the datatype of data
    Errors:
        StructInfoError: an operand holds no floats or has another rank, the grid another number of
            coordinates or another batch than data, or the method is not for volumes.
        MisuseError: an attribute has a value that it does not have.
    Rule:
        "nearest" takes the even index of two equally near ones; "bicubic" weighs by the cubic
        convolution of slope -0.75. Coordinates are computed in float64. Interpolated
        images are NaN at positions that are NaN or infinite if the method is "bicubic" or the
        padding "zeros"; else NaN is nearest to the first element, as in PyTorch.
    """
    return _sampled(data, grid, method, layout)


def _is_gradient(gradient: rx.TensorStructInfo, result: rx.TensorStructInfo) -> bool:
    """True if a gradient is known to have the shape of the result."""
    _require_rank(gradient, "output_grad", result.ndim, ", as the result")
    shape, expected = literal_shape(gradient), literal_shape(result)
    if shape is None or expected is None:
        return False
    if any(rules.differ(n, size) for n, size in zip(shape, expected, strict=True)):
        raise rules.refuse(
            f"output_grad has the shape of the result, {shape_text(expected)}, found "
            f"{shape_text(shape)}",
            gradient,
        )
    return all(rules.same(n, size) for n, size in zip(shape, expected, strict=True))


def _legalize_backward(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    gradient, *operands = (builder.struct_info_of(arg) for arg in call.args)
    attrs: Any = {name: call.attrs[name] for name in ("method", "layout")}
    expected = _sampled(*cast("Any", operands), **attrs)
    if not _fit(*cast("Any", operands)) or not _is_gradient(cast("Any", gradient), expected):
        return call
    kernels = (
        rules.te_kernel(builder, function, f"grid_sample_backward_{name}", *call.args, **call.attrs)
        for name, function in (
            ("data", topi.image.grid_sample_grad_data),
            ("grid", topi.image.grid_sample_grad_grid),
        )
    )
    return rx.Tuple(tuple(builder.emit(kernel) for kernel in kernels))


def _gradient_backward(
    var: rx.Var, call: rx.Call, gradient: rx.Expr, builder: BlockBuilder
) -> list[rx.Expr]:
    return second_gradients(builder, call, *tuple_fields(gradient, 2))


@register(
    "relax.grad.grid_sample_backward",
    pure=True,
    legalize=_legalize_backward,
    gradient=_gradient_backward,
)
def grid_sample_backward(
    output_grad: rx.TensorStructInfo,
    data: rx.TensorStructInfo,
    grid: rx.TensorStructInfo,
    method: Method = "bilinear",
    layout: GridLayout = "NCHW",
    padding_mode: Padding = "zeros",
    align_corners: bool = False,
) -> rx.TupleStructInfo:
    """The gradients of data and grid in `image.grid_sample`, from that of the result.

    Shapes:
        output_grad  (batch, channels, *sizes of grid)
        data, grid   as for `image.grid_sample`
        result       a tuple of tensors as data and grid
    Errors:
        StructInfoError: `image.grid_sample` does not take these operands, or the gradient has
            another shape than the result.
        MisuseError: an attribute has a value that it does not have.
    """
    _is_gradient(output_grad, _sampled(data, grid, method, layout))
    return rx.TupleStructInfo((data, grid))


def _legalize_affine_grid(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
    _, rows, columns = rules.known_shape(builder, call.args[0])
    if not (ops.is_const(rows, 2) and ops.is_const(columns, 3)):
        return call
    return rules.te_kernel(builder, topi.image.affine_grid, "affine_grid", *call.args, **call.attrs)


def _gradient_affine_grid(g: Any, x: Any, y: Any, call: rx.Call) -> Any:
    """The gradients of the columns x, y and 1; the identity map gives the positions themselves."""
    dtype = str(x.struct_info.dtype) or "float32"
    identity = rx.const(np.eye(2, 3)[None], dtype)
    positions = R.image.affine_grid(identity, call.args[1], **call.attrs)
    rows = R.sum(R.expand_dims(g, 2) * R.expand_dims(positions, 1), [3, 4])
    return R.concat([rows, R.expand_dims(R.sum(g, [2, 3]), 2)], axis=2)


@register(
    "relax.image.affine_grid",
    pure=True,
    legalize=_legalize_affine_grid,
    gradient=of_operand(_gradient_affine_grid),
)
def affine_grid(
    data: rx.TensorStructInfo, size: rx.ShapeStructInfo, align_corners: bool = True
) -> rx.TensorStructInfo:
    """The sampling grid of affine maps: for each position in images of a size, where to read.

    Coordinates are from -1 to 1, which are the centres of the first and last elements with
    `align_corners`, else their edges; of an axis of one element, the centre is 0. The default is
    TVM's, and not that of `grid_sample`.

    Shapes:
        data    (batch, 2, 3), float dtype: the coefficients of x, y and 1 in the new x and y
        size    the height and the width
        result  (batch, 2, height, width), a grid for `grid_sample`
    Errors:
        StructInfoError: data holds no floats or has another shape, or `size` has not 2 members.
    """
    rules.require_float(data, "data")
    _require_rank(data, "data", 3, "")
    _require_size(data, "data", 1, 2, "a row for each of x and y")
    _require_size(data, "data", 2, 3, "the coefficients of x, y and 1")
    if size.ndim not in (-1, 2):
        raise rules.refuse(f"size has 2 members, found {size}", size)
    sizes = literal_shape(data)
    if sizes is None or size.values is None:
        return rules.tensor(None, data.dtype, data.vdevice, 4)
    rows = ops.const(2, "int64")
    return rules.tensor((sizes[0], rows, *size.values), data.dtype, data.vdevice)


ResizeMethod: TypeAlias = Literal["nearest_neighbor", "linear", "cubic"]
Coordinates: TypeAlias = Literal[
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
]
Rounding: TypeAlias = Literal["round", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
#: The names of attributes in topi.
_NAMES = {"cubic_alpha": "bicubic_alpha", "cubic_exclude": "bicubic_exclude"}


def _spatial_axes(layout: str, letters: str, data: TensorStructInfo) -> list[int]:
    """The axes of data with these letters in the layout."""
    example = f"NC{letters}"
    try:
        order = Layout.of(layout).names
    except MisuseError:
        order = ()
    capitals = sorted(axis for axis in order if axis.isupper())
    if capitals != sorted(example) or any(letter.lower() in order for letter in letters):
        raise refuse(f"layout has the axes of {example!r}, found {layout!r}", layout)
    if data.ndim not in (-1, len(order)):
        raise refuse(f"data has rank {len(order)} for layout {layout!r}, found {data}", data)
    return [order.index(letter) for letter in letters]


def _require_region(
    roi: tuple[float, ...] | None, coordinate_transformation_mode: str, count: int
) -> None:
    if roi is not None and len(roi) != 2 * count:
        raise refuse(f"roi is one number or {2 * count}, found {list(roi)}", roi)
    if roi is None and coordinate_transformation_mode == CROP:
        raise refuse(
            f"{CROP!r} needs a region",
            coordinate_transformation_mode,
            hint=f"pass roi=[...] with {count} starts and {count} ends from 0 to 1",
        )


def _complete(count: int) -> Callable[[dict[str, Any]], None]:
    """Repeat a single number for all axes; a region of zeros, as TVM has it, is none."""

    def adapt(arguments: dict[str, Any]) -> None:
        size, roi = arguments.get("size"), arguments.get("roi")
        mode = arguments.get("coordinate_transformation_mode")
        if isinstance(size, (int, PrimExpr)) and not isinstance(size, bool):
            arguments["size"] = (size,) * count
        if isinstance(roi, (int, float)) and not isinstance(roi, bool):
            roi = (roi,) * (2 * count)
        if isinstance(roi, (list, tuple)):
            bounds = tuple(map(number_literal, roi))
            if bounds == (0,) * (2 * count) and mode != CROP:
                arguments["roi"] = None
            else:
                arguments["roi"] = tuple(float(v) if isinstance(v, int) else v for v in bounds)

    return adapt


def _infer_resize(letters: str) -> Callable[..., TensorStructInfo]:
    def resize(
        data: TensorStructInfo,
        size: ShapeStructInfo,
        roi: tuple[float, ...] | None = None,
        layout: str = f"NC{letters}",
        method: ResizeMethod = "linear",
        coordinate_transformation_mode: Coordinates = "half_pixel",
        rounding_method: Rounding = "round",
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: DataType | None = None,
    ) -> TensorStructInfo:
        axes = _spatial_axes(layout, letters, data)
        _require_region(roi, coordinate_transformation_mode, len(letters))
        if size.ndim not in (-1, len(letters)):
            raise refuse(f"size has {len(letters)} members, found {size}", size)
        dtype = data.dtype if out_dtype is None or out_dtype.is_void else out_dtype
        sizes = literal_shape(data)
        if sizes is None or size.values is None:
            return tensor(None, dtype, data.vdevice, len(Layout.of(layout)))
        if any(isinstance(new, IntImm) and new.value < 0 for new in size.values):
            raise refuse(f"size is at least 0, found {size}", size)
        new = dict(zip(axes, size.values, strict=True))
        shape = [new.get(axis, old) for axis, old in enumerate(sizes)]
        return tensor(shape, dtype, data.vdevice)

    return resize


def _infer_backward(letters: str) -> Callable[..., TensorStructInfo]:
    def backward(
        output_grad: TensorStructInfo,
        data: TensorStructInfo,
        roi: tuple[float, ...] | None = None,
        layout: str = f"NC{letters}",
        method: ResizeMethod = "linear",
        coordinate_transformation_mode: Coordinates = "half_pixel",
        rounding_method: Rounding = "round",
        cubic_alpha: float = -0.75,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
    ) -> TensorStructInfo:
        _spatial_axes(layout, letters, data)
        _spatial_axes(layout, letters, output_grad)
        _require_region(roi, coordinate_transformation_mode, len(letters))
        return data

    return backward


def _attrs(call: Call, count: int) -> dict[str, Any]:
    attrs = {_NAMES.get(name, name): value for name, value in call.attrs.items()}
    return {**attrs, "roi": attrs["roi"] or (0.0,) * (2 * count)}


def _legalize_resize(count: int) -> Legalize:
    function = getattr(topi.image, f"resize{count}d")

    def resized(data: Tensor, size: Sequence[PrimExpr], roi: Any, **attrs: Any) -> Tensor:
        return cast("Tensor", function(data, roi, size, **attrs))

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = _attrs(call, count)
        if (out_dtype := attrs["out_dtype"]) is not None:
            attrs["out_dtype"] = str(out_dtype)
        return te_kernel(builder, resized, f"resize{count}d", *call.args, **attrs)

    return legalize


def _legalize_resize_backward(letters: str) -> Legalize:
    count = len(letters)

    def legalize(builder: BlockBuilder, call: Call) -> Expr:
        attrs = {**_attrs(call, count), "letters": letters}
        name = f"resize{count}d_backward"
        return te_kernel(builder, topi.image.resize_grad, name, *call.args, **attrs)

    return legalize


def _gradient_resize(count: int) -> Any:
    def derivative(g: Any, x: Any, y: Any, call: Call) -> Any:
        attrs = {name: value for name, value in call.attrs.items() if name != "out_dtype"}
        return getattr(R.grad, f"resize{count}d_backward")(g, x, **attrs)

    return of_operand(derivative)


def _resize_gradient_backward(letters: str) -> Any:
    """The backward operator is linear, and its transpose is the resize itself."""

    def rule(var: Var, call: Call, gradient: Expr, builder: BlockBuilder) -> list[Expr]:
        output_grad, data = call.args
        name = f"resize{len(letters)}d"
        sizes = require_shape(output_grad, f"relax.grad.{name}_backward")
        order = Layout.of(cast("str", call.attrs["layout"])).names
        size = [sizes[order.index(letter)] for letter in letters]
        dtype = cast("Any", output_grad.struct_info).dtype
        attrs = {**call.attrs, "out_dtype": dtype}
        return [getattr(R.image, name)(gradient, size, **attrs), R.grad.no_grad(data)]

    return rule


_DOC = """data resampled to {count} other sizes, interpolated by `method`.

Of each element, `coordinate_transformation_mode` says where it lies among those of data. There,
"nearest_neighbor" takes the one that `rounding_method` selects, and "linear" and "cubic" weigh the
two and four nearest ones along each axis; `cubic_alpha` is the slope of the weights. Elements
outside of data are those of its border, or of weight 0 under `cubic_exclude`. Under
"tf_crop_and_resize" data is the region `roi` of itself, which has {count} starts and {count} ends
from 0 to 1, and what lies outside of data is `extrapolation_value`.

Shapes:
    data    {rank} axes in `layout`, in which {axes} have no blocks
    size    those of {axes}; one number for all
    result  as data with these sizes, in `out_dtype` if it is passed
Errors:
    StructInfoError: data has another rank than the layout, `size` another number of members, or
        the region.
    MisuseError: an attribute has a value that it does not have.
Rule:
    Coordinates are rounded once, so "round" takes the even index of two equally near ones, and the
    other methods never miss an integer. Sums are taken in float32, or float64 for wider numbers,
    and rounded once; for integers toward zero (ONNX, Resize).
"""
_BACKWARD_DOC = """The gradient of data in `image.resize{count}d`, from that of the result.

Shapes:
    output_grad  {rank} axes in `layout`, as the result
    data         {rank} axes in `layout`
    result       as data
Errors:
    StructInfoError: an operand has another rank than the layout, or the region has.
    MisuseError: an attribute has a value that it does not have.
"""

for _letters in ("HW", "DHW"):
    _count = len(_letters)
    _texts = {
        "count": _count,
        "rank": _count + 2,
        "axes": f"{', '.join(_letters[:-1])} and {_letters[-1]}",
    }
    enter(
        OpRecord(
            f"relax.image.resize{_count}d",
            _infer_resize(_letters),
            _DOC.format(**_texts),
            pure=True,
            precision_policy=1,
            adapt=_complete(_count),
            legalize=_legalize_resize(_count),
            layout=AttributeLayout(("layout",), "layout", desirable=True),
            gradient=_gradient_resize(_count),
        )
    )
    enter(
        OpRecord(
            f"relax.grad.resize{_count}d_backward",
            _infer_backward(_letters),
            _BACKWARD_DOC.format(**_texts),
            pure=True,
            adapt=_complete(_count),
            legalize=_legalize_resize_backward(_letters),
            gradient=_resize_gradient_backward(_letters),
        )
    )
resize2d, resize3d = R.image.resize2d, R.image.resize3d
