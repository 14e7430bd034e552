"""Whatever primitives are applied to a kernel, its values stay."""

import random
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.script import from_source, tir as T
from tests.exec.loops.written import kernel
from tests.fuzz.primitives import STEPS, WEIGHTS, check_partial_kernel, schedule_at_random
from tests.fuzz.scheduled_kernels import KERNELS, arguments
from tests.fuzz.seed import COUNT, SEED


@pytest.mark.parametrize("name", KERNELS)
def test_values_stay_equal_after_random_primitives(name: str) -> None:
    func, shapes = KERNELS[name]
    expected = arguments(shapes)
    relaxpy.compile(func, target="reference")[func.__name__](*expected)
    for number in range(max(2, COUNT // 6)):
        rng = random.Random(f"{SEED} {name} {number}")
        sch, applied = schedule_at_random(func, rng, 16)
        target = ("reference", "numpy", "native")[number % 3]
        results = arguments(shapes)
        relaxpy.compile(sch.mod, target=target)["main"](*results)
        for result, wanted in zip(results, expected, strict=True):
            np.testing.assert_array_equal(
                result, wanted, f"{SEED} {number}: {applied}\n{sch.trace}"
            )


@pytest.mark.parametrize("number", range(max(8, COUNT)))
def test_values_stay_equal_where_a_kernel_leaves_elements_as_they_were(number: int) -> None:
    check_partial_kernel(SEED, number)


def test_each_primitive_is_applied_somewhere() -> None:
    missing = set(STEPS)
    for seed in range(400):
        name = random.Random(seed).choice(list(KERNELS))
        weights = {**WEIGHTS, **dict.fromkeys(missing, 20)}  # with the usual ones, rare ones last
        _, applied = schedule_at_random(KERNELS[name][0], random.Random(seed), 16, weights)
        missing.difference_update(applied)
        if not missing:
            return
    pytest.fail(f"never applied: {missing}")


def test_a_trace_leads_to_the_same_kernel() -> None:
    func, _ = KERNELS["matmul_relu"]
    for seed in range(3):
        sch, applied = schedule_at_random(func, random.Random(seed), 12)
        assert applied
        second, third = tir.Schedule(func), tir.Schedule(func)
        sch.trace.apply_to_schedule(second)
        tir.schedule.Trace.apply_json_to_schedule(sch.trace.as_json(), third)
        relaxpy.ir.assert_structural_equal(second.mod, sch.mod)
        relaxpy.ir.assert_structural_equal(third.mod, sch.mod)


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_copies_and_moved_blocks_keep_the_condition_of_an_outer_loop(target: str) -> None:
    func, shapes = KERNELS["chain"]
    sch = tir.Schedule(func)
    outer = sch.split(sch.get_loops("C")[0], [2, None, 2])[-1]  # 8 iterations for 6 rows
    sch.reverse_compute_at("D", outer)
    sch.cache_write("C", 0, "shared")
    expected, found = arguments(shapes), arguments(shapes)
    relaxpy.compile(func, target="reference")[func.__name__](*expected)
    relaxpy.compile(sch.mod, target=target)["main"](*found)
    for wanted, result in zip(expected, found, strict=True):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("target", ["numpy", "native"])
@pytest.mark.parametrize("pad", [None, -4, lambda i, j, k: i + 2 * k])
def test_a_parameter_in_another_layout(target: str, pad: Any) -> None:
    func, shapes = KERNELS["matmul"]
    layout = tir.IndexMap.from_func(lambda i, j: (i // 4, j, i % 4))
    sch = tir.Schedule(func)
    sch.transform_layout("C", ("read", 0), layout)
    sch.transform_layout("C", "C", layout, pad_value=pad)
    expected, found = arguments(shapes), arguments(shapes)
    relaxpy.compile(func, target="reference")["matmul"](*expected)
    a, b, c = layout.map_ndarray(found[0]), found[1], np.full((2, 7, 4), 99, "int32")
    relaxpy.compile(sch.mod, target=target)["main"](a, b, c)
    wanted = layout.map_ndarray(expected[2])
    if pad is None:
        np.testing.assert_array_equal(c.transpose(0, 2, 1).reshape(8, 7)[:6], expected[2])
    else:
        i, _, k = np.indices(c.shape)
        filled = np.full(c.shape, -4) if pad == -4 else i + 2 * k
        np.testing.assert_array_equal(c, np.where(i * 4 + k < 6, wanted, filled))


def test_a_block_of_a_tile_has_the_init_of_its_reduction() -> None:
    func, _ = KERNELS["matmul"]
    sch = tir.Schedule(func)
    i, j, k = sch.get_loops("C")
    k0, k1 = sch.split(k, [2, 4])
    sch.reorder(k0, i, j, k1)
    outer = sch.blockize(i)
    kinds = [(it.iter_type.name, it.dom.extent) for it in sch.get(outer).iter_vars]
    assert kinds == [("DataPar", 1), ("DataPar", 1), ("CommReduce", 2)]
    assert sch.get(sch.get_child_blocks(outer)[0]).name_hint == "C_init"
    assert sch.get(sch.get_block("C")).init is None
    assert len(sch.get_loops(outer)) == 1
    relaxpy.ir.assert_structural_equal(from_source(sch.mod.script()), sch.mod)


product = kernel("""
def product(A: f32[32, 48], B: f32[48, 64], D: f32[32, 64]):
    C = T.alloc_buffer((32, 64), "float32")
    for i, j, k in SSR(32, 64, 48):
        with T.init():
            C[vi, vj] = T.float32(0)
        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i, j in SS(32, 64):
        D[vi, vj] = T.max(C[vi, vj], T.float32(0))
""")


@pytest.mark.parametrize("target", ["numpy", "native"])
def test_a_product_in_tiles_with_copies_of_its_operands(target: str) -> None:
    sch = tir.Schedule(product)
    block = sch.get_block("C")
    i, j, k = sch.get_loops(block)
    i0, i1 = sch.split(i, [None, 8])
    j0, j1 = sch.split(j, [None, 16])
    k0, k1 = sch.split(k, [None, 12])
    sch.reorder(i0, j0, k0, k1, i1, j1)
    sch.bind(i0, "blockIdx.x")
    sch.bind(j0, "threadIdx.x")
    sch.reverse_compute_at("D", j0)
    for operand in range(2):
        copied = sch.cache_read(block, operand, "shared")
        sch.compute_at(copied, k0, preserve_unit_loops=True)
        *_, rows, columns = sch.get_loops(copied)
        fused = sch.fuse(rows, columns)
        sch.vectorize(sch.split(fused, [None, 4])[1])
        sch.storage_align(copied, 0, axis=0, factor=32, offset=8)
    sch.decompose_reduction(block, k0)
    text = sch.mod.script()
    assert text.index('"A_shared"') < text.index('"C_update"') < text.index('T.block("D")')
    for copied, size in (("A_shared", 8 * 12), ("B_shared", 12 * 64)):  # for all threads of j0
        extents = [sch.get(loop).extent for loop in sch.get_loops(copied)[3:]]
        assert [int(extent) for extent in extents] == [size // 4, 4]
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("float32") for s in ((32, 48), (48, 64)))
    d = np.empty((32, 64), "float32")
    program = relaxpy.compile(sch.mod, target=target)
    program["main"](a, b, d)
    np.testing.assert_allclose(d, np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)
    assert "shared" not in program.source  # threads run one by one: none copies for the others


def maxima(A: T.Buffer((2, 3), "float32"), D: T.Buffer((3,), "float32")) -> None:
    for i, k in T.grid(2, 3):
        with T.block("D"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                D[vi] = T.float32(0)
            D[vi] = T.max(D[vi], A[vi, vk])


@pytest.mark.parametrize("target", ["reference", "numpy", "native"])
def test_an_init_of_its_own_keeps_the_condition_of_an_outer_loop(target: str) -> None:
    sch = tir.Schedule(T.prim_func(maxima))
    loop = sch.get_loops("D")[0]
    _, unit = sch.split(loop, [3, None], preserve_unit_iters=False)  # leaves out one of three
    sch.decompose_reduction("D", unit)
    a, d = np.arange(6, dtype="float32").reshape(2, 3), np.full(3, -7, "float32")
    relaxpy.compile(sch.mod, target)["main"](a, d)
    assert d.tolist() == [2, 5, -7]


@T.prim_func
def centred(A: T.Buffer((6, 8), "float32"), D: T.Buffer((6, 8), "float32")):
    B, C = T.alloc_buffer((6, 8)), T.alloc_buffer((6,))
    for i, j in T.grid(6, 8):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in T.grid(6, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + B[vi, vj]
    for i, j in T.grid(6, 8):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = B[vi, vj] - C[vi]


@pytest.mark.parametrize("factors", [None, [2, 3], [3, 2]])
def test_a_block_moves_to_all_of_its_producers(factors: list[int] | None) -> None:
    sch = tir.Schedule(centred)
    loop = sch.get_loops("B")[0]
    if factors is not None:
        loop = sch.split(loop, factors)[0]
    sch.reverse_compute_at("C", loop)
    sch.reverse_compute_at("D", loop)
    assert [len(sch.get_loops(name)) for name in "BCD"] == [2 if factors is None else 3] * 3
    a = np.random.default_rng(0).integers(-9, 9, (6, 8)).astype("float32")
    result = np.zeros_like(a)
    relaxpy.compile(sch.mod)["main"](a, result)
    np.testing.assert_array_equal(result, 2 * a - (2 * a).sum(1, keepdims=True))


def test_a_block_stays_where_one_of_its_producers_comes_later() -> None:
    sch = tir.Schedule(centred)
    outer, inner = sch.get_loops("B")
    sch.reverse_compute_at("C", outer)
    with pytest.raises(tir.ScheduleError, match="block C writes what block D reads, and may do so"):
        sch.reverse_compute_at("D", inner)


def doubled_and_copied(written: int, read: int) -> tir.PrimFunc:
    return kernel(f"""
def f(A: f32[{written}, 9], C: f32[{written}, 9]):
    B = T.alloc_buffer(({written}, 9), "float32")
    for i, j in SS({written}, 9, "B"):
        B[vi, vj] = A[vi, vj] * T.float32(2)
    for i, j in SS({read}, 9, "C"):
        C[vi, vj] = B[vi, vj] + T.float32(1)
""")


@pytest.mark.parametrize(("written", "read"), [(10, 10), (7, 7), (3, 3), (10, 6), (9, 1)])
@pytest.mark.parametrize("level", range(4))
def test_a_block_moves_under_loops_whose_split_does_not_divide(
    written: int, read: int, level: int
) -> None:
    """As in TVM, the last iterations run by a predicate."""
    func = doubled_and_copied(written, read)
    sch = tir.Schedule(func)
    i, j = sch.get_loops("B")
    (i_0, i_1), (j_0, j_1) = sch.split(i, [None, 4]), sch.split(j, [None, 2])
    sch.reorder(i_0, j_0, i_1, j_1)
    sch.reverse_compute_at("C", sch.get_loops("B")[level])
    a = np.random.default_rng(0).random((written, 9)).astype("float32")
    for target in ("reference", "numpy", "native"):
        result = np.zeros_like(a)
        relaxpy.compile(sch.mod, target)["main"](a, result)
        expected = np.where(np.arange(written)[:, None] < read, 2 * a + 1, 0)
        np.testing.assert_array_equal(result, expected)


def test_a_block_that_reads_beyond_what_a_split_writes_stays() -> None:
    sch = tir.Schedule(
        kernel("""
def f(A: f32[10], C: f32[12]):
    B = T.alloc_buffer((12,), "float32")
    for i in S(10, "B"):
        B[vi] = A[vi] * T.float32(2)
    for i in S(12, "C"):
        C[vi] = B[vi] + T.float32(1)
""")
    )
    outer = sch.split(sch.get_loops("B")[0], [None, 4])[0]
    with pytest.raises(tir.ScheduleError, match="is not known to read B where an iteration"):
        sch.reverse_compute_at("C", outer)


@T.prim_func
def two_readers(B: T.Buffer((12,), "float32"), C: T.Buffer((12,), "float32")):
    A = T.alloc_buffer((12,))
    for i in range(3):
        for j in range(4):
            with T.block("A"):
                vi = T.axis.spatial(12, i * 4 + j)
                A[vi] = T.Cast("float32", vi * vi)
        for j in range(4):
            with T.block("B"):
                vi = T.axis.spatial(12, i * 4 + j)
                B[vi] = A[vi] + T.float32(1)
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = A[11 - vi]


@pytest.mark.parametrize("consumers", ["", "B", "C", "BC", "CC"])
def test_some_readers_read_the_buffer_that_is_copied(consumers: str) -> None:
    sch = tir.Schedule(two_readers)
    copy = sch.cache_write("A", 0, "global", consumer_blocks=list(consumers))
    assert len(sch.get_loops(copy)) == (1 if "B" in consumers else 2)
    for name in "BC":
        (read,) = sch.get(sch.get_block(name)).reads
        assert read.buffer.name == ("A_global" if name in consumers else "A")
    results = [np.zeros(12, "float32") for _ in range(2)]
    relaxpy.compile(sch.mod)["main"](*results)
    squares = np.arange(12.0) ** 2
    np.testing.assert_array_equal(results, [squares + 1, squares[::-1]])
    again = tir.Schedule(two_readers)
    sch.trace.apply_to_schedule(again)
    relaxpy.ir.assert_structural_equal(again.mod, sch.mod)


def test_readers_of_the_copied_buffer_read_only_what_is_written() -> None:
    @T.prim_func
    def part(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
        for i in range(6):
            with T.block("A"):
                vi = T.axis.spatial(6, i)
                A[vi] = T.float32(2)
        for i in range(12):
            with T.block("B"):
                vi = T.axis.spatial(12, i)
                B[vi] = A[vi]

    with pytest.raises(tir.ScheduleError, match="block A is not known to write all elements of A"):
        tir.Schedule(part).cache_write("A", 0, "global", consumer_blocks=["B"])
    with pytest.raises(tir.ScheduleError, match="not all of the consumer blocks read A"):
        tir.Schedule(two_readers).cache_write("A", 0, "global", consumer_blocks=["A"])
