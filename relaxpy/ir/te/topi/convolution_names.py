"""Convolutions by the names of their layouts, with the parameters that TVM gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.convolution import conv, conv_transpose
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.te.topi.transform import reshape, transpose
from relaxpy.ir.te.topi.windows import Numbers, per_axis
from relaxpy.ir.tir import expr as tir, ops

__all__ = [
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_ncw",
    "conv2d_hwcn",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_transpose_nchw",
    "conv3d_ndhwc",
    "conv3d_transpose_ncdhw",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv2d_nhwc",
    "group_conv3d_transpose_ncdhw",
]

Padding: TypeAlias = Numbers | str
"""Numbers of elements, "VALID" for none, or "SAME" for as many results as elements."""


def _padding(padding: Padding, kernel: Tensor, layout: str, dilation: Numbers) -> Numbers:
    """The elements before all axes and then after them.

    Errors:
        MisuseError: the padding has another name, or "SAME" meets a kernel of unknown size.
    """
    if not isinstance(padding, str):
        return padding
    axes = [a for a in layout if a in "DHW"]
    if padding == "VALID":
        return [0] * (2 * len(axes))
    if padding != "SAME":
        raise unexpected(padding, "padding is 'VALID', 'SAME' or numbers")
    missing = []
    for axis, step in zip(axes, per_axis(dilation, len(axes)), strict=True):
        size = kernel.shape[layout.index(axis)]
        if not isinstance(size, tir.IntImm):
            raise MisuseError(
                f"padding 'SAME' needs a kernel of known size, found {shape_text(kernel.shape)}"
            )
        missing.append((size.value - 1) * step)
    return [(m + 1) // 2 for m in missing] + [m // 2 for m in missing]


def _conv(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    layouts: tuple[str, str],
    out_dtype: str | None,
) -> Tensor:
    numbers = _padding(padding, kernel, layouts[1], dilation)
    return conv(data, kernel, strides, numbers, dilation, groups, *layouts, out_dtype)


def conv1d_ncw(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers = 1,
    padding: Padding = "VALID",
    dilation: Numbers = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along one axis, NCW by OIW."""
    return _conv(data, kernel, strides, padding, dilation, groups, ("NCW", "OIW"), out_dtype)


