"""Operators of images and of object detection."""

from __future__ import annotations

from typing import Any, Final

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relax.op.vision import valid_counts
from relaxpy.ir.relay.op.define import Args, define, define_all, dims, dtype_of, listed
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError

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


def _upsampling(
    data: rx.Expr,
    *,
    scale_h: Any = 1.0,
    scale_w: Any = 1.0,
    layout: Any = "NCHW",
    method: Any = "nearest_neighbor",
    align_corners: Any = False,
) -> Any:
    sizes = zip("HW", (scale_h, scale_w), strict=True)
    size = [int(int(dims(data)[layout.index(axis)]) * scale) for axis, scale in sizes]
    return _enlarged(data, size, layout, method, align_corners)


def _dynamic_upsampling(
    data: rx.Expr,
    scale_h: rx.Expr,
    scale_w: rx.Expr,
    *,
    layout: Any = "NCHW",
    method: Any = "nearest_neighbor",
    align_corners: Any = False,
) -> Any:
    """Images of another size; the scales are operands."""
    sizes = R.astype(R.shape_to_tensor(R.shape_of(data)), "float32")
    parts = []
    for axis, scale in zip("HW", (scale_h, scale_w), strict=True):
        place = layout.index(axis)
        size = R.strided_slice(sizes, [0], [place], [place + 1], [1])
        parts.append(R.multiply(size, R.astype(R.reshape(scale, (1,)), "float32")))
    shape = R.tensor_to_shape(R.astype(R.concat(parts, 0), "int64"))
    return _enlarged(data, shape, layout, method, align_corners)


def _upsampling3d(
    data: rx.Expr,
    *,
    scale_d: Any = 1.0,
    scale_h: Any = 1.0,
    scale_w: Any = 1.0,
    layout: Any = "NCDHW",
    method: Any = "nearest_neighbor",
    coordinate_transformation_mode: Any = "asymmetric",
) -> Any:
    if method not in ("nearest_neighbor", "trilinear"):
        raise RelationError(f"the method is nearest_neighbor or trilinear, found {method!r}")
    scales = zip("DHW", (scale_d, scale_h, scale_w), strict=True)
    return R.image.resize3d(
        data,
        [int(int(dims(data)[layout.index(axis)]) * scale) for axis, scale in scales],
        layout=layout,
        method="linear" if method == "trilinear" else method,
        coordinate_transformation_mode=coordinate_transformation_mode,
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


def _grid_sample(
    data: rx.Expr,
    grid: rx.Expr,
    *,
    method: Any = "bilinear",
    layout: Any = "NCHW",
    padding_mode: Any = "zeros",
    align_corners: Any = True,
) -> rx.Expr:
    return R.image.grid_sample(data, grid, method, layout, padding_mode, align_corners)


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


def _suppression(
    boxes: rx.Expr,
    scores: rx.Expr,
    max_output_boxes_per_class: rx.Expr,
    iou_threshold: rx.Expr,
    score_threshold: rx.Expr,
    *,
    output_format: Any = "onnx",
) -> rx.Expr:
    limits = max_output_boxes_per_class, iou_threshold, score_threshold
    return R.vision.all_class_non_max_suppression(boxes, scores, *limits, output_format)


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
