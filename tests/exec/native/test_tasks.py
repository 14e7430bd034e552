"""Loops in parallel tasks compute the same bits with each number of threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.exec.machine import tuning
from relaxpy.exec.native.threads import pool
from relaxpy.ir.relax.nodes import TensorStructInfo
from relaxpy.script import from_source
from tests.exec.native.claims import claim
from tests.exec.native.test_contract import graph
from tests.exec.native.test_kernels import COLUMN, PROGRAMS, ROWS, floats, function
from tests.fuzz.kernels.compare import examine
from tests.fuzz.kernels.generate import generate
from tests.fuzz.seed import SEED
from tests.guard_pages import guarded
from tests.ir.ops.cases.decision_trees import leaves, table

RNG = np.random.default_rng(21)
pool_of = cache(pool.Pool)


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Loops of few microseconds are divided, and run on three threads."""
    monkeypatch.setattr(tuning.Cost, "GRAIN", 200_000)
    monkeypatch.setattr(pool, "pool", lambda: pool_of(3))
    return


def compiled(program: Any, threads: int, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pool, "pool", lambda: pool_of(threads))
    return relaxpy.compile(program, target="native")


def tree_of(program: Any) -> str:
    executable = relaxpy.compile(program, target="native")
    names = dict.fromkeys(row.kernel for row in executable.report())
    return "\n".join(executable.kernel_source(name, kind="tree") for name in names)


MORE = {
    "R.sum(x0)": (ROWS,),
    "R.nn.max_pool2d(x0, pool_size=(2, 2), padding=(1, 1))": ('(3, 40, 33, 37), "float32"',),
    "R.nn.conv2d(x0, x1, padding=(1, 1))": ('(2, 5, 40, 37), "float32"', '(7, 5, 3, 3), "float32"'),
    "R.permute_dims(x0, (0, 3, 1, 2))": ('(3, 31, 37, 40), "float32"',),
    "R.mean(x0, axis=[0, 2])": ('(50, 5, 200), "float16"',),
    "R.max(x0, axis=[0])": ('(2000, 33), "int8"',),
    "R.prod(x0)": ('(9, 4000), "float64"',),
    "R.nn.softmax(x0)": ('(40, 9000), "float32"',),
    "R.cumsum(x0, axis=0)": ('(50, 2000), "float32"',),
    "R.cumsum(x0, axis=1)": ('(3, 50, 2000), "int32"',),
    "R.take(x0, R.astype(x1, 'int64'), axis=0)": ('(300, 60), "float32"', '(500,), "uint8"'),
}
ALL = PROGRAMS | MORE


def arguments(params: tuple[str, ...]) -> list[np.ndarray]:
    arrays = []
    for param in params:
        shape, dtype = eval(f"({param})", {"n": 0})
        if shape == "n" or "n" in param.split(",")[0]:
            shape = (300, 67)
        values = RNG.standard_normal(shape) if "float" in dtype else RNG.integers(0, 100, shape)
        arrays.append(values.astype(dtype))
    return arrays


@pytest.mark.parametrize("body", ALL)
def test_results_have_the_same_bits_for_each_number_of_threads(body, monkeypatch) -> None:
    params = ALL[body]
    func = function(body, *params)
    args = arguments(params)
    found = [
        compiled(func, n, monkeypatch)["main"](*args)
        for n in ((1, 2, 8) if body in MORE else (1, 3))
    ]
    expected = relaxpy.compile(func, target="numpy")["main"](*args)
    for result in found[1:]:
        assert result.tobytes() == found[0].tobytes()
    # Sums of at most 36,000 terms of order 1 in another order.
    tolerance = 1e-2 if expected.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(found[0], expected, rtol=tolerance, atol=tolerance)


def test_random_kernels_have_the_same_bits_and_do_what_their_text_says(monkeypatch) -> None:
    monkeypatch.setattr(tuning.Cost, "GRAIN", 3_000)
    for number in range(4):
        seed = f"{SEED}/tasks/{number}"
        program = generate(seed)
        failures = examine(program, ("native",), trip=False).failures
        assert not failures, f"seed {seed}: {failures[0]}\n\n{program.standalone()}"
        func = from_source(program.text)
        results: list[list[bytes] | str] = []
        for threads in (1, 3, 8):
            executable = compiled(func, threads, monkeypatch)
            args, memories = program.calls[0].build()
            try:
                executable[func.attrs["global_symbol"]](*args)
                results.append([memory.tobytes() for memory in memories])
            except RelaxpyError as error:
                results.append(str(error))
        assert all(result == results[0] for result in results), seed


