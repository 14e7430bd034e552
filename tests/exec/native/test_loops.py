"""Loops that native code runs in lanes, in registers or in an order of its own, and their results.

Rows are those of `tests.exec.loops.written`: the reference evaluator says what is right.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.llvm.writer import Value
from relaxpy.exec.native.loops import axes, run_loops
from relaxpy.exec.native.machine_code import machine
from relaxpy.exec.native.trees.short_rows import short_rows
from relaxpy.script import from_source
from tests.exec.loops.written import run_row
from tests.exec.native.expressions import run_expression
from tests.exec.native.test_contract import graph, numbers
from tests.guard_pages import guarded
from tests.rows import sections, table

#: Rows of few elements, several of which are in the lanes of a vector, and are written together.
SHORT_ROWS = sections("""
--- elements of rows
def f(A: f32[n, 7], W: f32[7], B: f32[n, 7]):
    for i, k in T.grid(n, 7):
        B[i, k] = A[i, k] / (f32(1) + T.abs(W[k]))
# args: n=(0, 1, 2, 15, 16, 17, 40, 333)
--- the largest element of each row, the row scaled by it and reversed, and its sum
def f(A: F[n, N], W: F[N], B: F[n, N], C: F[n]):
    M = T.alloc_buffer((n,), "F")
    S = T.alloc_buffer((n, N), "F")
    for i in range(n):
        M[i] = A[i, 0]
    for i, k in T.grid(n, N):
        M[i] = T.max(M[i], A[i, k])
    for i, k in T.grid(n, N):
        S[i, k] = A[i, k] * M[i] + W[k]
    for i, k in T.grid(n, N):
        C[i] = C[i] + S[i, k]
    for i, k in T.grid(n, N):
        B[i, N - 1 - k] = S[i, k] - B[i, N - 1 - k]
# with F N E: f32 2 1e-5 | f32 3 1e-5 | f32 6 1e-5 | f32 7 1e-5 | f32 8 1e-5 | f64 3 1e-13
#    | f64 8 1e-13 | f16 3 2e-2 | i8 4 0 | u16 5 0 | i64 2 0
# args: n=(0, 1, 15, 16, 17, 33)
# args: n=40, A=odd(40, N, dtype="F")
# rtol: E
--- buffers of which a block has some rows
def f(A: f32[2, 300, N], B: f32[300, N], C: f32[300, 2]):
    S = T.alloc_buffer((2, 300, N), "float32")
    M = T.alloc_buffer((2, 300), "float32")
    for i, n, k in T.grid(300, 2, N):
        S[n, i, k] = T.exp(A[n, i, k]) * B[i, k]
    for i, n in T.grid(300, 2):
        M[n, i] = f32(0)
    for i, n, k in T.grid(300, 2, N):
        M[n, i] = M[n, i] + S[n, i, k]
    for i, n in T.grid(300, 2):
        C[i, n] = M[n, i] / (T.abs(M[1 - n, i]) + f32(1))
# with N: 2 | 3
# rtol: 1e-4
--- statements of single elements
def f(A: f32[n, 3], B: f32[n, 3], C: f32[n, 3]):
    for i in range(n):
        C[i, 0] = A[i, 1] * B[i, 2] - A[i, 2] * B[i, 1]
        C[i, 1] = A[i, 2] * B[i, 0] - A[i, 0] * B[i, 2]
        C[i, 2] = A[i, 0] * B[i, 1] - A[i, 1] * B[i, 0]
# args: n=(0, 1, 2, 15, 16, 17, 40, 333)
""")
SHORT_EXPRESSIONS = table("""
x: u8[9, 33, 3], m: f32[3] <- R.divide(R.subtract(R.astype(x, "float32"), m), m) => (x - m) / m
    : m=np.float32([3, 5, 7]), tol=1e-6
x: F[8, 3, 5, 7] <- R.permute_dims(x, P) => x.transpose(P)
    : F="f32 u8 f64", P="(0, 2, 3, 1); (0, 3, 1, 2); (0, 3, 2, 1)"
x: F[5, 2, 40, 13] <- R.permute_dims(x, P) => x.transpose(P)
    : F="f32 u8 f64", P="(0, 2, 3, 1); (0, 3, 1, 2); (0, 3, 2, 1)"
x: f32[m, 1, N], y: f32[1, n, N] <- R.sqrt(R.sum(R.square(R.subtract(x, y)), axis=[2]))
    => np.sqrt(((x - y) ** 2).sum(2))
    : N="2 3 4 5 7", m=(1, 7, 40, 7, 7, 40, 1, 7), n=(0, 1, 2, 15, 16, 17, 40, 333), tol=1e-6
x: bf16[50, 3] <- R.add(R.sum(x, -1, True), x) => x.sum(1, keepdims=True) + x : tol=2**-7
x: f32[n, K], w: f32[K, N] <- R.matmul(x, w) => x @ w
    : K="3 4 2 5", N="3 4 5 3", n=(0, 1, 2, 15, 16, 17, 40, 333), tol=1e-5
