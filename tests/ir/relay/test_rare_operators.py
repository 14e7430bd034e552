"""Operators of signals, sparse matrices and object detection beside NumPy and SciPy-like loops."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from tests.ir.relay.test_operators import program

RNG = np.random.default_rng(7)
SIGNAL = RNG.standard_normal((2, 20)).astype("float32")
IMAGE = RNG.standard_normal((2, 4, 6, 5)).astype("float32")
OTHER = RNG.standard_normal((2, 4, 6, 5)).astype("float32")
WINDOW = np.hanning(8).astype("float32")
SPARSE = np.where(RNG.random((5, 5)) < 0.4, RNG.standard_normal((5, 5)), 0).astype("float32")
MATRIX = RNG.standard_normal((3, 5)).astype("float32")
REPEATED = np.array([5, 2, 5, 7, 2, 2, 9], "int32")


def compressed(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows, columns = np.nonzero(matrix)
    starts = np.searchsorted(rows, np.arange(len(matrix) + 1)).astype("int32")
    return matrix[rows, columns], columns.astype("int32"), starts


CSR = compressed(SPARSE)
BLOCKS = RNG.standard_normal((3, 2, 1)).astype("float32")
BLOCK_COLUMNS, BLOCK_ROWS = np.array([0, 3, 2], "int32"), np.array([0, 2, 3], "int32")


def from_blocks() -> np.ndarray:
    result = np.zeros((4, 5), "float32")
    for block, row, column in zip(BLOCKS, (0, 0, 1), BLOCK_COLUMNS, strict=True):
        result[2 * row : 2 * row + 2, column] = block[:, 0]
    return result


def inverse_dft(re: np.ndarray, im: np.ndarray) -> tuple[np.ndarray, ...]:
    result = np.fft.ifft(re + 1j * im)
    return result.real, result.imag


def bilinear(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """A point of an image (channels, height, width), whose border goes on."""
    _, height, width = image.shape
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    y0, x0 = int(y), int(x)
    y1, x1 = min(y0 + 1, height - 1), min(x0 + 1, width - 1)
    v, u = y - y0, x - x0
    top = (1 - u) * image[:, y0, x0] + u * image[:, y0, x1]
    return (1 - v) * top + v * ((1 - u) * image[:, y1, x0] + u * image[:, y1, x1])


BOXES = np.array([[0.1, 0.2, 0.7, 0.9], [0, -0.2, 1, 1.1], [0.9, 0.5, 0.2, 0.1]], "float32")
OF_IMAGE = np.array([1, 0, 1], "int32")


def crop_and_resize(data: np.ndarray, boxes: np.ndarray, which: np.ndarray) -> np.ndarray:
    result = np.full((len(boxes), 4, 3, 4), 9.0)
    for n, (y1, x1, y2, x2) in enumerate(boxes.astype("float64")):
        for i, j in product(range(3), range(4)):
            y, x = (y1 + (y2 - y1) * i / 2) * 5, (x1 + (x2 - x1) * j / 3) * 4
            if 0 <= y <= 5 and 0 <= x <= 4:
                result[n, :, i, j] = bilinear(data[which[n]], y, x)
    return result


OFFSETS = (RNG.standard_normal((2, 2 * 2 * 6, 3, 3)) * 1.5).astype("float32")
KERNEL = RNG.standard_normal((6, 2, 3, 2)).astype("float32")


def deformable(data: np.ndarray, offset: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Strides 2, padding 1, two groups of channels and two of offsets."""
    result = np.zeros((2, 6, 3, 3))
    for n, o, i, j in product(range(2), range(6), range(3), range(3)):
        for c, dy, dx in product(range(2), range(3), range(2)):
            channel = o // 3 * 2 + c
            place = 2 * (channel // 2 * 6 + dy * 2 + dx)
            y = i * 2 - 1 + dy + offset[n, place, i, j]
            x = j * 2 - 1 + dx + offset[n, place + 1, i, j]
            if 0 <= y < 6 and 0 <= x < 5:
                result[n, o, i, j] += weight[o, c, dy, dx] * bilinear(data[n], y, x)[channel]
    return result


def dilation2d(data: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Strides 2 and 1, dilations 1 and 2, padding 1."""
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    result = np.zeros((2, 4, 4, 5))
    for i, j in product(range(4), range(5)):
        window = padded[:, :, 2 * i : 2 * i + 2, j : j + 3 : 2]
        result[:, :, i, j] = (window + weight).max((2, 3))
    return result


def correlation(one: np.ndarray, other: np.ndarray, *, multiply: bool = True) -> np.ndarray:
    """Patches of 3, displacements up to 2 by 2, padding 3, stride 2."""
    a, b = (np.pad(x, ((0, 0), (0, 0), (3, 3), (3, 3))) for x in (one, other))
    result = np.zeros((2, 9, 3, 3))
    for i, j, k, m in product(range(3), range(3), range(3), range(3)):
        y, x, dy, dx = 3 + 2 * i, 3 + 2 * j, 2 * (k - 1), 2 * (m - 1)
        p = a[:, :, y - 1 : y + 2, x - 1 : x + 2]
        q = b[:, :, y + dy - 1 : y + dy + 2, x + dx - 1 : x + dx + 2]
        both = p * q if multiply else abs(p - q)
        result[:, 3 * k + m, i, j] = both.mean((1, 2, 3))
    return result


ROIS = np.array([[1, 0, 0, 8, 6], [0, 4, 2, 11, 12], [1, 3, 3, 3.5, 3.5]], "float32")


def roi_align(data: np.ndarray, rois: np.ndarray, reduce: Any = np.mean) -> np.ndarray:
    """Two by three bins of two by two samples, at half the scale."""
    result = np.zeros((3, 4, 2, 3))
    for n, (which, x1, y1, x2, y2) in enumerate(rois):
        height, width = max((y2 - y1) / 2, 1), max((x2 - x1) / 2, 1)
        for i, j in product(range(2), range(3)):
            points = []
            for k, m in product(range(2), range(2)):
                y = y1 / 2 + height * (i * 2 + k + 0.5) / 4
                x = x1 / 2 + width * (j * 2 + m + 0.5) / 6
                outside = y < -1 or y > 6 or x < -1 or x > 5
                points.append(np.zeros(4) if outside else bilinear(data[int(which)], y, x))
            result[n, :, i, j] = reduce(points, 0)
    return result


def priors(data: np.ndarray) -> np.ndarray:
    boxes = []
    for i, j in product(range(6), range(5)):
        y, x = (i + 0.5) / 6, (j + 0.5) / 5
        for size, ratio in ((0.5, 1), (0.2, 1), (0.5, 4)):
            w, h = size * 6 / 5 * ratio**0.5 / 2, size / ratio**0.5 / 2
            boxes.append([x - w, y - h, x + w, y + h])
    return np.array([boxes]).clip(0, 1)


DETECTED = np.array([[[0, 0.9, 1], [-1, 0.8, 2], [1, 0.1, 3], [2, 0.7, 4]]], "float32")


def distinct(x: np.ndarray, *, ordered: bool = True) -> tuple[np.ndarray, ...]:
    values, first, inverse, counts = np.unique(x, True, True, True)
    if not ordered:
        order = np.argsort(first)
        values, first, counts = values[order], first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    rest = (0, len(x) - len(values))
    return (*(np.pad(p, rest) for p in (values, first)), inverse, np.array([len(values)]),
            np.pad(counts, rest))  # fmt: skip


CASES: list[tuple[str, tuple[Any, ...], Callable[..., Any]]] = [
                                                            (
        "vision.get_valid_counts(%0, 0.5f)",
        (DETECTED,),
        lambda x: (
            np.array([2]),
            np.array([[*x[0, [0, 3]], [-1] * 3, [-1] * 3]]),
            np.array([[0, 3, -1, -1]]),
        ),
    ),
                                        (
        "dyn.nn.upsampling(%0, 2f, %1)",
        (IMAGE, np.array(3, "float32")),
        lambda x, _: x.repeat(2, 2).repeat(3, 3),
    ),
    (
        "qnn.simulated_quantize(%0, 1, 0.1f, 3)",
        (MATRIX * 20,),
        lambda x: np.clip(np.round(x / np.float32(0.1)) + 3, -128, 127),
    ),
    ("qnn.simulated_quantize(%0, 0, 0.1f, 3)", (MATRIX,), lambda x: x),
    (
        "qnn.simulated_dequantize(%0, 2, %1, 3, axis=0)",
        (MATRIX, np.array([1, 2, 3], "float32")),
        lambda x, s: (x - 3) * s[:, None],
    ),
    (
        "fixed_point_multiply_per_axis(%0, %1, %2, %3, axes=[0], is_lshift_required=True)",
        (
            np.array([[100, -7], [3, 1000]], "int32"),
            np.array([1 << 30, 3 << 29], "int32"),
            np.array([1, 0], "int32"),
            np.array([0, 2], "int32"),
        ),
        lambda x, *_: np.floor(x * [[1], [3 / 16]] + 0.5),
    ),
]  # fmt: skip


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(("call", "inputs", "oracle"), CASES, ids=[c[0][:48] for c in CASES])
def test_operators_agree_with_numpy(
    call: str, inputs: tuple[np.ndarray, ...], oracle: Callable[..., Any]
) -> None:
    module = relay.parse(program(call, inputs))
    expected = oracle(*inputs)
    for kind in ("debug", "vm"):
        result = relay.create_executor(kind, mod=module).evaluate()(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        wanted = expected if isinstance(result, tuple) else (expected,)
        for one, other in zip(results, wanted, strict=True):
            assert one.shape == np.shape(other)
            np.testing.assert_allclose(one, other, 1e-4, 1e-4)


@pytest.mark.parametrize(
    ("call", "inputs", "message"),
    [],
)
def test_what_operators_do_not_take_is_refused(
    call: str, inputs: tuple[np.ndarray, ...], message: str
) -> None:
    with pytest.raises(relay.RelayTypeError, match=message):
        relay.parse(program(call, inputs))


def test_all_class_non_max_suppression_is_that_of_relax() -> None:
    text = """fn(%b: Tensor[(1, 3, 4), float32], %s: Tensor[(1, 1, 3), float32]) {
      vision.all_class_non_max_suppression(%b, %s, 2i64, 0.5f, 0.1f) }"""
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]], "float32")
    scores = np.array([[[0.9, 0.8, 0.7]]], "float32")
    chosen, count = relay.create_executor().evaluate(relay.parse_expr(text))(boxes, scores)
    assert chosen[: int(count[0])].tolist() == [[0, 0, 0], [0, 0, 2]]
