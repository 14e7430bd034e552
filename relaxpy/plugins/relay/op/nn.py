"""Operators of neural networks and images: matmul, convolutions, pooling, norms, boxes."""

from __future__ import annotations

from typing import Any, Final

from relaxpy.ir import ops as R  # noqa: N812
from relaxpy.ir.ops.vision import valid_counts
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.te.topi import nn
from relaxpy.ir.tir.expr import IntImm
from relaxpy.plugins.relay.op.define import (
    Args,
    axes_of,
    define,
    define_all,
    define_te,
    dims,
    dtype_of,
    listed,
    number,
    signature,
)
from relaxpy.plugins.relay.op.registry import REQUIRED
from relaxpy.plugins.relay.op.relations import RelationError

# Products


def _transposed(data: rx.Expr, transposed: object) -> rx.Expr:
    """The last two dimensions exchanged, if so wanted."""
    if not transposed:
        return data
    rank = len(dims(data))
    return R.permute_dims(data, [*range(rank - 2), rank - 1, rank - 2])


@signature("tensor_a tensor_b", units=None, out_dtype="", transpose_a=False, transpose_b=False)
def _matmul(o: Any) -> rx.Expr:
    left, right = _transposed(o.tensor_a, o.transpose_a), _transposed(o.tensor_b, o.transpose_b)
    return R.matmul(left, right, o.out_dtype or None)


def _dense(data: rx.Expr, weight: rx.Expr, *, units: Any = None, out_dtype: Any = "") -> rx.Expr:
    size = dims(weight)[0]
    if units is not None and isinstance(size, IntImm) and size.value != units:
        raise RelationError(f"the weight has {size.value} units, not {units}")
    return R.matmul(data, R.permute_dims(weight), out_dtype or None)


def _bias_add(data: rx.Expr, bias: rx.Expr, *, axis: Any = 1) -> rx.Expr:
    rank = len(dims(data))
    axis = axes_of(axis, rank)[0]
    shape = [dims(bias)[0] if i == axis else 1 for i in range(rank)]
    return R.add(data, R.reshape(bias, shape))


define_all({"nn.dense": _dense, "nn.matmul": _matmul, "nn.bias_add": _bias_add})
define(
    "nn.batch_matmul",
    _matmul,
    attributes={"out_dtype": "", "transpose_a": False, "transpose_b": False},
    makers={"transpose_b": True},
)

# Convolutions and pooling


def _per_axis(value: Any, rank: int) -> list[Any]:
    """Numbers for each axis, or for each side; one number is that of all."""
    return listed(value) if len(listed(value)) != 1 else listed(value) * rank


def _spatial(attrs: Any, rank: int) -> dict[str, Any]:
    """Attributes of a window as Relax has them: empty names are None."""
    sizes = "strides padding dilation pool_size output_padding"
    known = {name: _per_axis(attrs[name], rank) for name in sizes.split() if name in attrs}
    named = {name: attrs[name] or None for name in ("out_layout", "out_dtype") if name in attrs}
    return {**attrs, **known, **named}


def _check_weight(
    weight: rx.Expr, rank: int, layout: str, channels: int | None, size: object
) -> None:
    """Check that a weight has the channels and the size that the attributes declare."""
    expected = (
        {} if size is None else dict(zip("DHW"[3 - rank :], _per_axis(size, rank), strict=False))
    )
    if channels is not None:
        expected["O"] = channels
    for axis, found in zip(layout, dims(weight), strict=False):
        wanted = expected.get(axis) if len(layout) == rank + 2 else None
        if wanted is not None and isinstance(found, IntImm) and found.value != wanted:
            raise RelationError(
                f"channels and kernel_size demand a weight of {wanted} on axis {axis} of {layout}, "
                f"found {found.value}"
            )


def _convolution(function: Any, rank: int, *, transposed: bool) -> Any:
    def translate(
        data: rx.Expr, weight: rx.Expr, *, channels: Any, kernel_size: Any, **attrs: Any
    ) -> rx.Expr:
        if attrs["groups"] > 0:
            outputs = channels // attrs["groups"] if channels and transposed else channels
            _check_weight(weight, rank, attrs["kernel_layout"], outputs, kernel_size)
        return function(data, weight, **_spatial(attrs, rank))  # type: ignore[no-any-return]

    return translate