""")
LONG_ROWS = sections("""
--- what neighbouring rows write is not kept in registers
def f(A: f32[40, 3], B: f32[40, 3]):
    S = T.alloc_buffer((40, 3), "float32")
    for i, k in T.grid(40, 3):
        S[i, k] = T.exp(A[i, k])
    for i, k in T.grid(40, 3):
        B[i, k] = S[39 - i, k] + S[i, 2 - k]
--- rows that fill a vector
def f(A: f32[n, 8], W: f32[8], B: f32[n, 8]):
    for i, k in T.grid(n, 8):
        B[i, k] = A[i, k] / (f32(1) + T.abs(W[k]))
# args: n=(0, 1, 2, 15, 16, 17, 40, 333)
""")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the trees that are emitted have short rows."""
    results: list[bool] = []

    def counted(tree: object, program: object) -> object:
        rows = short_rows(tree, program)  # type: ignore[arg-type]
        results.append(rows is not None)
        return rows

    for module in ("trees.strategy", "loops.tree_loops"):
        monkeypatch.setattr(f"relaxpy.exec.native.{module}.short_rows", counted)
    return results


@pytest.mark.parametrize("name", SHORT_ROWS)
def test_short_rows(name: str, found: list[bool]) -> None:
    run_row(SHORT_ROWS[name])
    assert any(found)


@pytest.mark.parametrize("row", SHORT_EXPRESSIONS, ids=lambda row: row[1])
def test_short_rows_of_graphs(row: list[str], found: list[bool]) -> None:
    run_expression(*row)
    assert any(found)


@pytest.mark.parametrize("name", LONG_ROWS)
def test_the_elements_of_a_long_row_are_lanes(name: str, found: list[bool]) -> None:
    run_row(LONG_ROWS[name])
    assert not any(found)


@pytest.mark.parametrize("columns", [3, 4])
def test_a_result_does_not_depend_on_the_other_rows(columns: int, found: list[bool]) -> None:
    text = graph(f'x: R.Tensor(("n", {columns}), "float32")', "R.nn.softmax(x)")
    main = relaxpy.compile(from_source(text), target="native")["main"]
    x = numbers((1000, columns)) * np.float32(5)
    x[7] = np.nan, *([0] * (columns - 1))
    x[8], x[9] = -np.inf, np.inf
    whole = main(x)
    assert any(found)
    with np.errstate(invalid="ignore"):
        shifted = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(whole, shifted / shifted.sum(1, keepdims=True), rtol=1e-6)
    for count in (0, 1, 2, 15, 16, 17, 40, 333):
        np.testing.assert_array_equal(main(x[:count]), whole[:count])


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are compiled for vectors of 256 bits."""
    narrow = machine.narrow()
    features = (narrow.triple, narrow.cpu, narrow.features)
    monkeypatch.setattr(machine, "_stored_processor", lambda: None)
    monkeypatch.setattr(machine, "_processor", lambda _: features)
    machine.host.cache_clear()
    yield
    machine.host.cache_clear()


@pytest.mark.usefixtures("avx2")
def test_a_known_number_of_rows_that_remain() -> None:
    """LLVM 22 loaded elements beyond the last row, where it knew that one row remains."""
    run_row("""
def f(A: f64[17, N], B: f64[17, N], C: f64[18, N], D: f64[18, N], E: f64[33, N], F: f64[33, N]):
    for i, k in T.grid(17, N - 1):
        B[i, k] = A[i, k + 1]
    for i, k in T.grid(18, N - 1):
        D[i, k] = C[i, k + 1]
    for i, k in T.grid(33, N - 1):
        F[i, k] = E[i, k + 1]
# with N: 2 | 3 | 5 | 7 | 8
""")


@pytest.mark.usefixtures("avx2")
def test_a_condition_that_all_lanes_share() -> None:
    run_row("""
def f(A: f32[N, M], B: f32[N, M], C: f32[N], D: f32[N, M]):
    for i, j in T.grid(N, M):
        if C[i] > f32(0):
            B[i, j] = A[i, j] * f32(2)
    for i, j in T.grid(N, M):
        if C[i] > f32(1):
            D[i, j] = D[i, j] + A[i, j]
# with N M: 3 64 | 5 7 | 2 33
""")


LANES = sections("""
--- rows in reverse
def f(A: f32[3, N], B: f32[3, N], C: f32[3, N]):
    for i, j in T.grid(3, N):
        B[i, j] = A[i, N - 1 - j] * f32(2)
    for i, j in T.grid(3, N):
        if j % 3 != 1:
            C[i, N - 1 - j] = A[i, j]
# with N: 1 | 7 | 16 | 33 | 100
--- stores at indices of rows stay in the order of the rows
def f(n: T.int64, A: f32[n, 40], B: f32[9, 40], C: f32[9, 40], I: i64[n]):
    for i, j in T.grid(n, 40):
        B[I[i], j] = A[i, j]
    for i, j in T.grid(n, 40):
        C[I[i], j] = C[I[i], j] * f32(0.5) + B[I[i], j]
    for i, j in T.grid(n - 1, 40):
        A[i + 1, j] = A[i + 1, j] + A[i, j]
