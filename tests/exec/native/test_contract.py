"""Contractions of programs run in register tiles of native code."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.guard_pages import guarded

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def numbers(shape: Sequence[int], dtype: str | np.dtype = "float32", seed: int = 0) -> np.ndarray:
    """Numbers of both signs before a page that must not be read."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape)
    if np.dtype(dtype).kind in "iu":
        values = np.round(values * 40)
    return guarded(values.astype(dtype), at_end=True)


def graph(args: str, body: str) -> str:
    return f"""
@I.ir_module
class Module:
    @R.function
    def main({args}):
        return {body}
"""


def run(text: str, *args: np.ndarray) -> np.ndarray:
    """The result of `main`, all of whose kernels are native."""
    executable = relaxpy.compile(from_source(text), target="native")
    assert all("native" in row.method for row in executable.report().rows), executable.report()
    result: np.ndarray = executable["main"](*args)
    return result


def close(found: np.ndarray, wanted: np.ndarray, size: np.ndarray, depth: int) -> None:
    """Compare sums of `depth` products, whose absolute values add up to `size`."""
    narrow = {"float16": 2.0**-11, "bfloat16": 2.0**-8}.get(found.dtype.name, 0.0)
    unit = 2.0**-53 if found.dtype == np.float64 else 2.0**-24
    error = abs(found.astype("float64") - wanted)
    assert (error <= (depth + 2) * unit * size + narrow * abs(wanted)).all()


def product(text: str, a: np.ndarray, b: np.ndarray, subscripts: str, depth: int) -> None:
    """Check that `main(a, b)` is the contraction of these subscripts."""
    wide = [x.astype("float64") for x in (a, b)]
    wanted = np.einsum(subscripts, *wide)
    found = run(text, a, b)
    assert found.shape == wanted.shape
    close(found, wanted, np.einsum(subscripts, *map(abs, wide)), depth)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", BFLOAT16])
def test_matrix_products(dtype: str | np.dtype) -> None:
    name = np.dtype(dtype).name
    text = graph(
        f'a: R.Tensor((9, 70), "{name}"), b: R.Tensor((70, 21), "{name}")', "R.matmul(a, b)"
    )
    product(text, numbers((9, 70), dtype), numbers((70, 21), dtype), "mk,kn->mn", 70)


@pytest.mark.parametrize(
    ("body", "a", "b", "subscripts"),
    [
        ("R.matmul(a, b)", (3, 9, 20), (3, 20, 33), "bmk,bkn->bmn"),
        ("R.matmul(a, b)", (3, 9, 20), (20, 33), "bmk,kn->bmn"),
        ("R.matmul(a, b)", (9, 20), (3, 20, 33), "mk,bkn->bmn"),
        ("R.matmul(a, b)", (50,), (50, 33), "k,kn->n"),
        ("R.matmul(a, b)", (33, 50), (50,), "mk,k->m"),
        ("R.matmul(a, b)", (1, 300), (300, 300), "mk,kn->mn"),
        ("R.einsum((a, b), 'bk,bkn->nb')", (5, 30), (5, 30, 9), "bk,bkn->nb"),
        ("R.linear(a, b)", (2, 5, 40), (33, 40), "bmk,nk->bmn"),
        ("R.linear(a, b)", (1, 40), (33, 40), "mk,nk->mn"),
        ("R.einsum((a, b), 'hki,ikj->hj')", (7, 5, 6), (6, 5, 20), "hki,ikj->hj"),
        ("R.einsum((a, b), 'bshd,bthd->bhst')", (2, 9, 3, 8), (2, 11, 3, 8), "bshd,bthd->bhst"),
    ],
)
def test_layouts(body: str, a: tuple[int, ...], b: tuple[int, ...], subscripts: str) -> None:
    factors, result = subscripts.split("->")
    extents = dict(zip(factors.split(",")[0], a, strict=True))
    depth = int(np.prod([extent for x, extent in extents.items() if x not in result]))
    text = graph(f'a: R.Tensor({a}, "float32"), b: R.Tensor({b}, "float32")', body)
    product(text, numbers(a), numbers(b), subscripts, depth)