def conv1d_nwc(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers = 1,
    padding: Padding = "VALID",
    dilation: Numbers = 1,
    groups: int = 1,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along one axis, NWC by WIO."""
    return _conv(data, kernel, strides, padding, dilation, groups, ("NWC", "WIO"), out_dtype)


group_conv1d_ncw, group_conv1d_nwc = conv1d_ncw, conv1d_nwc


def conv2d_nchw(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along two axes, NCHW by OIHW."""
    return _conv(Input, Filter, stride, padding, dilation, 1, ("NCHW", "OIHW"), out_dtype)


def conv2d_hwcn(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along two axes, HWCN by HWIO."""
    return _conv(Input, Filter, stride, padding, dilation, 1, ("HWCN", "HWIO"), out_dtype)


def conv2d_nhwc(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = "float32",
) -> Tensor:
    """`conv` along two axes, NHWC by HWIO."""
    return _conv(Input, Filter, stride, padding, dilation, 1, ("NHWC", "HWIO"), out_dtype)


def group_conv2d_nhwc(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    out_dtype: str | None = None,
) -> Tensor:
    """`conv` along two axes, NHWC by HWIO, in groups of channels."""
    return _conv(Input, Filter, stride, padding, dilation, groups, ("NHWC", "HWIO"), out_dtype)


def conv3d_ndhwc(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    groups: int,
    out_dtype: str | None = "float32",
) -> Tensor:
    """`conv` along three axes, NDHWC by DHWIO."""
    return _conv(Input, Filter, stride, padding, dilation, groups, ("NDHWC", "DHWIO"), out_dtype)


def _channels(kernel: Tensor, axis: int) -> int:
    """The number of channels of a depthwise kernel.

    Errors:
        MisuseError: the rank is not 4, or the number is not known.
    """
    size = kernel.shape[axis] if kernel.ndim == 4 else None
    if not isinstance(size, tir.IntImm):
        raise MisuseError(
            "a depthwise kernel has rank 4 and a known number of channels, found "
            f"{shape_text(kernel.shape)}"
        )
    return size.value


def depthwise_conv2d_nchw(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    out_dtype: str | None = None,
) -> Tensor:
    """Each channel convolved with filters of its own, NCHW.

    The kernel is (channels, filters, height, width); result channel c * filters + m is that of
    filter m of channel c.
    """
    groups = _channels(Filter, 0)
    channels, multiple, *window = Filter.shape
    kernel = reshape(Filter, [ops.mul(channels, multiple), 1, *window])
    return _conv(Input, kernel, stride, padding, dilation, groups, ("NCHW", "OIHW"), out_dtype)


def depthwise_conv2d_nhwc(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    stride: Numbers,
    padding: Padding,
    dilation: Numbers,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> Tensor:
    """As `depthwise_conv2d_nchw`, NHWC.

    The kernel is (height, width, channels, filters) in layout "HWOI", and (height, width, filters,
    channels) in layout "HWIO".

    Errors:
        MisuseError: there is no such layout.
    """
    if kernel_layout not in ("HWOI", "HWIO"):
        raise unexpected(kernel_layout, "kernel_layout is 'HWOI' or 'HWIO'")
    kernel = Filter if kernel_layout == "HWOI" else transpose(Filter, (0, 1, 3, 2))
    groups = _channels(kernel, 2)
    *window, channels, multiple = kernel.shape
    kernel = reshape(kernel, [*window, 1, ops.mul(channels, multiple)])
    return _conv(Input, kernel, stride, padding, dilation, groups, ("NHWC", "HWIO"), out_dtype)


def _transposed(
    data: Tensor,
    kernel: Tensor,
    strides: Numbers,
    padding: Padding,
    groups: int,
    axes: str,
    out_dtype: str | None,
    output_padding: Numbers,
) -> Tensor:
    layouts = f"NC{axes}", f"IO{axes}"
    numbers = _padding(padding, kernel, layouts[1], 1)
    options: Any = (1, groups, *layouts, out_dtype, "", output_padding)
    return conv_transpose(data, kernel, strides, numbers, *options)


def conv1d_transpose_ncw(
    data: Tensor,
    kernel: Tensor,
    stride: Numbers,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Numbers,
) -> Tensor:
    """`conv_transpose` along one axis, NCW by IOW."""
    return _transposed(data, kernel, stride, padding, 1, "W", out_dtype, output_padding)


def conv2d_transpose_nchw(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    strides: Numbers,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Numbers,
) -> Tensor:
    """`conv_transpose` along two axes, NCHW by IOHW."""
    return _transposed(Input, Filter, strides, padding, 1, "HW", out_dtype, output_padding)


def conv3d_transpose_ncdhw(
    Input: Tensor,  # noqa: N803
    Filter: Tensor,  # noqa: N803
    strides: Numbers,
    padding: Padding,
    out_dtype: str | None,
    output_padding: Numbers,
) -> Tensor:
    """`conv_transpose` along three axes, NCDHW by IODHW."""
    return _transposed(Input, Filter, strides, padding, 1, "DHW", out_dtype, output_padding)


def group_conv3d_transpose_ncdhw(
    data: Tensor,
    kernel: Tensor,
    strides: Sequence[int],
    padding: Padding,
    out_dtype: str | None,
    output_padding: Numbers,
    groups: int,
) -> Tensor:
    """`conv_transpose` along three axes, NCDHW by IODHW, in groups of channels."""
    return _transposed(data, kernel, strides, padding, groups, "DHW", out_dtype, output_padding)
