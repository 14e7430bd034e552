"""Operators of images and of object detection."""

from __future__ import annotations

from typing import Any, Final

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.op.vision import valid_counts
from relaxpy.plugins.relay.op.define import (
    Args,
    define,
    define_all,
    dims,
    dtype_of,
    listed,
    signature,
)
from relaxpy.plugins.relay.op.registry import REQUIRED
from relaxpy.plugins.relay.op.relations import RelationError

_METHODS: Final = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


def _enlarged(data: rx.Expr, size: Any, layout: str, method: str, align_corners: object) -> Any:
    """An image of this size, as upsampling makes it."""
    if method not in _METHODS:
        raise RelationError(f"the method is {', '.join(_METHODS)}, found {method!r}")
    return R.image.resize2d(
        data,
        size,
        layout=layout,
        method=_METHODS[method],
        coordinate_transformation_mode="align_corners" if align_corners else "asymmetric",
        rounding_method="floor",
    )


@signature(
    "data", scale_h=1.0, scale_w=1.0, layout="NCHW", method="nearest_neighbor", align_corners=False
)
def _upsampling(o: Any) -> Any:
    sizes = zip("HW", (o.scale_h, o.scale_w), strict=True)
    size = [int(int(dims(o.data)[o.layout.index(axis)]) * scale) for axis, scale in sizes]
    return _enlarged(o.data, size, o.layout, o.method, o.align_corners)


@signature("data scale_h scale_w", layout="NCHW", method="nearest_neighbor", align_corners=False)
def _dynamic_upsampling(o: Any) -> Any:
    """Images of another size; the scales are operands."""
    sizes = R.astype(R.shape_to_tensor(R.shape_of(o.data)), "float32")
    parts = []
    for axis, scale in zip("HW", (o.scale_h, o.scale_w), strict=True):
        place = o.layout.index(axis)
        size = R.strided_slice(sizes, [0], [place], [place + 1], [1])
        parts.append(R.multiply(size, R.astype(R.reshape(scale, (1,)), "float32")))
    shape = R.tensor_to_shape(R.astype(R.concat(parts, 0), "int64"))
    return _enlarged(o.data, shape, o.layout, o.method, o.align_corners)


@signature(
    "data",
    scale_d=1.0,
    scale_h=1.0,
    scale_w=1.0,
    layout="NCDHW",
    method="nearest_neighbor",
    coordinate_transformation_mode="asymmetric",
)
def _upsampling3d(o: Any) -> Any:
    if o.method not in ("nearest_neighbor", "trilinear"):
        raise RelationError(f"the method is nearest_neighbor or trilinear, found {o.method!r}")
    scales = zip("DHW", (o.scale_d, o.scale_h, o.scale_w), strict=True)
    return R.image.resize3d(
        o.data,
        [int(int(dims(o.data)[o.layout.index(axis)]) * scale) for axis, scale in scales],
        layout=o.layout,
        method="linear" if o.method == "trilinear" else o.method,
        coordinate_transformation_mode=o.coordinate_transformation_mode,
        rounding_method="floor",
    )


_RESIZE: Final = {
    "roi": (0.0, 0.0, 0.0, 0.0),
    "layout": "NCHW",
    "method": "linear",
    "coordinate_transformation_mode": "half_pixel",
    "rounding_method": "round",
    "cubic_alpha": -0.5,
    "cubic_exclude": 0,
    "extrapolation_value": 0.0,
    "out_dtype": "",
}


def _resize(function: Any) -> Any:
    def translate(
        data: rx.Expr, *, size: Any, out_dtype: Any, rounding_method: Any, **attrs: Any
    ) -> Any:
        if not rounding_method:
            aligned = attrs["coordinate_transformation_mode"] == "align_corners"
            rounding_method = "round" if aligned else "floor"
        size = listed(size) if isinstance(size, (int, tuple)) else size
        return function(
            data, size, **attrs, rounding_method=rounding_method, out_dtype=out_dtype or None
        )

    return translate


def _dynamic_resize(data: rx.Expr, size: rx.Expr, **attrs: Any) -> Any:
    shape = R.tensor_to_shape(R.astype(size, "int64"))
    return _resize(R.image.resize2d)(data, size=shape, **attrs)


def _resized_dims(args: Args, attrs: Any) -> list[list[object]]:
    """The dimensions of resized images: those of the batch and the channels are known."""
    sizes = zip(attrs["layout"], dims(args[0]), strict=True)
    return [[size if axis in "NC" else None for axis, size in sizes]]


for _name, _function, _given in (
    ("image.resize2d", R.image.resize2d, {}),
    ("image.resize3d", R.image.resize3d, {"roi": (0.0,) * 6, "layout": "NCDHW"}),
):
    define(
        _name,
        _resize(_function),
        attributes={"size": REQUIRED, **_RESIZE, **_given},
        makers={"rounding_method": ""},
    )
define("dyn.image.resize2d", _dynamic_resize, attributes=_RESIZE, known_dims=_resized_dims)
define("dyn.nn.upsampling", _dynamic_upsampling, known_dims=_resized_dims)


@signature("data grid", method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True)
def _grid_sample(o: Any) -> rx.Expr:
    return R.image.grid_sample(o.data, o.grid, o.method, o.layout, o.padding_mode, o.align_corners)


define_all(
    {
        "nn.upsampling": _upsampling,
        "nn.upsampling3d": _upsampling3d,
        "image.affine_grid": lambda data, *, target_shape: R.image.affine_grid(
            data, listed(target_shape)
        ),
        "image.grid_sample": _grid_sample,
    }
)

# Object detection


@signature(
    "boxes scores max_output_boxes_per_class iou_threshold score_threshold", output_format="onnx"
)
def _suppression(o: Any) -> rx.Expr:
    limits = o.max_output_boxes_per_class, o.iou_threshold, o.score_threshold
    return R.vision.all_class_non_max_suppression(o.boxes, o.scores, *limits, o.output_format)


define(
    "vision.all_class_non_max_suppression",
    _suppression,
    results=lambda _, attrs: 2 if attrs["output_format"] == "onnx" else 3,
)
define(
    "vision.get_valid_counts",
    lambda data, score_threshold, *, id_index=0, score_index=1: valid_counts(
        data, R.astype(score_threshold, dtype_of(data)), int(id_index), int(score_index)
    ),
    results=3,
)
