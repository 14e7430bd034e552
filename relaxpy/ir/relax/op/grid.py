"""Operators that sample images and volumes at the positions of a grid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import numpy as np

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.op.definition import rules
from relaxpy.ir.relax.op.definition.gradients import of_operand, tuple_fields
from relaxpy.ir.relax.op.definition.registry import R, register
from relaxpy.ir.relax.op.grid_derivatives import second_gradients
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.ops import is_const

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

Method: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
Padding: TypeAlias = Literal["zeros", "border", "reflection"]
GridLayout: TypeAlias = Literal["NCHW", "NCDHW"]


def _require_rank(sinfo: rx.TensorStructInfo, name: str, rank: int, reason: str) -> None:
    if sinfo.ndim not in (-1, rank):
        raise rules.refuse(f"{name} has rank {rank}{reason}, found {sinfo}", sinfo)


def _require_size(
    sinfo: rx.TensorStructInfo, name: str, axis: int, expected: int, meaning: str
) -> None:
    shape = rules.literal_shape(sinfo)
    if shape is not None and rules.differ(shape[axis], ops.const(expected, "int64")):
        raise rules.refuse(
            f"dimension {axis} of {name} {shape_text(shape)} is {expected}, {meaning}; found "
            f"{rules.shown(shape[axis])}",
            sinfo,
        )


def _sampled(
    data: rx.TensorStructInfo, grid: rx.TensorStructInfo, method: Method, layout: GridLayout
) -> rx.TensorStructInfo:
    """The struct info of data at the positions of a grid, if the two fit.

    Errors:
        StructInfoError: an operand holds no floats or has another rank, the grid another number of
            coordinates or another batch than data, or the method is not for volumes.
    """
    rank = len(layout)
    for name, sinfo in (("data", data), ("grid", grid)):
        rules.require_float(sinfo, name)
        _require_rank(sinfo, name, rank, f" for layout {layout!r}")
    _require_size(grid, "grid", 1, rank - 2, "a coordinate for each axis")
    if method == "bicubic" and layout != "NCHW":
        raise rules.refuse(
            "'bicubic' is a method for layout 'NCHW'", method, hint="write 'bilinear'"
        )
    sizes, positions = rules.literal_shape(data), rules.literal_shape(grid)
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
    """Return whether data and a grid of known shapes are known to fit."""
    sizes, positions = rules.literal_shape(data), rules.literal_shape(grid)
    assert sizes is not None
    assert positions is not None
    return rules.same(sizes[0], positions[0]) and is_const(positions[1], len(positions) - 2)


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
        convolution of slope -0.75. Coordinates are computed in float64.
    """
    return _sampled(data, grid, method, layout)


def _is_gradient(gradient: rx.TensorStructInfo, result: rx.TensorStructInfo) -> bool:
    """Return whether a gradient is known to have the shape of the result.

    Errors:
        StructInfoError: it has another rank or shape.
    """
    _require_rank(gradient, "output_grad", result.ndim, ", as the result")
    shape, expected = rules.literal_shape(gradient), rules.literal_shape(result)
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
    if not (is_const(rows, 2) and is_const(columns, 3)):
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
    """The positions in images to which affine maps take those of images of a size.

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
    sizes = rules.literal_shape(data)
    if sizes is None or size.values is None:
        return rules.tensor(None, data.dtype, data.vdevice, 4)
    rows = ops.const(2, "int64")
    return rules.tensor((sizes[0], rows, *size.values), data.dtype, data.vdevice)