SEGMENTS = """
@T.prim_func
def f(
    start: T.Buffer((40,), "int64"), x: T.Buffer((300, 50), "float32"),
    y: T.Buffer((40, 50), "float32"), n: T.Buffer((40,), "int64"),
):
    for k in range(39):
        local = T.decl_buffer((1,), "int64")
        local[0] = 0
        for i in range(start[k], start[k + 1]):
            for j in range(50):
                y[{row}, j] = y[{row}, j] + x[i, j]
            local[0] = local[0] + 1
        n[k] = local[0]
"""


@pytest.mark.parametrize(
    ("row", "at_once"),
    [("k", True), ("39 - k", True), ("k // 2", False), ("k % 20", False), ("start[k]", False)],
)
def test_loops_whose_iterations_do_not_meet_run_at_once(row, at_once, monkeypatch) -> None:
    func = from_source(SEGMENTS.format(row=row))
    assert ("tasks of k" in tree_of(func)) is at_once
    start = np.sort(RNG.integers(0, 40, 40))
    x = floats(300, 50)
    found = []
    for target, threads in (("reference", 1), ("native", 1), ("native", 3)):
        monkeypatch.setattr(pool, "pool", lambda threads=threads: pool_of(threads))
        y, n = np.zeros((40, 50), "float32"), np.zeros(40, "int64")
        relaxpy.compile(func, target=target)["f"](start, x, y, n)
        found.append((y, n))
    for y, n in found[1:]:
        np.testing.assert_allclose(y, found[0][0], rtol=1e-6)
        np.testing.assert_array_equal(n, found[0][1])


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33, 257])
def test_tasks_do_not_reach_beyond_arrays(rows: int) -> None:
    func = function(
        "R.add(R.divide(x0, R.sum(x0, axis=1, keepdims=True)), R.sum(x0, axis=0))",
        '("n", 67), "float32"',
    )
    assert "tasks of" in tree_of(func)
    executable = relaxpy.compile(func, target="native")
    array = np.abs(floats(rows, 67)) + 1
    expected = array / array.sum(1, keepdims=True) + array.sum(0)
    for at_end in (False, True):
        found = executable["main"](guarded(array, at_end=at_end))
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_sums_with_few_results_run_in_stretches_that_are_combined_in_order() -> None:
    func = function("R.sum(R.astype(x0, 'int64'))", '("n", 1000), "int32"')
    text = tree_of(func)
    assert "_parts[" in text
    assert "over stretch <" in text
    executable = relaxpy.compile(func, target="native")
    for rows in (0, 1, 7, 8, 9, 500, 2001):
        array = RNG.integers(-(2**31), 2**31, (rows, 1000)).astype(np.int32)
        assert executable["main"](array) == array.sum(dtype=np.int64)


OVERLAP = """
@T.prim_func
def main(A: T.Buffer((20000,), "float32"), I: T.Buffer((20000,), "int64")):
    T.func_attr({"global_symbol": "main"})
    for i in range(20000):
        A[i] = A[i] + T.float32(1)
    for i in range(20000):
        A[i] = A[i] * T.Cast("float32", I[I[i]])
"""


def test_tasks_of_a_sum_read_long_segments_of_several_rows() -> None:
    """Memory is read at half the speed in segments of a few kilobytes."""
    x = 'x: R.Tensor((10, 10, 100000), "float32")'
    executable = relaxpy.compile(from_source(graph(x, "R.sum(x, [1, 2])")), target="native")
    [text] = re.findall(r"in blocks of (\d+)", executable.kernel_source("sum", kind="tree"))
    assert 4096 <= int(text) <= 10 * 100000 / 8


def test_an_error_is_found_before_any_task_starts() -> None:
    func = from_source(OVERLAP)
    assert "tasks of" in tree_of(func)
    executable = relaxpy.compile(func, target="native")
    a, index = np.zeros(20000, np.float32), np.full(20000, 3)
    executable["main"](a, index)
    assert (a == 3).all()
    index[15000] = 20000
    with pytest.raises(RuntimeCheckError, match="outside dimension 0 of buffer I"):
        executable["main"](a, index)
    assert (a == 4).all()  # by the kernel of NumPy, which reports the error, alone


def test_iterations_that_meet_each_other_are_not_divided() -> None:
    func = from_source(
        """
@T.prim_func
def main(A: T.Buffer((200, 300), "float32")):
    T.func_attr({"global_symbol": "main"})
    for i, j in T.grid(199, 300):
        A[i, j] = A[i + 1, j] + T.float32(1)
"""
    )
    assert "tasks of j < 300" in tree_of(func)
    array = floats(200, 300)
    expected = array.copy()
    expected[:199] = array[1:] + 1
    relaxpy.compile(func, target="native")["main"](array)
    np.testing.assert_array_equal(array, expected)


