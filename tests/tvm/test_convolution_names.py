"""Convolutions by the names of their layouts."""

from collections.abc import Callable

import numpy as np
import pytest

from relaxpy import topi
from relaxpy.errors import MisuseError
from relaxpy.ir.te import tensor as te
from tests.ir.ops.cases.windows import convolve, transpose_convolve
from tests.ir.te.topi.test_topi import Array, evaluate
from tests.rows import table

RANDOM = np.random.default_rng(0)
nn = topi.nn


def floats(*shape: int) -> Array:
    """Integers as floats, of which sums are exact."""
    return RANDOM.integers(-9, 10, shape).astype("float32")


def laid_out(x: Array, order: str, target: str) -> Array:
    return x.transpose([order.index(axis) for axis in target]).copy()


LINE, TAPS = floats(2, 4, 7), floats(6, 4, 3)
IMAGE, FILTER = floats(3, 2, 4, 5), floats(4, 2, 3, 2)
CUBE, BLOCK = floats(1, 2, 3, 4, 3), floats(3, 2, 2, 1, 2)
TURNED_TAPS, TURNED_FILTER = floats(4, 3, 3), floats(2, 3, 3, 2)
TURNED_BLOCK = floats(2, 3, 2, 1, 2)
DEPTHWISE = floats(2, 2, 3, 3)
SAME = convolve(np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 0))), FILTER, 1, 0)
GROUPED = convolve(IMAGE, FILTER[:, :1], 1, 0, groups=2)
OWN_FILTERS = convolve(IMAGE, DEPTHWISE.reshape(4, 1, 3, 3), 2, 1, groups=2)

#: What the table below calls.
NAMES = {"convolve": convolve, "transpose_convolve": transpose_convolve}
ROWS = table("""
1d ncw : nn.conv1d_ncw(v0, v1, 2, 1) <- LINE, TAPS => convolve(LINE, TAPS, 2, 1)
1d nwc : nn.conv1d_nwc(v0, v1) <- laid_out(LINE, "NCW", "NWC"), laid_out(TAPS, "OIW", "WIO")
    => laid_out(convolve(LINE, TAPS, 1, 0), "NCW", "NWC")
1d groups : nn.group_conv1d_ncw(v0, v1, 1, 0, 1, 2) <- LINE, TAPS[:, :2].copy()
    => convolve(LINE, TAPS[:, :2], 1, 0, groups=2)
2d nchw : nn.conv2d_nchw(v0, v1, 1, "SAME", 1) <- IMAGE, FILTER => SAME
2d hwcn : nn.conv2d_hwcn(v0, v1, (1, 1), (1, 1, 1, 0), (1, 1))
    <- laid_out(IMAGE, "NCHW", "HWCN"), laid_out(FILTER, "OIHW", "HWIO")
    => laid_out(SAME, "NCHW", "HWCN")
2d nhwc : nn.conv2d_nhwc(v0, v1, 1, "SAME", 1)
    <- laid_out(IMAGE, "NCHW", "NHWC"), laid_out(FILTER, "OIHW", "HWIO")
    => laid_out(SAME, "NCHW", "NHWC")
2d groups : nn.group_conv2d_nhwc(v0, v1, 1, "VALID", 1, 2)
    <- laid_out(IMAGE, "NCHW", "NHWC"), laid_out(FILTER[:, :1], "OIHW", "HWIO")
    => laid_out(GROUPED, "NCHW", "NHWC")
3d ndhwc : nn.conv3d_ndhwc(v0, v1, 1, 0, 1, 1)
    <- laid_out(CUBE, "NCDHW", "NDHWC"), laid_out(BLOCK, "OIDHW", "DHWIO")
    => laid_out(convolve(CUBE, BLOCK, 1, 0), "NCDHW", "NDHWC")
depthwise nchw : nn.depthwise_conv2d_nchw(v0, v1, 2, 1, 1) <- IMAGE, DEPTHWISE => OWN_FILTERS
depthwise nhwc : nn.depthwise_conv2d_nhwc(v0, v1, 2, 1, 1)
    <- laid_out(IMAGE, "NCHW", "NHWC"), laid_out(DEPTHWISE, "COHW", "HWCO")
    => laid_out(OWN_FILTERS, "NCHW", "NHWC")
depthwise nhwc by HWIO : nn.depthwise_conv2d_nhwc(v0, v1, 2, 1, 1, "HWIO")
    <- laid_out(IMAGE, "NCHW", "NHWC"), laid_out(DEPTHWISE, "COHW", "HWOC")
    => laid_out(OWN_FILTERS, "NCHW", "NHWC")
1d transposed : nn.conv1d_transpose_ncw(v0, v1, 2, 1, None, 1) <- LINE, TURNED_TAPS
    => transpose_convolve(LINE, TURNED_TAPS, 2, 1, more=1)
2d transposed : nn.conv2d_transpose_nchw(v0, v1, (2, 1), (1, 0), "float32", 0)
    <- IMAGE, TURNED_FILTER => transpose_convolve(IMAGE, TURNED_FILTER, (2, 1), (1, 0))
3d transposed : nn.conv3d_transpose_ncdhw(v0, v1, 1, 0, None, 0) <- CUBE, TURNED_BLOCK
    => transpose_convolve(CUBE, TURNED_BLOCK)
""")


@pytest.mark.parametrize(("label", "call", "operands", "value"), ROWS)
def test_a_named_convolution_is_that_of_the_definition(label, call, operands, value) -> None:
    function = lambda x, w: eval(call, globals() | {"v0": x, "v1": w})  # noqa: E731
    np.testing.assert_array_equal(
        evaluate(function, *eval(f"[{operands}]")), eval(value, globals() | NAMES)
    )


X, W = te.placeholder((1, 4, 5, 5)), te.placeholder((4, 2, 3, 3))
OPEN = te.placeholder((te.var("c", "int64"), 1, te.var("k", "int64"), 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: nn.conv2d_nchw(X, W, 1, "FULL", 1), "'VALID', 'SAME' or numbers, found 'FULL'"),
        (lambda: nn.conv2d_nchw(X, OPEN, 1, "SAME", 1), "needs a kernel of known size, found"),
        (lambda: nn.depthwise_conv2d_nchw(X, OPEN, 1, 0, 1), "a known number of channels, found"),
        (lambda: nn.depthwise_conv2d_nhwc(X, W, 1, 0, 1, "OIHW"), "'HWOI' or 'HWIO', found 'OIHW'"),
    ],
)
def test_what_has_no_meaning_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(MisuseError, match=message):
        make()
