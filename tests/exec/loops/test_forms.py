"""Forms that are seldom met: odd bounds and indices, rare intrinsics, unusual products."""

import pytest

from tests.exec.loops.written import run_row
from tests.rows import sections

FORMS = sections("""
--- bits
def f(A: i32[4], B: i64[4], C: T.Buffer((), "int32")):
    for i in range(4):
        A[i] = T.clz(A[i]) + T.popcount(A[i])
        B[i] = T.popcount(B[i])
    C[()] = T.clz(A[1]) + T.reinterpret("int32", T.float32(1.5))
--- fixed-point products
def f(A: i32[4], B: i32[4]):
    for i in range(4):
        A[i] = T.q_multiply_shift(B[i] * 1001, 1518500250, 31, A[i])
        B[i] = T.q_multiply_shift_per_axis(B[i], 3, 2, 1, 5, T.bool(False), T.bool(True))
--- powers
def f(A: f32[4], B: f32[4]):
    for i in range(4):
        B[i] = T.exp10(A[i]) + T.ldexp(A[i], T.Cast("int32", A[i]))
--- small floats
def f(
    A: T.Buffer((4,), "float8_e4m3fn"),
    B: T.Buffer((4,), "float8_e4m3fn"),
    C: T.Buffer((), "float8_e4m3fn"),
):
    for i in range(4):
        B[i] = T.sigmoid(A[i])
    C[()] = T.sigmoid(A[1])
--- truncated bounds
def f(A: f32[4], B: f32[4], n: T.int32):
    for i in range(T.Select(n > 2 and not (n == 5 or n == 4), 3, 4)):
        B[i] = A[T.truncdiv(n, 2) + 3] + A[T.if_then_else(n >= 2 or n == 1, 1, 2)]
        for k in range(T.truncdiv(n, -2)):
            B[i] = B[i] + A[k] * A[T.truncmod(n, 3) + 2]
# args: n=-3
--- a product that is spread
def f(A: f32[2, 2, 5, 2], B: f32[5, 2, 3], C: f32[3, 2, 2, 2]):
    for i, j, p, k, m in SSSRR(2, 3, 2, 5, 2):
        with T.init():
            C[vj, vi, vp, 1] = T.float32(0)
        C[vj, vi, vp, 1] = C[vj, vi, vp, 1] + A[vi, vp, vk, vm] * B[vk, vm, vj]
--- a product of mixed axes
def f(A: f32[2, 5, 2], B: f32[5, 3, 2], C: f32[2, 3, 2, 2]):
    for i, j, p, q, k in SSSSR(2, 3, 2, 2, 5):
        with T.init():
            C[vi, vj, vp, vq] = T.float32(0)
        C[vi, vj, vp, vq] = C[vi, vj, vp, vq] + A[vi, vk, vp] * B[vk, vj, vq]
--- a sum of squares that depends on no axis
def f(A: f32[3, 5], D: f32[5]):
    for i, j, k in SSR(3, 5, 5):
        with T.init():
            A[vi, vj] = T.float32(1)
        A[vi, vj] = A[vi, vj] + D[vk] * D[vk]
--- scratch that branches write
def f(A: f32[4, 3], B: f32[4, 3]):
    for i in S(4):
        t = T.alloc_buffer((3,), "float32")
        for j in range(3):
            if A[vi, j] > T.float32(0):
                t[j] = A[vi, j]
            else:
                t[j] = T.float32(-1)
        for j in range(3):
            B[vi, j] = t[2 - j]
--- places computed from those of extremes
def f(A: f32[4, 6], B: f32[4], P: i32[4]):
    for i in range(4):
        B[i] = T.float32(-100)
        P[i] = 0
        for j in range(1, 5):
            if A[i, j] > B[i]:
                B[i] = A[i, j]
                P[i] = j * 2 + 7
--- nested updates
def f(A: i32[4, 5], B: i32[4]):
    for i, k in T.grid(4, 5):
        B[i] = T.bitwise_xor(T.bitwise_xor(B[i], A[i, k]), A[i, 4 - k])
    for i, k in T.grid(4, 5):
        B[i] = A[i, k] + (A[i, 0] + B[i])
--- sizes from memory
def f(A: i32[4], B: i32[4]):
    for i in range(4):
        d = T.allocate([A[i] + 8], "int32", "global")
        D = T.decl_buffer((A[i] + 8,), "int32", data=d)
        E = T.decl_buffer((4,), "int16", data=d)
        for k in range(A[i] + 8):
            D[k] = k * 70000
        B[i] = D[1] + T.Cast("int32", E[2])
""")


@pytest.mark.parametrize("form", FORMS)
def test_seldom_forms(form: str) -> None:
    run_row(FORMS[form])
