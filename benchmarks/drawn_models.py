"""ONNX models like well-known ones, of random weights: the nodes and the sizes of their layers.

Each function returns a file's bytes and the values of its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

Drawn = tuple[bytes, Mapping[str, np.ndarray[Any, Any]]]


class Graph:
    """Nodes and weights as they are added; a value is its name."""

    def __init__(self, **inputs: np.ndarray[Any, Any]) -> None:
        self.inputs, self.nodes, self.weights = inputs, [], []
        self._random = np.random.default_rng(0)

    def add(self, kind: str, *operands: object, results: int = 1, **attributes: Any) -> Any:
        """The result of a node, or a list of its results; operands other than names are weights."""
        names = [x if isinstance(x, str) else self.constant(x) for x in operands]
        found = [f"v{len(self.nodes)}_{k}" for k in range(results)]
        self.nodes.append(helper.make_node(kind, names, found, **attributes))
        return found[0] if results == 1 else found

    def constant(self, value: object) -> str:
        """A weight; numbers of Python are float32 or int64."""
        array = np.asarray(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return str(self.weights[-1].name)

    def draw(self, *shape: int) -> np.ndarray[Any, Any]:
        """Random weights that keep the variance of what they multiply."""
        scale = np.prod(shape[1:], dtype=float) ** -0.5
        return self._random.standard_normal(shape, np.float32) * np.float32(scale)

    def dense(self, x: str, rows: int, columns: int) -> str:
        """A product with weights, and their bias."""
        return str(
            self.add("Add", self.add("MatMul", x, self.draw(rows, columns)), self.draw(columns))
        )

    def conv(
        self, x: str, inputs: int, outputs: int, window: int = 1, stride: int = 1, groups: int = 1,
        axes: int = 2, dilation: int = 1,
    ) -> str:  # fmt: skip
        """A convolution that keeps sizes, but for its stride."""
        weights = self.draw(outputs, inputs // groups, *[window] * axes)
        pads = [dilation * (window - 1) // 2] * (2 * axes)
        return str(
            self.add(
                "Conv", x, weights, self.draw(outputs), pads=pads, strides=[stride] * axes,
                group=groups, dilations=[dilation] * axes,
            )
        )  # fmt: skip

    def drawn(self, result: str) -> Drawn:
        """The model that returns a value."""
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in self.inputs.items()
        ]
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "model", inputs, [output], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return model.SerializeToString(), self.inputs


def image(size: int) -> np.ndarray[Any, Any]:
    """A random image."""
    return np.random.default_rng(1).random((1, 3, size, size), np.float32)


def attention(g: Graph, x: str, length: int, width: int, heads: int) -> str:
    """Scaled products of `heads` queries, keys and values of `x`, and their projection."""
    shape, order = [1, length, heads, width // heads], [0, 2, 1, 3]

    def part(perm: list[int]) -> str:
        split = g.add("Reshape", g.dense(x, width, width), shape)
        return str(g.add("Transpose", split, perm=perm))

    queries, keys, values = part(order), part([0, 2, 3, 1]), part(order)
    scores = g.add("Div", g.add("MatMul", queries, keys), (width / heads) ** 0.5)
    mixed = g.add("MatMul", g.add("Softmax", scores, axis=-1), values)
    joined = g.add("Reshape", g.add("Transpose", mixed, perm=order), [1, length, width])
    return g.dense(joined, width, width)


def norm(g: Graph, x: str, width: int, axis: int = -1) -> str:
    """A layer norm in nodes of its arithmetic, as exporters write it."""
    shape = (width, 1)[: 1 if axis == -1 else 2]
    centred = g.add("Sub", x, g.add("ReduceMean", x, axes=[axis]))
    variance = g.add("ReduceMean", g.add("Pow", centred, 2.0), axes=[axis])
    scaled = g.add("Div", centred, g.add("Sqrt", g.add("Add", variance, 1e-5)))
    return str(g.add("Add", g.add("Mul", scaled, np.ones(shape)), g.draw(*shape)))


def gelu(g: Graph, x: str) -> str:
    """The exact GELU."""
    erf = g.add("Erf", g.add("Div", x, 2**0.5))
    return str(g.add("Mul", g.add("Mul", x, g.add("Add", erf, 1.0)), 0.5))


def bert() -> Drawn:
    """12 layers of BERT-base and its words."""
    length, width = 128, 768
    g = Graph(ids=np.arange(length)[None])
    x = g.add("Gather", g.draw(30522, width), "ids")
    x = norm(g, g.add("Add", x, g.draw(length, width)), width)
    for _ in range(12):
        x = norm(g, g.add("Add", x, attention(g, x, length, width, 12)), width)
        hidden = g.dense(gelu(g, g.dense(x, width, 4 * width)), 4 * width, width)
        x = norm(g, g.add("Add", x, hidden), width)
    return g.drawn(x)


def classified(g: Graph, x: str, channels: int) -> Drawn:
    """A model whose result is 1,000 scores."""
    mean = g.add("Flatten", g.add("GlobalAveragePool", x))
    return g.drawn(g.dense(mean, channels, 1000))


def resnet() -> Drawn:
    """ResNet-50."""
    g = Graph(x=image(224))
    x = g.add("Relu", g.conv("x", 3, 64, 7, 2))
    x = g.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for depth, width, first in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
        for k in range(depth):
            stride = first if k == 0 else 1
            y = g.add("Relu", g.conv(x, inputs, width))
            y = g.add("Relu", g.conv(y, width, width, 3, stride))
            y = g.conv(y, width, 4 * width)
            x = g.conv(x, inputs, 4 * width, 1, stride) if k == 0 else x
            x, inputs = g.add("Relu", g.add("Add", x, y)), 4 * width
    return classified(g, x, inputs)


# the window, the hidden and the resulting channels, whether excited, whether hard, the stride
MOBILE = (
    (3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2),
    (5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1),
    (3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1),
    (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
)  # fmt: skip


def mobile_blocks(g: Graph, x: str) -> list[tuple[str, int]]:
    """The values of a MobileNetV3 of an image and their channels, at each size of the image."""
    x, inputs = g.add("HardSwish", g.conv(x, 3, 16, 3, 2)), 16
    found = []
    for window, hidden, outputs, is_excited, is_hard, stride in MOBILE:
        act = "HardSwish" if is_hard else "Relu"
        if stride == 2:
            found.append((x, inputs))
        y = x if hidden == inputs else g.add(act, g.conv(x, inputs, hidden))
        y = g.add(act, g.conv(y, hidden, hidden, window, stride, hidden))
        if is_excited:
            mean = g.add("GlobalAveragePool", y)
            few = g.add("Relu", g.conv(mean, hidden, hidden // 4))
            gate = g.add("HardSigmoid", g.conv(few, hidden // 4, hidden), alpha=1 / 6)
            y = g.add("Mul", y, gate)
        y = g.conv(y, hidden, outputs)
        x = g.add("Add", x, y) if stride == 1 and inputs == outputs else y
        inputs = outputs
    return [*found, (x, inputs)]


def mobilenet() -> Drawn:
    """MobileNetV3-large."""
    g = Graph(x=image(224))
    x, channels = mobile_blocks(g, "x")[-1]
    return classified(g, g.add("HardSwish", g.conv(x, channels, 960)), 960)


def upsampled(g: Graph, x: str, factor: int = 2) -> str:
    """An image whose pixels are repeated."""
    scales = np.array([1, 1, factor, factor], np.float32)
    return str(g.add("Resize", x, "", scales, mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric"))  # fmt: skip


def text_detection() -> Drawn:
    """A detector of text as PP-OCR's: MobileNetV3, a feature pyramid, transposed convolutions."""
    g, width = Graph(x=image(320)), 96
    levels = [g.conv(x, channels, width) for x, channels in mobile_blocks(g, "x")[1:]]
    for k in reversed(range(len(levels) - 1)):
        levels[k] = g.add("Add", levels[k], upsampled(g, levels[k + 1]))
    narrow = [g.conv(x, width, width // 4, 3) for x in levels]
    fused = g.add("Concat", *(upsampled(g, x, 2**k) for k, x in enumerate(narrow)), axis=1)
    x, channels = g.add("Relu", g.conv(fused, width, width // 4, 3)), width // 4
    for outputs, act in ((channels, "Relu"), (1, "Sigmoid")):
        weights = g.draw(channels, outputs, 2, 2)
        x = g.add(act, g.add("ConvTranspose", x, weights, g.draw(outputs), strides=[2, 2]))
    return g.drawn(x)


def yolo() -> Drawn:
    """A detector of objects as YOLOv8n: SiLU, split blocks, pools in a row, three sizes."""
    g = Graph(x=image(320))

    def conv(x: str, inputs: int, outputs: int, window: int = 1, stride: int = 1) -> str:
        y = g.conv(x, inputs, outputs, window, stride)
        return str(g.add("Mul", y, g.add("Sigmoid", y)))

    def block(x: str, inputs: int, outputs: int, depth: int, is_residual: bool = True) -> str:
        half = outputs // 2
        parts = g.add("Split", conv(x, inputs, outputs), [half, half], axis=1, results=2)
        for _ in range(depth):
            y = conv(conv(parts[-1], half, half, 3), half, half, 3)
            parts.append(g.add("Add", parts[-1], y) if is_residual else y)
        joined = g.add("Concat", *parts, axis=1)
        return conv(joined, half * len(parts), outputs)

    x = conv(conv("x", 3, 16, 3, 2), 16, 32, 3, 2)
    p3 = block(conv(block(x, 32, 32, 1), 32, 64, 3, 2), 64, 64, 2)
    p4 = block(conv(p3, 64, 128, 3, 2), 128, 128, 2)
    p5 = block(conv(p4, 128, 256, 3, 2), 256, 256, 1)
    pools = [conv(p5, 256, 128)]
    for _ in range(3):
        pools.append(g.add("MaxPool", pools[-1], kernel_shape=[5, 5], pads=[2, 2, 2, 2]))
    p5 = conv(g.add("Concat", *pools, axis=1), 512, 256)
    n4 = block(g.add("Concat", upsampled(g, p5), p4, axis=1), 384, 128, 1, False)
    n3 = block(g.add("Concat", upsampled(g, n4), p3, axis=1), 192, 64, 1, False)
    n4 = block(g.add("Concat", conv(n3, 64, 64, 3, 2), n4, axis=1), 192, 128, 1, False)
    n5 = block(g.add("Concat", conv(n4, 128, 128, 3, 2), p5, axis=1), 384, 256, 1, False)
    found = []
    for x, channels, size in ((n3, 64, 40), (n4, 128, 20), (n5, 256, 10)):
        boxes, kinds = (
            g.conv(conv(conv(x, channels, width, 3), width, width, 3), width, outputs)
            for width, outputs in ((64, 64), (80, 80))
        )
        both = g.add("Concat", boxes, kinds, axis=1)
        found.append(g.add("Reshape", both, [1, 144, size * size]))
    joined = g.add("Concat", *found, axis=2)
    boxes, kinds = g.add("Split", joined, [64, 80], axis=1, results=2)
    spread = g.add("Transpose", g.add("Reshape", boxes, [1, 4, 16, -1]), perm=[0, 2, 1, 3])
    distances = g.conv(g.add("Softmax", spread, axis=1), 16, 1)
    result = g.add(
        "Concat", g.add("Reshape", distances, [1, 4, -1]), g.add("Sigmoid", kinds), axis=1
    )
    return g.drawn(result)


def voice() -> Drawn:
    """A voice as piper's: layers of attention with positions, flows with splines, a vocoder."""
    length, width, heads = 40, 192, 2
    g = Graph(ids=np.arange(length)[None] % 50)
    x = g.add("Transpose", g.add("Gather", g.draw(256, width), "ids"), perm=[0, 2, 1])
    for _ in range(6):
        x = norm(g, g.add("Add", x, relative_attention(g, x, length, width, heads)), width, 1)
        hidden = g.add("Relu", g.conv(x, width, 4 * width, 3, axes=1))
        x = norm(g, g.add("Add", x, g.conv(hidden, 4 * width, width, 3, axes=1)), width, 1)
    for _ in range(3):
        x = separable(g, x, width)
    x = spline_flows(g, x, length, width)
    for _ in range(4):
        first, second = g.add("Split", x, [width // 2] * 2, axis=1, results=2)
        mean = wave_net(g, first, width // 2, width)
        x = g.add("Concat", first, g.add("Sub", second, mean), axis=1)
        x = g.add("Slice", x, [-1], [-(2**40)], [1], [-1])
    return g.drawn(vocoder(g, x, width))


def relative_attention(g: Graph, x: str, length: int, width: int, heads: int) -> str:
    """Attention of a sequence of columns that adds scores of their distances."""
    d = width // heads
    queries, keys, values = (
        g.add("Transpose", g.add("Reshape", g.conv(x, width, width, axes=1), [1, heads, d, length]),
              perm=[0, 1, 3, 2])
        for _ in range(3)
    )  # fmt: skip
    queries = g.add("Div", queries, d**0.5)
    scores = g.add("MatMul", queries, g.add("Transpose", keys, perm=[0, 1, 3, 2]))
    near = np.zeros((1, 2 * length - 1, d), np.float32)
    near[:, length - 5 : length + 4] = g.draw(1, 9, d)
    distant = g.add("MatMul", queries, g.add("Transpose", near, perm=[0, 2, 1]))
    flat = g.add("Reshape", g.add("Pad", distant, [0] * 7 + [1]), [1, heads, -1])
    padded = g.add(
        "Reshape", g.add("Pad", flat, [0] * 5 + [length - 1]), [1, heads, length + 1, -1]
    )
    rows = g.add("Slice", padded, [0], [length], [2])
    shifted = g.add("Slice", rows, [length - 1], [2 * length - 1], [3])
    weights = g.add("Softmax", g.add("Add", scores, shifted), axis=-1)
    mixed = g.add("Transpose", g.add("MatMul", weights, values), perm=[0, 1, 3, 2])
    return g.conv(g.add("Reshape", mixed, [1, width, length]), width, width, axes=1)


def separable(g: Graph, x: str, width: int) -> str:
    """Three dilated convolutions of single channels, with norms and products between them."""
    for k in range(3):
        y = g.conv(x, width, width, 3, groups=width, axes=1, dilation=3**k)
        y = g.conv(gelu(g, norm(g, y, width, 1)), width, width, axes=1)
        x = g.add("Add", x, gelu(g, norm(g, y, width, 1)))
    return str(x)


def spline_flows(g: Graph, x: str, length: int, width: int, bins: int = 10) -> str:
    """Four flows of rational-quadratic splines of one channel each, added to all channels."""
    first = g.add("Slice", x, [0], [1], [1])
    for _ in range(4):
        hidden = separable(g, g.add("Add", g.conv(first, 1, width, axes=1), x), width)
        heights = g.add(
            "Reshape", g.conv(hidden, width, 3 * bins, axes=1), [1, 1, 3 * bins, length]
        )
        heights = g.add("Transpose", heights, perm=[0, 1, 3, 2])
        parts = g.add("Split", heights, [bins] * 3, axis=3, results=3)
        edges = []
        for part in parts[:2]:
            shares = g.add("Add", g.add("Mul", g.add("Softmax", part, axis=-1), 0.99), 0.001)
            sums = g.add("CumSum", shares, np.array(3))
            padded = g.add("Pad", sums, [0] * 3 + [1] + [0] * 4, 0.0)
            scaled = g.add("Sub", g.add("Mul", padded, 10.0), 5.0)
            low, high = (g.add("Slice", scaled, [k], [bins + k], [3]) for k in (0, 1))
            edges.append((low, g.add("Sub", high, low)))
        column = g.add("Unsqueeze", first, [3])
        reached = g.add("GreaterOrEqual", column, edges[0][0])
        counts = g.add("ReduceSum", g.add("Cast", reached, to=TensorProto.INT64), [3], keepdims=1)
        place = g.add("Clip", g.add("Sub", counts, [1]), np.array(0), np.array(bins - 1))
        slopes = g.add("Softplus", parts[2])
        (left, span), (bottom, rise), slope = (
            tuple(g.add("GatherElements", part, place, axis=3) for part in group)
            for group in (*edges, (slopes,))
        )
        theta = g.add("Div", g.add("Sub", column, left), span)
        rest = g.add("Mul", theta, g.add("Sub", 1.0, theta))
        delta = g.add("Div", rise, span)
        top = g.add("Mul", rise, g.add("Add", g.add("Mul", delta, g.add("Mul", theta, theta)),
                                       g.add("Mul", slope[0], rest)))  # fmt: skip
        low = g.add(
            "Add", delta, g.add("Mul", g.add("Mul", g.add("Sub", slope[0], delta), 2.0), rest)
        )
        moved = g.add("Squeeze", g.add("Add", bottom, g.add("Div", top, low)), [3])
        inside = g.add("And", g.add("Greater", first, -5.0), g.add("Less", first, 5.0))
        first = g.add("Where", inside, moved, first)
    return str(g.add("Add", x, first))


def wave_net(g: Graph, x: str, inputs: int, width: int) -> str:
    """Four gated convolutions whose parts are summed."""
    x, total = g.conv(x, inputs, width, axes=1), g.constant(np.zeros((1, width, 1)))
    for _ in range(4):
        both = g.conv(x, width, 2 * width, 5, axes=1)
        left, right = g.add("Split", both, [width, width], axis=1, results=2)
        gated = g.add("Mul", g.add("Tanh", left), g.add("Sigmoid", right))
        both = g.conv(gated, width, 2 * width, axes=1)
        more, skipped = g.add("Split", both, [width, width], axis=1, results=2)
        x, total = g.add("Add", x, more), g.add("Add", total, skipped)
    return g.conv(total, width, inputs, axes=1)


def vocoder(g: Graph, x: str, width: int) -> str:
    """Transposed convolutions, each before residual ones of three windows."""
    channels = 256
    x = g.conv(x, width, channels, 7, axes=1)
    for stride, window in ((8, 16), (8, 16), (4, 8)):
        x = g.add("LeakyRelu", x, alpha=0.1)
        weights = g.draw(channels, channels // 2, window)
        pad = (window - stride) // 2
        x = g.add("ConvTranspose", x, weights, strides=[stride], pads=[pad, pad])
        channels //= 2
        sums = []
        for size in (3, 5, 7):
            y = x
            for dilation in (1, 3):
                z = g.conv(g.add("LeakyRelu", y, alpha=0.1), channels, channels, size, axes=1,
                           dilation=dilation)  # fmt: skip
                y = g.add("Add", y, z)
            sums.append(y)
        x = g.add("Div", g.add("Add", g.add("Add", *sums[:2]), sums[2]), 3.0)
    return str(g.add("Tanh", g.conv(g.add("LeakyRelu", x), channels, 1, 7, axes=1)))
