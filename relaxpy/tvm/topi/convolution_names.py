"""Convolutions by the names of their layouts, with the parameters that TVM gives them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from relaxpy.errors import MisuseError, unexpected
from relaxpy.ir.te.tensor import Tensor
from relaxpy.ir.te.topi.arguments import checked
from relaxpy.ir.te.topi.convolution import conv, conv_transpose
from relaxpy.ir.te.topi.shapes import shape_text
from relaxpy.ir.te.topi.transform import reshape, transpose
from relaxpy.ir.te.topi.windows import Numbers, Padding
from relaxpy.ir.tir import expr as tir, ops

__all__ = [
    "conv1d_ncw",
    "conv1d_nwc",
    "conv1d_transpose_ncw",
    "conv2d_hwcn",
    "conv2d_nchw",
    "conv2d_nhwc",
    "conv2d_transpose_nchw",
    "conv3d_ncdhw",
    "conv3d_ndhwc",
    "conv3d_transpose_ncdhw",
    "depthwise_conv2d_nchw",
    "depthwise_conv2d_nhwc",
    "group_conv1d_ncw",
    "group_conv1d_nwc",
    "group_conv1d_transpose_ncw",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "group_conv2d_transpose_nchw",
    "group_conv3d_transpose_ncdhw",
]

_DEFAULTS: dict[str, Any] = {"out_dtype": None}
_LINE = ("data", "kernel", "strides", "padding", "dilation", "out_dtype")
_GROUPED_LINE = (*_LINE[:5], "groups", "out_dtype")
_OF_LINE = {"strides": 1, "padding": "VALID", "dilation": 1, "out_dtype": None}
_OF_GROUPED_LINE = _OF_LINE | {"groups": 1}
_IMAGE = ("Input", "Filter", "stride", "padding", "dilation", "out_dtype")
_GROUPED_IMAGE = ("Input", "Filter", "stride", "padding", "dilation", "groups", "out_dtype")
_TURNED = ("data", "kernel", "stride", "padding", "out_dtype", "output_padding")
_TURNED_IMAGE = ("Input", "Filter", "strides", "padding", "out_dtype", "output_padding")
_TURNED_BLOCK = ("data", "kernel", *_TURNED_IMAGE[2:], "groups")
_ANNOTATIONS = {
    **dict.fromkeys(("data", "Input", "kernel", "Filter"), "Tensor"),
    "padding": "Padding",
    "groups": "int",
    "out_dtype": "str | None",
}
#: The layouts of the data and of the filter, the parameters as TVM names them, and their defaults.
_NAMED: dict[str, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    "conv1d_ncw": ("NCW", "OIW", _LINE, _OF_LINE),
    "conv1d_nwc": ("NWC", "WIO", _LINE, _OF_LINE),
    "group_conv1d_ncw": ("NCW", "OIW", _GROUPED_LINE, _OF_GROUPED_LINE),
    "group_conv1d_nwc": ("NWC", "WIO", _GROUPED_LINE, _OF_GROUPED_LINE),
    "conv2d_nchw": ("NCHW", "OIHW", _IMAGE, _DEFAULTS),
    "conv2d_hwcn": ("HWCN", "HWIO", _IMAGE, _DEFAULTS),
    "conv2d_nhwc": ("NHWC", "HWIO", _IMAGE, {"out_dtype": "float32"}),
    "group_conv2d_nchw": ("NCHW", "OIHW", _GROUPED_IMAGE, _DEFAULTS),
    "group_conv2d_nhwc": ("NHWC", "HWIO", _GROUPED_IMAGE, _DEFAULTS),
    "conv3d_ncdhw": ("NCDHW", "OIDHW", _GROUPED_IMAGE, _DEFAULTS),
    "conv3d_ndhwc": ("NDHWC", "DHWIO", _GROUPED_IMAGE, {"out_dtype": "float32"}),
    "conv1d_transpose_ncw": ("NCW", "IOW", _TURNED, {}),
    "conv2d_transpose_nchw": ("NCHW", "IOHW", _TURNED_IMAGE, {}),
    "conv3d_transpose_ncdhw": ("NCDHW", "IODHW", _TURNED_IMAGE, {}),
    "group_conv1d_transpose_ncw": ("NCW", "IOW", (*_TURNED, "groups"), {}),
    "group_conv2d_transpose_nchw": ("NCHW", "IOHW", (*_TURNED, "groups"), {}),
    "group_conv3d_transpose_ncdhw": ("NCDHW", "IODHW", _TURNED_BLOCK, {}),
}


def _named(name: str) -> Callable[..., Tensor]:
    layout, kernel_layout, names, defaults = _NAMED[name]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [
        inspect.Parameter(
            n,
            kind,
            default=defaults.get(n, inspect.Parameter.empty),
            annotation=_ANNOTATIONS.get(n, "Numbers"),
        )
        for n in names
    ]
    signature = inspect.Signature(parameters)

    def convolution(*args: Any, **kwargs: Any) -> Tensor:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        data, kernel, stride, padding, *_ = bound.args
        dilation, groups = (bound.arguments.get(n, 1) for n in ("dilation", "groups"))
        layouts, dtype = (layout, kernel_layout), bound.arguments["out_dtype"]
        if "output_padding" not in names:
            return conv(data, kernel, stride, padding, dilation, groups, *layouts, dtype)
        more: Any = (dtype, "", bound.arguments["output_padding"])
        return conv_transpose(data, kernel, stride, padding, dilation, groups, *layouts, *more)

    convolution.__signature__ = signature  # type: ignore[attr-defined]
    convolution.__name__ = convolution.__qualname__ = name
    transposed = "_transpose" * ("output_padding" in names)
    groups = ", in groups of channels" * ("groups" in names)
    convolution.__doc__ = f"""`conv{transposed}`, {layout} by {kernel_layout}{groups}."""
    return convolution


conv1d_ncw, conv1d_nwc = map(_named, ("conv1d_ncw", "conv1d_nwc"))
group_conv1d_ncw, group_conv1d_nwc = map(_named, ("group_conv1d_ncw", "group_conv1d_nwc"))
conv2d_nchw, conv2d_hwcn, conv2d_nhwc = map(_named, ("conv2d_nchw", "conv2d_hwcn", "conv2d_nhwc"))
group_conv2d_nchw, group_conv2d_nhwc = map(_named, ("group_conv2d_nchw", "group_conv2d_nhwc"))
conv3d_ncdhw, conv3d_ndhwc = map(_named, ("conv3d_ncdhw", "conv3d_ndhwc"))
conv1d_transpose_ncw = _named("conv1d_transpose_ncw")
conv2d_transpose_nchw = _named("conv2d_transpose_nchw")
conv3d_transpose_ncdhw = _named("conv3d_transpose_ncdhw")
group_conv1d_transpose_ncw = _named("group_conv1d_transpose_ncw")
group_conv2d_transpose_nchw = _named("group_conv2d_transpose_nchw")
group_conv3d_transpose_ncdhw = _named("group_conv3d_transpose_ncdhw")


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
    return group_conv2d_nchw(Input, kernel, stride, padding, dilation, groups, out_dtype)


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
    return group_conv2d_nhwc(Input, kernel, stride, padding, dilation, groups, out_dtype)


# Users call functions that check their arguments.
globals().update({_name: checked(globals()[_name]) for _name in __all__})
