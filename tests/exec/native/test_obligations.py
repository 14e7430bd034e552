"""What native code cannot prove is tested, and what does not hold is the error that NumPy finds."""

from __future__ import annotations

import timeit
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError, RuntimeCheckError
from relaxpy.script import from_source
from tests.exec.loops.written import run_row
from tests.exec.native.claims import claim
from tests.rows import sections

INT = np.arange(8)


OBLIGATIONS = sections("""
--- an index that the kernel computes
def f(n: T.int64, A: f32[16], I: i64[n], B: f32[n]):
    P = T.alloc_buffer((n,), "int64")
    for i in range(n):
        P[i] = I[i] * i64(2)
    for i in range(n):
        B[i] = A[P[i]]
# native: runs
# args: n=0
# args: n=1, I=[7]
# args: n=30, I=[k % 8 for k in range(30)]
# args: n=8, I=[*range(7), 8] -> outside dimension 0 of buffer A
# args: n=8, I=[*range(7), -1] -> outside dimension 0 of buffer A
# args: n=8, I=[*range(7), 2**61] -> outside dimension 0 of buffer A
--- a divisor and the bound of a loop that the kernel computes
def f(A: i64[8], B: i64[8], C: i64[20]):
    for i in range(8):
        B[i] = A[i] - i64(3)
    for i in range(8):
        for j in range(C[B[i] + i64(4)]):
            B[i] = B[i] + T.floordiv(i64(12), B[i])
# native: runs
# args: A=range(4, 12), C=[1] * 20
# args: A=range(8), C=[1] * 20 -> zero
# args: A=range(-3, 5), C=[1] * 20 -> outside dimension 0 of buffer C
# args: A=range(8), C=[1] * 4 + [0] + [1] * 15
--- assertions of what is known and of what is computed
def f(n: T.int64, A: f32[n], B: f32[n]):
    assert n > 2, "n is too small"
    for i in range(n):
        B[i] = A[i] * f32(2)
    assert B[2] < f32(9), "B is too large"
    for i in range(n):
        B[i] = B[i] + f32(1)
# native: runs
# args: n=5, A=range(5)
# args: n=2 -> n is too small
# args: n=5, A=range(0, 25, 5) -> B is too large
# args: n=5, A=[np.nan] * 5 -> B is too large
--- statements after a jump are skipped
def f(n: T.int64, A: i64[n], B: i64[n]):
    for i in range(n):
        if A[i] == i64(1):
            continue
        B[i] = B[i] + i64(10)
        for j in range(n):
            if A[j] == i64(2):
                if j > 1:
                    break
            B[j] = B[j] + A[A[j]]
        if A[i] == i64(3):
            break
        B[i] = B[i] + i64(100)
# native: runs
# args: n=4, A=[1, 0, 2, 99]
# args: n=4, A=[0, 1, 2, 3]
# args: n=9, A=[k * k % 4 for k in range(9)]
# args: n=9, A=[k * 3 % 4 for k in range(9)]
# args: n=4, A=[0, 1, 4, 3] -> outside
--- a while loop that leaves its array ends
def f(n: T.int64, A: i64[n], B: i64[1]):
    P = T.alloc_buffer((1,), "int64")
    P[0] = i64(0)
    while A[P[0]] == i64(0):
        P[0] = P[0] + i64(1)
        if P[0] == i64(6):
            break
    B[0] = P[0]
# native: runs
# args: n=5, A=[0, 0, 0, 1, 0]
# args: n=8, A=[0] * 8
# args: n=5, A=[0] * 5 -> outside dimension 0 of buffer A
--- divisors in blocks of rows
def f(n: T.int64, A: i64[n, N], B: i64[n, N], C: i64[n, N]):
    for i, j in T.grid(n, N):
        B[i, j] = A[i, j] - i64(1)
    for i, j in T.grid(n, N):
        C[i, j] = T.floordiv(A[i, j], B[i, j]) + T.floormod(A[i, j], B[i, j])
# with N M: 1 1500 | 20 300
# native: runs
# args: n=M, A=np.full((M, N), 3)
# args: n=M, A=3 - 2 * (np.arange(M * N) == 0).reshape(M, N) -> zero
# args: n=M, A=3 - 2 * (np.arange(M * N) == M * N * 3 // 4).reshape(M, N) -> zero
# args: n=M, A=3 - 2 * (np.arange(M * N) == M * N - 1).reshape(M, N) -> zero
--- indices in loops whose bounds are those of an outer iteration
def f(m: T.int64, P: f32[m], G: f32[m + 1], D: f32[3]):
    for i in range(3):
        for j in range((m + 2) // 2):
            for k in range(2):
                if j * 2 + k < m + 1:
                    P[j] = G[j * 2 + k]
                    G[j * 2 + k] = G[j * 2 + k] + P[j] + D[i]
# native: runs
# args: m=(2, 5, 40)
# args: m=0 -> outside dimension 0 of buffer P
--- an index of 64 bits without sign
def f(A: u64[8], B: i64[8], C: i64[9]):
    for i in range(8):
        A[i] = A[i] - u64(1)
        B[i] = B[i] + C[A[i]]
# native: runs
# args: A=range(1, 9)
# args: A=[0] + [1] * 7 -> index 18446744073709551615 is outside
# args: A=[1] * 7 + [0] -> index 18446744073709551615 is outside
""")


@pytest.mark.parametrize("name", OBLIGATIONS)
def test_obligations(name: str) -> None:
    run_row(OBLIGATIONS[name])


def test_an_error_leaves_what_the_statements_before_it_wrote() -> None:
    kernel = claim(
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


def test_the_first_task_that_fails_is_reported() -> None:
    kernel = claim(
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
