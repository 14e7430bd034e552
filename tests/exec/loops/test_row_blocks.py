"""Blocks of rows cover all rows, whichever threads run them."""

import gc
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.loops.plan import blocking
from relaxpy.exec.machine import blas, tuning
from relaxpy.exec.numpy import row_blocks
from relaxpy.exec.runtime import threads as runtime_threads
from relaxpy.script import from_source, tir as T


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_blocks_cover_all_rows_once_and_pass_errors_on(monkeypatch, threads, products) -> None:
    monkeypatch.setattr(tuning.Blocks, "TARGET", 40)
    monkeypatch.setattr(row_blocks, "threads", lambda: threads)
    for work in (0, 1 << 30):
        for count in (0, 1, 2, 3, 17, 100):
            seen = np.zeros(count + 2, int)

            def rows(
                lo: int, hi: int, empty: Callable[..., np.ndarray], seen: np.ndarray = seen
            ) -> None:
                ones = empty((hi - lo, 2), np.dtype("int64"))
                ones[...] = 1
                seen[lo:hi] += ones[:, 1]

            row_blocks.blocks(rows, 1, count + 1, 10, work, of_batch=products)
            assert seen.tolist() == [0, *[1] * count, 0]

        def failing(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
            raise RuntimeCheckError("stop")

        with pytest.raises(RuntimeCheckError, match="stop"):
            row_blocks.blocks(failing, 0, 100, 10, work, of_batch=products)


@pytest.mark.parametrize("kind", [RuntimeCheckError, KeyboardInterrupt])
def test_no_block_begins_after_an_error_and_the_first_row_decides(monkeypatch, kind) -> None:
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    both, ended = threading.Barrier(2), threading.Event()
    here = threading.get_ident()
    begun: list[tuple[bool, int]] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        if empty is np.empty:  # the search for the first row that fails
            if lo <= 10 < hi:
                raise kind("an earlier row")
            return
        is_here = threading.get_ident() == here
        is_second = any(thread == is_here for thread, _ in begun)
        begun.append((is_here, lo))
        if is_second and is_here:
            ended.set()
            raise kind("row 50")
        both.wait(10)
        if not is_here:
            assert ended.wait(10)
            time.sleep(0.05)  # the other thread fails first, in a later row
            if kind is RuntimeCheckError:
                raise kind("an earlier row")

    expected = "row 50" if kind is KeyboardInterrupt else "an earlier row"
    with pytest.raises(kind, match=expected):
        row_blocks.blocks(rows, 0, 100, 10, 1 << 24)
    assert sorted(lo for _, lo in begun) == [0, 25, 50]


def test_an_error_keeps_no_memory_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the array of a block that failed nor its error is in a reference cycle."""
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    found: list[weakref.ref[object]] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        array = np.empty(8)
        found.append(weakref.ref(array))
        raise RuntimeCheckError(f"row {lo} of {array.size}")

    gc.disable()
    try:
        with suppress(RuntimeCheckError):
            row_blocks.blocks(rows, 0, 100, 10, 1 << 24)
        assert found
        assert all(ref() is None for ref in found)
    finally:
        gc.enable()


def test_products_are_on_one_thread_of_blas_each(monkeypatch: pytest.MonkeyPatch) -> None:
    if not blas.has_thread_limit():
        pytest.skip("NumPy's BLAS has no threads")
    count = blas._openblas("get_num_threads")
    before = count()
    blas._openblas("set_num_threads")(3)
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    met = threading.Barrier(2)
    found: list[Any] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        met.wait(10)  # each thread has a block
        found.append((lo, hi, count()))

    def failing(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        raise RuntimeCheckError("stop")

    try:
        row_blocks.blocks(rows, 0, 8, 10, 1 << 30, of_batch=True)
        assert sorted(found) == [(0, 4, 1), (4, 8, 1)]
        assert count() == 3
        with pytest.raises(RuntimeCheckError, match="stop"):
            row_blocks.blocks(failing, 0, 8, 10, 1 << 30, of_batch=True)
        assert count() == 3
    finally:
        blas._openblas("set_num_threads")(before)


@T.prim_func
def stores_to_its_indices(
    A: T.Buffer((9, 64), "float32"),
    C: T.Buffer((40,), "int32"),
    K: T.Buffer((40,), "int32"),
    B: T.Buffer((40, 64), "float32"),
    D: T.Buffer((40, 64), "float32"),
):
    for i, j in T.grid(40, 64):
        with T.block("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.exp(A[C[vi], vj]) * T.float32(2)
    for i in range(40):
        with T.block("c"):
            vi = T.axis.spatial(40, i)
            C[vi] = C[vi] + 200
    for i, j in T.grid(40, 64):
        with T.block("d"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = T.exp(A[K[vi], vj]) + B[vi, vj]


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_rows_that_store_to_what_they_read_are_computed_once(target, monkeypatch) -> None:
    """Computed again, they would find the indices that they have stored."""
    monkeypatch.setattr(tuning.Blocks, "TARGET", 1 << 12)
    monkeypatch.setattr(tuning.Blocks, "WORTH_SCRATCH", 0)
    monkeypatch.setattr(tuning.Blocks, "LEAST_BYTES", 0)
    monkeypatch.setattr(tuning.Blocks, "MUCH_WORK", 1)
    kernel = relaxpy.compile(stores_to_its_indices, target)["stores_to_its_indices"]
    indices = np.full(40, 2, np.int32)
    indices[25] = 77
    out = np.zeros((2, 40, 64), np.float32)
    with pytest.raises(RuntimeCheckError, match=r"index 77 is outside"):
        kernel(np.ones((9, 64), np.float32), np.full(40, 3, np.int32), indices, *out)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems choose processors themselves")
def test_workers_wake_up_on_other_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("this process may use one processor")
    current = min(allowed)
    monkeypatch.setattr(runtime_threads, "_current_processor", lambda: lambda: current)
    set_affinity = os.sched_setaffinity
    calls: list[tuple[int, set[int]]] = []

    def noted(thread: int, processors: set[int]) -> None:
        calls.append((thread, set(processors)))
        set_affinity(thread, processors)

    monkeypatch.setattr(os, "sched_setaffinity", noted)
    pool = row_blocks._Pool(1)
    found: list[set[int]] = []
    ended = threading.Event()

    def work() -> None:
        found.append(os.sched_getaffinity(0))
        ended.set()

    pool.submit(work, 1)
    assert ended.wait(10)
    assert calls == [(pool.workers[0].native_id, allowed - {current}), (0, allowed)]
    assert found == [allowed]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems choose processors themselves")
def test_workers_run_where_processors_are_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: int, processors: set[int]) -> None:
        raise OSError

    pool = row_blocks._Pool(1)
    ended = threading.Event()
    monkeypatch.setattr(row_blocks, "keep_from_this_processor", lambda workers: frozenset({0}))
    monkeypatch.setattr(os, "sched_setaffinity", refused)
    [job] = pool.submit(ended.set, 1)
    assert ended.wait(10)
    job.take_back()
    assert job.error is None


def test_workers_of_other_systems_wake_up_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_threads, "_current_processor", lambda: None)
    assert runtime_threads.keep_from_this_processor([threading.current_thread()]) == frozenset()


def test_a_worker_that_has_ended_is_no_error() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert thread.native_id is not None
    before = os.sched_getaffinity(0) if sys.platform == "linux" else set()
    runtime_threads.keep_from_this_processor([thread])
    assert (os.sched_getaffinity(0) if sys.platform == "linux" else set()) == before


def test_a_job_runs_once_or_is_taken_back() -> None:
    found: list[int] = []
    job = row_blocks._Job(lambda: found.append(1))
    job.run()
    job.run()
    job.take_back()
    assert found == [1]
    job = row_blocks._Job(lambda: found.append(2))
    job.take_back()
    job.run()
    assert found == [1]


def test_a_job_that_waits_after_it_was_taken_back_keeps_no_memory_alive(monkeypatch) -> None:
    """Workers may be busy for long with the jobs of another thread."""
    pool = row_blocks._Pool(1)
    monkeypatch.setattr(row_blocks, "threads", lambda: 2)
    monkeypatch.setattr(row_blocks, "_pool", lambda: pool)
    begun, ended = threading.Event(), threading.Event()

    def busy() -> None:
        begun.set()
        ended.wait(10)

    jobs = pool.submit(busy, 1)
    assert begun.wait(10)
    found: list[weakref.ref[object]] = []

    def call() -> None:
        array = np.empty(8)
        found.append(weakref.ref(array))

        def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
            array[...] = lo

        row_blocks.blocks(rows, 0, 100, 10, 1 << 24)

    gc.disable()
    try:
        call()
        assert [ref() for ref in found] == [None]
    finally:
        gc.enable()
        ended.set()
        jobs[0].take_back()


def test_the_first_of_several_threads_starts_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []

    class Slow(row_blocks._Pool):
        def __init__(self, count: int) -> None:
            started.append(count)
            time.sleep(0.02)
            super().__init__(count)

    monkeypatch.setattr(row_blocks, "_Pool", Slow)
    monkeypatch.setattr(row_blocks, "threads", lambda: 3)
    row_blocks._pool.cache_clear()
    callers = [
        threading.Thread(target=row_blocks.blocks, args=(lambda *_: None, 0, 100, 10, 1 << 30))
        for _ in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(10)
    row_blocks._pool.cache_clear()
    assert started == [2]


def test_workers_are_as_many_as_the_system_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    monkeypatch.setattr(row_blocks, "threads", lambda: 9)
    row_blocks._pool.cache_clear()
    try:
        for _ in range(2):
            seen = np.zeros(100, int)

            def rows(lo: int, hi: int, empty: object, seen: np.ndarray = seen) -> None:
                seen[lo:hi] += 1

            row_blocks.blocks(rows, 0, 100, 10, 1 << 24)
            assert seen.tolist() == [1] * 100
        assert len(row_blocks._pool().workers) == 2
    finally:
        row_blocks._pool.cache_clear()


def test_one_thread_starts_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> NoReturn:
        raise AssertionError

    monkeypatch.setattr(row_blocks, "threads", lambda: 1)
    monkeypatch.setattr(row_blocks, "_pool", refused)
    monkeypatch.setattr(row_blocks, "one_blas_thread", refused)
    found: list[threading.Thread] = []

    def rows(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found.append(threading.current_thread())

    for of_batch, by_blas in ((False, False), (True, False), (False, True)):
        row_blocks.blocks(rows, 0, 100, 1 << 20, 1 << 30, of_batch=of_batch, by_blas=by_blas)
    assert set(found) == {threading.current_thread()}


def test_memory_of_a_block_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of one block do not overlap, nor do those of calls within a block."""
    monkeypatch.setattr(tuning.Blocks, "WORTH_SCRATCH", 0)
    monkeypatch.setattr(tuning.Blocks, "TARGET", 1 << 12)
    monkeypatch.setattr(row_blocks, "_scratch", [])
    found: list[np.ndarray] = []

    def inner(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found.append(empty((hi - lo, 16), np.dtype("float32")))

    def outer(lo: int, hi: int, empty: Callable[..., np.ndarray]) -> None:
        found[:] = [empty((3,), np.dtype("int8")), empty((hi - lo, 8), np.dtype("float64"))]
        row_blocks.blocks(inner, 0, 8, 64, 0)
        found.append(empty((1 << 13,), np.dtype("int8")))  # more than a block should need
        for number, array in enumerate(found):
            assert array.flags.aligned
            array[...] = number
        assert [np.unique(array).tolist() for array in found] == [[n] for n in range(len(found))]

    row_blocks.blocks(outer, 0, 100, 64, 0)
    assert [array.shape for array in found] == [(3,), (36, 8), (8, 16), (1 << 13,)]
    assert len(row_blocks._scratch) <= row_blocks.threads()


@T.prim_func
def picked(
    A: T.Buffer((7,), "float32"),
    B: T.Buffer((9, 64), "float32"),
    K: T.Buffer((400, 64), "int64"),
    J: T.Buffer((400, 64), "int64"),
    Y: T.Buffer((400, 64), "float32"),
):
    for i, j in T.grid(400, 64):
        with T.sblock("b"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T.exp(A[K[vi, vj]]) * B[J[vi, vj], vj] + T.float32(1)


@pytest.mark.parametrize("seed", range(2))
def test_of_several_bad_indices_that_of_the_first_row_is_reported(seed, monkeypatch) -> None:
    executable = relaxpy.compile(picked, target="numpy")
    assert "rt.blocks(" in executable.source
    rng = np.random.default_rng(seed)
    arrays = [np.ones((7,), "float32"), np.ones((9, 64), "float32")]
    for _ in range(2):
        indices = np.zeros((400, 64), int)
        rows, columns = rng.permutation(400)[:6], rng.integers(0, 64, 6)
        indices[rows, columns] = rng.permutation(90)[:6] + 10
        arrays.append(indices)
    arrays.append(np.zeros((400, 64), "float32"))

    def message(run: Callable[..., object]) -> str:
        with pytest.raises(RuntimeCheckError) as caught:
            run(*arrays)
        return str(caught.value)

    expected = message(relaxpy.compile(picked, target="reference")["picked"])
    monkeypatch.setattr(tuning.Blocks, "SHORTEST_RUN", 1)
    for work in (1, 1 << 60):
        monkeypatch.setattr(tuning.Blocks, "WORTH_THREADS", work)
        for threads in (1, 2, 3, 5):
            monkeypatch.setattr(row_blocks, "threads", lambda threads=threads: threads)
            assert message(executable["picked"]) == expected


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_is_not_sought_in_blocks_that_have_replaced_their_indices(monkeypatch, threads):
    """The index that the error tells is one of the arguments, not of those that are stored."""

    @T.prim_func
    def replaced(A: T.Buffer((8,), "int64"), C: T.Buffer((300000,), "int64")) -> None:
        B = T.alloc_buffer((300000,), "int64")
        for i in T.grid(300000):
            with T.block("B"):
                vi = T.axis.spatial(300000, i)
                B[vi] = A[C[vi]]
        for i in T.grid(300000):
            with T.block("C"):
                vi = T.axis.spatial(300000, i)
                C[vi] = B[vi] * T.int64(2)

    monkeypatch.setattr(row_blocks, "threads", lambda: threads)
    monkeypatch.setattr(tuning.Blocks, "WORTH_THREADS", 1)
    monkeypatch.setattr(tuning.Blocks, "MUCH_WORK", 1)
    executable = relaxpy.compile(replaced, target="numpy")
    assert "rt.blocks(" in executable.source
    indices = np.zeros(300000, np.int64)
    indices[-5:] = 9, 10, 11, 12, 13
    with pytest.raises(RuntimeCheckError, match="index 9 is outside dimension 0 of buffer A"):
        executable["replaced"](np.full(8, 100), indices)


_PARTS = [
    ("R.sum(R.astype(x, 'float32'))", "int8"),
    ("R.sum(R.exp(x), axis=[0])", "float32"),
    ("R.sum(R.exp(x), axis=[0, 2], keepdims=True)", "float32"),
    ("R.sum(R.multiply(x, x))", "float64"),
    ("R.prod(R.add(R.abs(x), R.const(1, 'float32')))", "float32"),
    ("R.max(R.negative(x))", "float32"),
    ("R.min(R.astype(x, 'int32'), axis=[0])", "int8"),
    ("R.mean(x)", "float16"),
    ("R.variance(x)", "float32"),
    ("R.std(x, axis=[0])", "float32"),
    ("R.astype(R.max(R.astype(R.less(x, R.const(0, 'float32')), 'int8')), 'bool')", "float32"),
    ("R.sum(R.nn.softmax(R.reshape(x, R.shape([720]))))", "float32"),
    ("R.argmax(R.abs(x), axis=0)", "float32"),
]


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [(*row, ("(5, 24, 6)", "('n', 'm', 6)")[k % 2]) for k, row in enumerate(_PARTS)],
)
def test_parts_of_accumulations_are_combined_in_the_order_of_rows(value, dtype, shape, monkeypatch):
    """The results are those of the reference evaluator, and the same on one thread and on three."""
    for size in ("LEAST_BYTES", "LEAST_DIVIDED", "ANY_BLOCK"):
        monkeypatch.setattr(tuning.Blocks, size, 1)
    for size in ("TARGET", "SHORTEST_RUN", "WORTH_SCRATCH", "WORTH_THREADS"):
        monkeypatch.setattr(tuning.Blocks, size, 64)
    if "reshape" in value and "n" in shape:
        value = value.replace("[720]", "[n * m * 6]")
    text = f"@R.function\ndef main(x: R.Tensor({shape}, '{dtype}')):\n    y = {value}\n    return y"
    module = relaxpy.IRModule({"main": from_source(text)})
    x = (np.random.default_rng(0).standard_normal((5, 24, 6)) * 3).astype(dtype)
    kernel = relaxpy.compile(module, "numpy")["main"]
    monkeypatch.setattr(row_blocks, "threads", lambda: 1)
    expected = relaxpy.compile(module, "reference")["main"](x)
    found = kernel(x)
    # float32 sums of 720 elements: each of them may be rounded in another order
    epsilon = 720 * np.finfo(np.float32 if x.dtype.itemsize < 8 else x.dtype).eps
    np.testing.assert_allclose(found, expected, rtol=max(epsilon, np.finfo(np.float16).eps))
    assert np.asarray(found).dtype == np.asarray(expected).dtype
    monkeypatch.setattr(row_blocks, "threads", lambda: 3)
    np.testing.assert_array_equal(kernel(x), found)


def test_parts_of_no_rows_are_the_initial_value() -> None:
    text = "@R.function\ndef main(x: R.Tensor(('n', 3), 'int8')):\n"
    text += "    y = R.astype(x, 'float32')\n    return (R.sum(y), R.prod(y, axis=[0]))"
    kernel = relaxpy.compile(relaxpy.IRModule({"main": from_source(text)}), "numpy")["main"]
    total, product = kernel(np.empty((0, 3), np.int8))
    assert total == 0
    np.testing.assert_array_equal(product, [1, 1, 1])


_ALONG_ROWS = "R.add(R.multiply(R.add(R.multiply(x, x), x), x), x)"
_DECIDED = [
    ("R.sum(x)", "(4096, 4096)", "numpy", "sums_arrays"),
    (_ALONG_ROWS, "(128, 64)", "numpy", "fits_into_cache"),
    (_ALONG_ROWS, "(129, 64)", "numpy", "has_many_passes"),
    ("R.nn.softmax(x, axis=1)", "('n', 64, 3136)", "native", "is_strided_batch"),
    ("R.nn.softmax(x, axis=1)", "('n', 64, 3136)", "numpy", "has_many_passes"),
    ("R.nn.softmax(x, axis=1)", "(2, 64, 3136)", "native", "has_many_passes"),
    ("R.prod(R.negative(x), axis=[0])", "(512, 1024)", "numpy", "has_small_sums"),
    ("R.prod(R.negative(x), axis=[0])", "(513, 1024)", "numpy", "has_sums"),
    ("R.multiply(R.add(R.multiply(x, x), x), x)", "(1024, 1024)", "numpy", "always"),
    ("R.multiply(R.add(R.multiply(x, x), x), x)", "(2048, 1024)", "numpy", "has_work_for_threads"),
    ("R.min(R.add(x, x), axis=[1])", "(1024, 'm')", "numpy", "keeps_large_result"),
    ("R.multiply(x, x)", "(1024, 'm')", "numpy", "always"),
]


@pytest.mark.parametrize(("value", "shape", "target", "name"), _DECIDED)
def test_a_case_decides_whether_blocks_pay(value, shape, target, name, monkeypatch) -> None:
    """The first one that holds, for shapes at the limits of `tuning.Blocks`."""
    decided: list[str] = []

    def noted(case: blocking._Case) -> blocking._Case:
        def holds(group: blocking._Group) -> bool:
            is_so = case.holds(group)
            decided.extend([case.holds.__name__] if is_so and group.rows.members else [])
            return is_so

        return case._replace(holds=holds)

    monkeypatch.setattr(blocking, "_CASES", tuple(map(noted, blocking._CASES)))
    text = f"@R.function\ndef main(x: R.Tensor({shape}, 'float32')):\n    y = {value}\n    return y"
    module = relaxpy.IRModule({"main": from_source(text)})
    relaxpy.compile(module, target)
    assert decided[0] == name


def test_the_programs_decide_all_cases() -> None:
    assert {case.holds.__name__ for case in blocking._CASES} == {row[-1] for row in _DECIDED}
