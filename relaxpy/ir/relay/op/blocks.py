"""Operators that are computed by tensor expressions: blocks, sequences, windows, pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from relaxpy.ir.core.node import Attrs
from relaxpy.ir.relay.op.define import define_te, listed, options
from relaxpy.ir.relay.op.registry import REQUIRED
from relaxpy.ir.te import topi
from relaxpy.ir.te.topi import image, nn


def _calls(function: Callable[..., Any], names: str = "") -> Callable[..., Any]:
    """Return the computation that passes the operands and these attributes to a function."""
    return lambda attrs, *operands: function(*operands, **options(attrs, names))


# Sequences and positions

define_te(
    "sequence_mask",
    "data valid_length",
    _calls(topi.sequence_mask, "mask_value axis"),
    {"mask_value": 0.0, "axis": 0},
)
define_te(
    "reverse_sequence",
    "data seq_lengths",
    _calls(topi.reverse_sequence, "seq_axis batch_axis"),
    {"seq_axis": 1, "batch_axis": 0},
)
define_te("unravel_index", "indices shape", _calls(topi.unravel_index))
define_te(
    "searchsorted",
    "sorted_sequence values",
    lambda attrs, data, values: topi.searchsorted(data, values, attrs["right"], attrs["dtype"]),
    {"right": False, "dtype": "int32"},
)
define_te(
    "matrix_set_diag",
    "data diagonal",
    lambda attrs, data, diagonal: topi.matrix_set_diag(
        data, diagonal, (attrs["k1"], attrs["k2"]), _alignment(attrs)
    ),
    {"k1": 0, "k2": 0, "super_diag_right_align": True, "sub_diag_right_align": False},
)


def _alignment(attrs: Attrs) -> str:
    sides = [
        "RIGHT" if attrs[name] else "LEFT"
        for name in ("super_diag_right_align", "sub_diag_right_align")
    ]
    return "_".join(sides)


define_te(
    "sliding_window",
    "data",
    lambda attrs, data: topi.sliding_window(
        data, attrs["axis"], listed(attrs["window_shape"]), listed(attrs["strides"])
    ),
    {"axis": 0, "window_shape": REQUIRED, "strides": REQUIRED},
    makers={"axis": REQUIRED},
)
define_te("reinterpret", "data", _calls(topi.reinterpret, "dtype"), {"dtype": REQUIRED})
define_te(
    "layout_transform",
    "data",
    _calls(topi.layout_transform, "src_layout dst_layout"),
    {"src_layout": REQUIRED, "dst_layout": REQUIRED},
)

# Blocks and padding


def _sides(pairs: Any) -> tuple[list[Any], list[Any]]:
    """What is before and what is behind each axis."""
    return [before for before, _ in pairs], [behind for _, behind in pairs]


define_te(
    "nn.space_to_depth",
    "data",
    _calls(nn.space_to_depth, "block_size layout"),
    {"block_size": REQUIRED, "layout": "NCHW", "mode": ""},
)
define_te(
    "nn.depth_to_space",
    "data",
    _calls(nn.depth_to_space, "block_size layout mode"),
    {"block_size": REQUIRED, "layout": "NCHW", "mode": "DCR"},
)
define_te(
    "nn.space_to_batch_nd",
    "data",
    lambda attrs, data: nn.space_to_batch_nd(
        data,
        listed(attrs["block_shape"]),
        *_sides(attrs["paddings"]),
        attrs["pad_value"],
    ),
    {"block_shape": REQUIRED, "paddings": REQUIRED, "pad_value": 0.0},
)
define_te(
    "nn.batch_to_space_nd",
    "data",
    lambda attrs, data: nn.batch_to_space_nd(
        data,
        listed(attrs["block_shape"]),
        *_sides(attrs["crops"]),
    ),
    {"block_shape": REQUIRED, "crops": REQUIRED},
)
define_te(
    "nn.mirror_pad",
    "data",
    lambda attrs, data: nn.mirror_pad(
        data,
        [pair[0] for pair in attrs["pad_width"]],
        [pair[1] for pair in attrs["pad_width"]],
        attrs["mode"],
    ),
    {"mode": "SYMMETRIC", "pad_width": REQUIRED},
)
define_te(
    "nn.dilate",
    "data",
    lambda attrs, data: nn.dilate(data, listed(attrs["strides"]), attrs["dilation_value"]),
    {"strides": REQUIRED, "dilation_value": 0.0},
)
define_te(
    "nn.lrn",
    "data",
    _calls(nn.lrn, "size axis alpha beta bias"),
    {"size": 5, "axis": 1, "bias": 2.0, "alpha": 1e-4, "beta": 0.75},
    makers={"alpha": 1e-5},
)

# Pooling

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _adaptive_max(rank: int) -> Callable[..., Any]:
    function: Any = (nn.adaptive_pool1d, nn.adaptive_pool, nn.adaptive_pool3d)[rank - 1]

    def compute(attrs: Attrs, data: Any) -> Any:
        layout = str(attrs["layout"])
        size = attrs["output_size"]
        if size is None:
            size = tuple(data.shape[layout.index(axis)] for axis in "DHW"[3 - rank :])
        sizes = listed(size)
        return function(data, sizes * rank if len(sizes) == 1 else sizes, "max", layout)

    return compute


for _rank, _layout in _LAYOUTS.items():
    define_te(
        f"nn.adaptive_max_pool{_rank}d",
        "data",
        _adaptive_max(_rank),
        {"output_size": None, "layout": _layout, "out_layout": ""},
    )
for _kind in ("max", "avg"):
    define_te(
        f"nn.{_kind}_pool2d_grad",
        "out_grad data",
        lambda attrs, grads, data, kind=_kind: nn.pool_grad(
            grads,
            data,
            listed(attrs["pool_size"]),
            listed(attrs["strides"]),
            listed(attrs["padding"]),
            kind,
            attrs["ceil_mode"],
            bool(attrs.get("count_include_pad", False)),
            attrs["layout"],
        ),
        {
            "pool_size": REQUIRED,
            "strides": (1, 1),
            "padding": (0, 0),
            "layout": "NCHW",
            "out_layout": "",
            "ceil_mode": False,
            **({"count_include_pad": False} if _kind == "avg" else {}),
        },
        makers={"pool_size": (1, 1)},
    )

# Images

define_te(
    "image.resize1d",
    "data",
    lambda attrs, data: image.resize1d(
        data,
        listed(attrs["roi"]),
        listed(attrs["size"]),
        bicubic_alpha=attrs["cubic_alpha"],
        bicubic_exclude=attrs["cubic_exclude"],
        out_dtype=attrs["out_dtype"] or None,
        **options(
            attrs,
            "layout method coordinate_transformation_mode rounding_method extrapolation_value",
        ),
    ),
    {
        "size": REQUIRED,
        "roi": (0.0, 0.0),
        "layout": "NCW",
        "method": "linear",
        "coordinate_transformation_mode": "half_pixel",
        "rounding_method": "round",
        "cubic_alpha": -0.5,
        "cubic_exclude": 0,
        "extrapolation_value": 0.0,
        "out_dtype": "",
    },
    makers={"rounding_method": ""},
)
