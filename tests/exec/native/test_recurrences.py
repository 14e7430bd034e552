"""Native loops in the order of the text keep what the last iteration stored in registers."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.test_contract import graph, numbers, run

BODIES = {
    "row": "C[i, j + 1] = C[i, j] * T.{d}(3) + A[i, j]",
    "grid": "C[i + 1, j + 1] = T.max(C[i, j + 1], C[i + 1, j]) + A[i, j]",
    "three": "C[i + 1, j + 1] = T.if_then_else(A[i, j] > C[i, j], A[i, j], C[i + 1, j] - C[i, j])",
    "sum": "C[i, 0] = C[i, 0] * T.{d}(2) - A[i, j]",
    "two": "C[i, j + 2] = C[i, j + 1] - C[i, j]",
    "down": "C[i, m - 1 - j] = C[i, m - j] + A[i, j]",
}


@pytest.mark.parametrize("name", list(BODIES))
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
def test_against_the_reference(name: str, dtype: str) -> None:
    text = f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "{dtype}")
    C = T.match_buffer(c, (n + 3, m + 2), "{dtype}")
    for i in range(n):
        for j in range(m):
            {BODIES[name].format(d=dtype)}
"""
    module = from_source(text)
    native, reference = (relaxpy.compile(module, target=t)["main"] for t in ("native", "reference"))
    for n, m in ((0, 3), (3, 0), (1, 1), (4, 5), (7, 9)):
        a = np.abs(numbers((n, m), dtype))
        c = np.abs(numbers((n + 3, m + 2), dtype, seed=1))
        wanted = c.copy()
        with np.errstate(all="ignore"):
            reference(a, wanted)
        native(a, c)
        np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("rows", ["3", "4"])
@pytest.mark.parametrize("first", ["0", "m"])
def test_what_is_known_outside_of_the_loop_is_used_after_it(rows: str, first: str) -> None:
    """Four rows leave no rest; the first iteration is one that the kernel knows from the start."""
    text = f"""
@T.prim_func
def main(a: T.handle, c: T.handle):
    m = T.int64()
    A = T.match_buffer(a, ({rows}, m), "float32")
    C = T.match_buffer(c, ({rows}, 2 * m + 1), "float32")
    for i in range({rows}):
        for j in range({first}, T.max(2 * m, 1)):
            C[i, j + 1] = C[i, j] + T.float32(2)
    for i in range({rows}):
        for j in range({first}, T.max(2 * m, 1)):
            if (j * 7) % 5 < i * 0 + 3:
                C[i, (j * 7 + m) % (2 * m + 1)] = C[i, j] - A[i, j % m]
"""
    module = from_source(text)
    native, reference = (relaxpy.compile(module, target=t)["main"] for t in ("native", "reference"))
    a, c = numbers((int(rows), 5), "float32"), numbers((int(rows), 11), "float32", seed=1)
    wanted = c.copy()
    reference(a, wanted)
    native(a, c)
    np.testing.assert_array_equal(c, wanted)


def test_cumulative_sums() -> None:
    for shape, axis in (((50,), 0), ((7, 33), 1), ((7, 33), 0), ((5, 6, 9), 1), ((4, 1), 1)):
        x = numbers(shape, "int32")
        text = graph(f'x: R.Tensor({shape}, "int32")', f"R.cumsum(x, {axis})")
        np.testing.assert_array_equal(run(text, x), np.cumsum(x, axis, dtype="int32"))


def test_triangles() -> None:
    text = """
@T.prim_func
def main(l: T.handle, b: T.handle, x: T.handle):
    n = T.int64()
    L = T.match_buffer(l, (n, n), "float64")
    B = T.match_buffer(b, (n,), "float64")
    X = T.match_buffer(x, (n,), "float64")
    for i in range(n):
        X[i] = B[i]
        for j in range(i):
            X[i] = X[i] - L[i, j] * X[j]
        X[i] = X[i] / L[i, i]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    for n in (1, 2, 30):
        lower = np.tril(numbers((n, n), "float64")) + 9 * np.eye(n)
        b, x = numbers((n,), "float64"), np.empty(n)
        main(lower, b, x)
        np.testing.assert_allclose(lower @ x, b, rtol=1e-12, atol=1e-12)


EXTREMES = """
@T.prim_func
def main(a: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "{dtype}")
    C = T.match_buffer(c, (n, m + 1), "{dtype}")
    for i in range(n):
        for j in range(m):
            C[i, j + 1] = {body}
"""
KINDS = {
    "T.max(C[i, j], A[i, j])": np.maximum,
    "T.min(A[i, j], C[i, j])": np.minimum,
    "T.max(C[i, j], A[i, m - 1 - j])": np.maximum,
    "T.max(C[i, j], C[i, j + 1])": np.maximum,
}


@pytest.mark.parametrize("body", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int8", "uint8", "int64"])
def test_prefixes_of_extremes(body: str, dtype: str) -> None:
    main = relaxpy.compile(from_source(EXTREMES.format(dtype=dtype, body=body)), target="native")
    for n, m in ((0, 3), (3, 0), (2, 1), (3, 15), (2, 64), (1, 97), (5, 200)):
        a, c = numbers((n, m), dtype), numbers((n, m + 1), dtype, seed=1)
        if a.dtype.kind == "f" and m > 60:
            a[0, 3:9], c[0, 5:7] = 0.0, -0.0
            a[-1, 50], a[-1, 53] = np.nan, np.inf
        other = {"C[i, j + 1])": c[:, 1:], "A[i, m - 1 - j])": a[:, ::-1]}
        operand = next((x for end, x in other.items() if body.endswith(end)), a)
        wanted = KINDS[body].accumulate(np.concatenate([c[:, :1], operand], 1), axis=1)
        main["main"](a, c)
        np.testing.assert_array_equal(c, wanted)


def test_signs_of_zeros_in_prefixes() -> None:
    text = EXTREMES.format(dtype="float32", body="T.max(C[i, j], A[i, j])")
    main = relaxpy.compile(from_source(text), target="native")["main"]
    a, c = np.full((1, 100), -0.0, "float32"), np.full((1, 101), -0.0, "float32")
    a[0, 40] = 0.0
    main(a, c)
    np.testing.assert_array_equal(np.signbit(c[0]), np.arange(101) <= 40)