def test_one_kernel_serves_all_sizes() -> None:
    args = 'a: R.Tensor(("m", "k"), "float32"), b: R.Tensor(("k", "n"), "float32")'
    executable = relaxpy.compile(from_source(graph(args, "R.matmul(a, b)")), target="native")
    assert all("native" in row.method for row in executable.report().rows)
    for m, k, n in ((1, 40, 30), (9, 70, 21), (3, 0, 5), (0, 4, 4), (130, 1100, 50)):
        a, b = numbers((m, k)), numbers((k, n))
        wide = a.astype("float64"), b.astype("float64")
        found = executable["main"](a, b)
        close(found, wide[0] @ wide[1], abs(wide[0]) @ abs(wide[1]), k)


def loops(order: str, initial: str) -> str:
    extents = {"i": 13, "j": 20, "k": 35}
    lines = [f"{'    ' * (n + 2)}for {x} in range({extents[x]}):" for n, x in enumerate(order)]
    nest = "\n".join(lines)
    return f"""
@I.ir_module
class Module:
    @T.prim_func
    def kernel(
        A: T.Buffer((13, 35), "float32"),
        B: T.Buffer((35, 20), "float32"),
        D: T.Buffer((20,), "float32"),
        C: T.Buffer((13, 20), "float32"),
    ):
        for i, j in T.grid(13, 20):
            C[i, j] = {initial}
{nest}
                    C[i, j] = C[i, j] + A[i, k] * B[k, j]

    @R.function
    def main(
        a: R.Tensor((13, 35), "float32"),
        b: R.Tensor((35, 20), "float32"),
        d: R.Tensor((20,), "float32"),
    ):
        cls = Module
        return R.call_tir(cls.kernel, (a, b, d), out_sinfo=R.Tensor((13, 20), "float32"))
"""


@pytest.mark.parametrize(
    ("order", "initial"),
    [*(("".join(p), "T.float32(0)") for p in permutations("ijk")), ("kij", "D[j]"), ("jik", "1.5")],
)
def test_loops_in_any_order(order: str, initial: str) -> None:
    a, b, d = numbers((13, 35)), numbers((35, 20)), numbers((20,))
    start = {"T.float32(0)": 0.0, "1.5": 1.5, "D[j]": d.astype("float64")}[initial]
    text = loops(order, "T.float32(1.5)" if initial == "1.5" else initial)
    wide = a.astype("float64"), b.astype("float64")
    size = abs(wide[0]) @ abs(wide[1]) + abs(start)
    close(run(text, a, b, d), start + wide[0] @ wide[1], size, 36)


def test_products_among_other_steps_of_a_kernel() -> None:
    """Two products in one loop nest, and a reduction of their rows, in blocks of rows."""
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def kernel(a: T.handle, b: T.handle, d: T.handle, c: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 35), "float32")
        B = T.match_buffer(b, (35, 20), "float32")
        D = T.match_buffer(d, (35, 20), "float32")
        C = T.match_buffer(c, (n,), "float32")
        X = T.alloc_buffer((n, 20), "float32")
        Y = T.alloc_buffer((n, 20), "float32")
        for i in range(n):
            for j in range(20):
                X[i, j] = T.float32(0)
                Y[i, j] = T.float32(0)
                for k in range(35):
                    X[i, j] = X[i, j] + A[i, k] * B[k, j]
                    Y[i, j] = Y[i, j] + A[i, k] * D[k, j]
            C[i] = T.float32(0)
            for j in range(20):
                C[i] = C[i] + T.max(X[i, j], Y[i, j])

    @R.function
    def main(
        a: R.Tensor(("n", 35), "float32"),
        b: R.Tensor((35, 20), "float32"),
        d: R.Tensor((35, 20), "float32"),
    ):
        n = T.int64()
        cls = Module
        return R.call_tir(cls.kernel, (a, b, d), out_sinfo=R.Tensor((n,), "float32"))
