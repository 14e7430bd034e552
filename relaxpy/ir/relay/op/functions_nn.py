"""Functions of networks and images whose parameters are not operands followed by attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError
from relaxpy.ir.relay.expr import Call, Constant, RelayExpr, TupleGetItem, const
from relaxpy.ir.relay.op.makers import build, number, public

Expr = RelayExpr
Sizes = int | Sequence[int]


@public("nn.dropout")
def dropout(data: Expr, rate: float = 0.5) -> TupleGetItem:
    """Return the data, of which training would drop some."""
    return TupleGetItem(build("nn.dropout", data, rate=rate), 0)


@public("nn.dropout_raw")
def dropout_raw(data: Expr, rate: float = 0.5) -> Call:
    """Return the data, of which training would drop some, and the mask."""
    return build("nn.dropout", data, rate=rate)


@public("nn.pad")
def pad(data: Expr, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Call:
    """Return the data with more elements around it; `pad_value` is a number or an expression."""
    value = pad_value if isinstance(pad_value, RelayExpr) else const(pad_value)
    return build("nn.pad", data, value, pad_width=pad_width, pad_mode=pad_mode)


def _global_pool(name: str, data: Expr, layout: str, out_layout: str) -> Call:
    size = (1,) * (len(layout) - 2)
    return build(name, data, output_size=size, layout=layout, out_layout=out_layout)


@public("nn.global_max_pool1d")
def global_max_pool1d(data: Expr, layout: str = "NCW", out_layout: str = "") -> Call:
    """Return the maximum of each channel."""
    return _global_pool("nn.adaptive_max_pool1d", data, layout, out_layout)


@public("nn.global_avg_pool1d")
def global_avg_pool1d(data: Expr, layout: str = "NCW", out_layout: str = "") -> Call:
    """Return the mean of each channel."""
    return _global_pool("nn.adaptive_avg_pool1d", data, layout, out_layout)


@public("nn.global_max_pool3d")
def global_max_pool3d(data: Expr, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """Return the maximum of each channel."""
    return _global_pool("nn.adaptive_max_pool3d", data, layout, out_layout)


@public("nn.global_avg_pool3d")
def global_avg_pool3d(data: Expr, layout: str = "NCDHW", out_layout: str = "") -> Call:
    """Return the mean of each channel."""
    return _global_pool("nn.adaptive_avg_pool3d", data, layout, out_layout)


# Convolutions


def _convolution_of_blocks(name: str) -> None:
    """Define the function `nn.contrib_<name>_nchwc`."""

    @public(f"nn.contrib_{name}_nchwc")
    def convolution(
        data: Expr,
        kernel: Expr,
        strides: Sizes = (1, 1),
        padding: Sizes = (0, 0),
        dilation: Sizes = (1, 1),
        groups: int = 1,
        channels: int | None = None,
        kernel_size: Sizes | None = None,
        data_layout: str = "NCHW8c",
        kernel_layout: str = "OIHW",
        out_layout: str = "",
        out_dtype: str = "",
    ) -> Call:
        """Return a convolution of images whose channels are in blocks."""
        attrs = {
            "strides": strides,
            "padding": padding,
            "dilation": dilation,
            "groups": groups,
            "channels": channels,
            "kernel_size": kernel_size,
            "data_layout": data_layout,
            "kernel_layout": kernel_layout,
            "out_layout": out_layout,
            "out_dtype": out_dtype,
        }
        return build(f"nn.contrib_{name}_NCHWc", data, kernel, **attrs)


_convolution_of_blocks("conv2d")
_convolution_of_blocks("depthwise_conv2d")


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


@public("qnn.avg_pool2d")
def quantized_avg_pool2d(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    pool_size: Sizes,
    strides: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NHWC",
    out_layout: str = "",
) -> Call:
    """Return the means of windows of quantised images."""
    scales = input_scale, input_zero_point, output_scale, output_zero_point
    attrs = {
        "pool_size": pool_size,
        "strides": strides,
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": ceil_mode,
        "count_include_pad": count_include_pad,
        "layout": layout,
        "out_layout": out_layout,
    }
    return build("qnn.avg_pool2d", data, *scales, **attrs)


# Sparse matrices


def _components(matrix: Any) -> list[Expr]:
    """Return the values, columns and bounds of rows, from attributes or a sequence."""
    if hasattr(matrix, "indptr"):
        matrix = matrix.data, matrix.indices, matrix.indptr
    return [part if isinstance(part, RelayExpr) else Constant(np.asarray(part)) for part in matrix]


@public("nn.sparse_dense")
def sparse_dense(dense_mat: Expr, sparse_mat: Any, sparse_lhs: bool = False) -> Call:
    """Return the product of a dense matrix and the transpose of a sparse one."""
    return build("nn.sparse_dense", dense_mat, *_components(sparse_mat), sparse_lhs=sparse_lhs)


@public("nn.sparse_add")
def sparse_add(dense_mat: Expr, sparse_mat: Any) -> Call:
    """Return the sum of a dense matrix and a sparse one."""
    return build("nn.sparse_add", dense_mat, *_components(sparse_mat))


@public("nn.sparse_transpose")
def sparse_transpose(x: Any) -> Call:
    """Return the components of the transpose of a sparse matrix."""
    return build("nn.sparse_transpose", *_components(x))


# Boxes


@public("vision.get_valid_counts")
def get_valid_counts(
    data: Expr, score_threshold: Any, id_index: int = 0, score_index: int = 1
) -> Call:
    """Return how many boxes have such a score, these boxes first, and their positions."""
    threshold = number(score_threshold, "float32")
    attrs = {"id_index": id_index, "score_index": score_index}
    return build("vision.get_valid_counts", data, threshold, **attrs)


@public("vision.non_max_suppression")
def non_max_suppression(
    data: Expr,
    valid_count: Expr,
    indices: Expr,
    max_output_size: Any = -1,
    iou_threshold: Any = 0.5,
    force_suppress: bool = False,
    top_k: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = 0,
    return_indices: bool = True,
    invalid_to_bottom: bool = False,
) -> Call:
    """Return the boxes that overlap none of a higher score."""
    limits = number(max_output_size, "int32"), number(iou_threshold, "float32")
    attrs = {
        "force_suppress": force_suppress,
        "top_k": top_k,
        "coord_start": coord_start,
        "score_index": score_index,
        "id_index": id_index,
        "return_indices": return_indices,
        "invalid_to_bottom": invalid_to_bottom,
    }
    return build("vision.non_max_suppression", data, valid_count, indices, *limits, **attrs)


@public("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> Call:
    """Return the boxes of each class that overlap none of a higher score."""
    thresholds = (number(value, "float32") for value in (iou_threshold, score_threshold))
    return build(
        "vision.all_class_non_max_suppression",
        boxes,
        scores,
        number(max_output_boxes_per_class, "int64"),
        *thresholds,
        output_format=output_format,
    )
