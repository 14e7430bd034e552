"""Operators of neural networks: products, convolutions, pooling, norms, activations, losses."""

from __future__ import annotations

from typing import Any

from relaxpy.ir.relax import nodes as rx, op as R  # noqa: N812
from relaxpy.ir.relay.op.define import (
    Args,
    axes_of,
    define,
    dims,
    dtype_of,
    listed,
    number,
    options,
    resized_dims,
)
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.relay.op.relations import RelationError
from relaxpy.ir.tir.expr import IntImm

# Products


def _transposed(data: rx.Expr, transposed: object) -> rx.Expr:
    """The last two dimensions exchanged, if so wanted."""
    if not transposed:
        return data
    rank = len(dims(data))
    return R.permute_dims(data, [*range(rank - 2), rank - 1, rank - 2])


def _matmul(args: Args, attrs: Any) -> rx.Expr:
    left = _transposed(args[0], attrs["transpose_a"])
    right = _transposed(args[1], attrs["transpose_b"])
    return R.matmul(left, right, attrs["out_dtype"] or None)


def _dense(args: Args, attrs: Any) -> rx.Expr:
    size = dims(args[1])[0]
    if attrs["units"] is not None and isinstance(size, IntImm) and size.value != attrs["units"]:
        raise RelationError(f"the weight has {size.value} units, not {attrs['units']}")
    return R.matmul(args[0], R.permute_dims(args[1]), attrs["out_dtype"] or None)


define("nn.dense", "data weight", _dense, {"units": None, "out_dtype": ""})


def _dense_pack(args: Args, attrs: Any) -> rx.Expr:
    """The product with a weight in blocks of rows, of the layout `NK8n`."""
    blocks, width, rows = dims(args[1])
    weight = R.reshape(R.permute_dims(args[1], [0, 2, 1]), (blocks * rows, width))
    return R.matmul(args[0], R.permute_dims(weight), attrs["out_dtype"] or None)


define(
    "nn.contrib_dense_pack",
    "data weight",
    _dense_pack,
    {"weight_layout": "NC", "units": None, "out_dtype": ""},
)
define(
    "nn.matmul",
    "tensor_a tensor_b",
    _matmul,
    {"units": None, "out_dtype": "", "transpose_a": False, "transpose_b": False},
)
define(
    "nn.batch_matmul",
    "tensor_a tensor_b",
    _matmul,
    {"out_dtype": "", "transpose_a": False, "transpose_b": False},
    makers={"transpose_b": True},
)


def _bias_add(args: Args, attrs: Any) -> rx.Expr:
    data, bias = args
    rank = len(dims(data))
    axis = axes_of(attrs["axis"], rank)[0]
    shape = [dims(bias)[0] if i == axis else 1 for i in range(rank)]
    return R.add(data, R.reshape(bias, shape))


define("nn.bias_add", "data bias", _bias_add, {"axis": 1})


# Convolutions and pooling


def _padding(value: Any, rank: int) -> list[Any]:
    """TVM's padding, of one number, one for each axis, or one for each side."""
    return listed(value) if len(listed(value)) != 1 else listed(value) * rank


def _check_weight(weight: rx.Expr, rank: int, attrs: Any, *, transposed: bool) -> None:
    """Check that a weight has the channels and the size that the attributes declare."""
    layout, channels, size = (attrs[name] for name in ("kernel_layout", "channels", "kernel_size"))
    expected = (
        {} if size is None else dict(zip("DHW"[3 - rank :], _padding(size, rank), strict=False))
    )
    if channels is not None:
        expected["O"] = channels // attrs["groups"] if transposed else channels
    for axis, found in zip(layout, dims(weight), strict=False):
        wanted = expected.get(axis) if len(layout) == rank + 2 else None
        if wanted is not None and isinstance(found, IntImm) and found.value != wanted:
            raise RelationError(
                f"channels and kernel_size demand a weight of {wanted} on axis {axis} of {layout}, "
                f"found {found.value}"
            )


def _convolution(rank: int, function: Any, *, transposed: bool = False) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        if attrs["groups"] > 0:
            _check_weight(args[1], rank, attrs, transposed=transposed)
        given = options(attrs, "groups data_layout kernel_layout")
        if transposed:
            given["output_padding"] = listed(attrs["output_padding"])
        for name in ("strides", "dilation"):
            given[name] = _padding(attrs[name], rank)
        given["padding"] = _padding(attrs["padding"], rank)
        given["out_layout"] = attrs["out_layout"] or None
        given["out_dtype"] = attrs["out_dtype"] or None
        return function(*args, **given)  # type: ignore[no-any-return]

    return translate


_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNELS = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}


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


