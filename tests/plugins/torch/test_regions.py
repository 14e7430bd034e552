"""torchvision's operators of regions beside their definitions, without torchvision."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relaxpy

torch: Any = pytest.importorskip("torch")
from relaxpy.relax.frontend.torch import from_exported_program  # noqa: E402

Array = np.ndarray[Any, np.dtype[Any]]
LIBRARY = torch.library.Library("torchvision", "FRAGMENT")
_REGION = "Tensor input, Tensor rois, float spatial_scale, SymInt rows, SymInt columns"
_NUMBERS = ("stride", "pad", "dilation")
SCHEMAS = {
    "nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align": f"({_REGION}, int sampling_ratio, bool aligned) -> Tensor",
    "roi_pool": f"({_REGION}) -> (Tensor, Tensor)",
    "ps_roi_align": f"({_REGION}, int sampling_ratio) -> (Tensor, Tensor)",
    "ps_roi_pool": f"({_REGION}) -> (Tensor, Tensor)",
    "deform_conv2d": "(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    + "".join(f"SymInt {name}_h, SymInt {name}_w, " for name in _NUMBERS)
    + "SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor",
}


def result(name: str, *args: Any) -> Any:
    """Tensors of the shapes of the results of an operator."""
    x = args[0]
    if name == "nms":
        size = torch.library.get_ctx().new_dynamic_size()
        return x.new_empty(size, dtype=torch.int64)
    if name == "deform_conv2d":
        return x.new_empty(x.shape[0], args[1].shape[0], *args[2].shape[-2:])
    channels = x.shape[1] // (args[3] * args[4]) if name.startswith("ps") else x.shape[1]
    shape = (args[1].shape[0], channels, args[3], args[4])
    if name == "roi_align":
        return x.new_empty(shape)
    return x.new_empty(shape), x.new_empty(shape, dtype=torch.int32)


def operator(name: str) -> Any:
    """An operator that can be exported, whether torchvision is there or not."""
    if not hasattr(torch.ops.torchvision, name):
        LIBRARY.define(name + SCHEMAS[name])
    if not torch._C._dispatch_has_kernel_for_dispatch_key(f"torchvision::{name}", "Meta"):
        torch.library.register_fake(
            f"torchvision::{name}", lambda *args: result(name, *args), lib=LIBRARY
        )
    return getattr(torch.ops.torchvision, name)


def between(image: Array, y: float, x: float, *, fades: bool) -> float:
    """The value between four pixels; beyond the border they are 0, or those of the border."""
    high, wide = image.shape
    if not (-1 <= y <= high and -1 <= x <= wide):
        return 0.0
    if not fades:
        y, x = min(max(y, 0), high - 1), min(max(x, 0), wide - 1)
    top, left = math.floor(y), math.floor(x)
    total = 0.0
    for i in (top, top + 1):
        for j in (left, left + 1):
            if 0 <= i < high and 0 <= j < wide:
                total += (1 - abs(y - i)) * (1 - abs(x - j)) * image[i, j]
    return total


def bins(
    regions: Array, rows: int, columns: int, channels: int
) -> Iterator[tuple[tuple[int, ...], int, Array]]:
    for r, region in enumerate(regions):
        for at in np.ndindex(channels, rows, columns):
            yield (r, *at), int(region[0]), region[[2, 1, 4, 3]]


def averaged(
    x: Array, rois: Array, scale: float, rows: int, columns: int, ratio: int, kind: str
) -> Array:
    by_place = kind == "place"
    channels = x.shape[1] // (rows * columns) if by_place else x.shape[1]
    out = np.zeros((len(rois), channels, rows, columns))
    for (r, c, i, j), n, box in bins(rois, rows, columns, channels):
        borders = box * scale - (0.0 if kind == "plain" else 0.5)
        first, extent = borders[:2], borders[2:] - borders[:2]
        if kind == "plain":
            extent = np.maximum(extent, 1.0)
        step = extent / (rows, columns)
        points = [ratio if ratio > 0 else math.ceil(s) for s in step]
        channel = (c * rows + i) * columns + j if by_place else c
        grid = [
            (np.arange(p) + 0.5) * s / p + f + k * s
            for p, s, f, k in zip(points, step, first, (i, j), strict=True)
        ]
        values = [between(x[n, channel], y, z, fades=False) for y in grid[0] for z in grid[1]]
        out[r, c, i, j] = sum(values) / max(len(values), 1)
    return out


def pooled(x: Array, rois: Array, scale: float, rows: int, columns: int, kind: str) -> list[Array]:
    by_place = kind == "place"
    channels = x.shape[1] // (rows * columns) if by_place else x.shape[1]
    out = np.zeros((len(rois), channels, rows, columns))
    places = np.zeros(out.shape, "int32")
    high, wide = (size - by_place for size in x.shape[2:])
    for (r, c, i, j), n, box in bins(rois, rows, columns, channels):
        nearest = np.copysign(np.floor(np.abs(box * scale) + 0.5), box).astype(int)
        top, left, bottom, right = nearest.tolist()
        spans = []
        for first, last, k, count, limit in (
            (top, bottom, i, rows, high),
            (left, right, j, columns, wide),
        ):
            step = max(last - first + (not by_place), 1) / count
            ends = (math.floor(k * step) + first, math.ceil((k + 1) * step) + first)
            spans.append(slice(*(min(max(end, 0), limit) for end in ends)))
        channel = (c * rows + i) * columns + j if by_place else c
        part = x[n, channel][tuple(spans)]
        if by_place:
            places[r, c, i, j] = channel
            out[r, c, i, j] = part.mean() if part.size else 0
        elif part.size:
            out[r, c, i, j] = part.max()
            y, z = np.unravel_index(part.argmax(), part.shape)
            places[r, c, i, j] = (y + spans[0].start) * wide + z + spans[1].start
        else:
            places[r, c, i, j] = -1
    return [out, places]


def kept(boxes: Array, scores: Array, threshold: float) -> Array:
    found: list[int] = []
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for i in np.argsort(-scores, kind="stable"):
        joint = np.minimum(boxes[i, 2:], boxes[found, 2:]) - np.maximum(
            boxes[i, :2], boxes[found, :2]
        )
        common = np.maximum(joint, 0).prod(1)
        if not (common / (areas[i] + areas[found] - common) > threshold).any():
            found.append(int(i))
    return np.array(found)


def deformed(
    x: Array, weight: Array, offset: Array, mask: Array, bias: Array, *numbers: int
) -> Array:
    s, p, d = (numbers[k : k + 2] for k in (0, 2, 4))
    groups, moved, masked = numbers[6:]
    filters, inner, high, wide = weight.shape
    out = np.zeros((x.shape[0], filters, *offset.shape[2:])) + bias[:, None, None]
    for n, f, i, j, c, a, b in np.ndindex(*out.shape, inner, high, wide):
        channel = c + inner * (f // (filters // groups))
        tap = (channel // (x.shape[1] // moved) * high + a) * wide + b
        y, z = offset[n, 2 * tap : 2 * tap + 2, i, j]
        y, z = y + i * s[0] - p[0] + a * d[0], z + j * s[1] - p[1] + b * d[1]
        value = between(x[n, channel], y, z, fades=True) * weight[f, c, a, b]
        out[n, f, i, j] += value * (mask[n, tap, i, j] if masked else 1)
    return out


DRAW = np.random.default_rng(3)
IMAGES = DRAW.normal(size=(2, 8, 7, 9))
#: Inside, across borders, beyond them, without an extent.
REGIONS = np.array(
    [
        [0, 1, 2, 11, 9],
        [1, -4, -3, 6, 30],
        [0, 40, 40, 50, 60],
        [1, 5, 5, 5, 5],
        [1, 3.3, 0.7, 13, 8],
    ]
)
CORNERS = DRAW.uniform(0, 10, (20, 2))
BOXES = np.concatenate([CORNERS, CORNERS + DRAW.uniform(2, 8, (20, 2))], 1)
PICTURES, FILTERS = DRAW.normal(size=(2, 4, 6, 5)), DRAW.normal(size=(6, 2, 3, 2))
OFFSETS = DRAW.normal(size=(2, 2 * 2 * 6, 4, 3)) * 2
MASK, BIAS = DRAW.uniform(size=(2, 2 * 6, 4, 3)), DRAW.normal(size=6)
MOVED = PICTURES, FILTERS, OFFSETS, MASK, BIAS
CASES: list[tuple[str, tuple[Any, ...], Any]] = [
    *(
        ("roi_align", (IMAGES, REGIONS, 0.5, 3, 2, ratio, aligned),
         averaged(IMAGES, REGIONS, 0.5, 3, 2, ratio, "aligned" if aligned else "plain"))
        for ratio in (0, 2) for aligned in (False, True)
    ),
    ("ps_roi_align", (IMAGES, REGIONS, 0.5, 2, 2, 2),
     averaged(IMAGES, REGIONS, 0.5, 2, 2, 2, "place")),
    ("roi_pool", (IMAGES, REGIONS, 0.5, 3, 2), pooled(IMAGES, REGIONS, 0.5, 3, 2, "plain")),
    ("ps_roi_pool", (IMAGES, REGIONS, 0.5, 2, 2), pooled(IMAGES, REGIONS, 0.5, 2, 2, "place")),
    *(
        ("nms", (BOXES, BOXES[:, 0] % 1, threshold), kept(BOXES, BOXES[:, 0] % 1, threshold))
        for threshold in (0.0, 0.3, 1.0)
    ),
    *(
        ("deform_conv2d", args := (*MOVED, 1, 2, 0, 1, 1, 2, 2, 2, masked),
         deformed(*args))
        for masked in (False, True)
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(CASES)))
def test_operators_of_regions_are_their_definitions(case: int) -> None:
    dtype = ("float32", "float64")[case // 2 % 2]
    name, args, expected = CASES[case]
    op = operator(name)
    places = [k for k, arg in enumerate(args) if isinstance(arg, np.ndarray)]

    class Model(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *tensors: Any) -> Any:
            given = dict(zip(places, tensors, strict=True))
            return op(*(given.get(k, arg) for k, arg in enumerate(args)))

    tensors = tuple(torch.tensor(args[k], dtype=getattr(torch, dtype)) for k in places)
    program = torch.export.export(Model(), tensors)
    target = ("native", "numpy")[case % 2]
    results = relaxpy.compile(from_exported_program(program), target=target)["main"](*tensors)
    wanted = expected if isinstance(expected, list) else [expected]
    if name == "ps_roi_align":
        wanted.append(pooled(*args[:5], "place")[1])
    tolerance = 2e-4 if dtype == "float32" else 1e-10
    for found, value in zip(results, wanted, strict=True):
        np.testing.assert_allclose(found, value, rtol=tolerance, atol=tolerance)