# args: n=1, I=[4]
# args: n=2, I=[8, 8]
# args: n=30, I=[k * k % 9 for k in range(30)]
# args: n=30, I=[k % 10 for k in range(30)] -> index 9 is outside dimension 0 of buffer B
--- floats as integers
def f(X: F[100], A: i8[100], B: i16[100], C: i32[100], D: i64[100],
      E: u8[100], G: u16[100], H: u32[100], I: u64[100]):
    for i in range(100):
        A[i] = i8(X[i])
        B[i] = i16(X[i])
        C[i] = i32(X[i])
        D[i] = i64(X[i])
        E[i] = u8(X[i])
        G[i] = u16(X[i])
        H[i] = u32(X[i])
        I[i] = u64(X[i])
# with F L: f16 float16 | f32 float32 | f64 float64
# args: X=np.linspace(0, 127.99, 100).astype("L")
--- a search in more positions than the result without any
def f(X: f32[40, n], Y: i64[40]):
    for i in range(40):
        Y[i] = i64(5)
        for k in range(n):
            Y[i] = T.min(Y[i], T.Select(X[i, k] > f32(0), k, i64(5)))
# args: n=100, X=np.float32(np.arange(4000) % 100 == 7).reshape(40, 100)
--- nothing is stored after the last element, where only one lane is active
def f(A: F[4, 80], C: G[4, 80]):
    for i, k in T.grid(4, N):
        C[i, k + 3] = G(A[i, k + 3])
    for i, k in T.grid(4, 8):
        if k < 1:
            C[i, k + 71] = G(A[i, k])
# with F G: i32 i8 | i32 u16 | i64 i32 | i64 i16 | f32 u8 | f64 i16 | f32 bf16 | bool i8
# with N: 1 | 9 | 17 | 33 | 65
# args: A=[k % 90 for k in range(320)]
--- sums of few rows
def f(A: F[9, N], I: i64[4, 3], O: F[4, N]):
    for i, j in T.grid(4, N):
        O[i, j] = F(0)
    for i, k, j in T.grid(4, 3, N):
        O[i, j] = O[i, j] + A[I[i, k], j]
# with N: 1 | 15 | 63 | 64 | 65 | 130
# with F: f32 | i64
# args: I=[0, 5, 1, 6, 2, 7, 3, 8, 4, 0, 5, 1]
--- sums of few rows of any length
def f(A: F[9, m], I: i64[4, 3], O: F[4, m]):
    for i, j in T.grid(4, m):
        O[i, j] = F(0)
    for i, k, j in T.grid(4, 3, m):
        O[i, j] = O[i, j] + A[I[i, k], j]
# with F: f32 | i64
# args: m=(0, 1, 79, 129, 200), I=[0, 5, 1, 6, 2, 7, 3, 8, 4, 0, 5, 1]
--- sparse rows fill gathers of vectors, or leave a rest of each size
def f(P: i32[17], I: i32[440], V: F[440], X: F[50], O: F[16]):
    for i in range(16):
        O[i] = F(0)
        for j in range(P[i], P[i + 1]):
            O[i] = O[i] + V[j] * X[I[j]]
# with F: f32 | f64 | i8
# args: P=[0, 0, 1, 3, 10, 18, 27, 42, 58, 75, 106, 138, 171, 211, 275, 340, 440],
#    I=[k * 7 % 50 for k in range(440)]
# rtol: 1e-4
--- tables of bytes
def f(A: u8[256], I: u8[n], O: u8[n]):
    for i in range(n):
        O[i] = A[T.Cast("int32", I[i])]
# args: n=(1, 15, 16, 17, 100, 1000), A=[k * 5 % 256 for k in range(256)]
--- neighbouring axes are one axis of sums, and those that are summed are one too
def f(X: F[I, K, N, M], Y: F[K, M], S: F[I, N, M], R: F[I, K], A: F[()], E: F[I, N, M]):
    for i, k, n, m in SSRR(I, K, N, M):
        with T.init():
            R[i, k] = F(0)
        R[i, k] = R[i, k] + X[i, k, n, m]
    for i, n, m, k in SSSR(I, N, M, K):
        with T.init():
            S[i, n, m] = F(0)
        S[i, n, m] = S[i, n, m] + X[i, k, n, m]
    for i, k, n, m in RRRR(I, K, N, M):
        with T.init():
            A[()] = F(0)
        A[()] = A[()] + X[i, k, n, m]
    for i, n, m, k in SSSR(I, N, M, K):
        with T.init():
            E[i, n, m] = F(1)
        E[i, n, m] = T.min(E[i, n, m], X[i, k, n, m])
    for k, m, i, n in SSRR(K, M, I, N):
        with T.init():
            Y[k, m] = F(1)
        Y[k, m] = T.max(Y[k, m], X[i, k, n, m])
# with I K N M: 2 3 5 4 | 3 50 20 4 | 1 7 33 17 | 4 1 1 9
# with F: f32 | f64 | i64
# rtol: 1e-3
--- axes of any length are one axis of sums
def f(X: f32[i, 3, n, m], S: f32[i, n, m]):
    for a, b, c, k in SSSR(i, n, m, 3):
        with T.init():
            S[a, b, c] = f32(0)
        S[a, b, c] = S[a, b, c] + X[a, k, b, c]
