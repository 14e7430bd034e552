"""Sums of products along rows are products of vectors, those of batches products of matrices."""

import numpy as np
import pytest

from relaxpy.ir.tir.prim_func import PrimFunc
from tests.exec.loops.support import check, load, source_of
from tests.exec.loops.written import kernel, run_row
from tests.ir.relax.texts import DTYPES
from tests.rows import sections

TEXT = """
def f(X: DTYPE[n, m], S: DTYPE[n], P: DTYPE[n, m]):
    Q = T.alloc_buffer((n, m), "LONG")
    for i, j in SS(n, m):
        Q[vi, vj] = X[vi, vj] * X[vi, vj]
    BETWEEN
    for i, j in SR(n, m):
        with T.init():
            S[vi] = T.Cast("LONG", START)
        S[vi] = S[vi] + Q[vi, vj]
    AFTER
"""
SHORT = {long: short for short, long in DTYPES.items()}


def product(
    between: str = "", after: str = "", dtype: str = "float32", start: str = "0", **changed: str
) -> PrimFunc:
    text = TEXT.replace("BETWEEN", between).replace("AFTER", after).replace("START", start)
    for old, new in changed.items():
        text = text.replace(old, new)
    return kernel(text.replace("DTYPE", SHORT[dtype]).replace("LONG", dtype))


def arguments(n: int = 5, m: int = 7, dtype: str = "float32") -> tuple[np.ndarray, ...]:
    x = np.random.default_rng(0).standard_normal((n, m)).astype(dtype)
    return x, np.zeros(n, dtype), np.zeros((n, m), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("start", ["0", "3"])
@pytest.mark.parametrize(("n", "m"), [(5, 7), (0, 3), (3, 0), (1, 1), (700, 1000)])
def test_a_sum_of_squares_is_a_product_of_vectors(n: int, m: int, start: str, dtype: str) -> None:
    func = product(start=start, dtype=dtype)
    assert "np.vecdot" in source_of(func)
    assert "multiply" not in source_of(func)
    x, s, p = arguments(n, m, dtype)
    load(func)(x, s, p)
    expected = np.square(x.astype(np.longdouble)).sum(1) + int(start)
    # Each of m products and sums is rounded once; all terms have one sign.
    np.testing.assert_allclose(s, expected, rtol=(m + 1) * np.finfo(dtype).eps)


READS = "for i, j in SS(n, m):\n        "


@pytest.mark.parametrize(
    "func",
    [
        product(after=f"{READS}P[vi, vj] = Q[vi, vj]"),
        product(between=f"{READS}X[vi, vj] = T.float32(2)"),
        product(between="Q[0, 0] = T.float32(1)"),
        product(dtype="float16"),
        product(dtype="int32"),
        product(**{"Q = T.alloc": "R = T.alloc", "Q[": "P["}),
        product(**{"Q[vi, vj] = X[vi, vj] * X[vi, vj]": "Q[vi, vj] = X[vj, vi] * X[vi, vj]"}),
    ],
    ids=["read twice", "overwritten", "written twice", "f16", "i32", "an argument", "a column"],
)
def test_products_with_another_use_are_stored(func: PrimFunc) -> None:
    assert "np.vecdot" not in source_of(func)
    kind = str(next(iter(func.buffer_map.values())).dtype)
    check(func, *arguments(6, 6, dtype=kind), rtol=1e-2)


IN_PLACE = """
def f(X: f32[n, m], W: f32[m], Y: f32[n, m]):
    for i, j in SS(n, m):
        Y[vi, vj] = X[vi, vj] - W[vj]
    for i, j in SS(n, m):
        Y[vi, vj] = VALUE
"""


@pytest.mark.parametrize(
    ("value", "temporaries"),
    [
        ("Y[vi, vj] * W[vj] + X[vi, vj]", 0),
        ("(Y[vi, vj] * W[vj] + W[vj]) * X[vi, vj]", 0),
        ("W[vj] * X[vi, vj] + Y[vi, vj]", 1),
        ("(Y[vi, vj] * W[vj] + X[vi, vj]) * Y[vi, vj]", 1),
        ("Y[vi, vj] * X[vi, vj] + Y[vi, vj] * W[vj]", 1),
        ("T.exp(Y[vi, vj]) * (X[vi, vj] + W[vj]) - W[vj]", 1),
        ("Y[vi, m - 1 - vj] * W[vj] + X[vi, vj]", 1),
    ],
)
def test_a_target_is_scratch_memory_after_its_last_read(value: str, temporaries: int) -> None:
    func = kernel(IN_PLACE.replace("VALUE", value))
    lines = source_of(func).split("def rows")[-1].splitlines()
    assert sum(line.strip().startswith("t") and " = " in line for line in lines) == temporaries
    x, w, y = np.random.default_rng(0).standard_normal((3, 6, 6), dtype=np.float32)
    check(func, x, w[0].copy(), y, rtol=1e-6)


BATCHES = sections("""
--- a vector times a matrix of each batch
def f(X: F[b, m], Y: F[b, n, m], Z: F[b, n]):
    for i, j, k in SSR(b, n, m):
        with T.init():
            Z[vi, vj] = F(START)
        Z[vi, vj] = Z[vi, vj] + FACTORS
# with F: f32 | f16 | i32
# with START: 0 | 2
# with FACTORS: X[vi, vk] * Y[vi, vj, vk] | Y[vi, vj, vk] * X[vi, vk]
#    | X[vi, vk] * Y[vi, vj, vk] | Y[vi, vj, vk] * X[vi, vk]
# args: b=2, n=3, m=4, X=range(8), Y=[k % 7 - 3 for k in range(24)]
# args: b=1, n=1, m=1, X=[3], Y=[-2]
# args: b=3, n=2, m=0
# args: b=2, n=1, m=5, X=range(10), Y=[k % 7 - 3 for k in range(10)]
# not source: rt.contract
""")


@pytest.mark.parametrize("name", BATCHES)
def test_products_of_batches(name: str) -> None:
    run_row(BATCHES[name])