def test_several_threads_of_python_call_kernels_at_a_time() -> None:
    func = function("R.nn.softmax(R.add(R.nn.gelu(x0), x1))", ROWS, COLUMN)
    executable = relaxpy.compile(func, target="native")
    inputs = [(floats(200 + n, 67), floats(67)) for n in range(4)]
    expected = [executable["main"](*args) for args in inputs]
    found: list[bool] = []

    def work(number: int) -> None:
        for _ in range(40):
            result = executable["main"](*inputs[number])
            found.append(np.array_equal(result, expected[number]))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(4)))  # raises what a thread does
    assert len(found) == 160
    assert all(found)


def test_a_reduction_over_the_loop_that_rows_of_others_have() -> None:
    """Rows of P are those of the loop over i, over which sums of M run."""
    func = from_source(
        """
@T.prim_func
def f(p: T.handle, m: T.handle):
    n = T.int64()
    P = T.match_buffer(p, (n,), "float32")
    M = T.match_buffer(m, (n,), "float32")
    for i in range(n):
        P[i] = T.float32(1)
        for j in range(n * n):
            M[j // n] = M[j // n] + T.Cast("float32", j)
"""
    )
    executable = relaxpy.compile(func, target="native")
    for n in (1, 4, 9):
        p, m = np.zeros(n, "float32"), np.ones(n, "float32")
        executable["f"](p, m)
        expected = 1 + n * np.arange(n * n, dtype="float32").reshape(n, n).sum(1)
        np.testing.assert_array_equal(p, np.ones(n))
        np.testing.assert_array_equal(m, expected)


@pytest.mark.parametrize("shape", [(2, 3, 64, 64), (8, 3, 64, 64), (15, 2, 100, 100)])
def test_short_rows_are_not_divided(shape: tuple[int, ...]) -> None:
    text = graph(f'x: R.Tensor({shape}, "float32")', "R.permute_dims(x, (0, 2, 3, 1))")
    assert "i3 <" not in tree_of(from_source(text)).partition("each")[0]
    x = RNG.standard_normal(shape).astype("float32")
    found = relaxpy.compile(from_source(text), target="native")(x)
    np.testing.assert_array_equal(found, x.transpose(0, 2, 3, 1))


@pytest.mark.parametrize(
    ("channels", "divided"),
    [(64, True), (4, False)],  # an image of 4 channels takes less time than threads to begin
)
def test_an_image_is_divided_if_the_batch_is_of_unknown_size(channels, divided, monkeypatch):
    """It is most likely one; tasks of whole images would leave all but one thread without work."""
    monkeypatch.setattr(tuning.Cost, "GRAIN", 10_000_000)
    text = graph(
        f'x: R.Tensor(("n", {channels}, 56, 56), "float32")', "R.permute_dims(x, (0, 2, 3, 1))"
    )
    executable = relaxpy.compile(from_source(text), target="native")
    first, _ = executable.kernel_source("transpose", kind="tree").split("\n", 1)
    assert first.startswith("tasks of i0 < n")
    assert (", i1 < " in first) == divided
    for batch in (0, 1, 5):
        x = floats(batch, channels, 56, 56)
        np.testing.assert_array_equal(executable["main"](x), x.transpose(0, 2, 3, 1))


def test_adjacent_channels_are_not_divided_within_a_batch_of_unknown_size() -> None:
    """Blocks of some channels would have gaps between all pixels."""
    conv = 'R.nn.conv2d(x, f, padding=1, groups=24, data_layout="NHWC", kernel_layout="HWIO")'
    params = 'x: R.Tensor(("n", "h", "w", 24), "float32"), f: R.Tensor((3, 3, 1, 24), "float32")'
    program = from_source(graph(params, conv))
    assert "tasks of nn < n, yy < h" in tree_of(program)
    compiled, evaluated = (relaxpy.compile(program, target=t) for t in ("native", "reference"))
    f = floats(3, 3, 1, 24)
    for shape in ((1, 9, 7, 24), (2, 1, 5, 24), (0, 3, 3, 24), (1, 33, 2, 24)):
        x = floats(*shape)
        np.testing.assert_allclose(
            compiled["main"](x, f), evaluated["main"](x, f), rtol=2e-6, atol=1e-5
        )


IMAGES = {
    "R.nn.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))": True,
    "R.nn.avg_pool2d(x, pool_size=(3, 3), padding=(1, 1))": True,
    "R.nn.softmax(x, axis=-1)": True,
    "R.nn.softmax(x, axis=2)": True,
    "R.exp(R.subtract(x, R.max(x, axis=[3], keepdims=True)))": True,
    "R.nn.softmax(x, axis=1)": True,
    "R.exp(R.subtract(x, R.max(x, axis=[1, 2, 3], keepdims=True)))": False,
}