"""
    b, d = numbers((35, 20)), numbers((35, 20), seed=1)
    for n in (0, 1, 63, 131):
        a = numbers((n, 35))
        wide = [x.astype("float64") for x in (a, b, d)]
        wanted = np.maximum(wide[0] @ wide[1], wide[0] @ wide[2]).sum(1)
        size = (abs(wide[0]) @ (abs(wide[1]) + abs(wide[2]))).sum(1)
        close(run(text, a, b, d), wanted, size, 56)


def convolution(
    x: np.ndarray, weight: np.ndarray, *, stride: int, padding: int, dilation: int, groups: int
) -> np.ndarray:
    """The definition, window by window."""
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    channels, (out, _, height, width) = weight.shape[1], weight.shape
    rows = (x.shape[2] - dilation * (height - 1) - 1) // stride + 1
    columns = (x.shape[3] - dilation * (width - 1) - 1) // stride + 1
    result = np.zeros((x.shape[0], out, rows, columns))
    for o in range(out):
        group = o // (out // groups)
        part = x[:, group * channels : (group + 1) * channels]
        for i in range(height):
            for j in range(width):
                top, left = i * dilation, j * dilation
                window = part[:, :, top : top + rows * stride : stride]
                window = window[:, :, :rows, left : left + columns * stride : stride]
                window = window[:, :, :, :columns]
                result[:, o] += np.einsum("nchw,c->nhw", window, weight[o, :, i, j])
    return result


def test_a_sum_that_reads_its_own_target_is_not_a_product_of_matrices() -> None:
    text = loops("ijk", "A[i, j]").replace("C[i, j] + A[i, k]", "C[i, j] + C[i, k // 2]")
    a, b, d = (x * 0.1 for x in (numbers((13, 35)), numbers((35, 20)), numbers((20,))))
    found = [
        relaxpy.compile(from_source(text), target=target)["main"](a, b, d)
        for target in ("native", "reference")
    ]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize("columns", [37, 700])
def test_any_number_of_rows_read_along_the_sum(dtype: str, columns: int) -> None:
    """Few rows take another way than many, whatever follows the product."""
    wide = "int32" if dtype == "int8" else "float32" if dtype == "float16" else dtype
    args = ", ".join(
        f'{name}: R.Tensor({shape}, "{type_}")'
        for name, shape, type_ in (
            ("x", '("n", 523)', dtype),
            ("w", f"({columns}, 523)", dtype),
            ("b", f"({columns},)", wide),
        )
    )
    text = graph(args, f'R.maximum(R.linear(x, w, b, "{wide}"), R.const(3, "{wide}"))')
    main = relaxpy.compile(from_source(text), target="native")["main"]
    w, b = numbers((columns, 523), dtype, 1), numbers((columns,), wide, 2)
    for rows in (*range(11), 130):
        x = numbers((rows, 523), dtype, 3)
        wanted = np.maximum(x.astype("f8") @ w.T.astype("f8") + b, 3)
        size = abs(x.astype("f8")) @ abs(w.T.astype("f8")) + abs(b)
        close(main(x, w, b), wanted, size, 523)


def test_memory_may_have_where_each_sum_begins() -> None:
    kernel = from_source("""
@T.prim_func
def main(
    X: T.Buffer((64, 128), "float32"), start: T.Buffer((40,), "int64"),
    W: T.Buffer((32, 40), "float32"), Y: T.Buffer((64, 40), "float32"),
):
    for i, j, k in T.grid(64, 40, 32):
        with T.block("windows"):
            r, c, n = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[r, c] = T.float32(0)
            Y[r, c] = Y[r, c] + X[r, start[c] + T.Cast("int64", n)] * W[n, c]
""")
    executable = relaxpy.compile(kernel, target="native")
    assert all("native" in row.method for row in executable.report().rows), executable.report()
    x, w, y = numbers((64, 128)), numbers((32, 40)), np.zeros((64, 40), "float32")
    start = np.random.default_rng(0).integers(0, 97, 40)
    executable["main"](x, start, w, y)
    windows = x.astype("float64")[:, start + np.arange(32)[:, None]]
    sizes = np.einsum("rnc,nc->rc", abs(windows), abs(w))
    close(y, np.einsum("rnc,nc->rc", windows, w), sizes, 32)
