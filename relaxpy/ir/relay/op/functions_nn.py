"""Functions of networks and images whose parameters are not operands followed by attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relaxpy.errors import MisuseError
from relaxpy.ir.relay.expr import Call, RelayExpr, TupleGetItem, const
from relaxpy.ir.relay.op.makers import build, public, public_signature

Expr = RelayExpr
Sizes = int | Sequence[int]


@public("nn.dropout")
def dropout(data: Expr, rate: float = 0.5) -> TupleGetItem:
    """Return the data, of which training would drop some."""
    return TupleGetItem(build("nn.dropout", data, rate=rate), 0)


@public("nn.pad")
def pad(data: Expr, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Call:
    """Return the data with more elements around it; `pad_value` is a number or an expression."""
    value = pad_value if isinstance(pad_value, RelayExpr) else const(pad_value)
    return build("nn.pad", data, value, pad_width=pad_width, pad_mode=pad_mode)


def _global_pool(kind: str, rank: int) -> None:
    """Define the function `nn.global_<kind>_pool<rank>d`."""

    @public(f"nn.global_{kind}_pool{rank}d")
    def pool(data: Expr, layout: str = "NC" + "DHW"[3 - rank :], out_layout: str = "") -> Call:
        """Return the maximum or the mean of each channel."""
        name, size = f"nn.adaptive_{kind}_pool{rank}d", (1,) * rank
        return build(name, data, output_size=size, layout=layout, out_layout=out_layout)


for _kind in ("max", "avg"):
    for _rank in (1, 3):
        _global_pool(_kind, _rank)


# Convolutions


@public("nn.conv2d_backward_weight")
def conv2d_backward_weight(
    grad: Expr,
    data: Expr,
    strides: Sizes = (1, 1),
    padding: Sizes = (0, 0),
    dilation: Sizes = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Sizes | None = None,
    grad_layout: str = "NCHW",
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_dtype: str = "",
) -> Call:
    """Return the gradient of the weight of a convolution.

    Errors:
        MisuseError: the gradient and the data have different layouts.
    """
    if grad_layout != data_layout:
        raise MisuseError(
            f"grad_layout and data_layout are equal, found {grad_layout!r} and {data_layout!r}"
        )
    attrs = {
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "groups": groups,
        "channels": channels,
        "kernel_size": kernel_size,
        "data_layout": data_layout,
        "kernel_layout": kernel_layout,
        "out_dtype": out_dtype,
    }
    return build("nn.conv2d_backward_weight", grad, data, **attrs)


# Functions that differ in the order, the names and the defaults of parameters only

for _name in ("conv2d", "depthwise_conv2d"):
    public_signature(
        f"nn.contrib_{_name}_nchwc(data, kernel, strides=(1, 1), padding=(0, 0), dilation=(1, 1), "
        "groups=1, channels=None, kernel_size=None, data_layout='NCHW8c', kernel_layout='OIHW', "
        "out_layout='', out_dtype='')",
        f"nn.contrib_{_name}_NCHWc",
    )
public_signature("nn.dropout_raw(data, rate=0.5)", "nn.dropout")
public_signature(
    "qnn.avg_pool2d(data, input_scale, input_zero_point, output_scale, output_zero_point, "
    "pool_size, strides, padding, dilation, ceil_mode=False, count_include_pad=True, "
    "layout='NHWC', out_layout='')"
)
public_signature(
    "vision.get_valid_counts(data, score_threshold: float32, id_index=0, score_index=1)"
)
public_signature(
    "vision.all_class_non_max_suppression(boxes, scores, max_output_boxes_per_class: int64 = -1, "
    "iou_threshold: float32 = -1.0, score_threshold: float32 = -1.0, output_format='onnx')"
)
