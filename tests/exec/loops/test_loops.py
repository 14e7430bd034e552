"""Kernels with split, fused and reordered loops run like the original ones."""

from random import Random
from typing import cast

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.exec.loops.support import check
from tests.exec.loops.written import floats, run_row
from tests.fuzz.tiled import Tiled
from tests.rows import sections

SCHEDULES = sections("""
--- tiles
def f(A: f32[8, 12], B: f32[12, 4], C: f32[8, 4]):
    for i0, j0, k0, i1, j1, k1 in T.grid(2, 2, 3, 4, 2, 4):
        with T.block("C"):
            vi = T.axis.spatial(8, i0 * 4 + i1)
            vj = T.axis.spatial(4, j0 * 2 + j1)
            vk = T.axis.reduce(12, k0 * 4 + k1)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
# source: rt.dot(A, B, C)
# whole: yes
# rtol: 1e-4
--- tiles with tails
def f(A: f32[n, m], B: f32[m, h], C: f32[n, h]):
    for i0, j0, k0, i1, j1, k1 in T.grid((n + 7) // 8, (h + 7) // 8, (m + 3) // 4, 8, 8, 4):
        with T.block("C"):
            T.where(i0 * 8 + i1 < n and j0 * 8 + j1 < h and k0 * 4 + k1 < m)
            vi = T.axis.spatial(n, i0 * 8 + i1)
            vj = T.axis.spatial(h, j0 * 8 + j1)
            vk = T.axis.reduce(m, k0 * 4 + k1)
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
# args: n=9, m=5, h=10
# args: n=9, m=0, h=10
# source: np.matmul(A, B, out=C)
# whole: yes
# rtol: 1e-4
--- fused loops
def f(A: f32[n, m], B: f32[n, m]):
    for f in range(n * m):
        with T.block("B"):
            vi = T.axis.spatial(n, f // m)
            vj = T.axis.spatial(m, f % m)
            B[vi, vj] = A[vi, vj] + T.float32(1)
# args: n=3, m=4
# source: np.add(A, rt.float32[1.0], out=B)
# whole: yes
--- threads
def f(A: f32[n, m], B: f32[n, m]):
    for bx in T.thread_binding((n * m + 255) // 256, thread="blockIdx.x"):
        for tx in T.thread_binding(256, thread="threadIdx.x"):
            with T.block("B"):
                T.where(bx * 256 + tx < n * m)
                vi = T.axis.spatial(n, (bx * 256 + tx) // m)
                vj = T.axis.spatial(m, (bx * 256 + tx) % m)
                B[vi, vj] = A[vi, vj] + T.float32(1)
# args: n=13, m=31
# args: n=0, m=3
# source: np.add(A, rt.float32[1.0], out=B)
# whole: yes
--- another shape
def f(A: f32[4, 6], B: f32[3, 8]):
    for i, j in SS(3, 8):
        B[vi, vj] = A[(vi * 8 + vj) // 6, (vi * 8 + vj) % 6]
# args: A=floats(4, 6)
# args: A=floats(6, 4).T, B=floats(3, 16)[:, ::2]
# source: B[...] = A.reshape(3, 8)
# whole: yes
--- a flat copy
def f(A: f32[n, m, k], B: f32[n * m * k]):
    for i in S(n * m * k):
        B[vi] = A[vi // k // m % n, vi // k % m, vi % k]
# args: n=2, m=3, k=4
# args: n=2, m=0, k=4
# args: n=2, m=3, k=4, A=floats(4, 3, 2).T, B=floats(48)[::2]
# source: B.reshape(n, m, k)[...] = A
# whole: yes
--- three levels
def f(A: f32[60], B: f32[60]):
    for i0, i1, i2 in T.grid(2, 4, 8):
        with T.block("B"):
            T.where((i0 * 4 + i1) * 8 + i2 < 60)
            vi = T.axis.spatial(60, i0 * 32 + i1 * 8 + i2)
            B[vi] = A[vi] + T.float32(1)
# source: np.add(A, rt.float32[1.0], out=B)
# whole: yes
""")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_schedule_leaves_no_trace_in_the_source(schedule: str) -> None:
    run_row(SCHEDULES[schedule])


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
    for index in ("0", "v // 4", "(v + 4) // 4 - 1"):
        with pytest.raises(CompileError, match=r"each thread of threadIdx\.x has a local buffer"):
            relaxpy.compile(in_two_loops((1,), index), target)
    relaxpy.compile(in_two_loops((2, 2), "v // 2, v % 2"), target)["staged"](a, b)
    np.testing.assert_array_equal(b, a * 2 + 1)


def test_a_local_buffer_that_no_thread_writes_is_one_of_all() -> None:
    """All threads of a block have the same value, which is written outside of their loops."""
    run_row("""
def bounded(A: f32[8], n: i32[2], B: f32[8]):
    for bx in T.thread_binding(2, thread="blockIdx.x"):
        with T.block("rows"):
            row = T.axis.spatial(2, bx)
            end = T.alloc_buffer((1,), "int32", scope="local")
            tile = T.alloc_buffer((4,), "float32", scope="shared")
            end[0] = n[row]
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                tile[tx] = T.if_then_else(tx < end[0], A[row * 4 + tx], f32(0))
            for tx in T.thread_binding(4, thread="threadIdx.x"):
                if tx < end[0]:
                    B[row * 4 + tx] = tile[3 - tx]
# args: n=[4, 3], B=[0] * 8
""")


@settings(max_examples=40)
@given(st.integers(0, 1 << 30))
@example(12314)
def test_any_schedule_agrees_with_the_reference(seed: int) -> None:
    kernel = Tiled(Random(seed))
    check(kernel.kernel(), *kernel.arguments(seed), rtol=1e-4, atol=1e-4)
