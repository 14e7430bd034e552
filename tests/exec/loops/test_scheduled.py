"""Kernels as schedules leave them: tiles, packed layouts, places that are clamped."""

import pytest

from tests.exec.loops.written import run_row
from tests.rows import sections

SCHEDULED = sections("""
--- an accumulation begins once though some of its loops run in order
def f(A: f32[3, 4], B: f32[4, 4], C: f32[3, 2, 3]):
    for k_0, j, k_1, i in T.grid(2, 4, 3, 3):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            vk = T.axis.reduce(4, k_0 * 3 + k_1)
            T.where(k_0 * 3 + k_1 < 4)
            with T.init():
                C[vi, vj // 3, vj % 3] = f32(-2)
            C[vi, vj // 3, vj % 3] = C[vi, vj // 3, vj % 3] + A[vi, vk] * B[vk, vj]
# args: A=[k % 7 - 3 for k in range(12)], B=[k % 5 - 2 for k in range(16)]
--- a factor may be the same in all iterations of a loop that it mentions
def f(A: f32[5], S: f32[1], C: T.Buffer((), "float32")):
    for k in R(5):
        with T.init():
            C[()] = f32(0)
        C[()] = C[()] + A[vk] * S[T.min(T.max(vk % 2, 0), 0)]
# args: A=range(-2, 3), S=[3]
--- datatypes that NumPy cannot name are read backwards
def f(A: T.Buffer((4,), "float8_e5m2"), B: T.Buffer((3,), "float8_e5m2")):
    for i in range(3):
        B[i] = A[2 - i]
# args: A=range(-2, 2)
--- places are not asked of ties that are decided before
def f(X: i8[3, 5], Y: i8[3], P: i64[3]):
    for i, k in T.grid(3, 5):
        better = T.meta_var(Y[i] >= X[i, k])
        place: T.int64 = T.Select(
            T.Or(better, T.And(Y[i] == X[i, k], P[i] < T.Cast("int64", k))), P[i], i64(k)
        )
        value: T.int8 = T.Select(better, Y[i], X[i, k])
        P[i] = place
        Y[i] = value
# args: X=[k * 7 % 9 for k in range(15)], Y=[4, 4, 4], P=[9, 9, 9]
--- the position of an extreme of what is always the same
def f(Y: T.Buffer((), "uint8"), P: T.Buffer((), "int64")):
    for k in range(5):
        if Y[()] > u8(9):
            Y[()] = u8(9)
            P[()] = T.Cast("int64", k)
# args: Y=[200], P=[-1]
--- scalars that wrap do not warn
def f(A: u8[4], Y: u8[4], n: T.int64):
    for i in range(4):
        Y[i] = T.Cast("uint8", n) + u8(200)
        for _ in range(3):
            A[i] = A[i] - u8(5)
# args: n=120, A=[0] * 4, Y=[0] * 4
--- tiles of a loop that is left early are not joined
def f(A: i32[7], B: i32[7]):
    for i_0, i_1 in T.grid(3, 3):
        if i_0 * 3 + i_1 < 7:
            if A[i_0 * 3 + i_1] < 0:
                T.evaluate(T.break_loop())
            B[i_0 * 3 + i_1] = A[i_0 * 3 + i_1]
# args: A=[1, -2, 3, 4, 5, 6, -7]
--- a loop that is left early is not divided
def f(A: i32[3, 4], B: i32[12]):
    for f in range(12):
        if A[f // 4, f % 4] < 0:
            T.evaluate(T.break_loop())
        B[f] = A[f // 4, f % 4]
# args: A=[1, -2, 3, 4] * 3
--- strides may lead to one element from several places
def f(B: i32[16], C: i32[2]):
    W = T.decl_buffer((5, 2), "int32", data=B.data, strides=[1, 4])
    for i, j in T.grid(5, 2):
        W[i, j] = W[4 - i, j] + C[j]
--- strides lead to each element once
def f(B: i32[16], C: i32[2]):
    W = T.decl_buffer((4, 4), "int32", data=B.data, strides=[4, 1])
    for i, j in T.grid(4, 4):
        W[i, j] = W[i, j] + C[1]
# methods: elementwise
""")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SCHEDULED)
def test_scheduled_kernels(name: str) -> None:
    run_row(SCHEDULED[name])
