"""Each method by which a kernel can run, compared with the reference."""

import numpy as np
import pytest

from relaxpy.errors import CompileError
from relaxpy.script import tir as T
from tests.exec.loops.support import load, source_of
from tests.exec.loops.written import floats, kernel, run_row
from tests.rows import sections

REVERSED = """
def f(X: f32[8, 5], Y: f32[4, 5]):
    for i, j in T.grid(4, 5):
        Y[i, j] = X[7 - i, j] + X[i * 2 + 1, 4 - j]
"""
KINDS = sections(f"""
--- a product of plain loops
def f(A: f32[5, 7], B: f32[7, 3], C: f32[5, 3]):
    for i in range(5):
        for j in range(3):
            C[i, j] = T.float32(0)
            for k in range(7):
                C[i, j] += A[i, k] * B[k, j]
# whole: yes
--- products of stacks of matrices
def f(A: f32[2, n, 3, 4], B: f32[2, n, 4, 5], C: f32[2, n, 3, 5]):
    for p, q, i, j, k in SSSSR(2, n, 3, 5, 4):
        with T.init():
            C[vp, vq, vi, vj] = T.float32(0)
        C[vp, vq, vi, vj] = C[vp, vq, vi, vj] + A[vp, vq, vi, vk] * B[vp, vq, vk, vj]
# args: n=3
# args: n=0
# whole: yes
--- a convolution
def f(X: f32[2, 3, 6, 7], W: f32[4, 3, 3, 3], Y: f32[2, 4, 6, 7]):
    P = T.alloc_buffer((2, 3, 8, 9), "float32")
    for n, c, h, w in SSSS(2, 3, 8, 9):
        P[vn, vc, vh, vw] = T.if_then_else(
            vh >= 1 and vh < 7 and vw >= 1 and vw < 8, X[vn, vc, vh - 1, vw - 1], T.float32(0)
        )
    for n, o, h, w, c, y, x in SSSSRRR(2, 4, 6, 7, 3, 3, 3):
        with T.init():
            Y[vn, vo, vh, vw] = T.float32(0)
        Y[vn, vo, vh, vw] = Y[vn, vo, vh, vw] + P[vn, vc, vh + vy, vw + vx] * W[vo, vc, vy, vx]
# whole: yes
# rtol: 1e-4
--- a pool
def f(X: f32[3, 8, 8], Y: f32[3, 4, 4]):
    for c, h, w, y, x in SSSRR(3, 4, 4, 2, 2):
        with T.init():
            Y[vc, vh, vw] = T.min_value("float32")
        Y[vc, vh, vw] = T.max(Y[vc, vh, vw], X[vc, vh * 2 + vy, vw * 2 + vx])
# whole: yes
--- reversed rows and columns, and every other row{REVERSED}# whole: yes
--- a triangle
def f(X: f32[5, 5], Y: f32[5, 5]):
    for i, j in T.grid(5, 5):
        Y[i, j] = T.if_then_else(j <= i, X[i, j], T.float32("-inf"))
# whole: yes
--- two arrays in one
def f(A: f32[n, 3], B: f32[m, 3], C: f32[n + m, 3]):
    for i, j in SS(n + m, 3):
        C[vi, vj] = T.if_then_else(n <= vi, B[vi - n, vj], A[vi, vj])
# args: n=2, m=3
# args: n=0, m=3
# whole: yes
--- a loop that is split
def f(A: f32[n], B: f32[n]):
    for i0, i1 in T.grid((n + 3) // 4, 4):
        with T.block("B"):
            T.where(i0 * 4 + i1 < n)
            vi = T.axis.spatial(n, i0 * 4 + i1)
            B[vi] = A[vi] + T.float32(1)
# args: n=7
# args: n=8
# args: n=0
# whole: yes
--- digits of a number that has no whole number of the last one
def f(A: f32[4], B: f32[9], C: f32[35]):
    for k in range(35):
        C[k] = A[k % 4] + B[k // 4]
# methods: elementwise; elementwise
--- extremes and products of products
def f(A: f32[4, 5], B: f32[5, 3], C: f32[4, 3], D: f32[4, 3]):
    for i, j, k in SSR(4, 3, 5):
        with T.init():
            C[vi, vj] = T.float32(-100)
        C[vi, vj] = T.max(C[vi, vj], A[vi, vk] * B[vk, vj])
    for i, j, k in SSR(4, 3, 5):
        with T.init():
            D[vi, vj] = T.float32(2)
        D[vi, vj] = D[vi, vj] * (A[vi, vk] * B[vk, vj])
--- another shape
def f(A: f32[4, 6], B: f32[3, 8]):
    for i, j in SS(3, 8):
        B[vi, vj] = A[(vi * 8 + vj) // 6, (vi * 8 + vj) % 6]
# whole: yes
--- a normalisation
def f(X: f32[n, 16], g: f32[16], Y: f32[n, 16]):
    total = T.alloc_buffer((n,), "float32")
    squares = T.alloc_buffer((n,), "float32")
    for i, k in SR(n, 16):
        with T.init():
            total[vi] = T.float32(0)
            squares[vi] = T.float32(0)
        total[vi] = total[vi] + X[vi, vk]
        squares[vi] = squares[vi] + X[vi, vk] * X[vi, vk]
    for i, j in SS(n, 16):
        Y[vi, vj] = (
            (X[vi, vj] - total[vi] / T.float32(16))
            * T.rsqrt(
                squares[vi] / T.float32(16)
                - total[vi] / T.float32(16) * (total[vi] / T.float32(16))
                + T.float32(1e-5)
            )
            * g[vj]
        )
# args: n=3
# whole: yes
# rtol: 1e-4
--- scratch of a row
def f(X: f32[4, 6], Y: f32[4, 6]):
    for i in S(4):
        row = T.alloc_buffer((6,), "float32")
        for j in range(6):
            row[j] = X[vi, j] * X[vi, 0]
        for j in range(6):
            Y[vi, j] = row[j] + row[5 - j]
# whole: yes
--- a product by a transposed matrix
def f(A: f32[5, 7], B: f32[3, 7], C: f32[5, 3]):
    for i, j, k in SSR(5, 3, 7):
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]
# methods: contraction over k
--- products of a stack and a shared matrix
def f(A: f32[2, 3, 4], B: f32[4, 5], C: f32[2, 3, 5]):
    for p, i, j, k in SSSR(2, 3, 5, 4):
        with T.init():
            C[vp, vi, vj] = T.float32(0)
        C[vp, vi, vj] = C[vp, vi, vj] + A[vp, vi, vk] * B[vk, vj]
# methods: contraction over k
--- products of rows and themselves
def f(A: f32[4, 6], C: f32[4]):
    for i, k in SR(4, 6):
        with T.init():
            C[vi] = T.float32(0)
        C[vi] = C[vi] + A[vi, vk] * A[vi, vk]
# methods: contraction over k
--- a product of two vectors
def f(A: f32[6], B: f32[6], C: T.Buffer((), "float32")):
    for k in R(6):
        with T.init():
            C[()] = T.float32(0)
        C[()] = C[()] + A[vk] * B[vk]
# methods: contraction over k
--- a product of three factors
def f(A: f32[4, 6], B: f32[6, 5], D: f32[6], C: f32[4, 5]):
    for i, j, k in SSR(4, 5, 6):
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj] * D[vk]
# methods: contraction over k
--- a product into a transposed matrix, with an init of 1
def f(A: f32[5, 7], B: f32[7, 3], C: f32[3, 5]):
    for i, j, k in SSR(5, 3, 7):
        with T.init():
            C[vj, vi] = T.float32(1)
        C[vj, vi] = C[vj, vi] + A[vi, vk] * B[vk, vj]
# methods: contraction over k
--- a product of half floats is summed in single precision
def f(A: f16[4, 6], B: f16[6, 5], C: f32[4, 5], s: T.float32):
    for i, j, k in SSR(4, 5, 6):
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + T.Cast("float32", A[vi, vk]) * T.Cast("float32", B[vk, vj]) * s
# args: s=0.5
# methods: contraction over k
--- a gather takes rows and refuses indices out of bounds
def f(table: f32[9, 4], at: i64[5], Y: f32[5, 4]):
    for i, j in SS(5, 4):
        Y[vi, vj] = table[at[vi], vj]
# args: at=np.array([3, 0, 8, 3, 1])
# args: at=np.array([3, 0, 9, 3, 1]) -> index 9 is outside
# args: at=np.array([3, 0, -1, 3, 1]) -> index -1 is outside
--- a scatter adds where indices repeat
def f(X: f32[6], at: i32[6], Y: f32[4]):
    for i in range(6):
        with T.block("add"):
            vi = T.axis.opaque(6, i)
            Y[at[vi]] = Y[at[vi]] + X[vi]
# args: at=ints(3, 0, 3, 3, 1, 0)
# methods: scatter (add)
--- the last store of a scatter wins
def f(X: f32[6], at: i32[6], Y: f32[4]):
    for i in range(6):
        Y[at[i]] = X[i] * T.float32(2)
# args: at=ints(3, 0, 3, 3, 1, 0)
# args: at=ints(4, 1, 4, 4, 2, 1) -> outside
# methods: scatter
--- a running sum accumulates over all rows at once
def f(X: f32[4, 6], Y: f32[4, 6]):
    for i, j in T.grid(4, 6):
        with T.block("scan"):
            vi = T.axis.spatial(4, i)
            vj = T.axis.scan(6, j)
            Y[vi, vj] = T.if_then_else(vj > 0, Y[vi, vj - 1], T.float32(0)) + X[vi, vj]
# methods: elementwise; add scan over j
--- running values wrap around and start like the loop
def f(A: i8[n + 1], B: f16[3, n + 1], C: f32[n + 1], D: f32[n, 3]):
    for i in range(n):
        A[i + 1] = A[i] * T.int8(3)
    for i, j in T.grid(n, 3):
        B[j, i + 1] = T.max(T.Cast("float16", D[i, j]), B[j, i]) - T.float16(1)
    for i, j in T.grid(n, 3):
        B[j, i + 1] = T.max(T.Cast("float16", D[i, j]), B[j, i])
    for i in range(n):
        C[i + 1] = C[i] + D[i, 0] * T.Cast("float32", A[i])
    for i in range(n):
        C[i + 1] = C[i] + C[n - i]
# args: n=0, A=np.arange(7, 8, dtype="int8")
# args: n=1, A=np.arange(7, 9, dtype="int8")
# args: n=5, A=np.arange(7, 13, dtype="int8")
# methods: mul scan over i; loop over i, elementwise; max scan over i; add scan over i; scalar loop
# rtol: 1e-4
--- a sweep runs step by step over whole grids
def f(A: f32[10, 12], steps: T.int32):
    B = T.alloc_buffer((10, 12), "float32")
    for _sweep in range(steps):
        for i, j in T.grid(8, 10):
            B[i + 1, j + 1] = (
                A[i, j + 1] + A[i + 2, j + 1] + A[i + 1, j] + A[i + 1, j + 2]
            ) * T.float32(0.25)
        for i, j in T.grid(8, 10):
            A[i + 1, j + 1] = B[i + 1, j + 1]
# args: steps=3
# args: steps=0
# methods: loop over _sweep, elementwise; loop over _sweep, elementwise
--- a while loop runs one element at a time and says so
def f(X: i32[6], Y: i32[6]):
    for i in range(6):
        Y[i] = 0
        while X[i] > 1:
            X[i] = T.if_then_else(X[i] % 2 == 0, X[i] // 2, X[i] * 3 + 1)
            Y[i] = Y[i] + 1
# args: X=ints(1, 2, 7, 9, 27, 6)
# methods: elementwise; scalar loop
--- a condition on data masks the stores
def f(X: f32[4, 6], M: bool[6], Y: f32[4, 6]):
    for i, j in T.grid(4, 6):
        if M[j]:
            Y[i, j] = X[i, j]
        else:
            Y[i, j] = Y[i, j] + T.float32(1)
--- a kernel can return a scalar
def f(X: f32[3]) -> T.float32:
    X[0] = X[1] + X[2]
    T.evaluate(T.ret(X[0]))
--- a reduction without iterations is its init
def f(X: f32[n, m], Y: f32[n], Z: f32[n, n]):
    for i, k in SR(n, m):
        with T.init():
            Y[vi] = T.float32(2)
        Y[vi] = Y[vi] + X[vi, vk]
    for i, j, k in SSR(n, n, m):
        with T.init():
            Z[vi, vj] = T.float32(0)
        Z[vi, vj] = Z[vi, vj] + X[vi, vk] * X[vj, vk]
# args: n=3, m=0
# args: n=3, m=1
# args: n=3, m=4
# methods: add reduction over k; contraction over k
--- columns of rows are taken
def f(X: f32[n, 4], at: i32[m, 2], Y: f32[4, m, 2]):
    for j, i, k in SSS(4, m, 2):
        Y[vj, vi, vk] = X[T.Cast("int64", at[vi, vk]), vj]
# args: n=5, m=0
# args: n=5, m=3, at=np.abs(ints(4, 0, 2, 1, 3, 4)).reshape(3, 2)
--- rows are taken whole where they lie in order
def f(X: f32[n, 4], at: i32[m, 2], Y: f32[m, 2, 4]):
    for i, k, j in SSS(m, 2, 4):
        Y[vi, vk, vj] = T.max(X[T.Cast("int64", at[vi, vk]), vj], T.float32(0))
# args: n=5, m=0
# args: n=5, m=3, at=ints(4, 0, 2, 1, 3, 4).reshape(3, 2)
# args: n=5, m=3, at=ints(-1, 0, 2, 1, 3, 4).reshape(3, 2) -> index -1 is outside
# source: rt.take
--- a product is summed as often as its loops run
def f(A: f32[4, 3], B: f32[3], C: f32[4]):
    for i, _r, k in T.grid(4, 5, 3):
        C[i] = C[i] + A[i, k] * B[k]
# rtol: 1e-4
""")


@pytest.mark.parametrize("fact", KINDS)
def test_kernels_run_by_each_method(fact: str) -> None:
    run_row(KINDS[fact])


def test_an_output_may_be_read_through_another_argument() -> None:
    base = floats(5, 9)
    for shift in (0, 1, 2):
        ours, theirs = base.copy(), base.copy()
        load(kernel(REVERSED))(
            ours.reshape(-1)[:40].reshape(8, 5), ours.reshape(-1)[shift : 20 + shift].reshape(4, 5)
        )
        x, y = (
            theirs.reshape(-1)[:40].reshape(8, 5),
            theirs.reshape(-1)[shift : 20 + shift].reshape(4, 5),
        )
        for i in range(4):
            for j in range(5):
                y[i, j] = x[7 - i, j] + x[i * 2 + 1, 4 - j]
        np.testing.assert_array_equal(ours, theirs)


def test_hardware_intrinsics_are_named_with_their_position() -> None:
    @T.prim_func
    def hardware(X: T.Buffer((3,), "float32")):
        for i in range(3):
            X[i] = T.call_intrin("float32", "tir.ptx_mma", X[i])

    with pytest.raises(CompileError, match="ptx_mma"):
        source_of(hardware)