# args: i=(0, 1, 5), n=(0, 1, 7), m=(0, 3, 40)
# not tree: < m,
--- axes of any length that are summed are one
def f(X: f32[i, 3, n, m], R: f32[i, 3]):
    for a, k, b, c in SSRR(i, 3, n, m):
        with T.init():
            R[a, k] = f32(0)
        R[a, k] = R[a, k] + X[a, k, b, c]
# args: i=(0, 1, 5), n=(0, 1, 7), m=(0, 3, 40)
# rtol: 1e-4
# not tree: < m:
--- sums of few columns, in registers or in memory
def f(X: F[M, N], S: F[N], L: F[N]):
    for n, m in SR(N, M):
        with T.init():
            S[n] = F(0)
        S[n] = S[n] + X[m, n]
    for n, m in SR(N, M):
        with T.init():
            L[n] = X[0, n]
        L[n] = T.max(L[n], X[m, n])
# with M: 1 | 17 | 100
# with N: 1 | 7 | 8 | 15 | 16 | 17 | 31 | 32 | 33 | 47 | 48 | 64 | 65
# with F: f32 | f64 | i16
# rtol: 1e-3
--- axes of sums are one only where they are neighbouring dimensions of all arrays
def f(X: f32[5, 6, 4], Q: f32[6, 4], P: f32[6, 8], O: f32[6]):
    for n, m, i in SSR(6, 4, 5):
        with T.init():
            Q[n, m] = f32(0)
        Q[n, m] = Q[n, m] + X[i, n, m]
    for n, i, m in SRR(6, 5, 4):
        with T.init():
            O[n] = f32(0)
        O[n] = O[n] + X[i, n, m] * P[n, m]
# tree: each n < T.int64(24), over i < 5
# tree: over i < 5, m < 4
--- a table between two steps is computed before them, and these are one loop
def f(A: f32[N, 40], Z: u8[40], B: f32[N, 40]):
    twice = T.alloc_buffer((N, 40), "float32")
    shift = T.alloc_buffer((40,), "float32")
    wide = T.alloc_buffer((40,), "float32")
    for i, j in T.grid(N, 40):
        twice[i, j] = A[i, j] * f32(2)
    for j in range(40):
        shift[j] = f32(Z[j])
    for j in range(40):
        wide[j] = shift[39 - j] + f32(1)
    for i, j in T.grid(N, 40):
        B[i, j] = twice[i, j] + wide[j]
# with N: 2 | 7 | 300
# tree: in registers: twice
--- a table stays after what it reads, and before what stores where it reads
def f(A: f32[30, 40], C: f32[40], B: f32[30, 40], D: f32[30, 40]):
    first = T.alloc_buffer((40,), "float32")
    last = T.alloc_buffer((40,), "float32")
    for i, j in T.grid(30, 40):
        B[i, j] = A[i, j] + C[j]
    for j in range(40):
        first[j] = B[29, j] * f32(3)
    for j in range(40):
        C[j] = first[j]
    for j in range(40):
        last[j] = C[j] + A[0, j]
    for i, j in T.grid(30, 40):
        A[i, j] = B[i, j] * last[39 - j]
    for i, j in T.grid(30, 40):
        D[i, j] = A[i, j] + C[39 - j]
--- a table that may fail keeps its place among others that may
def f(n: T.int64, A: f32[n, 40], I: i64[40], J: i64[40], B: f32[n, 40]):
    twice = T.alloc_buffer((n, 40), "float32")
    found = T.alloc_buffer((40,), "float32")
    for i, j in T.grid(n, 40):
        twice[i, j] = A[I[j], j]
    for j in range(40):
        found[j] = A[0, J[j]]
    for i, j in T.grid(n, 40):
        B[i, j] = twice[i, j] + found[j]
# args: n=3, I=[1] * 40, J=range(40)
# args: n=3, I=[3] * 40, J=[40] * 40 -> index 3 is outside dimension 0
# args: n=3, I=[1] * 40, J=[40] * 40 -> index 40 is outside dimension 1
--- functions of three columns
def f(P: f32[40, 3], A: f32[40, 3]):
    for i, d in T.grid(40, 3):
        A[i, d] = f32(0)
        for j in range(40):
            A[i, d] = A[i, d] + (P[j, d] - P[i, d]) * T.exp(P[j, 0] * P[i, 1])
# rtol: 1e-4
--- clamped indices are gathered
def f(A: f32[7], P: K[n], Y: f32[n]):
    for i in range(n):
        Y[i] = A[T.max(T.min(P[i], K(6)), K(0))]
# with K: i32 | i64
# args: n=101, P=range(-50, 51)
# args: n=15, P=range(-5, 10)
# args: n=0
# tree: each lo <= i < hi:
--- indices that are clamped at one end, or too far
def f(A: f32[7], P: K[n], Y: f32[n]):
    for i in range(n):
        Y[i] = A[INDEX]
# with K: i32 | i64
# with INDEX: T.min(P[i], K(6)) | T.max(T.min(P[i], K(7)), K(0))
# args: n=101, P=range(-50, 51) -> outside
--- elements of the transposed array, of the triangle above, and some of an inner part
def f(A: f32[40, 40], C: f32[40, 40]):
    for i, j in T.grid(40, 40):
        C[i, j] = C[i, j] + A[j, i]
    for i, j in T.grid(40, 40):
        if i < j:
            C[i, j] = C[j, i]
    for i, j in T.grid(37, 21):
        if (i + j) % 3 == 0:
            C[i, j] = A[j + 1, i + 2] * f32(2)
