"""Pooled regions, detections, sparse convolutions and images of unknown sizes beside loops."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from tests.ir.relay.operator_checks import check
from tests.ir.relay.test_operators import program
from tests.ir.relay.test_rare_operators import bilinear
from tests.ir.relay.test_transformed_weights import convolved

RNG = np.random.default_rng(17)
IMAGE = RNG.standard_normal((2, 4, 6, 8)).astype("float32")
ROIS = np.array(
    [[1, 0, 0, 13, 9], [0, 4, 2, 11, 12], [1, 3, 3, 3.5, 3.5], [0, 30, 0, 40, 4]], "float32"
)


def pooled(data: np.ndarray, rois: np.ndarray) -> np.ndarray:
    """Two by three bins of regions at half the scale."""
    result = np.zeros((len(rois), 4, 2, 3), "float32")
    for n, (which, *corners) in enumerate(rois):
        x1, y1, x2, y2 = (round(value / 2) for value in corners)
        height, width = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for i, j in product(range(2), range(3)):
            ys = slice(max(i * height // 2 + y1, 0), max(-(-(i + 1) * height // 2) + y1, 0))
            xs = slice(max(j * width // 3 + x1, 0), max(-(-(j + 1) * width // 3) + x1, 0))
            window = data[int(which), :, ys, xs]
            if window.size:
                result[n, :, i, j] = window.max((1, 2))
    return result


@pytest.mark.rule("RLY-28")
def test_regions_are_pooled() -> None:
    call = "vision.roi_pool(%0, %1, pooled_size=[2, 3], spatial_scale=0.5f)"
    check(call, (IMAGE, ROIS), pooled(IMAGE, ROIS))


def aligned(data: np.ndarray, rois: np.ndarray, reduce: Any) -> np.ndarray:
    """As many samples as a bin has elements."""
    result = np.zeros((len(rois), 4, 2, 3))
    for n, (which, x1, y1, x2, y2) in enumerate(rois.astype("float64") * [1, 0.5, 0.5, 0.5, 0.5]):
        height, width = max(y2 - y1, 1), max(x2 - x1, 1)
        rows, columns = int(np.ceil(height / 2)), int(np.ceil(width / 3))
        for i, j in product(range(2), range(3)):
            points = []
            for k, m in product(range(rows), range(columns)):
                y = y1 + (i + (k + 0.5) / rows) * height / 2
                x = x1 + (j + (m + 0.5) / columns) * width / 3
                outside = y < -1 or y > 6 or x < -1 or x > 8
                points.append(np.zeros(4) if outside else bilinear(data[int(which)], y, x))
            result[n, :, i, j] = reduce(points, 0)
    return result


@pytest.mark.parametrize(("mode", "reduce"), [("avg", np.mean), ("max", np.max)])
def test_regions_are_sampled_at_each_element(mode: str, reduce: Any) -> None:
    call = f'vision.roi_align(%0, %1, pooled_size=[2, 3], spatial_scale=0.5f, mode="{mode}")'
    check(call, (IMAGE, ROIS), aligned(IMAGE, ROIS, reduce), rtol=1e-4, atol=1e-5)


def test_regions_of_images_with_channels_last() -> None:
    last = IMAGE.transpose(0, 2, 3, 1).copy()
    call = 'vision.roi_align(%0, %1, pooled_size=[2, 3], spatial_scale=0.5f, layout="NHWC")'
    expected = aligned(IMAGE, ROIS, np.mean).transpose(0, 2, 3, 1)
    check(call, (last, ROIS), expected, rtol=1e-4, atol=1e-5)


def test_sampled_regions_have_gradients() -> None:
    for layout in ("NCHW", "NHWC"):
        data = IMAGE[:1, :1] if layout == "NCHW" else IMAGE[:1, :1].transpose(0, 2, 3, 1).copy()
        shape = ", ".join(map(str, data.shape))
        module = relay.parse(
            f"def @main(%x: Tensor[({shape}), float32], %r: Tensor[(1, 5), float32]) {{ "
            "vision.roi_align(%x, %r, pooled_size=[2, 2], spatial_scale=1f, sample_ratio=2, "
            f'layout="{layout}") }}'
        )
        adjoint = relay.transform.gradient(module["main"])
        rois = np.array([[0, 1, 1, 4, 4]], "float32")
        _, (by_data, _) = relay.create_executor().evaluate(adjoint)(data, rois)
        assert np.isclose(by_data.sum(), 4)  # four means of samples inside


def reorganised(x: np.ndarray, stride: int) -> np.ndarray:
    """Darknet's layer, element by element."""
    batch, channels, height, width = x.shape
    flat, groups = x.reshape(-1), channels // stride**2
    result = np.zeros(x.size, x.dtype)
    for place, (b, k, j, i) in enumerate(np.ndindex(x.shape)):
        offset = k // groups
        row, column = j * stride + offset // stride, i * stride + offset % stride
        big = row + height * stride * (k % groups + groups * b)
        result[place] = flat[column + width * stride * big]
    return result.reshape(batch, channels * stride**2, height // stride, width // stride)


def test_grids_are_reorganised() -> None:
    check("vision.yolo_reorg(%0, stride=2)", (IMAGE,), reorganised(IMAGE, 2))


PROBABILITIES = RNG.random((2, 3, 7)).astype("float32")
MOVES = RNG.standard_normal((2, 28)).astype("float32")
CORNERS = RNG.random((1, 7, 2)) * 0.8
ANCHORS = np.concatenate([CORNERS, CORNERS + 0.3], 2).astype("float32")


@pytest.mark.parametrize("clip", [True, False])
def test_locations_become_boxes(clip: bool) -> None:
    rows = np.full((2, 7, 6), -1.0)
    counts = np.zeros(2, "int32")
    for i, j in product(range(2), range(7)):
        kind = 1 + int(np.argmax(PROBABILITIES[i, 1:, j]))
        score = PROBABILITIES[i, kind, j]
        if score < 0.7:
            continue
        left, top, right, bottom = ANCHORS[0, j].astype("float64")
        dx, dy, dw, dh = MOVES[i, 4 * j : 4 * j + 4].astype("float64") * [0.1, 0.1, 0.2, 0.2]
        width, height = right - left, bottom - top
        x, y = dx * width + (left + right) / 2, dy * height + (top + bottom) / 2
        w, h = np.exp(dw) * width / 2, np.exp(dh) * height / 2
        box = np.array([x - w, y - h, x + w, y + h])
        rows[i, counts[i]] = kind - 1, score, *(box.clip(0, 1) if clip else box)
        counts[i] += 1
    call = f"vision.multibox_transform_loc(%0, %1, %2, threshold=0.7f, clip={clip})"
    check(call, (PROBABILITIES, MOVES, ANCHORS), (rows, counts), rtol=1e-4, atol=1e-5)


# Sparse weights


def blocks_of(matrix: np.ndarray, height: int, width: int) -> tuple[np.ndarray, ...]:
    """The blocks of a matrix that are not zero, in rows."""
    rows, columns = matrix.shape[0] // height, matrix.shape[1] // width
    grid = matrix.reshape(rows, height, columns, width).transpose(0, 2, 1, 3)
    kept = np.argwhere(grid.any((2, 3)))
    starts = np.searchsorted(kept[:, 0], np.arange(rows + 1)).astype("int32")
    return grid[tuple(kept.T)], kept[:, 1].astype("int32"), starts


def sparse_weight(inner: int, size: int) -> np.ndarray:
    weight = RNG.standard_normal((4, inner, size, size)).astype("float32")
    return weight * (RNG.random((4, inner, size, size)) < 0.4)


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_sparse_convolutions_are_dense_ones(size: int, layout: str) -> None:
    weight = sparse_weight(4, size)
    expected = convolved(IMAGE, weight, size // 2)
    data, matrix = IMAGE, weight.reshape(4, -1)
    if layout == "NHWC":
        data, expected = IMAGE.transpose(0, 2, 3, 1).copy(), expected.transpose(0, 2, 3, 1)
        matrix = weight.transpose(0, 2, 3, 1).reshape(4, -1)
    call = f'nn.sparse_conv2d(%0, %1, %2, %3, layout="{layout}", kernel_size=[{size}, {size}])'
    check(call, (data, *blocks_of(matrix, 2, 1)), expected, rtol=1e-4, atol=1e-4)


def test_blocks_of_one_column_are_vectors() -> None:
    weight = sparse_weight(4, 1)
    values, columns, starts = blocks_of(weight.reshape(4, -1), 2, 1)
    inputs = IMAGE.transpose(0, 2, 3, 1).copy(), values[:, :, 0].copy(), columns, starts
    expected = convolved(IMAGE, weight).transpose(0, 2, 3, 1)
    check("nn.sparse_conv2d", inputs, expected, rtol=1e-4, atol=1e-4)


def test_padded_rows_are_zeros_of_column_0() -> None:
    matrix = np.array([[1, 0, 2], [0, 0, 3]], "float32")
    padded = np.array([1, 2, 0, 3, 0, 0], "float32"), np.array([0, 2, 0, 2, 0, 0], "int32")
    data = RNG.standard_normal((4, 3)).astype("float32")
    inputs = data, *padded, np.array([0, 3, 6], "int32")
    check("nn.internal.sparse_dense_padded", inputs, data @ matrix.T, rtol=1e-4)


@pytest.mark.parametrize("present", [[0, 0, 2, 3], [], [0, 1, 2, 3, 4, 5]])
def test_empty_rows_are_filled(present: list[int]) -> None:
    indices = np.array([[row, 3 * k % 5] for k, row in enumerate(present)]).reshape(-1, 2)
    values = np.arange(1, 1 + len(present)).astype("float32")
    rows = sorted(
        [*zip(present, indices[:, 1], values, strict=True)]
        + [(row, 0, -1.0) for row in range(6) if row not in present],
        key=lambda entry: entry[0],
    )
    expected = (
        np.array([entry[:2] for entry in rows]),
        np.array([entry[2] for entry in rows], "float32"),
        np.array([row not in present for row in range(6)], "int64"),
    )
    inputs = indices, values, np.array([6, 5]), np.array(-1, "float32")
    check("sparse_fill_empty_rows", inputs, expected)


# Other operators


VOLUME = RNG.standard_normal((1, 2, 2, 3, 4)).astype("float32")


def test_volumes_are_enlarged_by_operands() -> None:
    expected = VOLUME.repeat(2, 2).repeat(3, 3).repeat(2, 4)
    check("dyn.nn.upsampling3d(%0, 2f, 3f, 2f)", (VOLUME,), expected)
    last = VOLUME.transpose(0, 2, 3, 4, 1).copy()
    call = 'dyn.nn.upsampling3d(%0, 2f, 3f, 2f, layout="NDHWC")'
    check(call, (last,), expected.transpose(0, 2, 3, 4, 1))


def test_volumes_are_interpolated_along_each_axis() -> None:
    x = np.linspace(0, 1, 7)  # from corner to corner
    depth = np.multiply.outer(1 - x, VOLUME[0, :, 0]) + np.multiply.outer(x, VOLUME[0, :, 1])
    call = (
        'dyn.nn.upsampling3d(%0, 3.5f, 1f, 1f, method="trilinear", '
        'coordinate_transformation_mode="align_corners")'
    )
    check(call, (VOLUME,), depth.transpose(1, 0, 2, 3)[None], rtol=1e-4, atol=1e-5)


def test_quantised_products_take_packed_weights() -> None:
    data = RNG.integers(-9, 9, (3, 4)).astype("int8")
    weight = RNG.integers(-9, 9, (8, 4)).astype("int8")
    blocks = weight.reshape(2, 4, 4).transpose(0, 2, 1).copy()
    call = 'qnn.contrib_dense_pack(%0, %1, 2, 0, 1f, 1f, weight_layout="NC4n")'
    check(call, (data, blocks), (data.astype(int) - 2) @ weight.T.astype(int))


@pytest.mark.parametrize(
    ("call", "inputs", "message"),
    [
        ("vision.roi_pool(%0, %1, spatial_scale=1f, pooled_size=[2])", (IMAGE, ROIS), "two pos"),
        (
            "vision.roi_pool(%0, %1, spatial_scale=1f, pooled_size=[2, 2])",
            (IMAGE, ROIS[:, :4]),
            "a region has an image and 4 coordinates, found 4 fields",
        ),
        (
            'vision.roi_align(%0, %1, spatial_scale=1f, pooled_size=[2, 2], mode="sum")',
            (IMAGE, ROIS),
            "the mode is avg or max",
        ),
        ("vision.yolo_reorg(%0, stride=3)", (IMAGE,), "a multiple of 9"),
        (
            "vision.multibox_transform_loc",
            (PROBABILITIES, MOVES[:, :8], ANCHORS),
            r"loc_pred \(2, 28\)",
        ),
        (
            "nn.sparse_conv2d(%0, %1, %2, %2, kernel_size=[2, 2])",
            (IMAGE, IMAGE[0, 0], np.zeros(2, "int32")),
            r"kernel_size \[1, 1\] or \[3, 3\]",
        ),
        (
            "sparse_fill_empty_rows(%0, %1, %2, 0f)",
            (np.zeros((2, 3), "int64"), np.zeros(2, "float32"), np.array([2, 2])),
            "positions have 2 coordinates",
        ),
        (
            'dyn.nn.upsampling3d(%0, 1f, 1f, 1f, method="cubic")',
            (VOLUME,),
            "the method nearest_neighbor",
        ),
    ],
)
def test_what_these_operators_do_not_take_is_refused(
    call: str, inputs: tuple[np.ndarray, ...], message: str
) -> None:
    with pytest.raises(RelaxpyError, match=message):
        relay.parse(program(call, inputs))
