"""Native loads whose indices are divided by numbers read each element once, and nothing outside."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers, run

DTYPES: list[str | type] = ["float32", "float64", ml_dtypes.bfloat16, "int8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_repeated_elements(dtype: str | type) -> None:
    name = np.dtype(dtype).name
    for repeats, n in ((2, 131), (3, 40), (4, 37), (16, 5)):
        x = numbers((3, n), np.dtype(dtype))
        text = graph(f'x: R.Tensor((3, {n}), "{name}")', f"R.repeat(x, {repeats}, 1)")
        np.testing.assert_array_equal(run(text, x), np.repeat(x, repeats, 1))


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize(
    "index",
    [
        "(i + 3) // 4",
        "(i + 16) // 32 + i // 32",
        "i % 4",
        "i % 32 // 8 * 2 + i // 64",
        "i // 32 * 32 + i % 32",
        "3 * i // 2",
        "(i + 5) // 3",
        "i // 2 * 9",
        "i // 4 + i % 2",
        "i - i // 2",
    ],
)
def test_divisions(dtype: str, index: str) -> None:
    for start in (0, 64):
        text = f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (m,), "{dtype}")
    C = T.match_buffer(c, (n,), "{dtype}")
    for i in range({start}, n):
        C[i] = A[{index}]
"""
        main = relaxpy.compile(from_source(text), target="native")["main"]
        for n in (0, 15, 64, 131):
            i = np.arange(start, max(n, start))
            places = eval(index, {"i": i})
            x, found = numbers((int(places.max(initial=0)) + 1,), dtype), numbers((n,), dtype)
            wanted = found.copy()
            wanted[start:] = x[places]
            main(x, found)
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("index", ["i // 4", "i % 4 + i // 8", "i % 64 // 2"])
def test_divisions_that_are_inside(index: str) -> None:
    i = np.arange(240)
    places = eval(index, {"i": i})
    size = int(places.max()) + 1
    text = f"""
@T.prim_func
def main(A: T.Buffer(({size},), "float32"), B: T.Buffer((240,), "float32"),
         C: T.Buffer((240,), "float32"), D: T.Buffer((1,), "float32")):
    for i in range(240):
        C[i] = A[{index}] + B[i]
    D[0] = T.float32(0)
    for i in range(237):
        D[0] = D[0] + A[{index}] * B[i]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    x, y = numbers((size,)), numbers((240,))
    c, d = numbers((240,)), numbers((1,))
    main(x, y, c, d)
    np.testing.assert_array_equal(c, x[places] + y)
    np.testing.assert_allclose(d[0], (x[places] * y)[:237].sum(dtype="float64"), rtol=1e-4)


def test_repeated_rows_of_unknown_length() -> None:
    text = graph('x: R.Tensor(("m", "n"), "float32")', "R.repeat(x, 4, 1)")
    for shape in ((0, 3), (2, 0), (3, 7), (2, 64), (5, 101)):
        x = numbers(shape)
        np.testing.assert_array_equal(run(text, x), np.repeat(x, 4, 1))


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_sizes_of_another_datatype(kind: str) -> None:
    text = f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.{kind}()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n, 4), "float32")
    for i in range(T.int64(4) * T.Cast("int64", n)):
        C[i // T.int64(4), i % T.int64(4)] = A[i // T.int64(4)]
    for i in range(T.int32(4) * T.Cast("int32", n)):
        C[i // 4, i % 4] = C[i // 4, i % 4] + A[T.Cast("int64", i) // T.int64(4)]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    for n in (0, 1, 5, 64, 131):
        x, found = numbers((n,)), numbers((n, 4))
        main(x, found)
        np.testing.assert_array_equal(found, np.repeat(2 * x, 4).reshape(n, 4))


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("shape", ['"c", 4, 6', '"c", "h", "w"'])
def test_means_of_windows_in_another_layout(dtype: str, shape: str) -> None:
    text = graph(
        f'x: R.Tensor((1, {shape}), "{dtype}")',
        'R.nn.adaptive_avg_pool2d(x, (2, 3), layout="NCHW", out_layout="HWNC")',
    )
    main = relaxpy.compile(from_source(text), target="native")["main"]
    for channels in (1, 3, 4, 7, 11, 40):
        x = (numbers((1, channels, 4, 6)) * 20).astype(dtype)
        means = x.reshape(channels, 2, 2, 3, 2).mean((2, 4), dtype="float64")
        expected = means.transpose(1, 2, 0)[:, :, None]
        if "int" in dtype:
            expected = np.trunc(expected)
        np.testing.assert_allclose(main(x), expected.astype(dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.each_choice
@pytest.mark.parametrize("factor", [1, 2, 3])
@pytest.mark.parametrize(
    ("mode", "rounding"),
    [
        ("asymmetric", "floor"),
        ("half_pixel", "round"),
        ("half_pixel", "round_prefer_floor"),
        ("pytorch_half_pixel", "round_prefer_ceil"),
        ("tf_half_pixel_for_nn", "floor"),
    ],
)
def test_images_of_repeated_elements(mode: str, rounding: str, factor: int) -> None:
    attrs = f'method="nearest_neighbor", coordinate_transformation_mode="{mode}", '
    attrs += f'rounding_method="{rounding}"'
    for dtype, layout in (("float32", "NCHW"), ("int8", "NHWC")):
        for sizes in ((7, 33), (1, 1), (0, 4), ("h", "w")):
            spatial = [n if isinstance(n, int) else 9 for n in sizes]
            names = [repr(n).replace("'", '"') for n in sizes]
            shape = [2, 3, *spatial] if layout == "NCHW" else [2, *spatial, 3]
            written = [2, 3, *names] if layout == "NCHW" else [2, *names, 3]
            new = ", ".join(f"{n} * {factor}" for n in sizes)
            text = graph(
                f'x: R.Tensor(({", ".join(map(str, written))}), "{dtype}")',
                f'R.image.resize2d(x, R.shape([{new}]), layout="{layout}", {attrs})',
            )
            ex = relaxpy.compile(from_source(text), target="native")
            x, first = numbers(shape, dtype), layout.index("H")
            expected = np.repeat(np.repeat(x, factor, first), factor, first + 1)
            np.testing.assert_array_equal(ex["main"](x), expected)


def test_loops_of_another_datatype() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((5,), "int32"), C: T.Buffer((4, 2, 8), "int32")):
    for i, j, k in T.grid(4, 2, 2):
        for m in range(2):
            C[i, j, k * 2 + m] = A[1 + k]
    for i, j, k, m in T.grid(T.int64(4), T.int64(2), T.int64(2), T.int64(2)):
        C[i, j, T.int64(4) + k * T.int64(2) + m] = A[T.int64(3) + k]
"""
    x, found = numbers((5,), "int32"), numbers((4, 2, 8), "int32")
    relaxpy.compile(from_source(text), target="native")["main"](x, found)
    np.testing.assert_array_equal(found, np.broadcast_to(np.repeat(x[1:], 2), (4, 2, 8)))