--- iterations that store what others read are in the order of the text
def f(A: f32[N, 42], W: f32[3, 42]):
    for i, j in T.grid(N - 2, 40):
        A[i, j] = (A[i, j] * W[0, j] + A[i + 1, j] * W[1, j] + A[i + 2, j] * W[2, j]
            + A[i, j + 1] * W[0, j] + A[i + 1, j + 1] * W[1, j] + A[i + 2, j + 1] * W[2, j]
            + A[i, j + 2] * W[0, j] + A[i + 1, j + 2] * W[1, j] + A[i + 2, j + 2] * W[2, j])
# with N: 11
# rtol: 1e-4
--- iterations that store what others of an unknown number read are in the order of the text
def f(A: f32[m, 42], W: f32[3, 42]):
    for i, j in T.grid(m - 2, 40):
        A[i, j] = (A[i, j] * W[0, j] + A[i + 1, j] * W[1, j] + A[i + 2, j] * W[2, j]
            + A[i, j + 1] * W[0, j] + A[i + 1, j + 1] * W[1, j] + A[i + 2, j + 1] * W[2, j]
            + A[i, j + 2] * W[0, j] + A[i + 1, j + 2] * W[1, j] + A[i + 2, j + 2] * W[2, j])
# args: m=11
# rtol: 1e-4
--- elements that later iterations store are read before
def f(B: f32[64, 64]):
    for i, j in T.grid(63, 63):
        STORE
# with STORE: B[j + 1, i] = B[j, i + 1] | B[i, j] = B[i + 1, j]
#    | B[63 - i, 63 - j] = B[62 - i, 62 - j] | B[j, i] = B[j + 1, i] + B[j, i + 1]
# rtol: 1e-3
""")
DISTANCES = sections("""
--- every few elements are stored
def f(n: T.int64, A: F[n], C: F[n * N + 5]):
    for i in range(n):
        C[N * i + 3] = A[i]
# with F: f32 | f64 | f16 | bf16 | i8 | u16 | i64 | bool
# with N: 2 | 3 | 8 | 9
# args: n=(0, 1, 2, 15, 16, 33, 150)
--- indices that are divided by numbers
def f(n: T.int64, A: F[300], C: F[n]):
    for i in range(N, n):
        C[i] = A[INDEX]
# with F: f32 | i8
# with N: 0 | 64 | 0
# with INDEX: (i + 3) // 4 | (i + 16) // 32 + i // 32 | i % 4 | i % 32 // 8 * 2 + i // 64
#    | i // 32 * 32 + i % 32 | 3 * i // 2 | (i + 5) // 3 | i // 4 + i % 2 | i - i // 2
# args: n=(0, 15, 64, 131)
--- indices that are divided by numbers up to the last element
def f(A: F[N], C: F[131]):
    for i in range(131):
        C[i] = A[INDEX]
# with F: f32 | i8
# with N INDEX: 34 (i+3)//4 | 9 (i+16)//32+i//32 | 4 i%4 | 9 i%32//8*2+i//64 | 131 i//32*32+i%32
#    | 196 3*i//2 | 46 (i+5)//3 | 586 i//2*9 | 34 i//4+i%2 | 66 i-i//2
--- indices that are divided by numbers, and sums at them
def f(A: f32[N], B: f32[240], C: f32[240], D: f32[1]):
    for i in range(240):
        C[i] = A[INDEX] + B[i]
    D[0] = f32(0)
    for i in range(237):
        D[0] = D[0] + A[INDEX] * B[i]
