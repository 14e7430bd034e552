"""Quantised results: halves, the limits of int32, and zero points of any kernel layout."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay

SCALE = relay.const(np.float32(0.5))
HALVES = [-5, -3, -1, 1, 3, 5]
ROUNDED = {
    "None": [-2, -2, 0, 0, 2, 2],
    "UPWARD": [-2, -1, 0, 1, 2, 3],
    "TONEAREST": [-3, -2, -1, 1, 2, 3],
}


def results(body: Any, params: list[Any], values: list[Any]) -> list[np.ndarray]:
    """What a function computes on each target."""
    module = relay.to_relax(relay.IRModule({"main": relay.Function(params, body)}))
    targets = ("reference", "numpy", "native")
    return [np.asarray(relaxpy.compile(module, target=t)["main"](*values)) for t in targets]


def windows(x: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """The convolution of images, by sums over windows."""
    views = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], (2, 3))
    pairs = zip(np.split(views, groups, 1), np.split(w, groups), strict=True)
    return np.concatenate([np.einsum("nchvrs,ocrs->nohv", v, o) for v, o in pairs], 1)


def zero(value: Any) -> Any:
    return relay.const(np.array(value, "int32"))


def scale(value: float) -> Any:
    return relay.const(np.float32(value))


def requantized(data: Any, **attrs: Any) -> Any:
    return relay.qnn.op.requantize(data, scale(1), zero(0), scale(2), zero(3), **attrs)


@pytest.mark.parametrize("out_dtype", ["int8", "int32"])
@pytest.mark.parametrize("rounding", ROUNDED)
def test_halves_are_rounded_as_the_attribute_says(rounding: str, out_dtype: str) -> None:
    data = relay.var("x", shape=(6,), dtype="int32")
    body = requantized(data, rounding=rounding, out_dtype=out_dtype)
    found = results(body, [data], [np.array(HALVES, "int32")])
    for result in found:
        assert result.dtype == out_dtype
        assert result.tolist() == [value + 3 for value in ROUNDED[rounding]]


@pytest.mark.rule("RLY-23")
def test_other_roundings_are_refused() -> None:
    data = relay.var("x", shape=(6,), dtype="int32")
    with pytest.raises(relay.RelayTypeError) as error:
        relay.testing.run_infer_type(requantized(data, rounding="DOWN"))
    assert "rounding is None or UPWARD or TONEAREST, found 'DOWN' [RLY-23]" in str(error.value)


def test_results_of_int32_are_exact_and_saturate() -> None:
    x = np.array([2**31 - 1, -(2**31), 2**24 + 1, -7], "int32")
    data = relay.var("x", shape=x.shape, dtype="int32")
    one, four, none = scale(1), scale(4), zero(0)
    for factor, body in (
        (1, relay.qnn.op.requantize(data, one, none, one, none, out_dtype="int32")),
        (4, relay.qnn.op.requantize(data, four, none, one, none, out_dtype="int32")),
        (2, relay.qnn.op.add(data, data, *(one, none) * 3)),
    ):
        want = np.clip(x.astype("int64") * factor, -(2**31), 2**31 - 1)
        for result in results(body, [data], [x]):
            assert result.tolist() == want.tolist()

    y = np.array([1e10, -1e10, np.inf, 5.25], "float32")
    data = relay.var("y", shape=y.shape)
    body = relay.qnn.op.quantize(data, scale(0.5), zero(-1), out_dtype="int32")
    for result in results(body, [data], [y]):
        assert result.tolist() == [2**31 - 1, -(2**31), 2**31 - 1, 9]


@pytest.mark.parametrize("dtype", ["int8", "int32"])
def test_zero_points_of_channels_follow_the_kernel_layout(dtype: str) -> None:
    rng = np.random.default_rng(4)
    x, w = (rng.integers(-128, 128, shape, "int8") for shape in ((1, 4, 4, 3), (4, 2, 4, 2)))
    q = np.arange(4, dtype="int32") - 2
    data = relay.var("x", shape=x.shape, dtype=dtype)
    weight = relay.const(np.ascontiguousarray(w.transpose(2, 3, 1, 0)))
    body = relay.qnn.op.conv2d(
        *(data, weight, zero(5), zero(q), SCALE, SCALE),
        kernel_size=(4, 2),
        channels=4,
        groups=2,
        kernel_layout="HWIO",
    )
    found = results(body, [data], [x.astype(dtype)])
    want = windows(x.astype("int64") - 5, w.astype("int64") - q.reshape(-1, 1, 1, 1), 2)
    for result in found:
        np.testing.assert_array_equal(result, want)


AXIS = "axis 5 is out of range for rank 2"
COUNTS = "there is a scale and a zero point for each of one or more tensors"
RANKS = "the operator does not take operands of these ranks with these attributes"


@pytest.mark.rule("RLY-23")
@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("qnn.dequantize(%q, %s, 0, axis=5)", AXIS),
        ("qnn.dequantize(%z, %s, 0)", "axis -1 is out of range for rank 0"),
        ("qnn.concatenate((%q, %q), (%t,), (0,), %t, 0)", COUNTS),
        ("qnn.concatenate((), (), (), %t, 0)", COUNTS),
        (
            'qnn.requantize(%q, %t, 0, %t, 0, rounding="UPWARD", out_dtype="int64")',
            "out_dtype is int8 or uint8 or int16 or uint16 or int32, found int64",
        ),
        (
            "qnn.conv2d(%q, %q, 0, 0, %t, %t)",
            "relax.nn.conv2d: data has the axes NCHW, found R.Tensor((2, 3), "
            'dtype="int32") of rank 2',
        ),
        ("nn.upsampling(%q, scale_h=2f, scale_w=2f)", RANKS),
        ("nn.bias_add(%q, %t)", RANKS),
        ("max(%q, axis=[[]])", RANKS),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(call: str, message: str) -> None:
    with pytest.raises(relay.RelayTypeError) as error:
        relay.parse(
            "def @main(%q: Tensor[(2, 3), int8], %s: Tensor[(3,), float32], %t: float32,"
            f" %z: int8) {{ {call} }}"
        )
    assert f": {message} [RLY-23]" in str(error.value)