#: Attributes that the operators of quantised numbers have, too.
CONVOLUTION_2D = _attributes(2, _KERNELS[2])
CONVOLUTION_2D_TRANSPOSED = _attributes(2, _TRANSPOSED[2], output_padding=(0, 0))

for _rank in (1, 2, 3):
    define(
        f"nn.conv{_rank}d",
        "data weight",
        _convolution(_rank, getattr(R.nn, f"conv{_rank}d")),
        _attributes(_rank, _KERNELS[_rank]),
    )
    define(
        f"nn.conv{_rank}d_transpose",
        "data weight",
        _convolution(_rank, getattr(R.nn, f"conv{_rank}d_transpose"), transposed=True),
        _attributes(_rank, _TRANSPOSED[_rank], output_padding=(0,) * _rank),
    )


for _name in ("nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc"):
    define(
        _name,
        "data kernel",
        _convolution(2, R.nn.conv2d),
        {**CONVOLUTION_2D, "data_layout": REQUIRED, "kernel_layout": REQUIRED},
    )


def _pool(rank: int, function: Any, *, average: bool) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        given = options(attrs, "layout ceil_mode")
        for name in ("pool_size", "strides", "dilation", "padding"):
            given[name] = _padding(attrs[name], rank)
        given["out_layout"] = attrs["out_layout"] or None
        if average:
            given["count_include_pad"] = bool(attrs["count_include_pad"])
        return function(args[0], **given)  # type: ignore[no-any-return]

    return translate


def _adaptive_pool(function: Any) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        size = None if attrs["output_size"] is None else listed(attrs["output_size"])
        return function(args[0], size, attrs["layout"], attrs["out_layout"] or None)  # type: ignore[no-any-return]

    return translate


def _pooling_of(rank: int) -> dict[str, object]:
    return {
        "pool_size": REQUIRED,
        "strides": (1,) * rank,
        "dilation": (1,) * rank,
        "padding": (0,) * rank,
        "layout": _LAYOUTS[rank],
        "out_layout": "",
        "ceil_mode": False,
    }


AVERAGE_POOL_2D = {**_pooling_of(2), "count_include_pad": False}

for _rank in (1, 2, 3):
    _pooling = _pooling_of(_rank)
    _window = {"pool_size": (1,) * _rank}
    define(
        f"nn.max_pool{_rank}d",
        "data",
        _pool(_rank, getattr(R.nn, f"max_pool{_rank}d"), average=False),
        _pooling,
        makers=_window,
    )
    define(
        f"nn.avg_pool{_rank}d",
        "data",
        _pool(_rank, getattr(R.nn, f"avg_pool{_rank}d"), average=True),
        {**_pooling, "count_include_pad": False},
        makers=_window,
    )
    define(
        f"nn.adaptive_avg_pool{_rank}d",
        "data",
        _adaptive_pool(getattr(R.nn, f"adaptive_avg_pool{_rank}d")),
        {"output_size": None, "layout": _LAYOUTS[_rank], "out_layout": ""},
    )


def _global_pool(function: Any) -> Any:
    def translate(args: Args, attrs: Any) -> rx.Expr:
        layout = attrs["layout"]
        return function(args[0], [layout.index("H"), layout.index("W")], True)  # type: ignore[no-any-return]

    return translate


for _name, _function in (("max", R.max), ("avg", R.mean)):
    define(
        f"nn.global_{_name}_pool2d",
        "data",
        _global_pool(_function),
        {"layout": "NCHW", "out_layout": ""},
    )


# Norms


_NORM = {"epsilon": 1e-5, "center": True, "scale": True}
define(
    "nn.batch_norm",
    "data gamma beta moving_mean moving_var",
    lambda args, attrs: R.nn.batch_norm(
        *args, **options(attrs, "axis epsilon center scale"), training=False
    ),
    {"axis": 1, **_NORM},
    results=3,
)
define(
    "nn.layer_norm",
    "data gamma beta",
    lambda args, attrs: R.nn.layer_norm(
        *args, axes=[attrs["axis"]], **options(attrs, "epsilon center scale")
    ),
    {"axis": -1, **_NORM},
)


def _other_axes(data: rx.Expr, channel: Any) -> tuple[int, list[int]]:
    """The axis of channels, and all axes but it and the first."""
    rank = len(dims(data))
    axis = axes_of(channel, rank)[0]
    return axis, [i for i in range(1, rank) if i != axis]


def _instance_norm(args: Args, attrs: Any) -> Any:
    axis, axes = _other_axes(args[0], attrs["axis"])
    return R.nn.instance_norm(
        *args, channel_axis=axis, axes=axes, **options(attrs, "epsilon center scale")
    )


