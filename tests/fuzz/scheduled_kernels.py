"""Kernels of the kinds that schedules are written for, with arguments for them."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from relaxpy import tir
from relaxpy.script import tir as T


@T.prim_func
def matmul(
    A: T.Buffer((6, 8), "int32"), B: T.Buffer((8, 7), "int32"), C: T.Buffer((6, 7), "int32")
):
    for i, j, k in T.grid(6, 7, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def chain(A: T.Buffer((6, 8), "int32"), D: T.Buffer((6, 8), "int32")):
    B = T.alloc_buffer((6, 8), "int32")
    C = T.alloc_buffer((6, 8), "int32")
    for i, j in T.grid(6, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2
    for i, j in T.grid(6, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] + 1
    for i, j in T.grid(6, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] * C[vi, vj] - B[vi, vj]


@T.prim_func
def matmul_relu(
    A: T.Buffer((6, 8), "int32"), B: T.Buffer((8, 7), "int32"), D: T.Buffer((6, 7), "int32")
):
    A2 = T.alloc_buffer((6, 8), "int32")
    C = T.alloc_buffer((6, 7), "int32")
    for i, k in T.grid(6, 8):
        with T.block("A2"):
            vi, vk = T.axis.remap("SS", [i, k])
            A2[vi, vk] = A[vi, vk] - 3
    for i, j, k in T.grid(6, 7, 8):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + A2[vi, vk] * B[vk, vj]
    for i, j in T.grid(6, 7):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.max(C[vi, vj], 0)


@T.prim_func
def conv(A: T.Buffer((12,), "int32"), W: T.Buffer((3,), "int32"), C: T.Buffer((12,), "int32")):
    P = T.alloc_buffer((14,), "int32")
    for i in range(14):
        with T.block("P"):
            vi = T.axis.spatial(14, i)
            P[vi] = T.if_then_else(vi >= 1 and vi < 13, A[vi - 1], 0)
    for i, k in T.grid(12, 3):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + P[vi + vk] * W[vk]


@T.prim_func
def row_sums(a: T.handle, b: T.handle, d: T.handle):
    n, m = T.int64(), T.int64()
    A = T.match_buffer(a, (n, m), "int32")
    B = T.match_buffer(b, (n,), "int32")
    D = T.match_buffer(d, (n, m), "int32")
    S = T.alloc_buffer((n,), "int32")
    for i, k in T.grid(n, m):
        with T.block("S"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                S[vi] = 0
            S[vi] = S[vi] + A[vi, vk]
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = S[vi] * 2
    for i, j in T.grid(n, m):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = A[vi, vj] - S[vi]


@T.prim_func
def transposed(A: T.Buffer((6, 4), "int32"), C: T.Buffer((4, 6), "int32")):
    B = T.alloc_buffer((4, 6), "int32")
    for i, j in T.grid(4, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vj, vi]
    for i, j in T.grid(4, 6):
        with T.block("C"):
            T.where(i * 6 + j < 20)
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[3 - vi, vj] + B[vi, 5 - vj]


@T.prim_func
def maxima(A: T.Buffer((5, 9), "int32"), C: T.Buffer((5,), "int32")):
    M = T.alloc_buffer((5,), "int32")
    for i, k in T.grid(5, 9):
        with T.block("M"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                M[vi] = T.min_value("int32")
            M[vi] = T.max(M[vi], A[vi, vk])
    for i, k in T.grid(5, 9):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = 0
            C[vi] = C[vi] + (M[vi] - A[vi, vk]) * (M[vi] - A[vi, vk])


@T.prim_func
def channels(A: T.Buffer((3, 6, 8), "int32"), C: T.Buffer((3, 6, 8), "int32")):
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


#: A kernel, and the shapes of its arguments.
KERNELS: Mapping[str, tuple[tir.PrimFunc, list[tuple[int, ...]]]] = {
    "matmul": (matmul, [(6, 8), (8, 7), (6, 7)]),
    "chain": (chain, [(6, 8), (6, 8)]),
    "matmul_relu": (matmul_relu, [(6, 8), (8, 7), (6, 7)]),
    "conv": (conv, [(12,), (3,), (12,)]),
    "row_sums": (row_sums, [(5, 7), (5,), (5, 7)]),
    "transposed": (transposed, [(6, 4), (4, 6)]),
    "maxima": (maxima, [(5, 9), (5,)]),
    "channels": (channels, [(3, 6, 8), (3, 6, 8)]),
}


def arguments(shapes: list[tuple[int, ...]]) -> list[npt.NDArray[np.int32]]:
    """Arguments of a kernel, the results among them."""
    rng = np.random.default_rng(0)
    return [rng.integers(-9, 9, shape).astype("int32") for shape in shapes]
