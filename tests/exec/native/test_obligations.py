"""What native code cannot prove is tested, and what does not hold is the error that NumPy finds."""

from __future__ import annotations

import timeit
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.script import from_source
from tests.exec.native.claims import claim

INT = np.arange(8)


def test_an_index_that_the_kernel_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = claim(
        monkeypatch,
        [
            'P = T.alloc_buffer((n,), "int64")',
            "for i in range(n):",
            "    P[i] = I[i] * T.int64(2)",
            "for i in range(n):",
            "    B[i] = A[P[i]]",
        ],
        'n: T.int64, A: T.Buffer((16,), "float32"), I: T.Buffer((n,), "int64"), '
        'B: T.Buffer((n,), "float32")',
    )
    a = np.arange(16, dtype="float32")
    for n in (0, 1, 8, 30):
        index = np.arange(n) % 8
        kernel.runs(n, a, index, np.zeros(n, "float32"))
        for wrong in (8, -1, 2**61):
            if n:
                index[-1] = wrong
                message = "outside dimension 0 of buffer A"
                kernel.fails(message, n, a, index, np.full(n, -1, "float32"))


def test_an_error_leaves_what_the_statements_before_it_wrote(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = claim(
        monkeypatch,
        [
            "for i in range(8):",
            "    A[i] = A[i] + T.int64(1)",
            "for i in range(8):",
            "    B[i] = B[i] + C[A[i]]",
        ],
        'A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64"), C: T.Buffer((9,), "int64")',
    )
    kernel.runs(INT, INT, np.arange(9))
    args = INT + np.eye(8, dtype=int)[7], INT, np.arange(9)
    kernel.fails("outside dimension 0 of buffer C", *args, restored=True)


def test_a_divisor_and_the_bound_of_a_loop_that_the_kernel_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = claim(
        monkeypatch,
        [
            "for i in range(8):",
            "    B[i] = A[i] - T.int64(3)",
            "for i in range(8):",
            "    for j in range(C[B[i] + T.int64(4)]):",
            "        B[i] = B[i] + T.floordiv(T.int64(12), B[i])",
        ],
        'A: T.Buffer((8,), "int64"), B: T.Buffer((8,), "int64"), C: T.Buffer((20,), "int64")',
    )
    ones = np.ones(20, "int64")
    kernel.runs(INT + 4, np.zeros(8, "int64"), ones)
    kernel.fails("zero", INT, np.zeros(8, "int64"), ones)
    kernel.fails("outside dimension 0 of buffer C", INT - 3, np.zeros(8, "int64"), ones)
    # Where a divisor would be zero, no iteration divides.
    ones[4] = 0
    kernel.runs(INT, np.zeros(8, "int64"), ones)


def test_assertions_of_what_is_known_and_of_what_is_computed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = claim(
        monkeypatch,
        [
            'assert n > 2, "n is too small"',
            "for i in range(n):",
            "    B[i] = A[i] * T.float32(2)",
            'assert B[2] < T.float32(9), "B is too large"',
            "for i in range(n):",
            "    B[i] = B[i] + T.float32(1)",
        ],
        'n: T.int64, A: T.Buffer((n,), "float32"), B: T.Buffer((n,), "float32")',
    )
    a = np.arange(5, dtype="float32")
    kernel.runs(5, a, a * 0)
    kernel.fails("n is too small", 2, a[:2], a[:2] * 0)
    kernel.fails("B is too large", 5, a * 5, a * 0)
    kernel.fails("B is too large", 5, a * np.nan, a * 0)


def test_statements_after_a_jump_are_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = claim(
        monkeypatch,
        [
            "for i in range(n):",
            "    if A[i] == T.int64(1):",
            "        continue",
            "    B[i] = B[i] + T.int64(10)",
            "    for j in range(n):",
            "        if A[j] == T.int64(2):",
            "            if j > 1:",
            "                break",
            "        B[j] = B[j] + A[A[j]]",
            "    if A[i] == T.int64(3):",
            "        break",
            "    B[i] = B[i] + T.int64(100)",
        ],
        'n: T.int64, A: T.Buffer((n,), "int64"), B: T.Buffer((n,), "int64")',
    )
    rng = np.random.default_rng(3)
    for n in (1, 4, 9, 9, 9, 9):
        kernel.same(n, rng.integers(0, 4, n), np.zeros(n, "int64"))
    kernel.runs(4, np.array([1, 0, 2, 99]), np.zeros(4, "int64"))
    kernel.runs(4, np.array([0, 1, 2, 3]), np.zeros(4, "int64"))
    kernel.fails("outside", 4, np.array([0, 1, 4, 3]), np.zeros(4, "int64"))


def test_a_while_loop_that_leaves_its_array_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = claim(
        monkeypatch,
        [
            'P = T.alloc_buffer((1,), "int64")',
            "P[0] = T.int64(0)",
            "while A[P[0]] == T.int64(0):",
            "    P[0] = P[0] + T.int64(1)",
            "    if P[0] == T.int64(6):",
            "        break",
            "B[0] = P[0]",
        ],
        'n: T.int64, A: T.Buffer((n,), "int64"), B: T.Buffer((1,), "int64")',
    )
    kernel.runs(5, np.array([0, 0, 0, 1, 0]), np.zeros(1, "int64"))
    kernel.runs(8, np.zeros(8, "int64"), np.zeros(1, "int64"))
    kernel.fails("outside dimension 0 of buffer A", 5, np.zeros(5, "int64"), np.zeros(1, "int64"))


@pytest.mark.parametrize("columns", [1, 90])
def test_divisors_in_blocks_of_rows(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = claim(
        monkeypatch,
        [
            f"for i, j in T.grid(n, {columns}):",
            "    B[i, j] = A[i, j] - T.int64(1)",
            f"for i, j in T.grid(n, {columns}):",
            "    C[i, j] = T.floordiv(A[i, j], B[i, j]) + T.floormod(A[i, j], B[i, j])",
        ],
        f'n: T.int64, A: T.Buffer((n, {columns}), "int64"), B: T.Buffer((n, {columns}), "int64"), '
        f'C: T.Buffer((n, {columns}), "int64")',
    )
    a = np.full((3000, columns), 3)
    kernel.runs(3000, a, a, a)
    for row in (0, 1, 1100, 2999):
        wrong = a.copy()
        wrong[row, -1] = 1
        kernel.fails("zero", 3000, wrong, a, a)


def test_indices_in_loops_whose_bounds_are_those_of_an_outer_iteration(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = claim(
        monkeypatch,
        [
            "for i in range(3):",
            "    for j in range((m + 2) // 2):",
            "        for k in range(2):",
            "            if j * 2 + k < m + 1:",
            "                P[j] = G[j * 2 + k]",
            "                G[j * 2 + k] = G[j * 2 + k] + P[j] + D[i]",
        ],
        'm: T.int64, P: T.Buffer((m,), "float32"), G: T.Buffer((m + 1,), "float32"), '
        'D: T.Buffer((3,), "float32")',
    )
    for m in (2, 5, 40):
        arrays = (np.arange(n, dtype="float32") for n in (m, m + 1, 3))
        kernel.runs(m, *arrays)
    kernel.fails("outside dimension 0 of buffer P", 0, *(np.zeros(n, "float32") for n in (0, 1, 3)))


_COMPUTED_INDICES = """
@T.prim_func
def main(x: T.handle, p: T.handle, y: T.handle):
    n, c = T.int64(), T.int64()
    X = T.match_buffer(x, (c, 20), "float32")
    P = T.match_buffer(p, (n,), "int64")
    Y = T.match_buffer(y, (c, n), "float32")
    I = T.alloc_buffer((n,), "int64")
    for i in range(n):
        I[i] = P[i] * T.int64(2)
    for k, i in T.grid(c, n):
        Y[k, i] = X[k, I[i]] + X[k, I[i]]
"""


def test_computed_indices_are_tested_once_for_all_rows() -> None:
    executable = relaxpy.compile(from_source(_COMPUTED_INDICES), target="native")
    tree = executable.kernel_source("main", "tree")
    assert tree.count("test ") == 1
    assert "k <" not in tree.partition("test ")[0]
    x = np.arange(60, dtype="float32").reshape(3, 20)
    p = np.array([0, 9, 4, 1], "int64")
    for rows in (3, 1, 0):
        y = np.full((rows, 4), -1, "float32")
        executable["main"](x[:rows], p, y)
        np.testing.assert_array_equal(y, 2 * x[:rows][:, 2 * p])
        executable["main"](x[:rows], p[:0], y[:, :0].copy())
    for wrong in (10, -1):
        p[2] = wrong
        y = np.full((3, 4), -1, "float32")
        with pytest.raises(RelaxpyError):
            executable["main"](x, p, y)
        nothing = np.zeros((0, 4), "float32")
        executable["main"](x[:0], p, nothing)


def test_an_index_of_64_bits_without_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = claim(
        monkeypatch,
        ["for i in range(8):", "    A[i] = A[i] - T.uint64(1)", "    B[i] = B[i] + C[A[i]]"],
        'A: T.Buffer((8,), "uint64"), B: T.Buffer((8,), "int64"), C: T.Buffer((9,), "int64")',
    )
    kernel.runs(INT.astype("uint64") + 1, INT, np.arange(9))
    for at in (0, 7):
        a = np.ones(8, "uint64")
        a[at] = 0
        kernel.fails(f"index {2**64 - 1} is outside", a, INT, np.arange(9))


# ---- errors after the first write

_LATE = """
@T.prim_func
def late(
    J: T.Buffer((10,), "int64"), A: T.Buffer((10,), "float32"), C: T.Buffer(({n},), "float32")
):
    B = T.alloc_buffer((10,), "int64")
    for i in range(10):
        B[i] = J[i] * T.int64(2)
        C[i] = T.float32(1)
    for i in range(10):
        C[B[i]] = C[B[i]] + A[i] * C[B[i] + T.int64(1)]
"""
_GRAPH = """
@I.ir_module
class Module:
    {kernel}

    @R.function
    def main(j: R.Tensor((10,), "int64"), a: R.Tensor((10,), "float32")):
        c = R.call_tir(Module.late, (j, a), out_sinfo=R.Tensor(({n},), "float32"))
        return c

    @R.function
    def again(
        j: R.Tensor((10,), "int64"), a: R.Tensor((10,), "float32"), ends: R.Tensor((), "bool")
    ) -> R.Tensor(({n},), "float32"):
        if ends:
            r = Module.main(j, a)
        else:
            k = R.add(j, R.const(1, "int64"))
            more = R.greater(R.max(k), R.const(100, "int64"))
            r = Module.again(k, a, more)
        return r
"""


def _late(n: int, target: str = "native") -> relaxpy.Executable:
    kernel = _LATE.format(n=n).strip().replace("\n", "\n    ")
    executable = relaxpy.compile(from_source(_GRAPH.format(kernel=kernel, n=n)), target=target)
    if target == "native":
        assert all(row.method.startswith("native") for row in executable.report())
    return executable


@pytest.mark.parametrize("name", ["late", "main"])
def test_no_argument_is_copied_for_an_error_that_may_come_late(name: str) -> None:
    """The time of a call does not depend on the size of an array of which it needs ten elements."""
    times = []
    for n in (1 << 10, 1 << 24):
        executable = _late(n)
        assert "memcpy" not in executable.kernel_source("late", "llvm")
        args = [np.arange(10), np.ones(10, "float32"), np.zeros(n, "float32")]
        args = args if name == "late" else args[:2]
        times.append(min(timeit.repeat(lambda: executable[name](*args), number=50, repeat=5)))  # noqa: B023
    # A copy of 64 MB takes 10,000 times longer than a call.
    assert times[1] < 100 * times[0]


@pytest.mark.parametrize("name", ["late", "main", "again"])
def test_an_error_of_a_kernel_in_graphs_and_recursion(name: str) -> None:
    found = []
    for target in ("native", "numpy", "reference"):
        executable = _late(16, target)
        for wrong in (8, -1, 2**62):
            j = np.array([*range(4), wrong, *[0] * 4, 99])
            args = [j, np.ones(10, "float32")]
            more = {"late": [np.zeros(16, "float32")], "again": [np.array(False)], "main": []}
            args += more[name]
            with pytest.raises(RuntimeCheckError) as caught:
                executable[name](*args)
            found.append(str(caught.value))
        executable["main"](np.arange(10) % 7, args[1])
    assert found[:3] == found[3:6]
    assert [message.partition("\n  note: called at")[0] for message in found] == found[6:] * 3
    assert ("index 16 is" in found[0]) == (name != "again")


def test_errors_of_calls_in_several_threads_are_their_own() -> None:
    executable = _late(16)

    def run(number: int) -> str:
        j = np.full(10, number)
        with pytest.raises(RuntimeCheckError) as caught:
            executable["main" if number % 2 else "late"](
                *(j, np.ones(10, "float32"), np.zeros(16, "float32"))[: 3 - number % 2]
            )
        return str(caught.value)

    numbers = range(8, 108)
    with ThreadPoolExecutor(4) as pool:
        for number, message in zip(numbers, pool.map(run, numbers), strict=True):
            assert f"index {2 * number} is outside dimension 0 of buffer C" in message


def test_the_first_task_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = claim(
        monkeypatch,
        [
            "for i in range(200000):",
            "    A[i] = A[i] * T.int64(2)",
            "for i in range(200000):",
            "    for j in range(5):",
            "        B[i] = B[i] + C[A[i] + j % 2]",
        ],
        'A: T.Buffer((200000,), "int64"), B: T.Buffer((200000,), "int64"), '
        'C: T.Buffer((9,), "int64")',
    )
    a = np.zeros(200000, "int64")
    rng = np.random.default_rng(5)
    for first in (0, 1, 777, 131072, 199999):
        wrong = a.copy()
        wrong[first:] = rng.integers(5, 2**40, 200000 - first)
        for _ in range(3):
            kernel.fails(f"index {2 * wrong[first]} is outside", wrong, a, np.arange(9))
