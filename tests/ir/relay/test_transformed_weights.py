"""Convolutions with transformed, tiled and packed weights beside plain ones of NumPy."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from tests.ir.relay.operator_checks import check
from tests.ir.relay.test_operators import program

RNG = np.random.default_rng(5)
IMAGE = RNG.standard_normal((2, 3, 9, 7)).astype("float32")
KERNEL = RNG.standard_normal((4, 3, 3, 3)).astype("float32")
VOLUME = RNG.standard_normal((2, 2, 5, 6, 7)).astype("float32")


def convolved(x: np.ndarray, w: np.ndarray, padding: int = 0, stride: int = 1) -> np.ndarray:
    """Data (images, in, …) and a weight (out, in, …)."""
    rank = x.ndim - 2
    x = np.pad(x.astype("float64"), ((0, 0), (0, 0), *[(padding, padding)] * rank))
    view = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], tuple(range(2, x.ndim)))
    view = view[(slice(None), slice(None), *[slice(None, None, stride)] * rank)]
    axes = [1, *range(2 + rank, 2 + 2 * rank)]
    return np.moveaxis(np.tensordot(view, w, (axes, [1, *range(2, 2 + rank)])), -1, 1)


def evaluated(call: str, *inputs: np.ndarray) -> Any:
    module = relay.parse(program(call, inputs))
    return relay.create_executor(mod=module).evaluate()(*inputs)


@pytest.mark.rule("RLY-28")
@pytest.mark.parametrize(("tile", "size"), [(2, 3), (6, 3), (3, 5)])
def test_winograd_is_a_plain_convolution(tile: int, size: int) -> None:
    kernel = RNG.standard_normal((4, 3, size, size)).astype("float32")
    transform = f"nn.contrib_conv2d_winograd_weight_transform(%1, tile_size={tile})"
    call = (
        f"nn.contrib_conv2d_winograd_without_weight_transform(%0, {transform}, tile_size={tile}, "
        f"channels=4, kernel_size=[{size}, {size}], padding=[1, 1])"
    )
    check(call, (IMAGE, kernel), convolved(IMAGE, kernel, 1), atol=1e-3)
    assert evaluated(transform.replace("%1", "%0"), kernel).shape == (*[tile + size - 1] * 2, 4, 3)


def test_winograd_of_other_layouts() -> None:
    transform = "nn.contrib_conv2d_winograd_weight_transform(%1, tile_size=2)"
    call = (
        f"nn.contrib_conv2d_winograd_without_weight_transform(%0, {transform}, tile_size=2, "
        'channels=4, kernel_size=[3, 3], data_layout="NHWC", out_layout="NCHW", '
        'out_dtype="float64")'
    )
    last = IMAGE.transpose(0, 2, 3, 1).copy()
    check(call, (last, KERNEL), convolved(IMAGE, KERNEL), atol=1e-4)


@pytest.mark.parametrize("depth", [1, 3])
def test_winograd_of_volumes(depth: int) -> None:
    kernel = RNG.standard_normal((3, 2, depth, 3, 3)).astype("float32")
    transform = "nn.contrib_conv3d_winograd_weight_transform(%1, tile_size=2)"
    call = (
        f"nn.contrib_conv3d_winograd_without_weight_transform(%0, {transform}, tile_size=2, "
        f"channels=3, kernel_size=[{depth}, 3, 3])"
    )
    check(call, (VOLUME, kernel), convolved(VOLUME, kernel), atol=1e-4)


def test_the_transform_for_nnpack_has_the_channels_first() -> None:
    one = evaluated(
        "nn.contrib_conv2d_winograd_nnpack_weight_transform(%0, convolution_algorithm=1)", KERNEL
    )
    other = evaluated("nn.contrib_conv2d_winograd_weight_transform(%0, tile_size=6)", KERNEL)
    assert one.shape == (4, 3, 8, 8)
    np.testing.assert_allclose(one.transpose(2, 3, 0, 1), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tiles_of_a_weight_make_the_same_convolution(dtype: str) -> None:
    data = (RNG.standard_normal((2, 8, 7, 3)) * 5).astype(dtype)
    kernel = (RNG.standard_normal((3, 3, 3, 5)) * 5).astype(dtype)
    transform = "nn.contrib_conv2d_gemm_weight_transform(%1, tile_N=4, tile_K=2)"
    out = ', out_dtype="int32"' if dtype == "int8" else ""
    call = (
        f"nn.contrib_conv2d_gemm_without_weight_transform(%0, {transform}, channels=5, "
        f'kernel_size=[3, 3], padding=[1, 1], strides=[2, 2], data_layout="NHWC"{out})'
    )
    plain = convolved(data.transpose(0, 3, 1, 2), kernel.transpose(3, 2, 0, 1), 1, 2)
    check(call, (data, kernel), plain.transpose(0, 2, 3, 1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_tiles_lie_in_rows_of_columns(dtype: str) -> None:
    kernel = np.arange(1, 1 + 5 * 6).reshape(1, 1, 5, 6).astype(dtype)
    tiles = evaluated("nn.contrib_conv2d_gemm_weight_transform(%0, tile_N=4, tile_K=2)", kernel)
    matrix = np.pad(kernel[0, 0], ((0, 3), (0, 2)))
    expected = np.zeros((2, 4, 2, 4), dtype)
    for n, k in product(range(2), range(4)):
        expected[n, k] = matrix[2 * k : 2 * k + 2, 4 * n : 4 * n + 4]
    if dtype == "int8":
        expected = expected.transpose(0, 1, 3, 2)
    assert tiles.tolist() == expected.tolist()


# Few bits


def packed(x: np.ndarray, bits: int, axis: int, bit_axis: int, width: int = 8) -> np.ndarray:
    """Words of the bits of elements along an axis, the first element in the highest bit."""
    moved = np.moveaxis(x, axis, -1)
    words = np.zeros((bits, *moved.shape[:-1], moved.shape[-1] // width), "uint64")
    for b, k in product(range(bits), range(moved.shape[-1])):
        bit = (moved[..., k] >> b & 1).astype("uint64")
        words[b, ..., k // width] |= bit << np.uint64(width - 1 - k % width)
    return np.moveaxis(np.moveaxis(words, -1, axis + 1), 0, bit_axis)


CODES = RNG.integers(0, 4, (3, 16, 5)).astype("int32")


@pytest.mark.parametrize(
    ("bits", "axis", "place", "word"), [(2, 1, 1, 8), (1, 1, 3, 16), (2, 1, 0, 8), (2, 1, -1, 8)]
)
def test_bits_are_packed_into_words(bits: int, axis: int, place: int, word: int) -> None:
    call = (
        f'nn.bitpack(%0, bits={bits}, pack_axis={axis}, bit_axis={place}, pack_type="uint{word}")'
    )
    check(call, (CODES,), packed(CODES, bits, axis, place, word))


def signed(weight: np.ndarray, bits: int, *, unipolar: bool) -> np.ndarray:
    return 2 * weight - (2**bits - 1) if unipolar else weight


@pytest.mark.parametrize("unipolar", [True, False])
@pytest.mark.parametrize("prepacked", [False, True])
def test_dense_products_of_few_bits(unipolar: bool, prepacked: bool) -> None:
    data = RNG.integers(0, 4, (3, 16)).astype("int32")
    weight = RNG.integers(0, 2, (5, 16)).astype("int32")
    expected = data @ signed(weight, 1, unipolar=unipolar).T
    given = packed(weight, 1, 1, 1).astype("uint8") if prepacked else weight
    call = (
        f'nn.bitserial_dense(%0, %1, units=5, data_bits=2, pack_dtype="uint8", '
        f'out_dtype="int16", unipolar={unipolar})'
    )
    check(call, (data, given), expected)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("prepacked", [False, True])
def test_convolutions_of_few_bits(layout: str, prepacked: bool) -> None:
    data = RNG.integers(0, 4, (2, 8, 6, 5)).astype("int32")
    weight = RNG.integers(0, 4, (3, 8, 3, 3)).astype("int32")
    expected = convolved(data, signed(weight, 2, unipolar=True), 1, 2)
    kernel, channel = "OIHW", 1
    if layout == "NHWC":
        data, weight = data.transpose(0, 2, 3, 1).copy(), weight.transpose(2, 3, 1, 0).copy()
        expected, kernel, channel = expected.transpose(0, 2, 3, 1), "HWIO", 2
    if prepacked:
        weight = packed(weight, 2, channel, 4).astype("uint8")
    call = (
        "nn.bitserial_conv2d(%0, %1, channels=3, kernel_size=[3, 3], activation_bits=2, "
        f'weight_bits=2, strides=[2, 2], padding=[1, 1], pack_dtype="uint8", '
        f'out_dtype="int32", data_layout="{layout}", kernel_layout="{kernel}")'
    )
    check(call, (data, weight), expected)


WITHOUT = "nn.contrib_conv2d_winograd_without_weight_transform"
TILED = np.zeros((4, 4, 4, 3), "float32")


@pytest.mark.parametrize(
    ("call", "inputs", "message"),
    [
        ("nn.contrib_conv2d_winograd_weight_transform(%0, tile_size=9)", (KERNEL,), "between 2"),
        ("nn.contrib_conv2d_winograd_weight_transform(%0, tile_size=2)", (VOLUME,), "4 dim"),
        (
            "nn.contrib_conv2d_winograd_weight_transform(%0, tile_size=2)",
            (KERNEL[:, :, :2],),
            "the same size on all axes",
        ),
        (f"{WITHOUT}(%0, %1, tile_size=2)", (IMAGE, TILED), "kernel_size and channels are given"),
        (
            f"{WITHOUT}(%0, %1, tile_size=2, channels=4, kernel_size=[3, 3], strides=[2, 2])",
            (IMAGE, TILED),
            "strides is 1",
        ),
        (
            f"{WITHOUT}(%0, %1, tile_size=4, channels=4, kernel_size=[3, 3])",
            (IMAGE, TILED),
            r"the transformed weight has the shape \(6, 6, 4, 3\)",
        ),
        (
            "nn.contrib_conv2d_winograd_nnpack_weight_transform(%0, convolution_algorithm=1)",
            (KERNEL[:, :, :, :2],),
            r"\(out, in, 3, 3\)",
        ),
        (
            "nn.contrib_conv2d_gemm_without_weight_transform(%0, %1, channels=50, "
            'kernel_size=[3, 3], data_layout="NHWC")',
            (IMAGE, TILED),
            "the tiles have a matrix",
        ),
        ('nn.bitpack(%0, pack_type="uint8")', (IMAGE,), "data has integers"),
        ('nn.bitpack(%0, pack_type="int8")', (CODES,), "words are uint8"),
        ('nn.bitpack(%0, pack_axis=2, pack_type="uint8")', (CODES,), "a multiple of 8, found 5"),
        (
            'nn.bitserial_dense(%0, %0, units=7, pack_dtype="uint8")',
            (CODES[:, :, 0],),
            "the number of units of the weight is 3, not 7",
        ),
        (
            'nn.bitserial_conv2d(%0, %0, pack_dtype="uint8", kernel_layout="HWIO")',
            (CODES[None],),
            "the layouts are",
        ),
    ],
)
def test_what_transforms_do_not_take_is_refused(
    call: str, inputs: tuple[np.ndarray, ...], message: str
) -> None:
    with pytest.raises(RelaxpyError, match=message):
        relay.parse(program(call, inputs))