def _attributes(rank: int, kernel_layout: str, **padding: object) -> dict[str, object]:
    return {
        "strides": (1,) * rank,
        "padding": (0,) * rank,
        "dilation": (1,) * rank,
        "groups": 1,
        "channels": None,
        "kernel_size": None,
        "data_layout": _LAYOUTS[rank],
        "kernel_layout": kernel_layout,
        "out_layout": "",
        **padding,
        "out_dtype": "",
    }


def _pool(function: Any, rank: int) -> Any:
    return lambda data, **attrs: function(data, **_spatial(attrs, rank))


def _adaptive_pool(function: Any, layout: str) -> Any:
    def translate(
        data: rx.Expr, *, output_size: Any = None, layout: Any = layout, out_layout: Any = ""
    ) -> rx.Expr:
        size = None if output_size is None else listed(output_size)
        return function(data, size, layout, out_layout or None)  # type: ignore[no-any-return]

    return translate


def _global_pool(function: Any) -> Any:
    return lambda data, *, layout="NCHW", out_layout="": function(
        data, [layout.index("H"), layout.index("W")], True
    )


def _pool_gradient(function: Any) -> Any:
    return lambda out_grad, data, **attrs: function(out_grad, data, **_spatial(attrs, 2))


_AVERAGED: Final[dict[str, dict[str, object]]] = {"max": {}, "avg": {"count_include_pad": False}}
_LAYOUTS: Final = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
for _rank, _layout in _LAYOUTS.items():
    _axes, _one = _layout[2:], (1,) * _rank
    _conv, _transpose = f"conv{_rank}d", f"conv{_rank}d_transpose"
    define(
        f"nn.{_conv}",
        _convolution(getattr(R.nn, _conv), _rank, transposed=False),
        attributes=_attributes(_rank, f"OI{_axes}"),
    )
    define(
        f"nn.{_transpose}",
        _convolution(getattr(R.nn, _transpose), _rank, transposed=True),
        attributes=_attributes(_rank, f"IO{_axes}", output_padding=(0,) * _rank),
    )
    _pooling = {
        "pool_size": REQUIRED,
        "strides": _one,
        "dilation": _one,
        "padding": (0,) * _rank,
        "layout": _layout,
        "out_layout": "",
        "ceil_mode": False,
    }
    for _kind, _more in _AVERAGED.items():
        define(
            f"nn.{_kind}_pool{_rank}d",
            _pool(getattr(R.nn, f"{_kind}_pool{_rank}d"), _rank),
            attributes={**_pooling, **_more},
            makers={"pool_size": _one},
        )
    if _rank == 2:
        for _kind, _more in _AVERAGED.items():
            _window = {name: _pooling[name] for name in _pooling if name != "dilation"}
            define(
                f"nn.{_kind}_pool2d_grad",
                _pool_gradient(getattr(R.grad, f"{_kind}_pool2d_backward")),
                attributes={**_window, **_more},
                makers={"pool_size": _one},
            )
    _adaptive = f"adaptive_avg_pool{_rank}d"
    define(f"nn.{_adaptive}", _adaptive_pool(getattr(R.nn, _adaptive), _layout))
define("nn.global_max_pool2d", _global_pool(R.max))
define("nn.global_avg_pool2d", _global_pool(R.mean))

# Norms

_NORM: Final = {"epsilon": 1e-5, "center": True, "scale": True}


def _batch_norm(
    data: rx.Expr,
    gamma: rx.Expr,
    beta: rx.Expr,
    moving_mean: rx.Expr,
    moving_var: rx.Expr,
    **attrs: Any,
) -> Any:
    return R.nn.batch_norm(data, gamma, beta, moving_mean, moving_var, **attrs, training=False)


def _layer_norm(data: rx.Expr, gamma: rx.Expr, beta: rx.Expr, *, axis: Any, **attrs: Any) -> Any:
    return R.nn.layer_norm(data, gamma, beta, axes=[axis], **attrs)