@pytest.mark.parametrize("body", IMAGES)
def test_blocks_of_rows_are_within_a_batch_of_unknown_size(body: str) -> None:
    """The rows of its elements are divided, and need memory for one element of the batch only."""
    text = graph('x: R.Tensor(("n", 6, 20, 33), "float32")', body)
    program = from_source(text)
    assert ("tasks of i0 < n, i1 < " in tree_of(program)) == IMAGES[body]
    executable, by_numpy = (relaxpy.compile(program, target=t) for t in ("native", "numpy"))
    for batch in (0, 1, 2, 7):
        x = floats(batch, 6, 20, 33)
        expected = by_numpy["main"](x)
        np.testing.assert_allclose(executable["main"](x), expected, rtol=2e-6, atol=1e-6)


BATCHES = {
    ("R.nn.softmax(x, axis=-1)", (3, 300, 200)): "tasks of i0 < 3, i1 < 300 in blocks",
    # A row is longer than the first-level cache.
    ("R.nn.softmax(x, axis=-1)", (3, 30, 20_000)): "tasks of i0 < 3",
    # The elements of a row are the lanes of vectors.
    ("R.nn.softmax(x, axis=1)", (3, 100, 1000)): "tasks of i0 < 3",
    # So are those of a transpose, both where it reads and where it writes.
    ("R.exp(R.nn.gelu(R.permute_dims(x, (0, 2, 1))))", (3, 64, 512)): "tasks of i0 < 3",
}


@pytest.mark.parametrize(("body", "shape"), BATCHES)
def test_rows_that_stay_in_the_cache_are_computed_one_by_one(body, shape, monkeypatch) -> None:
    monkeypatch.setattr(tuning.Cost, "GRAIN", 10_000_000)
    text = graph(f'x: R.Tensor({shape}, "float32")', body)
    executable, by_numpy = (
        relaxpy.compile(from_source(text), target=t) for t in ("native", "numpy")
    )
    [name] = {row.kernel for row in executable.report()}
    first = next(
        line
        for line in executable.kernel_source(name, kind="tree").splitlines()
        if line.startswith("tasks")
    )
    expected = BATCHES[body, shape]
    found = re.sub(r"T\.int64\((\d+)\)", r"\1", first)
    assert found.startswith(expected)
    assert found.count(" < ") == expected.count(" < ")
    x = floats(*shape)
    x[0, 0, :3] = np.inf, -np.inf, np.nan
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(executable["main"](x), by_numpy["main"](x), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", ['("n",)', '("n", 8)', '("n", "m")'])
def test_elements_of_unknown_number_are_divided_in_a_call(shape: str) -> None:
    func = function("R.nn.relu(x0) + x1", *[f'{shape}, "float32"'] * 2)
    assert "in blocks of" in tree_of(func)
    main = relaxpy.compile(func, target="native")["main"]
    columns = 8 if "8" in shape else 3
    for n in (0, 1, 31, 32, 33, 85, 86, 5000, 70_001):
        x = RNG.standard_normal(n if shape == '("n",)' else (n, columns)).astype("float32")
        y = RNG.standard_normal(x.shape).astype("float32")
        np.testing.assert_array_equal(main(x, y), np.maximum(x, 0) + y)


def test_elements_next_to_the_largest_index_are_not_divided() -> None:
    body = ["for i in range(m, n):", "    B[i - m] = A[i - m] * T.float32(2)"]
    params = 'm: T.int64, n: T.int64, A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")'
    kernel = claim(body, params)
    kernel.runs(2**63 - 9, 2**63 - 1, floats(8), np.zeros(8, "float32"))
    [name] = {row.kernel for row in kernel.native.report()}
    assert "tasks" not in kernel.native.kernel_source(name, kind="tree")


def test_groups_of_trees_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    x, nodes, roots = table("float32", 20, 14)
    sinfos = (TensorStructInfo(v.shape, str(v.dtype)) for v in (x, nodes, roots))
    params = [relaxpy.relax.Var(f"x{k}", sinfo) for k, sinfo in enumerate(sinfos)]
    builder = relaxpy.relax.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(relaxpy.relax.op.tree_leaves(*params, 14))
    module = builder.get()
    assert "tasks of group" in tree_of(module)
    for threads in (1, 3):
        main = compiled(module, threads, monkeypatch)["main"]
        np.testing.assert_array_equal(main(x, nodes, roots), leaves(x, nodes, roots, 14))