def _group_norm(args: Args, attrs: Any) -> Any:
    axis, axes = _other_axes(args[0], attrs["axis"])
    given = options(attrs, "num_groups epsilon center scale")
    return R.nn.group_norm(*args, channel_axis=axis, axes=axes, **given)


define("nn.instance_norm", "data gamma beta", _instance_norm, {"axis": 1, **_NORM})
define(
    "nn.group_norm", "data gamma beta", _group_norm, {"num_groups": REQUIRED, "axis": 1, **_NORM}
)


def _l2_normalize(args: Args, attrs: Any) -> rx.Expr:
    data = args[0]
    axes = axes_of(attrs["axis"], len(dims(data)))
    total = R.sum(R.multiply(data, data), axes, True)
    return R.divide(data, R.sqrt(R.maximum(total, number(attrs["eps"], dtype_of(data)))))


define("nn.l2_normalize", "data", _l2_normalize, {"eps": 1e-10, "axis": None})


# Activations


define("nn.relu", "data", lambda args, attrs: R.nn.relu(args[0]), relation="Identity")
define(
    "nn.leaky_relu",
    "data",
    lambda args, attrs: R.nn.leakyrelu(args[0], attrs["alpha"]),
    {"alpha": 0.25},
    makers={"alpha": 0.01},
    relation="Identity",
)
define("nn.prelu", "data alpha", lambda args, attrs: R.nn.prelu(*args, attrs["axis"]), {"axis": 1})
for _name, _function in (
    ("nn.softmax nn.fast_softmax", R.nn.softmax),
    ("nn.log_softmax", R.nn.log_softmax),
):
    define(
        _name,
        "data",
        lambda args, attrs, function=_function: function(args[0], attrs["axis"]),  # type: ignore[misc]
        {"axis": -1},
        relation="Identity",
    )
define(
    "nn.dropout",
    "data",
    lambda args, attrs: rx.Tuple((args[0], R.ones_like(args[0]))),
    {"rate": 0.5},
    results=2,
)


# Losses


def _cross_entropy(logits: rx.Expr, targets: rx.Expr) -> rx.Expr:
    total = R.sum(R.multiply(logits, targets))
    return R.negative(R.divide(total, number(int(dims(logits)[0]), dtype_of(logits))))


define(
    "nn.cross_entropy",
    "predictions targets",
    lambda args, attrs: _cross_entropy(R.log(args[0]), args[1]),
)
define(
    "nn.cross_entropy_with_logits", "predictions targets", lambda args, attrs: _cross_entropy(*args)
)
define(
    "nn.nll_loss",
    "predictions targets weights",
    lambda args, attrs: R.nn.nll_loss(*args, **options(attrs, "reduction ignore_index")),
    {"reduction": "mean", "ignore_index": -100},
)


# Padding and images


_MODES = {"edge": "replicate", "reflect": "reflect"}


def _pad(args: Args, attrs: Any) -> Any:
    data, value = args
    width = [int(number) for pair in listed(attrs["pad_width"]) for number in listed(pair)]
    mode = attrs["pad_mode"]
    if mode in _MODES:
        return R.nn.pad(data, width, _MODES[mode])
    if mode != "constant":
        raise RelationError(f"pad_mode is constant, edge or reflect, found {mode!r}")
    inside = R.nn.pad(R.ones_like(data, "int8"), width, "constant", 0)
    padded = R.nn.pad(data, width, "constant", 0)
    return R.where(R.astype(inside, "bool"), padded, R.astype(value, dtype_of(data)))


define("nn.pad", "data pad_value", _pad, {"pad_width": REQUIRED, "pad_mode": "constant"})
_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


def _upsampling(args: Args, attrs: Any) -> Any:
    if attrs["method"] not in _METHODS:
        raise RelationError(f"the method is {', '.join(_METHODS)}, found {attrs['method']!r}")
    sizes = dims(args[0])
    size = [
        int(int(sizes[attrs["layout"].index(axis)]) * attrs[f"scale_{axis.lower()}"])
        for axis in "HW"
    ]
    return R.image.resize2d(
        args[0],
        size,
        layout=attrs["layout"],
        method=_METHODS[attrs["method"]],
        coordinate_transformation_mode="align_corners" if attrs["align_corners"] else "asymmetric",
        rounding_method="floor",
    )


define(
    "nn.upsampling",
    "data",
    _upsampling,
    {
        "scale_h": 1.0,
        "scale_w": 1.0,
        "layout": "NCHW",
        "method": "nearest_neighbor",
        "align_corners": False,
    },
)


