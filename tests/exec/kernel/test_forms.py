"""Forms that are seldom met: odd bounds and indices, rare intrinsics, unusual products."""

import numpy as np
import pytest

from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import tir as T
from tests.exec.kernel.support import check

rng = np.random.default_rng(6)


@T.prim_func
def bits(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int64"), C: T.Buffer((), "int32")):
    for i in range(4):
        A[i] = T.clz(A[i]) + T.popcount(A[i])
        B[i] = T.popcount(B[i])
    C[()] = T.clz(A[1]) + T.reinterpret("int32", T.float32(1.5))


@T.prim_func
def powers(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        B[i] = T.exp10(A[i]) + T.ldexp(A[i], T.Cast("int32", A[i]))


@T.prim_func
def small_sigmoid(
    A: T.Buffer((4,), "float8_e4m3fn"),
    B: T.Buffer((4,), "float8_e4m3fn"),
    C: T.Buffer((), "float8_e4m3fn"),
):
    for i in range(4):
        B[i] = T.sigmoid(A[i])
    C[()] = T.sigmoid(A[1])


@T.prim_func
def truncated_bounds(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), n: T.int32):
    for i in range(T.Select(n > 2 and not (n == 5 or n == 4), 3, 4)):
        B[i] = A[T.truncdiv(n, 2) + 3] + A[T.if_then_else(n >= 2 or n == 1, 1, 2)]
        for k in range(T.truncdiv(n, -2)):
            B[i] = B[i] + A[k] * A[T.truncmod(n, 3) + 2]


@T.prim_func
def spread_product(
    A: T.Buffer((2, 2, 5, 2), "float32"),
    B: T.Buffer((5, 2, 3), "float32"),
    C: T.Buffer((3, 2, 2, 2), "float32"),
):
    for i, j, p, k, m in T.grid(2, 3, 2, 5, 2):
        with T.block("C"):
            vi, vj, vp, vk, vm = T.axis.remap("SSSRR", [i, j, p, k, m])
            with T.init():
                C[vj, vi, vp, 1] = T.float32(0)
            C[vj, vi, vp, 1] = C[vj, vi, vp, 1] + A[vi, vp, vk, vm] * B[vk, vm, vj]


@T.prim_func
def mixed_product(
    A: T.Buffer((2, 5, 2), "float32"),
    B: T.Buffer((5, 3, 2), "float32"),
    C: T.Buffer((2, 3, 2, 2), "float32"),
):
    for i, j, p, q, k in T.grid(2, 3, 2, 2, 5):
        with T.block("C"):
            vi, vj, vp, vq, vk = T.axis.remap("SSSSR", [i, j, p, q, k])
            with T.init():
                C[vi, vj, vp, vq] = T.float32(0)
            C[vi, vj, vp, vq] = C[vi, vj, vp, vq] + A[vi, vk, vp] * B[vk, vj, vq]


@T.prim_func
def scaled_sum(A: T.Buffer((3, 5), "float32"), D: T.Buffer((5,), "float32")):
    for i, j, k in T.grid(3, 5, 5):
        with T.block("A"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                A[vi, vj] = T.float32(1)
            A[vi, vj] = A[vi, vj] + D[vk] * D[vk]


@T.prim_func
def scratch_by_branch(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
    for i in range(4):
        with T.block("row"):
            vi = T.axis.spatial(4, i)
            t = T.alloc_buffer((3,), "float32")
            for j in range(3):
                if A[vi, j] > T.float32(0):
                    t[j] = A[vi, j]
                else:
                    t[j] = T.float32(-1)
            for j in range(3):
                B[vi, j] = t[2 - j]


@T.prim_func
def places_from_elsewhere(
    A: T.Buffer((4, 6), "float32"), B: T.Buffer((4,), "float32"), P: T.Buffer((4,), "int32")
):
    for i in range(4):
        B[i] = T.float32(-100)
        P[i] = 0
        for j in range(1, 5):
            if A[i, j] > B[i]:
                B[i] = A[i, j]
                P[i] = j * 2 + 7


@T.prim_func
def nested_updates(A: T.Buffer((4, 5), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 5):
        B[i] = T.bitwise_xor(T.bitwise_xor(B[i], A[i, k]), A[i, 4 - k])
    for i, k in T.grid(4, 5):
        B[i] = A[i, k] + (A[i, 0] + B[i])


@T.prim_func
def sizes_from_memory(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
    for i in range(4):
        d = T.allocate([A[i] + 8], "int32", "global")
        D = T.decl_buffer((A[i] + 8,), "int32", data=d)
        E = T.decl_buffer((4,), "int16", data=d)
        for k in range(A[i] + 8):
            D[k] = k * 70000
        B[i] = D[1] + T.Cast("int32", E[2])


@pytest.mark.parametrize(
    "func",
    [
        bits,
        powers,
        small_sigmoid,
        truncated_bounds,
        spread_product,
        mixed_product,
        scaled_sum,
        scratch_by_branch,
        places_from_elsewhere,
        nested_updates,
        sizes_from_memory,
    ],
)
def test_seldom_forms(func: PrimFunc) -> None:
    args: list[object] = []
    for param in func.params:
        buffer = func.buffer_of(param)
        if buffer is None:
            args.append(-3)
        else:
            shape = tuple(size.value for size in buffer.shape)
            args.append(rng.integers(-4, 5, shape).astype(buffer.dtype.numpy()))
    check(func, *args)
