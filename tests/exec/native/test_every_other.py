"""Native loads of elements at short distances, from vectors, read nothing after the last one."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import convolution, graph, numbers, run

DTYPES = ["float32", "float64", "float16", ml_dtypes.bfloat16, "int8", "uint16", "int64", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 31, 64, 131])
def test_slices(dtype: str | type, n: int) -> None:
    name = np.dtype(dtype).name
    x = numbers((3, n), dtype)
    text = graph(
        f'x: R.Tensor((3, {n}), "{name}")', f"R.strided_slice(x, [1], [0], [{n}], [2], False)"
    )
    np.testing.assert_array_equal(run(text, x), x[:, ::2])


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [3, 5, 8, 9])
def test_steps(dtype: str | type, step: int) -> None:
    name = np.dtype(dtype).name
    for n in (1, step, 6 * step + 1, 17 * step - 1, 16 * step + 1, 129 * step):
        x = numbers((n,), dtype)
        text = graph(
            f'x: R.Tensor(({n},), "{name}")', f"R.strided_slice(x, [0], [0], [{n}], [{step}])"
        )
        np.testing.assert_array_equal(run(text, x), x[::step])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("step", [2, 3, 8, 9])
def test_stores(dtype: str | type, step: int) -> None:
    name = np.dtype(dtype).name
    text = f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "{name}")
    C = T.match_buffer(c, (n * {step} + 5,), "{name}")
    for i in range(n):
        C[{step} * i + 3] = A[i]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    for n in (0, 1, 2, 15, 16, 33, 150):
        x, found = numbers((n,), dtype), numbers((n * step + 5,), dtype)
        wanted = found.copy()
        wanted[3 : n * step + 3 : step] = x
        main(x, found)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("columns", [1, 2, 3])
def test_columns_side_by_side(columns: int) -> None:
    x, y = numbers((100, columns)), numbers((100, 1))
    args = f'x: R.Tensor({x.shape}, "float32"), y: R.Tensor({y.shape}, "float32")'
    found = run(graph(args, "R.concat((x, y), axis=1)"), x, y)
    np.testing.assert_array_equal(found, np.concatenate([x, y], 1))


@pytest.mark.parametrize("channels", [3, 4])
def test_images_with_channels_first(channels: int) -> None:
    for dtype in ("float32", "uint8"):
        x = numbers((2, 7, 19, channels), dtype)
        args = f'x: R.Tensor((2, 7, 19, {channels}), "{dtype}")'
        found = run(graph(args, "R.permute_dims(x, [0, 3, 1, 2])"), x)
        np.testing.assert_array_equal(found, x.transpose(0, 3, 1, 2))
    a, b = numbers((9, 50 * channels)), numbers((50 * channels, 21))
    args = f'a: R.Tensor({a.shape}, "float32"), b: R.Tensor({b.shape}, "float32")'
    some = [
        f"R.strided_slice({m}, [{k}], [0], [{50 * channels}], [{channels}])"
        for m, k in ("a1", "b0")
    ]
    found = run(graph(args, f"R.matmul({some[0]}, {some[1]})"), a, b)
    np.testing.assert_allclose(found, a[:, ::channels] @ b[::channels], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [7, 12, 35])
def test_pools_and_depthwise_convolutions(size: int) -> None:
    x, w = numbers((1, 5, size, size)), numbers((5, 1, 3, 3))
    args = f'x: R.Tensor({x.shape}, "float32")'
    found = run(graph(args, "R.nn.max_pool2d(x, (2, 2), (2, 2))"), x)
    half = size // 2
    wanted = x[:, :, : 2 * half, : 2 * half].reshape(1, 5, half, 2, half, 2).max((3, 5))
    np.testing.assert_array_equal(found, wanted)
    both = f'{args}, w: R.Tensor({w.shape}, "float32")'
    found = run(graph(both, "R.nn.conv2d(x, w, strides=2, padding=1, groups=5)"), x, w)
    how = {"stride": 2, "padding": 1, "dilation": 1, "groups": 5}
    wanted = convolution(x.astype("float64"), w.astype("float64"), **how)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
