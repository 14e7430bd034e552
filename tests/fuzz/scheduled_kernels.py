"""Kernels of the kinds that schedules are written for, with arguments for them."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from relaxpy import tir
from tests.exec.loops.written import kernel
from tests.rows import sections

TEXTS = sections("""
--- matmul
def matmul(A: i32[6, 8], B: i32[8, 7], C: i32[6, 7]):
    for i, j, k in SSR(6, 7, 8):
        with T.init():
            C[vi, vj] = 0
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
--- chain
def chain(A: i32[6, 8], D: i32[6, 8]):
    B = T.alloc_buffer((6, 8), "int32")
    C = T.alloc_buffer((6, 8), "int32")
    for i, j in SS(6, 8):
        B[vi, vj] = A[vi, vj] * 2
    for i, j in SS(6, 8):
        C[vi, vj] = B[vi, vj] + 1
    for i, j in SS(6, 8):
        D[vi, vj] = C[vi, vj] * C[vi, vj] - B[vi, vj]
--- matmul_relu
def matmul_relu(A: i32[6, 8], B: i32[8, 7], D: i32[6, 7]):
    A2 = T.alloc_buffer((6, 8), "int32")
    C = T.alloc_buffer((6, 7), "int32")
    for i, k in SS(6, 8):
        A2[vi, vk] = A[vi, vk] - 3
    for i, j, k in SSR(6, 7, 8):
        with T.init():
            C[vi, vj] = 0
        C[vi, vj] = C[vi, vj] + A2[vi, vk] * B[vk, vj]
    for i, j in SS(6, 7):
        D[vi, vj] = T.max(C[vi, vj], 0)
--- biased
def biased(A: i32[6, 8], E: i32[7], D: i32[6, 7]):
    C = T.alloc_buffer((6, 7), "int32")
    for i, j, k in SSR(6, 7, 8):
        with T.init():
            C[vi, vj] = 2
        C[vi, vj] = C[vi, vj] + A[vi, vk] * (vj - vk)
    for i, j in SS(6, 7):
        D[vi, vj] = E[vj] + C[vi, vj]
--- conv
def conv(A: i32[12], W: i32[3], C: i32[12]):
    P = T.alloc_buffer((14,), "int32")
    for i in S(14):
        P[vi] = T.if_then_else(vi >= 1 and vi < 13, A[vi - 1], 0)
    for i, k in SR(12, 3):
        with T.init():
            C[vi] = 0
        C[vi] = C[vi] + P[vi + vk] * W[vk]
--- row_sums
def row_sums(A: i32[n, m], B: i32[n], D: i32[n, m]):
    S = T.alloc_buffer((n,), "int32")
    for i, k in SR(n, m):
        with T.init():
            S[vi] = 0
        S[vi] = S[vi] + A[vi, vk]
    for i in S(n):
        B[vi] = S[vi] * 2
    for i, j in SS(n, m):
        D[vi, vj] = A[vi, vj] - S[vi]
--- transposed
def transposed(A: i32[6, 4], C: i32[4, 6]):
    B = T.alloc_buffer((4, 6), "int32")
    for i, j in SS(4, 6):
        B[vi, vj] = A[vj, vi]
    for i, j in SS(4, 6):
        T.where(i * 6 + j < 20)
        C[vi, vj] = B[3 - vi, vj] + B[vi, 5 - vj]
--- maxima
def maxima(A: i32[5, 9], C: i32[5]):
    M = T.alloc_buffer((5,), "int32")
    for i, k in SR(5, 9):
        with T.init():
            M[vi] = T.min_value("int32")
        M[vi] = T.max(M[vi], A[vi, vk])
    for i, k in SR(5, 9):
        with T.init():
            C[vi] = 0
        C[vi] = C[vi] + (M[vi] - A[vi, vk]) * (M[vi] - A[vi, vk])
--- channels
def channels(A: i32[3, 6, 8], C: i32[3, 6, 8]):
    table = T.alloc_buffer((3,), "int32", scope="local")
    for c in range(3):
        for i, j in T.grid(6, 8):
            with T.block("C"):
                with T.init():
                    table[0] = 4
                    table[1] = -2
                    table[2] = 7
                if i + c < 7:
                    C[c, i, j] = A[c, i, j] * table[c]
                else:
                    C[c, i, j] = A[c, 0, j]
""")
SHAPES = {
    "matmul": [(6, 8), (8, 7), (6, 7)],
    "chain": [(6, 8), (6, 8)],
    "matmul_relu": [(6, 8), (8, 7), (6, 7)],
    "biased": [(6, 8), (7,), (6, 7)],
    "conv": [(12,), (3,), (12,)],
    "row_sums": [(5, 7), (5,), (5, 7)],
    "transposed": [(6, 4), (4, 6)],
    "maxima": [(5, 9), (5,)],
    "channels": [(3, 6, 8), (3, 6, 8)],
}
#: A kernel, and the shapes of its arguments.
KERNELS: Mapping[str, tuple[tir.PrimFunc, list[tuple[int, ...]]]] = {
    name: (kernel(text), SHAPES[name]) for name, text in TEXTS.items()
}


def arguments(shapes: list[tuple[int, ...]]) -> list[npt.NDArray[np.int32]]:
    """Arguments of a kernel, the results among them."""
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 9, shape).astype("int32") for shape in shapes]