def _upsampling3d(args: Args, attrs: Any) -> Any:
    if attrs["method"] not in ("nearest_neighbor", "trilinear"):
        raise RelationError(
            f"the method is nearest_neighbor or trilinear, found {attrs['method']!r}"
        )
    sizes, layout = dims(args[0]), attrs["layout"]
    return R.image.resize3d(
        args[0],
        [int(int(sizes[layout.index(x)]) * attrs[f"scale_{x.lower()}"]) for x in "DHW"],
        layout=layout,
        method="linear" if attrs["method"] == "trilinear" else "nearest_neighbor",
        coordinate_transformation_mode=attrs["coordinate_transformation_mode"],
        rounding_method="floor",
    )


define(
    "nn.upsampling3d",
    "data",
    _upsampling3d,
    {
        **{f"scale_{axis}": 1.0 for axis in "dhw"},
        "layout": "NCDHW",
        "method": "nearest_neighbor",
        "coordinate_transformation_mode": "asymmetric",
    },
)
_RESIZE = {
    "size": REQUIRED,
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
_ROUNDING = {"rounding_method": ""}


def _resize(function: Any) -> Any:
    def translate(args: Args, attrs: Any) -> Any:
        given = {name: value for name, value in attrs.items() if name not in ("size", "out_dtype")}
        if not given["rounding_method"]:
            aligned = given["coordinate_transformation_mode"] == "align_corners"
            given["rounding_method"] = "round" if aligned else "floor"
        size = listed(attrs["size"]) if isinstance(attrs["size"], (int, tuple)) else attrs["size"]
        return function(args[0], size, **given, out_dtype=attrs["out_dtype"] or None)

    return translate


define("image.resize2d", "data", _resize(R.image.resize2d), _RESIZE, makers=_ROUNDING)
define(
    "image.resize3d",
    "data",
    _resize(R.image.resize3d),
    {**_RESIZE, "roi": (0.0,) * 6, "layout": "NCDHW"},
    makers=_ROUNDING,
)
define(
    "image.affine_grid",
    "data",
    lambda args, attrs: R.image.affine_grid(args[0], listed(attrs["target_shape"])),
    {"target_shape": REQUIRED},
)
define(
    "image.grid_sample",
    "data grid",
    lambda args, attrs: R.image.grid_sample(
        *args, **options(attrs, "method layout padding_mode align_corners")
    ),
    {"method": "bilinear", "layout": "NCHW", "padding_mode": "zeros", "align_corners": True},
)


def _dynamic_resize(args: Args, attrs: Any) -> Any:
    size = R.tensor_to_shape(R.astype(args[1], "int64"))
    return _resize(R.image.resize2d)((args[0],), {**attrs, "size": size})


define(
    "dyn.image.resize2d",
    "data size",
    _dynamic_resize,
    {name: default for name, default in _RESIZE.items() if name != "size"},
    known_dims=resized_dims,
)


def _dynamic_upsampling(args: Args, attrs: Any) -> Any:
    """Images of another size; the scales are operands."""
    data, *scales = args
    if attrs["method"] not in _METHODS:
        raise RelationError(f"the method is {', '.join(_METHODS)}, found {attrs['method']!r}")
    sizes = R.astype(R.shape_to_tensor(R.shape_of(data)), "float32")
    parts = []
    for axis, scale in zip("HW", scales, strict=True):
        place = attrs["layout"].index(axis)
        size = R.strided_slice(sizes, [0], [place], [place + 1], [1])
        parts.append(R.multiply(size, R.astype(R.reshape(scale, (1,)), "float32")))
    return R.image.resize2d(
        data,
        R.tensor_to_shape(R.astype(R.concat(parts, 0), "int64")),
        layout=attrs["layout"],
        method=_METHODS[attrs["method"]],
        coordinate_transformation_mode="align_corners" if attrs["align_corners"] else "asymmetric",
        rounding_method="floor",
    )


define(
    "dyn.nn.upsampling",
    "data scale_h scale_w",
    _dynamic_upsampling,
    {"layout": "NCHW", "method": "nearest_neighbor", "align_corners": False},
    known_dims=resized_dims,
)


def _backward_weight(args: Args, attrs: Any) -> Any:
    kernel = listed(attrs["kernel_size"])
    output, data = (dims(arg)[attrs["data_layout"].index("C")] for arg in args)
    shape = {"O": output, "I": data // attrs["groups"], "H": kernel[0], "W": kernel[1]}
    given = options(attrs, "groups data_layout kernel_layout")
    for name in ("strides", "dilation", "padding"):
        given[name] = _padding(attrs[name], 2)
    sizes = [shape[axis] for axis in attrs["kernel_layout"]]
    return R.grad.conv2d_backward_weight(*args, sizes, **given)


define("nn.conv2d_backward_weight", "grad data", _backward_weight, CONVOLUTION_2D)
