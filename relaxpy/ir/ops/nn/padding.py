"""Padding, and pixel shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

from relaxpy.errors import counted
from relaxpy.ir.ops.definition import gradients, rules
from relaxpy.ir.ops.definition.axis_rules import per_axis
from relaxpy.ir.ops.definition.registry import R, register
from relaxpy.ir.relax.known import literal_shape
from relaxpy.ir.relax.nodes import Call, Expr, PrimValue, ShapeExpr, TensorStructInfo
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi.shapes import tidy
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import IntImm, PrimExpr

if TYPE_CHECKING:
    from relaxpy.ir.relax.block_builder.builder import BlockBuilder

PadMode = Literal["constant", "reflect", "replicate", "circular"]


def _number(value: int, size: PrimExpr) -> PrimExpr:
    return ops.const(value, size.dtype)


def _legalize_pad(builder: BlockBuilder, call: Call) -> Expr:
    widths = cast("tuple[int, ...]", call.attrs["pad_width"])
    before, after, mode = widths[::2], widths[1::2], call.attrs["pad_mode"]
    if mode == "constant":
        data = cast("TensorStructInfo", builder.struct_info_of(call.args[0]))
        number = cast("float", call.attrs["pad_value"])
        value = ops.cast_to(ops.const(number, "float64"), data.dtype)
        return rules.te_kernel(builder, topi.nn.pad, "pad", call.args[0], before, after, value)
    name = f"{mode}_pad"
    return rules.te_kernel(builder, getattr(topi.nn, name), name, call.args[0], before, after)


def _gradient_pad(g: Any, x: Any, y: Any, call: Call) -> Any:
    """Add the gradients of the copies of each element in the padding to its own."""
    widths = cast("tuple[int, ...]", call.attrs["pad_width"])
    mode = call.attrs["pad_mode"]
    if mode == "constant":
        return R.nn.pad(g, [-width for width in widths])
    sizes = gradients.require_shape(x, "nn.pad")
    shape = list(gradients.require_shape(y, "nn.pad"))
    dtype = cast("TensorStructInfo", x.struct_info).dtype
    for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        if before == after == 0:
            continue
        size = sizes[axis]
        positions = R.arange(PrimValue(shape[axis])) - before
        last = PrimValue(size - _number(1, size))
        if mode == "replicate":
            positions = R.minimum(R.maximum(positions, 0), last)
        elif mode == "circular":
            positions = R.floor_mod(positions, PrimValue(size))
        else:
            positions = last - R.abs(last - R.abs(positions))
        shape[axis] = size
        g = R.grad.take_backward(g, R.zeros(ShapeExpr(tuple(shape)), dtype), positions, axis=axis)
    return g


#: The excess of a width over the size of its axis that each mode allows.
_EXCESS: dict[str, int] = {"reflect": -1, "circular": 0}


@register(
    "relax.nn.pad",
    layout=per_axis("pad_width", 2),
    pure=True,
    legalize=_legalize_pad,
    gradient=gradients.of_operand(_gradient_pad),
)
def pad(
    data: TensorStructInfo,
    pad_width: tuple[int, ...],
    pad_mode: PadMode = "constant",
    pad_value: float = 0.0,
) -> TensorStructInfo:
    """data with more elements around it: `pad_width` is (before, after) for one axis after another.

    Elements outside are `pad_value` in mode "constant"; those of the mirror image of data, without
    its ends, in mode "reflect"; the nearest element of data in mode "replicate"; those at its other
    end in mode "circular". A negative width removes elements.

    Shapes:
        data    any
        result  each size plus both of its widths
    Errors:
        StructInfoError: there are not two widths for each axis, they provably remove more elements
            than there are, or add more than the mode has; `pad_value` is not an integer for data of
            integers.
    """
    if 0 <= 2 * data.ndim != len(pad_width):
        raise rules.refuse(
            f"pad_width holds two widths for each axis, found {counted(len(pad_width), 'width')} "
            f"for {data}",
            pad_width,
            hint="list (before, after) of every axis, as in [0, 0, 1, 1] for rows and columns of "
            "rank 2",
        )
    if len(pad_width) % 2:
        raise rules.refuse(f"pad_width holds pairs of widths, found {list(pad_width)}", pad_width)
    if pad_mode == "constant" and data.dtype.is_int and not float(pad_value).is_integer():
        raise rules.refuse_type(f"pad_value is an integer for {data}, found {pad_value}", pad_value)
    shape = literal_shape(data)
    if shape is None:
        return rules.tensor(None, data.dtype, None, len(pad_width) // 2)
    sizes = []
    for axis, size in enumerate(shape):
        widths = pad_width[2 * axis : 2 * axis + 2]
        _check_widths(data, axis, size, widths, pad_mode)
        sizes.append(tidy(size + _number(sum(widths), size)) if sum(widths) else size)
    return rules.tensor(sizes, data.dtype)


def _check_widths(
    data: TensorStructInfo, axis: int, size: PrimExpr, widths: tuple[int, ...], mode: PadMode
) -> None:
    """Errors: StructInfoError if a known size does not allow the widths of its axis."""
    if not isinstance(size, IntImm):
        return
    shown = f"pad_width {widths} of axis {axis} of data {data}"
    if size.value + sum(widths) < 0:
        raise rules.refuse(f"{shown} removes more elements than there are", widths)
    if mode == "constant" or max(widths) <= 0:
        return
    if not size.value:
        raise rules.refuse(f"{shown} repeats elements of an axis that has none", widths)
    most = size.value + _EXCESS.get(mode, max(widths))
    if max(widths) > most:
        raise rules.refuse(f"{shown} is at most {most} in mode {mode!r}", widths)


def _remainder(size: PrimExpr, by: int) -> PrimExpr:
    """The remainder of a size, which is 0 if the size is a multiple."""
    return tidy(size % _number(by, size))


def _legalize_pixel_shuffle(builder: BlockBuilder, call: Call) -> Expr:
    factor = cast("int", call.attrs["upscale_factor"])
    channels = rules.known_shape(builder, call.args[0])[-3]
    if not rules.same(_remainder(channels, factor * factor), _number(0, channels)):
        return call
    return rules.te_kernel(builder, topi.nn.pixel_shuffle, "pixel_shuffle", call.args[0], factor)


def _gradient_pixel_shuffle(g: Any, x: Any, y: Any, call: Call) -> Any:
    """The pixels of each block as channels again."""
    rank = gradients.require_rank(x, "nn.pixel_shuffle")
    *lead, channels, _, _ = gradients.require_shape(y, "nn.pixel_shuffle")
    _, rows, columns = gradients.require_shape(x, "nn.pixel_shuffle")[-3:]
    factor = _number(cast("int", call.attrs["upscale_factor"]), channels)
    split_shape: rules.Sizes = (*lead, channels, rows, factor, columns, factor)
    outer = range(rank - 3)
    order = [*outer, *(rank - 3 + k for k in (0, 2, 4, 1, 3))]
    return R.reshape(
        R.permute_dims(R.reshape(g, ShapeExpr(split_shape)), order), gradients.shape_like(x)
    )


@register(
    "relax.nn.pixel_shuffle",
    pure=True,
    legalize=_legalize_pixel_shuffle,
    gradient=gradients.of_operand(_gradient_pixel_shuffle),
)
def pixel_shuffle(data: TensorStructInfo, upscale_factor: int) -> TensorStructInfo:
    """Channels as pixels: of r * r channels each, a block of r rows and r columns.

    Channel (c * r + i) * r + j becomes row i and column j of the blocks of channel c.

    Shapes:
        data    (..., C, H, W)
        result  (..., C / r**2, H * r, W * r) with the upscale factor r
    Errors:
        StructInfoError: data has rank 2 or less, `upscale_factor` is not positive, or C is provably
            not a multiple of its square.
    """
    if upscale_factor <= 0:
        raise rules.refuse(f"upscale_factor is positive, found {upscale_factor}", upscale_factor)
    if 0 <= data.ndim < 3:
        raise rules.refuse(f"data has rank at least 3, found {data}", data)
    shape = literal_shape(data)
    if shape is None:
        return rules.tensor(None, data.dtype, data.vdevice, data.ndim)
    *lead, channels, height, width = shape
    square = upscale_factor * upscale_factor
    if rules.differ(_remainder(channels, square), _number(0, channels)):
        raise rules.refuse(
            f"the channels of data, axis {data.ndim - 3}, are a multiple of upscale_factor**2 = "
            f"{square}, found {data}",
            data,
        )
    factor = _number(upscale_factor, height)
    sizes = (
        tidy(channels // _number(square, channels)),
        tidy(height * factor),
        tidy(width * factor),
    )
    return rules.tensor((*lead, *sizes), data.dtype, data.vdevice)
