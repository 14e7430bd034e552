"""Padding of importers: windows with strides cover the data."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.relax.frontend.common import autopad
from tests.ir.relax.graphs import built

X = np.arange(2 * 4 * 7, dtype="float32").reshape(1, 2, 4, 7)


def padded(shape: object, **options: object) -> relaxpy.IRModule:
    sinfo = relax.TensorStructInfo(shape, "float32")
    return built(lambda builder, x: autopad(builder, x, [2, 3], [3, 5], **options), sinfo)


@pytest.mark.parametrize("kind", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_windows_cover_the_data(mode: str, kind: str) -> None:
    mod = padded(X.shape, mode=mode, pad_type=kind)
    widths = [(0, 1), (2, 2)] if mode == "SAME_UPPER" else [(1, 0), (2, 2)]
    expected = np.pad(X, [(0, 0), (0, 0), *widths], mode=kind)  # type: ignore[call-overload]
    found = relaxpy.compile(mod)["main"](X)
    np.testing.assert_array_equal(found, expected)
    for size, stride, extent, axis in ((4, 2, 3, 2), (7, 3, 5, 3)):
        assert (found.shape[axis] - extent) // stride + 1 == -(-size // stride)


def test_dilations_and_transposed_windows() -> None:
    found = relaxpy.compile(padded(X.shape, dilations=(2, 1)))["main"](X)
    assert found.shape == (1, 2, 7, 11)  # the window spans 5 and 5 elements
    found = relaxpy.compile(padded(X.shape, deconv=True))["main"](X)
    assert found.shape == (1, 2, 5, 7)  # what is left of 2 and 4 elements


def test_symbolic_sizes() -> None:
    n = relaxpy.tir.Var("n", "int64")
    ex = relaxpy.compile(padded((1, 2, n, 7)))
    for size in (3, 4, 5):
        data = np.ones((1, 2, size, 7), "float32")
        assert ex["main"](data).shape[2] == (-(-size // 2) - 1) * 2 + 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "VALID"}, "expected 'SAME_UPPER' or 'SAME_LOWER', found 'VALID'"),
        ({"pad_type": "wrap"}, "expected 'constant' or 'edge' or 'reflect', found 'wrap'"),
        ({"dilations": (1,)}, "strides and dilations for each axis"),
    ],
)
def test_what_there_is_not(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        padded(X.shape, **options)
    with pytest.raises(ValueError, match="data of known shape"):
        padded(None)
