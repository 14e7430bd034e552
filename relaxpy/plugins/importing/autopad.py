"""Padding by which a window yields as many positions as its stride leaves, in importers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relaxpy.errors import MisuseError
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.nodes import Expr, TensorStructInfo, Var
from relaxpy.ir.te import topi
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.expr import ExprLike, PrimExpr
from relaxpy.support.entry import user_facing

_MODES: Final = ("SAME_UPPER", "SAME_LOWER")
_KINDS: Final = ("constant", "edge", "reflect")


@user_facing
def autopad(
    bb: BlockBuilder,
    data: Expr,
    strides: Sequence[int],
    kernel_shape: Sequence[int],
    dilations: Sequence[int] = (1, 1),
    pad_type: str = "constant",
    deconv: bool = False,
    mode: str = "SAME_UPPER",
    pad_value: float | None = 0.0,
) -> Var:
    """The data, padded along its last axes so that windows with `strides` cover all of it.

    The padding is the same on both sides. If it is odd, there is one element more after the data in
    mode "SAME_UPPER" and before it in mode "SAME_LOWER". It consists of `pad_value` for `pad_type`
    "constant", of the last element for "edge", and of a mirror image for "reflect". With `deconv`,
    it is that of a transposed convolution.

    Shapes:
        data    rank at least that of the kernel, of known shape
        result  as data, the last axes longer
    Errors:
        MisuseError (also ValueError): there is no such mode or kind of padding, the lists have
            different lengths, or the shape of the data is not known.
    """
    sinfo = data.struct_info if isinstance(data, Expr) else None
    dims = sinfo.get_shape() if isinstance(sinfo, TensorStructInfo) else None
    axes = len(kernel_shape)
    if mode not in _MODES or pad_type not in _KINDS:
        found, known = (mode, _MODES) if mode not in _MODES else (pad_type, _KINDS)
        raise MisuseError(f"expected {' or '.join(map(repr, known))}, found {found!r:.60}")
    if dims is None or len(dims) < axes or not len(strides) == len(dilations) == axes:
        raise MisuseError(
            f"a kernel of shape {tuple(kernel_shape)} has strides and dilations for each axis, and "
            f"data of known shape with so many axes; found {sinfo}",
            about=data,
        )
    before: list[ExprLike] = [0] * (len(dims) - axes)
    after: list[ExprLike] = [0] * (len(dims) - axes)
    windows = zip(dims[-axes:], strides, kernel_shape, dilations, strict=True)
    for size, stride, extent, dilation in windows:
        total = _total(size, stride, (extent - 1) * dilation + 1)
        if deconv:
            total = ops.sub(extent - 1, total)
        less = ops.floordiv(total, 2)
        more = ops.sub(total, less)
        before.append(less if mode == "SAME_UPPER" else more)
        after.append(more if mode == "SAME_UPPER" else less)
    if pad_type == "constant":
        return bb.emit_te(topi.nn.pad, data, before, after, pad_value)
    if pad_type == "edge":
        return bb.emit_te(topi.nn.replicate_pad, data, before, after)
    return bb.emit_te(topi.nn.mirror_pad, data, before, after, "REFLECT")


def _total(size: PrimExpr, stride: int, extent: int) -> PrimExpr:
    """The padding along an axis for ceil(size / stride) windows."""
    covered = ops.add(ops.mul(ops.sub(ops.ceildiv(size, stride), 1), stride), extent)
    return ops.maximum(ops.sub(covered, size), 0)
