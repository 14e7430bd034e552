"""Steps of random ONNX models that are layers: convolutions, pools, recurrence, suppression."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from tests.fuzz.onnx_draw import Draw, Redraw, Value, step


def _image(d: Draw, channels: int = 0) -> Value:
    """An operand of one to three spatial axes."""
    rank = d.rng.choice((1, 2, 2, 3))
    channels = channels or d.rng.choice((1, 2, 4))
    sizes = [d.rng.choice((4, 5, 6, 7)) for _ in range(rank)]
    dtype = d.rng.choice(("float32", "float32", "float32", "float64", "float16"))
    shape = (d.rng.choice((0, 1, 1, 2)), channels, *sizes)
    found = d.pick((dtype,), lambda v: len(v.shape) in (3, 4, 5) and min(v.shape[1:]) > 3)
    if found is not None and not channels:
        return found
    return d.new(d.array(shape, dtype))


def _windows(d: Draw, rank: int, *, dilated: bool) -> dict[str, Any]:
    """Attributes of windows, some at their defaults."""
    attributes: dict[str, Any] = d.some(strides=[d.rng.choice((1, 2, 3)) for _ in range(rank)])
    if dilated:
        attributes |= d.some(dilations=[d.rng.choice((1, 1, 2)) for _ in range(rank)])
    way = d.rng.random()
    if way < 0.35:
        attributes["pads"] = [d.rng.choice((0, 1)) for _ in range(2 * rank)]
    elif way < 0.7:
        attributes["auto_pad"] = d.rng.choice(("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"))
    return attributes


@step("Conv", "ConvTranspose")
def _conv(d: Draw, op: str) -> None:
    x = _image(d, 4)
    rank = len(x.shape) - 2
    group = d.rng.choice((1, 1, 2, 4))
    kernel = [d.rng.choice((1, 2, 3)) for _ in range(rank)]
    out = 4 if op == "Conv" else 4 // group
    first = (out, 4 // group) if op == "Conv" else (4, out)
    weight = d.like((*first, *kernel), x.dtype)
    bias = d.like((4,), x.dtype) if d.chance() else None
    attributes = _windows(d, rank, dilated=True) | ({"group": group} if group > 1 else {})
    attributes |= d.some(kernel_shape=kernel)
    if op == "ConvTranspose" and d.chance(0.3):
        strides = attributes.get("strides", [1] * rank)
        attributes["output_padding"] = [d.rng.randrange(s) for s in strides]
    d.node(op, [x, weight, bias], rounds=True, **attributes)


@step("MaxPool", "AveragePool", "LpPool")
def _pool(d: Draw, op: str) -> None:
    x = _image(d)
    rank = len(x.shape) - 2
    dilated = d.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    attributes = _windows(d, rank, dilated=dilated)
    if op == "LpPool":
        attributes |= d.some(p=d.rng.choice((1, 3)))
    elif d.opset >= 10:
        attributes |= d.some(ceil_mode=d.rng.randrange(2))
    if op == "AveragePool" and d.opset >= 7:
        attributes |= d.some(count_include_pad=d.rng.randrange(2))
    outputs = 1
    if op == "MaxPool" and d.opset >= 8 and d.chance(0.3):
        outputs = 2
        attributes |= d.some(storage_order=1)
    kernel = [d.rng.choice((1, 2, 3)) for _ in range(rank)]
    d.node(op, [x], outputs, rounds=op != "MaxPool", kernel_shape=kernel, **attributes)


@step("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(d: Draw, op: str) -> None:
    d.node(op, [_image(d)], rounds=True, **(d.some(p=1) if op == "GlobalLpPool" else {}))


@step("BatchNormalization", "InstanceNormalization", "GroupNormalization")
def _normalized(d: Draw, op: str) -> None:
    x = _image(d)
    channels = x.shape[1]
    size = channels
    attributes: dict[str, Any] = d.some(epsilon=0.01)
    operands = [x]
    if op == "GroupNormalization":
        attributes["num_groups"] = 1 if channels % 2 else 2
        size = channels if d.opset >= 21 else attributes["num_groups"]
    operands += [d.like((size,), x.dtype) for _ in range(2)]
    if op == "BatchNormalization":
        operands.append(d.like((channels,), x.dtype))
        operands.append(d.new(np.abs(d.array((channels,), x.dtype)) + np.array(1, x.dtype)))
        if d.opset < 7:
            attributes["is_test"] = 1
    d.node(op, operands, rounds=True, **attributes)


@step("LayerNormalization", "RMSNormalization", "LpNormalization", "MeanVarianceNormalization")
def _normalized_rows(d: Draw, op: str) -> None:
    x = d.tensor(("float32", "float64", "float16"), 1, 5)
    rank = len(x.shape)
    axis = d.axis(rank)
    if op == "LpNormalization":
        d.node(op, [x], rounds=True, **d.some(axis=axis, p=1))
    elif op == "MeanVarianceNormalization":
        d.node(op, [x], rounds=True, axes=[a % rank for a in d.axes(rank)] or [0])
    else:
        attributes = d.some(axis=axis, epsilon=0.01)
        shape = x.shape[attributes.get("axis", -1) % rank :]
        operands: list[Value | None] = [x, d.like(shape, x.dtype)]
        if op == "LayerNormalization" and d.chance():
            operands.append(d.like(shape, x.dtype))
        outputs = [True]
        # ONNX Runtime returns deviations in float64, which their type does not have.
        if op == "LayerNormalization" and x.dtype != "float64" and d.chance(0.3):
            outputs = [True, d.chance(), True]
        d.node(op, operands, outputs, rounds=True, **attributes)


@step("LRN")
def _lrn(d: Draw, op: str) -> None:
    d.node(
        op,
        [_image(d)],
        rounds=True,
        size=d.rng.choice((1, 3, 5)),
        **d.some(alpha=0.5, beta=0.5, bias=2.0),
    )


@step("LSTM", "GRU", "RNN")
def _recurrent(d: Draw, op: str) -> None:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    length, batch, size, hidden = d.rng.randint(1, 4), d.rng.randint(1, 3), 2, 3
    layout = d.rng.choice((0, 0, 1)) if d.opset >= 14 else 0
    direction = "forward" if layout else d.rng.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    rows = (batch, length) if layout else (length, batch)
    state = (batch, ways, hidden) if layout else (ways, batch, hidden)

    def given(*shape: int) -> Value:
        return d.like(shape, "float32")

    operands: list[Value | None] = [
        given(*rows, size),
        given(ways, gates * hidden, size),
        given(ways, gates * hidden, hidden),
        given(ways, 2 * gates * hidden) if d.chance() else None,
        None,
        given(*state) if d.chance() else None,
    ]
    if not layout and d.chance(0.3):  # the reference errs in both together
        lengths = [d.rng.randint(1, length) for _ in range(batch)]
        operands[4] = d.new(np.array(lengths, "int32"), fixed=True)
    attributes: dict[str, Any] = (
        d.some(direction=direction) if ways == 1 else {"direction": direction}
    )
    if op == "LSTM":
        operands.append(given(*state) if d.chance() else None)
        operands.append(given(ways, 3 * hidden) if d.chance(0.3) else None)
    if op == "GRU":
        attributes |= d.some(linear_before_reset=1)
    # With a layout the reference is the oracle, which does not know of clip.
    attributes |= {"layout": 1} if layout else d.some(clip=0.75)
    outputs = [d.chance(0.7), True, *([d.chance(0.7)] if op == "LSTM" else [])]
    while not outputs[-1]:
        outputs.pop()
    d.node(op, operands, outputs, rounds=True, hidden_size=hidden, **attributes)


#: Types of quantised numbers, and the opset from which on they are.
_QUANTIZED = {
    **dict.fromkeys(("uint8", "int8"), 10),
    **dict.fromkeys(("uint16", "int16", "uint4", "int4"), 21),
    **dict.fromkeys(("uint2", "int2"), 25),
}


@step("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
def _quantized(d: Draw, op: str) -> None:
    to = d.rng.choice([kind for kind, since in _QUANTIZED.items() if since <= max(d.opset, 10)])
    if op == "DynamicQuantizeLinear":
        x = d.tensor(("float32",), 1, exact=True, fits=lambda v: v.array.size > 0)
        d.node(op, [x], 3, rounds=True)
        return
    x = d.tensor(("float32",) if op == "QuantizeLinear" else (to,), 1, exact=True)
    axis = d.axis(len(x.shape))
    shape: tuple[int, ...] = ()
    attributes: dict[str, Any] = {}
    if d.opset >= 13 and d.chance():
        shape, attributes = (x.shape[axis],), {"axis": axis}
        if d.opset >= 21 and d.chance():
            block = d.rng.choice((1, 2, 3))
            attributes["block_size"] = block
            blocks = list(x.shape)
            blocks[axis] = -(-blocks[axis] // block)
            shape = tuple(blocks)
    rng = np.random.default_rng(d.rng.randrange(1 << 30))
    # The smaller scales make integers of a few bits saturate.
    scale = d.new(np.asarray(rng.choice([0.0625, 0.25, 0.5, 1.0], shape).astype("float32")))
    zero = None
    if to not in ("uint8", "int8") or op == "DequantizeLinear" or d.chance(0.7):
        zero = d.new(d.array(shape, to))
        if "int4" in to or "int2" in to:
            zero = _moved(d, zero)
    (y,) = d.node(op, [x, scale, zero], **attributes)
    if op == "QuantizeLinear" and d.chance():
        d.node("DequantizeLinear", [y, scale, zero], **attributes)


def _moved(d: Draw, zero: Value) -> Value:
    """The zero points as they are, or as the results of nodes that move them."""
    match d.rng.randrange(4):
        case 0:
            return d.node("Identity", [zero])[0]
        case 1:
            return d.node("Reshape", [zero, d.known(zero.shape)])[0]
        case 2:
            (wide,) = d.node("Cast", [zero], to=int(onnx.TensorProto.INT32))
            return d.node("CastLike", [wide, zero])[0]
        case _:
            return zero


@step("MatMulInteger", "ConvInteger", "QLinearMatMul", "QLinearConv")
def _integer_products(d: Draw, op: str) -> None:
    a, b = d.rng.choice([("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")])
    is_conv = "Conv" in op
    x = d.like((1, 2, 5, 4) if is_conv else (*d.shape(0, 1), 3, 4), a)
    y = d.like((3, 2, 2, 3) if is_conv else (4, 5), b)
    zeros = [d.new(d.array((), kind)) for kind in (a, b)]
    attributes = _windows(d, 2, dilated=True) if is_conv else {}
    if "Integer" in op:
        d.node(op, [x, y, *(z if d.chance(0.7) else None for z in zeros)], **attributes)
        return
    scales = [d.new(np.array(s, "float32")) for s in (0.5, 0.25, 7.3)]  # no ties
    end = d.new(d.array((), a))
    operands: list[Value | None] = [x, scales[0], zeros[0], y, scales[1], zeros[1], scales[2], end]
    if is_conv and d.chance():
        operands.append(d.like((3,), "int32"))
    d.node(op, operands, rounds=True, **attributes)


@step("Resize", "Upsample")
def _resize(d: Draw, op: str) -> None:
    x = _image(d)
    rank = len(x.shape)
    mode = d.rng.choice(("nearest", "linear", "cubic")) if op == "Resize" else "nearest"
    factors = (0.3, 0.5, 0.6, 0.7, 1.0, 1.2, 1.5, 1.7, 2.0, 2.6)
    scales = [1.0, 1.0, *(d.rng.choice(factors) for _ in range(rank - 2))]
    if op == "Upsample":
        scales = [1.0, 1.0, *(float(d.rng.choice((1, 2))) for _ in range(rank - 2))]
        if d.opset < 9:
            d.node(op, [x], scales=scales, mode=mode, rounds=True)
        else:
            d.node(op, [x, d.known(scales, "float32")], mode=mode, rounds=True)
        return
    attributes: dict[str, Any] = d.some(mode=mode)
    if d.opset < 11:
        d.node(op, [x, d.known(scales, "float32")], rounds=True, **attributes)
        return
    places = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    places += ["tf_crop_and_resize"] + ["half_pixel_symmetric"] * (d.opset >= 19)
    place = d.rng.choice(places)
    attributes |= d.some(coordinate_transformation_mode=place)
    roundings = ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    attributes |= d.some(nearest_mode=d.rng.choice(roundings))
    region: list[float] = []
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        starts, ends = (
            [d.rng.choice(numbers) for _ in range(rank - 2)]
            for numbers in ((0.0, 0.3, -0.2), (1.0, 0.8, 1.3))
        )
        region = [0.0, 0.0, *starts, 1.0, 1.0, *ends]
        attributes |= d.some(extrapolation_value=2.5)
    roi = d.known(region, "float32") if region or d.opset < 13 else None
    sizes = None
    if d.chance():
        sizes = d.known([*x.shape[:2], *(d.rng.choice((1, 2, 4, 7, 9)) for _ in range(rank - 2))])
    given = d.known(scales, "float32") if sizes is None else None
    if given is None and d.opset < 13:
        given = d.new(np.zeros(0, "float32"))
    (y,) = d.node(op, [x, roi, given, sizes], rounds=True, **attributes)
    stretched = scales if sizes is None else [1.0] * rank
    triples = list(zip(y.shape, x.shape, stretched, strict=True))[2:]
    if any(a == b and (region or scale != 1) for a, b, scale in triples):
        raise Redraw("ONNX Runtime copies along axes that keep their sizes")
    products = np.array(x.shape, "float32") * np.array(scales, "float32")
    if sizes is None and y.shape != tuple(np.floor(products).astype(int)):
        raise Redraw("the reference rounds sizes in float64")


@step("NonMaxSuppression")
def _suppressed(d: Draw, op: str) -> None:
    """Limits that are inputs, known, or left out; boxes by corners in any order, or by centres."""
    rng = np.random.default_rng(d.rng.randrange(1 << 30))
    batch, classes, boxes = (d.rng.choice(c) for c in ((1, 1, 2), (1, 2, 3), (1, 4, 6, 9)))
    corners = rng.integers(0, 9, (batch, boxes, 4)).astype("float32")
    scores = rng.permutation(batch * classes * boxes).reshape(batch, classes, boxes)
    shares = (scores / scores.size).astype("float32")
    limits = [
        np.array(d.rng.choice(([0], [1], [2], [100])), "int64"),
        np.array([d.rng.choice((0.0, 0.2, 0.5, 1.0))], "float32"),
        np.array([d.rng.choice((0.0, 0.25, 0.5, 2.0))], "float32"),
    ]
    given = [d.new(a.reshape(()) if d.chance(0.3) else a, fixed=True) for a in limits]
    kept = [value if d.chance(0.8) else None for value in given]
    operands = [d.new(corners), d.new(shares), *kept]
    while operands[-1] is None:
        operands.pop()
    d.node(op, operands, **d.some(center_point_box=1))
