"""Parallel loops around several blocks, which use a buffer tile by tile."""

from __future__ import annotations

import numpy as np
import pytest

import relaxpy
from relaxpy import te, tir
from relaxpy.errors import ScheduleError
from relaxpy.script import from_source


def test_a_tiled_product_with_a_written_cache_is_parallel() -> None:
    k = te.reduce_axis((0, 64), "k")
    a, b = (te.placeholder((64, 64), name=name) for name in "AB")
    c = te.compute((64, 64), lambda m, n: te.sum(a[m, k] * b[k, n], axis=k), name="C")
    schedule = tir.Schedule(relaxpy.IRModule({"main": te.create_prim_func([a, b, c])}))
    block = schedule.get_block("C")
    m, n, kk = schedule.get_loops(block)
    (mo, mi), (no, ni) = schedule.split(m, [None, 32]), schedule.split(n, [None, 16])
    ko, ki = schedule.split(kk, [None, 4])
    schedule.reorder(mo, no, ko, ki, mi, ni)
    schedule.vectorize(ni)
    schedule.cache_read(block, 1, "global")
    schedule.transform_layout(block, ("read", 1), lambda i, j: (j // 16, i, j % 16))
    schedule.reverse_compute_at(schedule.cache_write(block, 0, "global"), no)
    schedule.decompose_reduction(block, ko)
    schedule.parallel(mo)
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 64, 64)).astype("float32")
    for target in ("numpy", "native"):
        found = np.zeros((64, 64), "float32")
        relaxpy.compile(schedule.mod, target)["main"](x, y, found)
        np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-4)


TILES = pytest.mark.parametrize(
    ("write", "read", "is_parallel"),
    [
        ("o * 8 + i", "o * 8 + i", True),
        ("o * 8 + i", "o * 8 + 7 - i", True),
        ("o * 8 + i", "o * 8 + i + 1", False),
        ("o * 8 + i", "o * 7 + i", False),
        ("o * 7 + i", "o * 7 + i", False),
        ("31 - o * 8 - i", "24 - o * 8 + i", True),
        ("31 - o * 8 - i", "31 - o * 8 + i", False),
        ("o * 8 + i", "o * 8 + i * 2", False),
    ],
)


def check_parallel(schedule: tir.Schedule, loop: tir.schedule.LoopRV, is_parallel: bool) -> None:
    """A loop becomes parallel, or is refused."""
    if is_parallel:
        schedule.parallel(loop)
    else:
        with pytest.raises(ScheduleError):
            schedule.parallel(loop)


@TILES
def test_blocks_of_a_tile_use_elements_of_no_other(write, read, is_parallel) -> None:
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((4, 8), "float32"), B: T.Buffer((4, 8), "float32")):
    C = T.alloc_buffer((48,), "float32")
    for a in range(4):
        for b in range(8):
            with T.block("write"):
                o, i = T.axis.remap("SS", [a, b])
                C[{write}] = A[o, i]
        for p in range(8):
            with T.block("read"):
                o, i = T.axis.remap("SS", [a, p])
                B[o, i] = C[{read}]
""")
    schedule = tir.Schedule(func)
    loop = schedule.get_loops(schedule.get_block("read"))[0]
    check_parallel(schedule, loop, is_parallel)


@pytest.mark.parametrize("is_fused", [False, True])
@TILES
def test_loops_outside_of_a_parallel_one_do_not_make_tiles_overlap(
    write, read, is_parallel, is_fused
):
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((3, 4, 8), "float32"), B: T.Buffer((3, 4, 8), "float32")):
    C = T.alloc_buffer((112,), "float32")
    for g, a in T.grid(3, 4):
        for b in range(8):
            with T.block("write"):
                n, o, i = T.axis.remap("SSS", [g, a, b])
                C[n * 32 + {write}] = A[n, o, i]
        for p in range(8):
            with T.block("read"):
                n, o, i = T.axis.remap("SSS", [g, a, p])
                B[n, o, i] = C[n * 32 + {read}]
""")
    schedule = tir.Schedule(func)
    outer, loop = schedule.get_loops("read")[:2]
    loop = schedule.fuse(outer, loop) if is_fused else loop
    check_parallel(schedule, loop, is_parallel)


@pytest.mark.parametrize(
    ("value", "read", "is_parallel"),
    [
        ("A[i]", "i", True),
        ("A[i]", "7 - i", True),
        ("A[i] + T.Cast('float32', a)", "i", False),
        ("A[i] + B[0, 0]", "i", False),
        ("A[i] + C[7 - i]", "i", False),
    ],
)
def test_blocks_that_repeat_their_stores_are_in_parallel_loops(value, read, is_parallel) -> None:
    func = from_source(f"""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((4, 8), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for a in range(4):
        for b in range(8):
            with T.block("write"):
                i = T.axis.spatial(8, b)
                C[i] = {value}
        for p in range(8):
            with T.block("read"):
                o, i = T.axis.remap("SS", [a, p])
                B[o, i] = C[{read}]
""")
    schedule = tir.Schedule(func)
    check_parallel(schedule, schedule.get_loops("read")[0], is_parallel)
    x = np.arange(8, dtype="float32")
    if is_parallel:
        for target in ("numpy", "native"):
            found = np.zeros((4, 8), "float32")
            relaxpy.compile(schedule.mod, target)["main"](x, found)
            np.testing.assert_array_equal(found, [x if read == "i" else x[::-1]] * 4)


def test_blocks_that_repeat_their_stores_in_a_common_loop_are_not_parallel() -> None:
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((8,), "float32"), B: T.Buffer((4, 8), "float32")):
    C = T.alloc_buffer((8,), "float32")
    for a, b in T.grid(4, 8):
        with T.block("write"):
            i = T.axis.spatial(8, b)
            C[i] = A[i]
        with T.block("read"):
            o, i = T.axis.remap("SS", [a, b])
            B[o, i] = C[7 - i]
""")
    schedule = tir.Schedule(func)
    check_parallel(schedule, schedule.get_loops("read")[0], is_parallel=False)


@pytest.mark.parametrize("is_fused", [False, True])
def test_tiles_of_threads_keep_their_sums_in_a_local_buffer(is_fused: bool) -> None:
    k = te.reduce_axis((0, 64), "k")
    a, b = (te.placeholder((64, 64), name=name) for name in "AB")
    c = te.compute((64, 64), lambda m, n: te.sum(a[m, k] * b[k, n], axis=k), name="C")
    schedule = tir.Schedule(te.create_prim_func([a, b, c]))
    sums = schedule.cache_write("C", 0, "local")
    m, n, kk = schedule.get_loops("C")
    (m0, m1, m2), (n0, n1, n2) = (schedule.split(at, [None, 4, 4]) for at in (m, n))
    k0, k1 = schedule.split(kk, [None, 8])
    schedule.reorder(m0, n0, m1, n1, k0, k1, m2, n2)
    schedule.reverse_compute_at(sums, n1)
    schedule.bind(m0, "blockIdx.y")
    schedule.bind(n0, "blockIdx.x")
    if is_fused:
        schedule.bind(schedule.fuse(m1, n1), "threadIdx.x")
    else:
        schedule.bind(m1, "threadIdx.y")
        schedule.bind(n1, "threadIdx.x")
    schedule.decompose_reduction("C", k0)
    x, y = np.random.default_rng(0).standard_normal((2, 64, 64)).astype("float32")
    for target in ("numpy", "native"):
        found = np.zeros((64, 64), "float32")
        relaxpy.compile(schedule.mod, target)["main"](x, y, found)
        np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-4)
