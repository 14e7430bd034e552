"""Kernels with split, fused and reordered loops run like the original ones."""

from random import Random
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.exec.kernel.support import check, methods, source_of
from tests.fuzz.tiled import Tiled

rng = np.random.default_rng(2)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@T.prim_func
def tiled(
    A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 4), "float32"), C: T.Buffer((8, 4), "float32")
):
    for i0, j0, k0, i1, j1, k1 in T.grid(2, 2, 3, 4, 2, 4):
        with T.block("C"):
            vi = T.axis.spatial(8, i0 * 4 + i1)
            vj = T.axis.spatial(4, j0 * 2 + j1)
            vk = T.axis.reduce(12, k0 * 4 + k1)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def with_tails(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    h = T.int64()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (m, h))
    C = T.match_buffer(c, (n, h))
    for i0, j0, k0, i1, j1, k1 in T.grid((n + 7) // 8, (h + 7) // 8, (m + 3) // 4, 8, 8, 4):
        with T.block("C"):
            T.where(i0 * 8 + i1 < n and j0 * 8 + j1 < h and k0 * 4 + k1 < m)
            vi = T.axis.spatial(n, i0 * 8 + i1)
            vj = T.axis.spatial(h, j0 * 8 + j1)
            vk = T.axis.reduce(m, k0 * 4 + k1)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


@T.prim_func
def fused(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n, m))
    for f in range(n * m):
        with T.block("B"):
            vi = T.axis.spatial(n, f // m)
            vj = T.axis.spatial(m, f % m)
            B[vi, vj] = A[vi, vj] + T.float32(1)


@T.prim_func
def threads(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m))
    B = T.match_buffer(b, (n, m))
    for bx in T.thread_binding((n * m + 255) // 256, thread="blockIdx.x"):
        for tx in T.thread_binding(256, thread="threadIdx.x"):
            with T.block("B"):
                T.where(bx * 256 + tx < n * m)
                vi = T.axis.spatial(n, (bx * 256 + tx) // m)
                vj = T.axis.spatial(m, (bx * 256 + tx) % m)
                B[vi, vj] = A[vi, vj] + T.float32(1)


@T.prim_func
def blocks(A: T.Buffer((6, 4), "float32"), B: T.Buffer((6, 4), "float32")):
    for bx in T.thread_binding(6, thread="blockIdx.x"):
        with T.block("B"):
            vi = T.axis.spatial(6, bx)
            T.tvm_storage_sync("shared")
            for j in range(4):
                if T.tvm_thread_invariant(j < 2):
                    B[vi, j] = A[vi, T.tvm_thread_invariant(j)] + T.float32(1)
                else:
                    B[vi, j] = T.float32(0)


@T.prim_func
def waiting(A: T.Buffer((2,), "float32"), B: T.Buffer((2,), "float32")):
    shared = T.alloc_buffer((2,), scope="shared")
    for tx in T.thread_binding(2, thread="threadIdx.x"):
        shared[tx] = A[tx]
        T.tvm_storage_sync("shared")
        B[tx] = shared[1 - tx]


def in_two_loops(shape: tuple[int, ...], index: str, again: str = "") -> PrimFunc:
    """A local buffer that one loop over threads writes, and another one reads."""
    text = f"""
@T.prim_func
def staged(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        own = T.alloc_buffer({shape}, scope="local")
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("first"):
                v = T.axis.spatial(4, tx)
                own[{index}] = A[v] * T.float32(2)
        for tx in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("second"):
                v = T.axis.spatial(4, tx)
                {again}
                B[v] = own[{index}] + T.float32(1)
"""
    return cast("PrimFunc", from_source(text))


@T.prim_func
def reshape(A: T.Buffer((4, 6), "float32"), B: T.Buffer((3, 8), "float32")):
    for i, j in T.grid(3, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[(vi * 8 + vj) // 6, (vi * 8 + vj) % 6]


@T.prim_func
def flatten(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    A = T.match_buffer(a, (n, m, k))
    B = T.match_buffer(b, (n * m * k,))
    for i in range(n * m * k):
        with T.block("B"):
            vi = T.axis.spatial(n * m * k, i)
            B[vi] = A[vi // k // m % n, vi // k % m, vi % k]


@T.prim_func
def three_levels(A: T.Buffer((60,), "float32"), B: T.Buffer((60,), "float32")):
    for i0, i1, i2 in T.grid(2, 4, 8):
        with T.block("B"):
            T.where((i0 * 4 + i1) * 8 + i2 < 60)
            vi = T.axis.spatial(60, i0 * 32 + i1 * 8 + i2)
            B[vi] = A[vi] + T.float32(1)


PLAIN = [
    (tiled, [(8, 12), (12, 4), (8, 4)], "rt.dot(A, B, C)"),
    (with_tails, [(9, 5), (5, 10), (9, 10)], "np.matmul(A, B, out=C)"),
    (with_tails, [(9, 0), (0, 10), (9, 10)], "np.matmul(A, B, out=C)"),
    (fused, [(3, 4), (3, 4)], "np.add(A, 1.0, out=B)"),
    (threads, [(13, 31), (13, 31)], "np.add(A, 1.0, out=B)"),
    (threads, [(0, 3), (0, 3)], "np.add(A, 1.0, out=B)"),
    (reshape, [(4, 6), (3, 8)], "B[...] = A.reshape(3, 8)"),
    (flatten, [(2, 3, 4), (24,)], "B.reshape(n, m, k)[...] = A"),
    (flatten, [(2, 0, 4), (0,)], "B.reshape(n, m, k)[...] = A"),
    (three_levels, [(60,), (60,)], "np.add(A, 1.0, out=B)"),
]


@pytest.mark.parametrize(("func", "shapes", "line"), PLAIN)
def test_a_schedule_leaves_no_trace_in_the_source(
    func: PrimFunc, shapes: list[tuple[int, ...]], line: str
) -> None:
    assert line in source_of(func)
    assert not any("loop" in m for m in methods(func))
    check(func, *(floats(*s) for s in shapes), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_threads_that_run_one_after_another_cannot_wait(target: str) -> None:
    a, b = floats(6, 4), floats(6, 4)
    relaxpy.compile(blocks, target)["blocks"](a, b)
    np.testing.assert_array_equal(b, np.where(np.arange(4) < 2, a + 1, 0))
    with pytest.raises(CompileError, match=r"tvm_storage_sync cannot run in a loop over threadId"):
        relaxpy.compile(waiting, target)


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_a_local_buffer_belongs_to_one_thread(target: str) -> None:
    a, b = floats(4), floats(4)
    relaxpy.compile(in_two_loops((4,), "v"), target)["staged"](a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)
    written_again = in_two_loops((1,), "0", "own[0] = A[v]")
    relaxpy.compile(written_again, target)["staged"](a, b)
    np.testing.assert_array_equal(b, a + 1)
    with pytest.raises(CompileError, match=r"each thread of threadIdx\.x has a local buffer own"):
        relaxpy.compile(in_two_loops((1,), "0"), target)


@T.prim_func
def bounded(A: T.Buffer((8,), "float32"), n: T.Buffer((2,), "int32"), B: T.Buffer((8,), "float32")):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.block("rows"):
            row = T.axis.spatial(2, bx)
            end = T.alloc_buffer((1,), "int32", scope="local")
            tile = T.alloc_buffer((4,), "float32", scope="shared")
            end[0] = n[row]
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                tile[tx] = T.if_then_else(tx < end[0], A[row * 4 + tx], T.float32(0))
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                if tx < end[0]:
                    B[row * 4 + tx] = tile[3 - tx]


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_a_local_buffer_that_no_thread_writes_is_one_of_all(target: str) -> None:
    """All threads of a block have the same value, which is written outside of their loops."""
    a, b = floats(8), np.zeros(8, "float32")
    relaxpy.compile(bounded, target)["bounded"](a, np.array([4, 3], "int32"), b)
    np.testing.assert_array_equal(b, [*a[3::-1], 0, a[6], a[5], 0])


def test_a_flattened_array_may_have_any_layout() -> None:
    check(flatten, floats(4, 3, 2).T, floats(48)[::2])
    check(reshape, floats(6, 4).T, floats(3, 16)[:, ::2])


@settings(max_examples=40)
@given(st.integers(0, 1 << 30))
@example(12314)
def test_any_schedule_agrees_with_the_reference(seed: int) -> None:
    kernel = Tiled(Random(seed))
    check(kernel.kernel(), *kernel.arguments(seed), rtol=1e-4, atol=1e-4)