# with N INDEX: 60 i//4 | 33 i%4+i//8 | 32 i%64//2
# rtol: 2e-4
--- sizes of another datatype
def f(a: T.handle, c: T.handle):
    n = T.K()
    A = T.match_buffer(a, (n,), "float32")
    C = T.match_buffer(c, (n, 4), "float32")
    for i in range(T.int64(4) * T.Cast("int64", n)):
        C[i // T.int64(4), i % T.int64(4)] = A[i // T.int64(4)]
    for i in range(T.int32(4) * T.Cast("int32", n)):
        C[i // 4, i % 4] = C[i // 4, i % 4] + A[T.Cast("int64", i) // T.int64(4)]
# with K: int32 | int64
# args: n=(0, 1, 5, 64, 131)
--- loops of another datatype
def f(A: i32[5], C: i32[4, 2, 8]):
    for i, j, k in T.grid(4, 2, 2):
        for m in range(2):
            C[i, j, k * 2 + m] = A[1 + k]
    for i, j, k, m in T.grid(T.int64(4), T.int64(2), T.int64(2), T.int64(2)):
        C[i, j, T.int64(4) + k * T.int64(2) + m] = A[T.int64(3) + k]
""")
#: Loops in the order of the text keep in registers what the last iteration stored.
RECURRENCES = sections("""
--- each element is computed from the one before it
def f(n: T.int64, m: T.int64, A: F[n, m], C: F[n + 3, m + 2]):
    for i in range(n):
        for j in range(m):
            BODY
# with F: f32 | f16 | u8 | f32 | u8
# with BODY: C[i, j + 1] = C[i, j] * F(3) + A[i, j]
#    | C[i + 1, j + 1] = T.max(C[i, j + 1], C[i + 1, j]) + A[i, j]
#    | C[i + 1, j + 1] = T.if_then_else(A[i, j] > C[i, j], A[i, j], C[i + 1, j] - C[i, j])
#    | C[i, 0] = C[i, 0] * F(2) - A[i, j] | C[i, j + 2] = C[i, j + 1] - C[i, j]
#    | C[i, m - 1 - j] = C[i, m - j] + A[i, j]
# args: n=(0, 1, 7), m=(0, 1, 9)
--- what is known outside of the loop is used after it
def f(A: f32[N, m], C: f32[N, 2 * m + 1]):
    for i in range(N):
        for j in range(FIRST, T.max(2 * m, 1)):
            C[i, j + 1] = C[i, j] + f32(2)
    for i in range(N):
        for j in range(FIRST, T.max(2 * m, 1)):
            if (j * 7) % 5 < i * 0 + 3:
                C[i, (j * 7 + m) % (2 * m + 1)] = C[i, j] - A[i, j % m]
# with N FIRST: 3 0 | 4 0 | 3 m | 4 m
# args: m=5
--- a triangle is solved
def f(L: f64[n, n], B: f64[n], X: f64[n]):
    for i in range(n):
        X[i] = B[i]
        for j in range(i):
            X[i] = X[i] - L[i, j] * X[j]
        X[i] = X[i] / L[i, i]
# args: n=1
# args: n=2, L=np.eye(2) * 9 + 1
# args: n=30, L=np.eye(30) * 40 + np.arange(900).reshape(30, 30) % 7
# rtol: 1e-12
--- extremes of all elements so far
def f(n: T.int64, m: T.int64, A: F[n, m], C: F[n, m + 1]):
    for i in range(n):
        for j in range(m):
            C[i, j + 1] = BODY
# with BODY: T.max(C[i, j], A[i, j]) | T.min(A[i, j], C[i, j]) | T.max(C[i, j], A[i, m - 1 - j])
#    | T.max(C[i, j], C[i, j + 1])
# with F: f32 | f16 | f64 | i8 | u8 | i64 | f32
# args: n=(0, 3), m=(0, 1, 15, 64, 97)
# args: n=5, m=200, A=odd(5, 200, dtype="F"), C=odd(5, 201, dtype="F")
--- sums of all integers so far wrap
def f(n: T.int64, m: T.int64, A: F[n, m], C: F[n, m + 1]):
    for i in range(n):
        for j in range(m):
            C[i, j + 1] = BODY
# with BODY: C[i, j] + A[i, j] | A[i, j] * F(3) + C[i, j] | C[i, j] - A[i, m - 1 - j]
# with F: i8 | u8 | i16 | u16 | i32 | i64 | u64
# args: n=(0, 3), m=(0, 1, 15, 64, 97)
# args: n=5, m=200
--- a loop is cut at the iteration that writes what the others read
def f(D: F[N, N]):
    for k, i, j in T.grid(N, N, N):
        D[i, j] = UPDATE
# with N: 0 | 1 | 2 | 17
# with F: f32 | i16 | f32
# with UPDATE: T.min(D[i, j], D[i, k] + D[k, j]) | D[i, k] - D[k, j] | D[k, j] + D[k, k]
# rtol: 1e-4
--- a loop of unknown length is cut at the iteration that writes what the others read
def f(D: F[n, n]):
    for k, i, j in T.grid(n, n, n):
        D[i, j] = UPDATE
# with F: f32 | i16 | f32
# with UPDATE: T.min(D[i, j], D[i, k] + D[k, j]) | D[i, k] - D[k, j] | D[k, j] + D[k, k]
# args: n=(0, 1, 5, 20)
# args: n=11, D=odd(11, 11, dtype="F")
# rtol: 1e-4
# tree: each
--- other loops stay in order
def f(D: i64[20, 20]):
    for k, i, j in T.grid(19, 20, 18):
        D[i, j + 1] = D[i, j + 1] ^ (READ)
# with READ: D[i, k] + D[i, 3] | D[i, k + 1] | D[i, k] + D[i, j]
--- the iterations of inner loops are compared in the same outer iteration
def f(D: f64[20, 20]):
    for k in range(20):
        for i in range(19 - k):
            D[k + 1 + i, k] = D[k + 1 + i, k] / D[k, k]
        for i, j in T.grid(19 - k, 19 - k):
            D[k + 1 + i, k + 1 + j] = D[k + 1 + i, k + 1 + j] - D[k + 1 + i, k] * D[k, k + 1 + j]
# args: D=np.eye(20) * 40 + np.arange(400).reshape(20, 20) % 7
# tree: each j
# rtol: 1e-14
""")
#: Arrays whose shape changes share memory with the arguments.
RESHAPES = sections("""
--- a result that is stored again
def f(A: f32[6, 20], C: f32[12, 10]):
    flat = T.alloc_buffer((120,), "float32")
    twice = T.alloc_buffer((120,), "float32")
    for i in range(120):
        flat[i] = A[i // 20, i % 20]
    for i in range(120):
        twice[i] = flat[(i * 7) % 120]
    for i, j in T.grid(12, 10):
        C[i, j] = twice[i * 10 + j]
    for i, j in T.grid(12, 10):
        C[i, j] = C[i, j] + twice[119 - i * 10 - j]
--- several results of one buffer, which is written after it is stored
def f(A: f32[6, 20], C: f32[12, 10], D: f32[5, 24], E: f32[120], G: f32[120]):
    flat = T.alloc_buffer((120,), "float32")
    twice = T.alloc_buffer((120,), "float32")
    for i in range(120):
        flat[i] = A[i // 20, i % 20]
    for i in range(120):
        twice[i] = flat[(i + 50) % 120] * f32(2)
    for i, j in T.grid(12, 10):
        C[i, j] = twice[i * 10 + j]
    for i, j in T.grid(5, 24):
        D[i, j] = twice[i * 24 + j]
    for i in range(120):
        E[i] = twice[119 - i]
    for i in range(120):
        twice[i] = twice[i] * f32(3)
    for i in range(120):
        G[i] = twice[119 - i]
--- strided and overlapping arguments
def f(A: f32[6, 20], C: f32[12, 10]):
    flat = T.alloc_buffer((120,), "float32")
    twice = T.alloc_buffer((120,), "float32")
    for i in range(120):
        flat[i] = A[i // 20, i % 20]
    for i in range(120):
        twice[i] = flat[119 - i]
    for i, j in T.grid(12, 10):
        C[i, j] = twice[i * 10 + j]
# args: A=floats(6, 40)[:, ::2], C=floats(24, 10)[::2]
# memory: 180: m[:120].reshape(6, 20), m[60:].reshape(12, 10)
--- local buffers of several shapes
def f(A: i8[6, 20], C: i8[12, 10], D: i8[120]):
    pairs = T.alloc_buffer((6, 10, 2), "int8")
    rows = T.alloc_buffer((12, 10), "int8")
    flat = T.alloc_buffer((120,), "int8")
    for i, j in T.grid(6, 10):
        pairs[i, j, 1] = A[i, j] + i8(1)
    for i, j in T.grid(6, 10):
        pairs[i, j, 0] = A[i, 10 + j]
    for i, j in T.grid(12, 10):
        rows[i, j] = pairs[i // 2, (i % 2) * 5 + j // 2, j % 2]
    for i, j in T.grid(12, 10):
        BEFORE
    for i, j in T.grid(12, 10):
        flat[i * 10 + j] = rows[i, j]
    for i, j in T.grid(12, 10):
        AFTER
    for i, j in T.grid(12, 10):
        C[i, j] = rows[11 - i, j]
    for i in range(120):
        D[i] = flat[119 - i]
# with BEFORE: T.evaluate(0) | rows[i, j] = rows[i, j] * i8(3)
# with AFTER: T.evaluate(0) | rows[i, j] = i8(7) | pairs[i // 2, j, i % 2] = i8(5)
""")
ROWS = {**LANES, **DISTANCES, **RECURRENCES, **RESHAPES}


@pytest.mark.parametrize("name", ROWS)
def test_native_loops(name: str) -> None:
    run_row(ROWS[name])


def test_signs_of_zeros_in_prefixes() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((100,), "float32"), C: T.Buffer((101,), "float32")):
    for j in range(100):
        C[j + 1] = T.max(C[j], A[j])
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    a, c = np.full(100, -0.0, "float32"), np.full(101, -0.0, "float32")
    a[40] = 0.0
    main(a, c)
    np.testing.assert_array_equal(np.signbit(c), np.arange(101) <= 40)


IN_BLOCKS = {
    "R.nn.softmax(x, 1)": lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True),
    "R.variance(x, [1, 2, 3])": lambda x: x.var((1, 2, 3)),
    "R.divide(x, R.sum(R.exp(x), [2, 3], True))": lambda x: (
        x / np.exp(x).sum((2, 3), keepdims=True)
    ),
    "R.nn.layer_norm(x, R.abs(y), y, [1, 2, 3])": lambda x, y: (
        (x - x.mean((1, 2, 3), keepdims=True))
        / np.sqrt(x.var((1, 2, 3), keepdims=True) + 1e-5)
        * np.abs(y)
        + y
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize(("n", "sizes"), [("n", (6, 14, 14)), (40, (21, 3, 17)), (3, (70, 9, 5))])
@pytest.mark.parametrize("expression", IN_BLOCKS)
def test_short_axes_of_blocks_of_rows_are_one(expression, n, sizes, dtype) -> None:
    """All runs of a block have them joined, and the memory between the runs too."""
    rows = ", ".join(map(str, sizes))
    args = f'x: R.Tensor(({n!r}, {rows}), "{dtype}"), y: R.Tensor(({rows}), "{dtype}")'
    ex = relaxpy.compile(from_source(graph(args.replace("'", '"'), expression)), target="native")
    trees = [ex.kernel_source(name, "tree") for name in {row.kernel for row in ex.report()}]
    # A batch that may be one is divided along an axis that all runs have.
    is_divided = n == "n" and re.search("softmax|divide", expression) is not None
    assert any(f"< T.int64({sizes[-1]})" in tree for tree in trees) == is_divided
    for count in (1, 5) if n == "n" else (n,):
        x, y = numbers((count, *sizes)).astype(dtype), numbers(sizes, seed=1).astype(dtype)
        wide = [v.astype("float64") for v in (x, y)][: 1 + (" y" in expression)]
        tolerance = 2e-2 if dtype == "float16" else 2e-4
        np.testing.assert_allclose(ex["main"](x, y), IN_BLOCKS[expression](*wide), tolerance, 1e-2)


LONG = {
    "window": "R.nn.conv2d(x, w, 1, 1, groups={n}, data_layout='NHWC', kernel_layout='HWIO')",
    "tanh": "R.tanh(x)",
    "sums": "R.sum(R.exp(x), axis=[1])",
    "integers": "R.multiply(R.multiply(x, R.add(x, x)), R.floor_divide(R.multiply(x, x), x))",
}


@pytest.mark.parametrize("n", [1, 7, 15, 16, 17, 24, 31, 33, 40, 72])
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in ("window", "tanh", "sums") for dtype in ("float32", "float16")),
        ("tanh", "float64"),
        ("tanh", "bfloat16"),
        *(("integers", dtype) for dtype in ("int8", "uint8", "int32")),
    ],
)
def test_the_last_vector_of_a_long_body_overlaps_the_one_before(name, dtype, n, monkeypatch):
    args = f'x: R.Tensor((1, 5, 6, {n}), "{dtype}")'
    args += f', w: R.Tensor((3, 3, 1, {n}), "{dtype}")' if name == "window" else ""
    module = from_source(graph(args, LONG[name].format(n=n)))
    values = [
        numbers((1, 5, 6, n)).astype(dtype) * (7 if name == "integers" else 1),
        numbers((3, 3, 1, n), seed=1).astype(dtype),
    ]
    if name == "integers":
        values[0] = np.where(values[0] == 0, np.asarray(3, dtype), values[0])
    values = [guarded(v, at_end=True) for v in values[: 1 + (name == "window")]]
    starts: list[int | None] = []
    last_start = axes._last_start

    def noted(cuts: list[Value | int], count: int) -> int | None:
        starts.append(last_start(cuts, count))
        return starts[-1]

    monkeypatch.setattr(axes, "_last_start", noted)
    found = relaxpy.compile(module, target="native")["main"](*values)
    assert any(starts) or n != 33 or name == "sums"
    monkeypatch.setattr(run_loops, "has_long_code", lambda run, count: False)
    expected = relaxpy.compile(module.clone(), target="native")["main"](*values)
    assert found.tobytes() == expected.tobytes()


def test_the_last_vector_of_a_row_is_loaded_after_the_others() -> None:
    """Loaded before, it stays in a register through the loop: a stencil took a sixth longer."""
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    for i, j in T.grid(n - 1, n - 1):
        B[i, j] = A[i, j] + A[i + 1, j + 1]
"""
    source = relaxpy.compile(from_source(text), target="native").kernel_source("main", "llvm")
    masked = [
        code for code in source.split("\ndefine ") if "call <16 x float> @llvm.masked" in code
    ]
    if machine.host().module().has_avx512:
        assert masked
    for code in masked:
        assert code.index("= load <16 x float>") < code.index("= call <16 x float> @llvm.masked")


@pytest.mark.parametrize("shape", [(64, 33, 7, 4), (3, 231, 1, 16)])
def test_loops_of_sums_of_few_columns_are_unrolled(shape: tuple[int, ...]) -> None:
    """One vector for each jump took 1.7 times as long as four of them."""
    module = from_source(graph(f'x: R.Tensor({shape}, "int32")', "R.sum(x, axis=[1, 2])"))
    source = relaxpy.compile(module, target="native").kernel_source("sum", "llvm")
    blocks = re.split(r"\n\w+:", source)
    loops = [code.count("= add <") for code in blocks if "= add <" in code and "phi <" in code]
    assert max(loops) >= 4


@pytest.mark.parametrize("columns", [3, 8, 16])
@pytest.mark.parametrize("name", ["sum", "max", "prod"])
def test_each_of_few_sums_of_columns_is_that_of_several(name: str, columns: int) -> None:
    """Each addition to one sum waits for the last one, which took 2.5 times as long.

    More sums than additions in an iteration of the loop are moved from register to register.
    """
    text = graph(f'x: R.Tensor(("n", {columns}), "float32")', f"R.{name}(x, axis=[0])")
    executable = relaxpy.compile(from_source(text), target="native")
    blocks = re.split(r"\n\w+:", executable.kernel_source(name, "llvm"))
    assert max(len(re.findall(r"phi <\d+ x float>", block)) for block in blocks) == 4
    for rows in (*range(1, 10), 103):
        x = 1 + numbers((rows, columns)) / np.float32(8)
        x[-1, 0], x[0, -1] = np.nan, np.inf
        x[:, 1] = -0.0
        expected = getattr(np, name)(x.astype("float64"), axis=0)
        np.testing.assert_allclose(executable["main"](x), expected, rtol=1e-5)
