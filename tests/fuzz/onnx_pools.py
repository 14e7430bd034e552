"""Pools by the text of ONNX, for those that ONNX Runtime refuses and ONNX's reference miscounts.

ONNX Runtime wants padding that is smaller than the kernel, does not dilate the padding of
`auto_pad`, and has one window in an axis that is too short for any; the reference reads `pads` as
pairs. The text gives formulas for all of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

POOLS = ("AveragePool", "LpPool", "MaxPool")


def attributes_of(node: NodeProto) -> dict[str, Any]:
    """The attributes of a node, texts among them."""
    values = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {name: v.decode() if isinstance(v, bytes) else v for name, v in values.items()}


def is_miscounted(node: NodeProto, shape: Sequence[int]) -> bool:
    """Whether a pool has padding that depends on its dilation, or less padding than nothing.

    The same holds for a window that is wider than an axis.
    """
    found = attributes_of(node)
    automatic = found.get("auto_pad", "NOTSET").startswith("SAME")
    if automatic and any(d != 1 for d in found.get("dilations", ())):
        return True
    if has_wide_steps(node, found["kernel_shape"]):
        return True
    return not all(_taps(found, k, size) for k, size in enumerate(shape[2:]))


def has_wide_steps(node: NodeProto, kernel: Sequence[int]) -> bool:
    """Whether windows would be padded by less than nothing."""
    found = attributes_of(node)
    steps, holes = (found.get(name, [1] * len(kernel)) for name in ("strides", "dilations"))
    spans = [(size - 1) * hole + 1 for size, hole in zip(kernel, holes, strict=True)]
    automatic = found.get("auto_pad", "NOTSET").startswith("SAME")
    return automatic and any(step > span for step, span in zip(steps, spans, strict=True))


def pool(node: NodeProto, x: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]] | None:
    """The outputs of a pool; None where a window has no elements, which the text leaves open."""
    a = attributes_of(node)
    taps = [_taps(a, k, size) for k, size in enumerate(x.shape[2:])]
    shape = (*x.shape[:2], *map(len, taps))
    y, indices = np.empty(shape, x.dtype), np.empty(shape, "int64")
    numbers = np.arange(x.size).reshape(x.shape)
    if a.get("storage_order"):
        images = numbers.reshape(*x.shape[:2], *x.shape[:1:-1])
        numbers = images.transpose(0, 1, *range(x.ndim - 1, 1, -1))
    for at in itertools.product(*map(range, shape)):
        windows = [taps[k][i] for k, i in enumerate(at[2:])]
        inside = np.ix_(*(kept for kept, _ in windows))
        part = x[at[:2]][inside].astype("float64" if x.dtype.kind == "f" else x.dtype).reshape(-1)
        if not part.size:
            return None
        if node.op_type == "MaxPool":
            y[at] = part.max()
            indices[at] = numbers[at[:2]][inside].reshape(-1)[part.argmax()]
        elif node.op_type == "LpPool":
            p = a.get("p", 2)
            y[at] = (np.abs(part) ** p).sum() ** (1 / p)
        else:
            counted = int(np.prod([count for _, count in windows]))
            y[at] = part.sum() / (counted if a.get("count_include_pad") else part.size)
    return [y, indices][: len(node.output)]


def _taps(a: Mapping[str, Any], axis: int, size: int) -> list[tuple[list[int], int]]:
    """For each window along an axis its elements, and how many it has with padding."""
    count = len(a["kernel_shape"])
    kernel = a["kernel_shape"][axis]
    stride, dilation = (a.get(name, [1] * count)[axis] for name in ("strides", "dilations"))
    pads = a.get("pads", [0] * 2 * count)
    before, after = pads[axis], pads[axis + count]
    span = (kernel - 1) * dilation + 1
    way = a.get("auto_pad", "NOTSET")
    if way.startswith("SAME"):
        outputs = -(-size // stride)
        padding = max((outputs - 1) * stride + span - size, 0)
        before = padding // 2 if way == "SAME_UPPER" else padding - padding // 2
        after = padding - before
    elif a.get("ceil_mode"):  # VALID too: so ONNX's inference of shapes and ONNX Runtime read it
        outputs = -(-(size + before + after - span) // stride) + 1
        outputs -= (outputs - 1) * stride >= size + before
    else:
        outputs = (size + before + after - span) // stride + 1
    windows = []
    for k in range(outputs):
        places = range(k * stride - before, k * stride - before + span, dilation)
        kept = [place for place in places if 0 <= place < size]
        windows.append((kept, sum(place < size + after for place in places)))
    return windows
