"""Products of integers with zero points, on all targets, and as products of bytes where that is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(4)


def numbers(dtype: str, *shape: int) -> Array:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def results(body: Any, params: list[Any], values: list[Array]) -> tuple[list[Array], str]:
    """What a function computes on each target, and the text of it in Relax."""
    module = relay.to_relax(relay.IRModule({"main": relay.Function(params, body)}))
    targets = ("reference", "numpy", "native")
    found = [relaxpy.compile(module, target=t)["main"](*values) for t in targets]
    return [np.asarray(x) for x in found], module.script()


def zero(value: Any) -> Any:
    return relay.const(np.array(value, "int32"))


SCALE = relay.const(np.float32(0.5))
CHANNELS = np.arange(-2, 4, dtype="int32")


@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("zeros", [(0, 0), (7, 0), (0, -3), (7, 5), (7, CHANNELS)])
@pytest.mark.parametrize("dtypes", [("uint8", "int8"), ("int8", "int8")])
def test_dense(dtypes: tuple[str, str], zeros: tuple[Any, Any], is_constant: bool) -> None:
    x, w = numbers(dtypes[0], 3, 9), numbers(dtypes[1], 6, 9)
    data, weight = relay.var("x", shape=x.shape, dtype=dtypes[0]), relay.const(w)
    params, values = [data], [x]
    if not is_constant:
        weight = relay.var("w", shape=w.shape, dtype=dtypes[1])
        params, values = [data, weight], [x, w]
    p, q = zeros
    body = relay.qnn.op.dense(data, weight, zero(p), zero(q), SCALE, SCALE, units=6)
    found, text = results(body, params, values)
    want = (x.astype("int64") - p) @ (w.astype("int64") - np.reshape(q, (-1, 1))).T
    for result in found:
        np.testing.assert_array_equal(result, want)
    assert "R.matmul(x," in text


def windows(x: Array, w: Array, groups: int) -> Array:
    """The convolution of padded images, by sums over windows."""
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    parts = np.split(views, groups, 1), np.split(w, groups)
    return np.concatenate(
        [np.einsum("nchvrs,ocrs->nohv", v, o) for v, o in zip(*parts, strict=True)], 1
    )


CONVOLUTIONS = {
    "plain": (7, 5, 1, 2, (0, 0), True),
    "padded": (7, 0, 1, 2, (1, 1), True),
    "padded, of channels": (-3, CHANNELS, 1, 2, (1, 2), True),
    "symmetric and padded": (0, 4, 1, 2, (1, 1), True),
    "of one channel each": (5, 0, 6, 1, (1, 1), True),
    "of groups": (5, 1, 2, 2, (0, 1), False),
    "of no byte": (-300, 1, 1, 1, (1, 1), False),
}


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, layout: str) -> None:
    p, q, groups, depth, padding, of_bytes = CONVOLUTIONS[name]
    x, w = numbers("int8", 1, groups * depth, 4, 3), numbers("int8", 6, depth, 3, 2)
    order = [0, 2, 3, 1] if layout == "NHWC" else [0, 1, 2, 3]
    image = np.ascontiguousarray(x.transpose(order))
    data = relay.var("x", shape=image.shape, dtype="int8")
    body = relay.qnn.op.conv2d(
        *(data, relay.const(w), zero(p), zero(q), SCALE, SCALE),
        kernel_size=(3, 2),
        channels=6,
        padding=padding,
        groups=groups,
        data_layout=layout,
    )
    found, text = results(body, [data], [image])
    around = [(0, 0), (0, 0), *((n, n) for n in padding)]
    wide = np.pad(x.astype("int64") - p, around)
    want = windows(wide, w.astype("int64") - np.reshape(q, (-1, 1, 1, 1)), groups)
    for result in found:
        np.testing.assert_array_equal(result, want.transpose(order))
    assert ("R.astype(x" in text) != of_bytes


def test_zero_points_that_are_arguments() -> None:
    x, w = numbers("uint8", 4, 8), numbers("uint8", 5, 8)
    names = ("x", (4, 8), "uint8"), ("w", (5, 8), "uint8"), ("p", (), "int32"), ("q", (5,), "int32")
    params = [relay.var(n, shape=s, dtype=t) for n, s, t in names]
    p, q = np.array(3, "int32"), np.arange(5, dtype="int32") * 50
    body = relay.qnn.op.dense(*params, SCALE, SCALE, units=5)
    found, _ = results(body, params, [x, w, p, q])
    for result in found:
        want = (x.astype("int64") - 3) @ (w.astype("int64") - q[:, None]).T
        np.testing.assert_array_equal(result, want)
