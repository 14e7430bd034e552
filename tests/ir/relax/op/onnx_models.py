"""Calls of operators as models of ONNX, which ONNX Runtime evaluates without code of ours.

A translation returns the names of its outputs, or None where ONNX has no such option.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from tests.ir.relax.op.cases import Array

OPSET = 23
onnxruntime.set_default_logger_severity(4)
Names = list[str] | None


class Graph:
    """The nodes of a model, and the attributes and operands of the call that it is for."""

    def __init__(self, call: rx.Call, inputs: Sequence[Array]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs = list(inputs)
        self.attrs = dict(call.attrs or {})
        self.call = call

    def add(self, op: str, *inputs: str, outputs: int = 1, **attrs: Any) -> str:
        """Add a node; its first output has the returned name, the others end in 1, 2, …."""
        name = f"{op}{len(self.nodes)}"
        names = [name, *(f"{name}_{k}" for k in range(1, outputs))]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attrs))
        return name

    def constant(self, value: Any, dtype: Any = "int64") -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def permuted(self, name: str, source: str, target: str) -> str:
        """A tensor of one layout in another one."""
        if source == target:
            return name
        return self.add("Transpose", name, perm=[source.index(axis) for axis in target])

    def number(self, operand: int) -> Any:
        """The value of an operand that is a literal."""
        value = self.call.args[operand]
        assert isinstance(value, rx.PrimValue)
        return value.value.value  # type: ignore[union-attr]


Translation = Callable[..., Names]
TRANSLATIONS: dict[str, Translation] = {}


def translates(*names: str) -> Callable[[Translation], Translation]:
    def register(function: Translation) -> Translation:
        TRANSLATIONS.update(dict.fromkeys((f"relax.{name}" for name in names), function))
        return function

    return register


def evaluated(call: rx.Call, inputs: Sequence[Array]) -> tuple[Array, ...] | None:
    """The results of a call by ONNX Runtime, or None where it has no kernel for it."""
    run = session(call, inputs)
    return None if run is None else run(*inputs)


def session(call: rx.Call, inputs: Sequence[Array]) -> Callable[..., tuple[Array, ...]] | None:
    """A function that computes a call by ONNX Runtime, or None where it has no kernel for it."""
    assert isinstance(call.op, Op)
    graph = Graph(call, inputs)
    names = [f"x{k}" for k in range(len(inputs))]
    outputs = TRANSLATIONS[call.op.name](graph, *names)
    if outputs is None:
        return None
    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "main",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
                for n, x in zip(names, inputs, strict=True)
            ],
            [onnx.ValueInfoProto(name=name) for name in outputs],
            graph.constants,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    try:
        model_session = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        if "NOT_IMPLEMENTED" in str(error) or "Type Error" in str(error):
            return None
        raise
    used = [int(x.name[1:]) for x in model_session.get_inputs()]

    def run(*arrays: Array) -> tuple[Array, ...]:
        return tuple(model_session.run(outputs, {f"x{k}": arrays[k] for k in used}))

    return run


def _spatial(layout: str) -> str:
    return "".join(axis for axis in layout if axis in "DHW")


def _is_plain(*layouts: str) -> bool:
    return all(layout.isalpha() and layout.isupper() for layout in layouts)


for _name, _op in {
    "erf": "Erf",
    "nn.relu": "Relu",
    "nn.gelu": "Gelu",
    "matmul": "MatMul",
}.items():
    translates(_name)(lambda g, *x, op=_op: None if g.attrs.get("out_dtype") else [g.add(op, *x)])


@translates("nn.gelu_tanh")
def _(g: Graph, x: str) -> Names:
    return [g.add("Gelu", x, approximate="tanh")]


@translates("nn.selu")
def _(g: Graph, x: str) -> Names:
    # ONNX Runtime computes exp(x) - 1, which loses the digits of an x that is almost 0.
    values = np.abs(g.inputs[0])
    return None if values.size and np.nanmax(values) < 1e-3 else [g.add("Selu", x)]


@translates("nn.silu")
def _(g: Graph, x: str) -> Names:
    return [g.add("Mul", x, g.add("Sigmoid", x))]


@translates("nn.leakyrelu")
def _(g: Graph, x: str) -> Names:
    return [g.add("LeakyRelu", x, alpha=g.attrs["alpha"])]


@translates("nn.softplus")
def _(g: Graph, x: str) -> Names:
    if g.attrs["threshold"] < 20:
        return None
    beta = g.constant(g.attrs["beta"], g.inputs[0].dtype)
    return [g.add("Div", g.add("Softplus", g.add("Mul", x, beta)), beta)]


@translates("nn.prelu")
def _(g: Graph, x: str, alpha: str) -> Names:
    shape = [1] * g.inputs[0].ndim
    shape[g.attrs["axis"]] = g.inputs[1].size
    return [g.add("PRelu", x, g.add("Reshape", alpha, g.constant(shape)))]


@translates("nn.softmax", "nn.log_softmax")
def _(g: Graph, x: str) -> Names:
    assert isinstance(g.call.op, Op)
    op = "LogSoftmax" if "log" in g.call.op.name else "Softmax"
    return [g.add(op, x, axis=g.attrs["axis"])]


# ---- normalisations


def _scaled(g: Graph, gamma: str, beta: str) -> tuple[str, str]:
    """The operands, or 1 and 0 where the call does not use them."""
    shape, dtype = g.inputs[1].shape, g.inputs[1].dtype
    return (
        gamma if g.attrs["scale"] else g.constant(np.ones(shape), dtype),
        beta if g.attrs["center"] else g.constant(np.zeros(shape), dtype),
    )


def _trailing(g: Graph) -> int | None:
    """The first of the axes, if they are the last ones in order."""
    ndim = g.inputs[0].ndim
    axes = [axis % ndim for axis in g.attrs["axes"]]
    return axes[0] if axes == [*range(ndim - len(axes), ndim)] else None


@translates("nn.layer_norm")
def _(g: Graph, x: str, gamma: str, beta: str) -> Names:
    axis = _trailing(g)
    if axis is None:
        return None
    scale, shift = _scaled(g, gamma, beta)
    epsilon = g.attrs["epsilon"]
    return [g.add("LayerNormalization", x, scale, shift, axis=axis, epsilon=epsilon)]


@translates("nn.rms_norm")
def _(g: Graph, x: str, weight: str) -> Names:
    axis = _trailing(g)
    if axis is None:
        return None
    return [g.add("RMSNormalization", x, weight, axis=axis, epsilon=g.attrs["epsilon"])]


@translates("nn.batch_norm")
def _(g: Graph, x: str, gamma: str, beta: str, mean: str, variance: str) -> Names:
    if g.attrs["axis"] % g.inputs[0].ndim != 1:
        return None
    training = int(g.attrs["training"])
    y = g.add(
        "BatchNormalization",
        x,
        *_scaled(g, gamma, beta),
        mean,
        variance,
        outputs=3 if training else 1,
        epsilon=g.attrs["epsilon"],
        momentum=1 - g.attrs["momentum"],
        training_mode=training,
    )
    if training:
        return [y, f"{y}_1", f"{y}_2"]
    return [y, g.add("Identity", mean), g.add("Identity", variance)]


@translates("nn.instance_norm", "nn.group_norm")
def _(g: Graph, x: str, gamma: str, beta: str) -> Names:
    ndim = g.inputs[0].ndim
    axes = sorted(axis % ndim for axis in g.attrs["axes"])
    if g.attrs["channel_axis"] % ndim != 1 or axes != [*range(2, ndim)]:
        return None
    op, attrs = "InstanceNormalization", {"epsilon": g.attrs["epsilon"]}
    if "num_groups" in g.attrs:
        op, attrs = "GroupNormalization", attrs | {"num_groups": g.attrs["num_groups"]}
    return [g.add(op, x, *_scaled(g, gamma, beta), **attrs)]


# ---- windows


@translates(*(f"nn.conv{n}d" for n in (1, 2, 3)))
def _(g: Graph, x: str, w: str) -> Names:
    return _convolution(g, x, w, "Conv", "OI")


@translates(*(f"nn.conv{n}d_transpose" for n in (1, 2, 3)))
def _(g: Graph, x: str, w: str) -> Names:
    padding = list(g.attrs["output_padding"])
    return _convolution(g, x, w, "ConvTranspose", "IO", output_padding=padding)


def _convolution(g: Graph, x: str, w: str, op: str, order: str, **attrs: Any) -> Names:
    a = g.attrs
    layouts = a["data_layout"], a["kernel_layout"], a["out_layout"]
    if not _is_plain(*layouts) or a["out_dtype"] or not all(v.size for v in g.inputs):
        return None
    result = g.call.struct_info
    assert isinstance(result, rx.TensorStructInfo)
    assert isinstance(result.shape, rx.ShapeExpr)
    if any(int(n) == 0 for n in result.shape.values):
        return None
    space = "DHW"[-(g.inputs[0].ndim - 2) :]
    y = g.add(
        op,
        g.permuted(x, layouts[0], f"NC{space}"),
        g.permuted(w, layouts[1], f"{order}{space}"),
        strides=list(a["strides"]),
        pads=list(a["padding"]),
        dilations=list(a["dilation"]),
        group=a["groups"],
        **attrs,
    )
    return [g.permuted(y, f"NC{space}", layouts[2])]


@translates(*(f"nn.{kind}_pool{n}d" for kind in ("max", "avg") for n in (1, 2, 3)))
def _(g: Graph, x: str) -> Names:
    a, data = g.attrs, g.inputs[0]
    window = [d * (k - 1) + 1 for k, d in zip(a["pool_size"], a["dilation"], strict=True)]
    holes = data.dtype.kind == "f" and np.isnan(data).any()  # which MaxPool may drop
    empty = any(n >= w for n, w in zip(a["padding"], window * 2, strict=True))
    if not _is_plain(a["layout"], a["out_layout"]) or not data.size or empty or holes:
        return None
    if a["ceil_mode"] and max(a["strides"]) > min(window):
        return None  # where windows of the padding alone are left out
    assert isinstance(g.call.op, Op)
    largest = "max" in g.call.op.name
    space = "DHW"[-(data.ndim - 2) :]
    y = g.add(
        "MaxPool" if largest else "AveragePool",
        g.permuted(x, a["layout"], f"NC{space}"),
        kernel_shape=list(a["pool_size"]),
        strides=list(a["strides"]),
        pads=list(a["padding"]),
        dilations=list(a["dilation"]),
        ceil_mode=int(a["ceil_mode"]),
        **({} if largest else {"count_include_pad": int(a["count_include_pad"])}),
    )
    return [g.permuted(y, f"NC{space}", a["out_layout"])]


@translates(*(f"nn.adaptive_avg_pool{n}d" for n in (1, 2, 3)))
def _(g: Graph, x: str) -> Names:
    a, space = g.attrs, "DHW"[-(g.inputs[0].ndim - 2) :]
    sizes = a["output_size"]
    if sizes is None or any(n != 1 for n in sizes) or not _is_plain(a["layout"], a["out_layout"]):
        return None
    y = g.add("GlobalAveragePool", g.permuted(x, a["layout"], f"NC{space}"))
    return [g.permuted(y, f"NC{space}", a["out_layout"])]


@translates("nn.pad")
def _(g: Graph, x: str) -> Names:
    widths, mode = g.attrs["pad_width"], g.attrs["pad_mode"]
    if not widths or not g.inputs[0].size or (min(widths) < 0 and mode != "constant"):
        return None
    modes = {"replicate": "edge", "circular": "wrap"}
    value = g.constant(g.attrs["pad_value"], g.inputs[0].dtype)
    pads = g.constant([*widths[::2], *widths[1::2]])
    return [g.add("Pad", x, pads, value, mode=modes.get(mode, mode))]


@translates("nn.pixel_shuffle")
def _(g: Graph, x: str) -> Names:
    if g.inputs[0].ndim != 4:
        return None
    return [g.add("DepthToSpace", x, blocksize=g.attrs["upscale_factor"], mode="CRD")]


# ---- images


#: "round" takes the even one of two positions; ONNX has no such mode.
_ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}


@translates("image.resize2d", "image.resize3d")
def _(g: Graph, x: str) -> Names:
    a = g.attrs
    layout = a["layout"]
    size = g.call.args[1]
    if not _is_plain(layout) or a["out_dtype"] or not isinstance(size, rx.ShapeExpr):
        return None
    space = _spatial(layout)
    nearest = a["method"] == "nearest_neighbor"
    if not g.inputs[0].size or (nearest and a["rounding_method"] not in _ROUNDINGS):
        return None
    if not all(int(n) for n in size.values) or (len(space) == 3 and a["method"] == "cubic"):
        return None
    sizes = dict(zip(layout, g.inputs[0].shape, strict=True))
    sizes |= dict(zip(space, (int(n) for n in size.values), strict=True))
    whole = [sizes[axis] for axis in f"NC{space}"]
    roi = ""
    if a["coordinate_transformation_mode"] == "tf_crop_and_resize":
        half = len(a["roi"]) // 2
        roi = g.constant([0, 0, *a["roi"][:half], 1, 1, *a["roi"][half:]], "float32")
    y = g.add(
        "Resize",
        g.permuted(x, layout, f"NC{space}"),
        roi,
        "",
        g.constant(whole),
        mode=_METHODS[a["method"]],
        coordinate_transformation_mode=a["coordinate_transformation_mode"],
        nearest_mode=a["rounding_method"] if nearest else "floor",
        cubic_coeff_a=a["cubic_alpha"],
        exclude_outside=int(a["cubic_exclude"]),
        extrapolation_value=a["extrapolation_value"],
    )
    return [g.permuted(y, f"NC{space}", layout)]


@translates("image.grid_sample")
def _(g: Graph, x: str, grid: str) -> Names:
    a = g.attrs
    if not all(x.size for x in g.inputs) or np.abs(g.inputs[1]).max() > 2**31:
        return None
    ndim = g.inputs[0].ndim
    y = g.add(
        "GridSample",
        x,
        g.add("Transpose", grid, perm=[0, *range(2, ndim), 1]),
        mode={"bilinear": "linear", "bicubic": "cubic"}.get(a["method"], a["method"]),
        padding_mode=a["padding_mode"],
        align_corners=int(a["align_corners"]),
    )
    return [y]


@translates("image.affine_grid")
def _(g: Graph, maps: str) -> Names:
    size = g.call.args[1]
    assert isinstance(size, rx.ShapeExpr)
    if g.attrs["align_corners"] and any(int(n) == 1 for n in size.values):
        return None  # where ONNX Runtime has a corner, PyTorch the centre
    whole = g.constant([len(g.inputs[0]), 1, *(int(n) for n in size.values)])
    y = g.add("AffineGrid", maps, whole, align_corners=int(g.attrs["align_corners"]))
    return [g.add("Transpose", y, perm=[0, 3, 1, 2])]


@translates("vision.all_class_non_max_suppression")
def _(g: Graph, boxes: str, scores: str) -> Names:
    if g.attrs["output_format"] != "onnx" or not g.inputs[0].size:
        return None
    rows = g.add(
        "NonMaxSuppression",
        boxes,
        scores,
        g.constant([g.number(2)]),
        *(g.constant([g.number(k)], "float32") for k in (3, 4)),
    )
    count = g.add("Slice", g.add("Shape", rows), g.constant([0]), g.constant([1]))
    missing = g.add("Sub", g.constant([g.inputs[1].size]), count)
    pads = g.add("Concat", g.constant([0, 0]), missing, g.constant([0]), axis=0)
    return [g.add("Pad", rows, pads, g.constant(-1)), count]


# ---- attention, losses, sums


@translates("nn.attention", "nn.attention_bias")
def _(g: Graph, q: str, k: str, v: str, *bias: str) -> Names:
    a = g.attrs
    if a["window_size"] or a["causal_mask"] == "BottomRight":
        return None
    heads_first = [g.permuted(x, "BSHD", "BHSD") for x in (q, k, v)]
    attrs = {"is_causal": int(a["causal_mask"] is not None)}
    if a["scale"] is not None:
        attrs |= {"scale": a["scale"]}
    shape = (*(g.inputs[0].shape[n] for n in (0, 2, 1)), g.inputs[1].shape[1])
    masks = [g.add("Expand", x, g.constant(shape)) for x in bias]
    return [g.permuted(g.add("Attention", *heads_first, *masks, **attrs), "BHSD", "BSHD")]


@translates("nn.nll_loss")
def _(g: Graph, p: str, t: str, *weights: str) -> Names:
    if g.inputs[0].ndim < 2 or g.inputs[1].dtype.kind == "u":
        return None
    attrs = {"reduction": g.attrs["reduction"], "ignore_index": g.attrs["ignore_index"]}
    return [g.add("NegativeLogLikelihoodLoss", p, t, *weights, **attrs)]


@translates("einsum")
def _(g: Graph, *x: str) -> Names:
    if any(1 in v.shape for v in g.inputs):
        return None  # which ONNX does not broadcast
    return [g.add("Einsum", *x, equation=g.attrs["subscripts"])]


@translates("cumsum")
def _(g: Graph, x: str) -> Names:
    a = g.attrs
    if a["dtype"] or not g.inputs[0].ndim:
        return None
    if a["axis"] is None:
        x = g.add("Reshape", x, g.constant([-1]))
    return [g.add("CumSum", x, g.constant(a["axis"] or 0), exclusive=int(a["exclusive"]))]


# ---- positions


@translates("gather_elements")
def _(g: Graph, x: str, indices: str) -> Names:
    return [g.add("GatherElements", x, indices, axis=g.attrs["axis"])]


@translates("gather_nd")
def _(g: Graph, x: str, indices: str) -> Names:
    indices = g.add("Cast", indices, to=onnx.TensorProto.INT64)
    return [g.add("GatherND", x, indices, batch_dims=g.attrs["batch_dims"])]


@translates("scatter_elements", "scatter_nd")
def _(g: Graph, x: str, indices: str, updates: str) -> Names:
    reduction = g.attrs["reduction"]
    if reduction == "mean":
        return None
    attrs = {"reduction": "none" if reduction == "update" else reduction}
    if "axis" in g.attrs:
        return [g.add("ScatterElements", x, indices, updates, axis=g.attrs["axis"], **attrs)]
    indices = g.add("Cast", indices, to=onnx.TensorProto.INT64)
    return [g.add("ScatterND", x, indices, updates, **attrs)]


@translates("take")
def _(g: Graph, x: str, *indices: str) -> Names:
    if not indices:
        return None
    if g.inputs[1].size and (g.inputs[1].min() < 0 or g.inputs[1].max() >= min(g.inputs[0].shape)):
        return None
    if g.attrs["axis"] is None and g.inputs[0].ndim != 1:
        return None
    return [g.add("Gather", x, *indices, axis=g.attrs["axis"] or 0)]


@translates("one_hot")
def _(g: Graph, indices: str) -> Names:
    if g.inputs[0].min() < 0:
        return None  # which ONNX counts from the end
    values = np.array([g.number(2), g.number(1)])
    dtype = "float32" if values.dtype.kind == "f" else "int64"
    depth = g.constant(g.attrs["depth"])
    indices = g.add("Cast", indices, to=onnx.TensorProto.INT64)
    return [g.add("OneHot", indices, depth, g.constant(values, dtype), axis=g.attrs["axis"])]


@translates("tril", "triu")
def _(g: Graph, x: str) -> Names:
    assert isinstance(g.call.op, Op)
    upper = int(g.call.op.name.endswith("u"))
    return [g.add("Trilu", x, g.constant(g.number(1)), upper=upper)]


@translates("topk")
def _(g: Graph, x: str) -> Names:
    a, data = g.attrs, g.inputs[0]
    if data.dtype.kind == "f" and np.isnan(data).any():
        return None
    length = data.shape[a["axis"]]
    k = g.constant([min(a["k"], length) if a["k"] > 0 else length])
    y = g.add("TopK", x, k, outputs=2, axis=a["axis"], largest=int(a["largest"]))
    return {"both": [y, f"{y}_1"], "values": [y], "indices": [f"{y}_1"]}[a["ret_type"]]


@translates("unique")
def _(g: Graph, x: str) -> Names:
    a = g.attrs
    axis = {} if a["axis"] is None else {"axis": a["axis"]}
    if g.inputs[0].dtype.kind in "iu":
        x = g.add("Cast", x, to=onnx.TensorProto.INT64)
    y = g.add("Unique", x, outputs=4, sorted=1, **axis)
    flags = [a[f"return_{name}"] for name in ("index", "inverse", "counts")]
    return [y, *(f"{y}_{k}" for k, flag in enumerate(flags, 1) if flag)]


@translates("nonzero")
def _(g: Graph, x: str) -> Names:
    return [g.add("NonZero", x)] if g.inputs[0].ndim else None


# ---- quantisation


@translates("quantize", "dequantize")
def _(g: Graph, x: str, scale: str, zero: str) -> Names:
    assert isinstance(g.call.op, Op)
    if any(v.ndim and v.size != n.size for v, n in [g.inputs[1:]]):
        return None
    to = np.dtype(g.attrs["out_dtype"])
    axis = {"axis": g.attrs["axis"]} if g.inputs[1].ndim else {}
    if g.call.op.name == "relax.quantize":
        kind = helper.np_dtype_to_tensor_dtype(to)
        return [g.add("QuantizeLinear", x, scale, g.add("Cast", zero, to=kind), **axis)]
    # Of int32, ONNX has no zero points.
    if g.inputs[0].dtype.kind == "f" or to != g.inputs[1].dtype or g.inputs[0].dtype == "int32":
        return None
    kind = helper.np_dtype_to_tensor_dtype(g.inputs[0].dtype)
    return [g.add("DequantizeLinear", x, scale, g.add("Cast", zero, to=kind), **axis)]