def _channel_norm(function: Any) -> Any:
    """A norm over all axes but that of the channels and the first."""

    def translate(data: rx.Expr, gamma: rx.Expr, beta: rx.Expr, *, axis: Any, **attrs: Any) -> Any:
        rank = len(dims(data))
        axis = axes_of(axis, rank)[0]
        axes = [i for i in range(1, rank) if i != axis]
        return function(data, gamma, beta, channel_axis=axis, axes=axes, **attrs)

    return translate


def _l2_normalize(data: rx.Expr, *, eps: Any = 1e-10, axis: Any = None) -> rx.Expr:
    total = R.sum(R.multiply(data, data), axes_of(axis, len(dims(data))), True)
    return R.divide(data, R.sqrt(R.maximum(total, number(eps, dtype_of(data)))))


define("nn.batch_norm", _batch_norm, attributes={"axis": 1, **_NORM}, results=3)
define("nn.layer_norm", _layer_norm, attributes={"axis": -1, **_NORM})
define("nn.instance_norm", _channel_norm(R.nn.instance_norm), attributes={"axis": 1, **_NORM})
define(
    "nn.group_norm",
    _channel_norm(R.nn.group_norm),
    attributes={"num_groups": REQUIRED, "axis": 1, **_NORM},
)
define("nn.l2_normalize", _l2_normalize)

# Activations and losses


def _cross_entropy(logits: rx.Expr, targets: rx.Expr) -> rx.Expr:
    total = R.sum(R.multiply(logits, targets))
    return R.negative(R.divide(total, number(int(dims(logits)[0]), dtype_of(logits))))


define_all(
    {
        "nn.relu": lambda data: R.nn.relu(data),
        "nn.softmax nn.fast_softmax": lambda data, *, axis=-1: R.nn.softmax(data, axis),
        "nn.log_softmax": lambda data, *, axis=-1: R.nn.log_softmax(data, axis),
    },
    "Identity",
)
define(
    "nn.leaky_relu",
    lambda data, *, alpha=0.25: R.nn.leakyrelu(data, alpha),
    makers={"alpha": 0.01},
    relation="Identity",
)
define("nn.dropout", lambda data, *, rate=0.5: rx.Tuple((data, R.ones_like(data))), results=2)
define_all(
    {
        "nn.prelu": lambda data, alpha, *, axis=1: R.nn.prelu(data, alpha, axis),
        "nn.cross_entropy": lambda predictions, targets: _cross_entropy(
            R.log(predictions), targets
        ),
        "nn.cross_entropy_with_logits": lambda predictions, targets: _cross_entropy(
            predictions, targets
        ),
    }
)
define(
    "nn.nll_loss",
    R.nn.nll_loss,
    "predictions targets weights",
    {"reduction": "mean", "ignore_index": -100},
)

# Padding and blocks

_MODES: Final = {"edge": "replicate", "reflect": "reflect"}


def _pad(data: rx.Expr, pad_value: rx.Expr, *, pad_width: Any, pad_mode: Any = "constant") -> Any:
    width = [int(number) for pair in listed(pad_width) for number in listed(pair)]
    if pad_mode in _MODES:
        return R.nn.pad(data, width, _MODES[pad_mode])
    if pad_mode != "constant":
        raise RelationError(f"pad_mode is constant, edge or reflect, found {pad_mode!r}")
    inside = R.nn.pad(R.ones_like(data, "int8"), width, "constant", 0)
    padded = R.nn.pad(data, width, "constant", 0)
    return R.where(R.astype(inside, "bool"), padded, R.astype(pad_value, dtype_of(data)))


define("nn.pad", _pad)
define_te(
    {
        "nn.space_to_depth": lambda data, *, block_size, layout="NCHW", mode="": nn.space_to_depth(
            data, block_size, layout
        ),
        "nn.depth_to_space": lambda data, *, block_size, layout="NCHW", mode="DCR": (
            nn.depth_to_space(data, block_size, layout, mode)
        ),
    }
)
define_te(
    {
        "nn.lrn": lambda data, *, size=5, axis=1, bias=2.0, alpha=1e-4, beta=0.75: nn.lrn(
            data, size, axis, alpha, beta, bias
        )
    },
    {"alpha": 1e-5},
)


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
