"""A kernel whose loops were split or fused is compiled to the same text as the original."""

from __future__ import annotations

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.script import tir as T
from tests.exec.loops.support import check, load, source_of
from tests.exec.loops.test_initial_stores import lines
from tests.exec.loops.test_schedule_decisions import SIZE, arguments, decided, kernel
from tests.rows import table

SIZES = ((2, 3, 1), (0, 1, -1), (1, 0, 0))

#: Kernels, and how their loops would be written.
SAME = dict(
    table("""
# Split: the places of all digits together, where nothing asks for a digit alone.
for i, j in T.grid(3, 4): A[i * 4 + j] = B[i * 4 + j] * 2 => for i in range(12): A[i] = B[i] * 2
for i, j in T.grid(3, 4): A[j + i * 4] = B[4 * i + j] + C[i * 4 + j + 1]
    => for i in range(12): A[i] = B[i] + C[i + 1]
for i, k_0, k_1 in T.grid(3, 2, 4): A[i] = A[i] + X[i, k_0 * 4 + k_1]
    => for i, k in T.grid(3, 8): A[i] = A[i] + X[i, k]
for i_0, k_0, i_1, k_1 in T.grid(3, 2, 2, 4): A[i_0 * 2 + i_1] = A[i_0 * 2 + i_1] + X[i_0 * 2 +
    i_1, k_0 * 4 + k_1]
    => for i, k in T.grid(6, 8): A[i] = A[i] + X[i, k]
for i, j, k in T.grid(2, 3, 4): A[i * 12 + j * 4 + k] = B[i * 12 + j * 4 + k]
    => for i in range(24): A[i] = B[i]
for i, j in T.grid(n, 4): X[i * 4 + j, 0] = B[i * 4 + j] * 2
    => for i in range(n * 4): X[i, 0] = B[i] * 2
# Split with a tail: the condition is a bound.
for i, j in T.grid(3, 4): if i * 4 + j < 10: A[i * 4 + j] = B[i * 4 + j] * 2
    => for i in range(10): A[i] = B[i] * 2
for i, j in T.grid(3, 4): if i * 4 + j >= 2: A[i * 4 + j] = B[i * 4 + j] * 2
    => for i in range(2, 12): A[i] = B[i] * 2
for i, j in T.grid(3, 4): if i * 4 + j < n: A[i * 4 + j] = B[i * 4 + j] * 2
    => for i in range(12): if i < n: A[i] = B[i] * 2
for i, j in T.grid(3, 4): if i * 4 + j < 10 and B[i * 4 + j] > 0: A[i * 4 + j] = 2
    => for i in range(10): if B[i] > 0: A[i] = 2
for i in range(12): if B[i] > 0 and i < 10: A[i] = B[i] * 2
    => for i in range(10): if B[i] > 0: A[i] = B[i] * 2
# Split with a tail after being fused.
for p, q in T.grid(2, 8): if p * 8 + q < 12: X[(p * 8 + q) // 4, (p * 8 + q) % 4] = 2
    => for i, j in T.grid(3, 4): X[i, j] = 2
for f in range(16): if f < 12 and B[f] > 0: X[f // 4, f % 4] = 2
    => for i, j in T.grid(3, 4): if B[i * 4 + j] > 0: X[i, j] = 2
# Fused: a loop for each digit.
for f in range(12): X[f // 4, f % 4] = Y[f // 4, f % 4] * 2
    => for i, j in T.grid(3, 4): X[i, j] = Y[i, j] * 2
for f in range(24): X[f // 12, f // 4 % 3 * 4 + f % 4] = Y[f % 4, f // 12] + A[f // 4 % 3]
    => for i, j, k in T.grid(2, 3, 4): X[i, j * 4 + k] = Y[k, i] + A[j]
for f in range(24): X[f // 4 % 3 * 4 + f % 4, f // 12] = Y[f // 12, f % 4] + A[f // 4 % 3]
    => for i, j, k in T.grid(2, 3, 4): X[j * 4 + k, i] = Y[i, k] + A[j]
for f in range(24): X[f // 12, f % 12 // 4 * 4 + f % 4] = Y[f % 4, 0] + A[f % 12 // 4]
    => for i, j, k in T.grid(2, 3, 4): X[i, j * 4 + k] = Y[k, 0] + A[j]
for f in range(12): X[f // 4, f % 4] = Y[f // 4, f % 4]
    => for i, j in T.grid(3, 4): X[i, j] = Y[i, j]
for f in range(n * m): Z[f // m, f % m] = Z[f // m, f % m] * 2
    => for i, j in T.grid(n, m): Z[i, j] = Z[i, j] * 2
for f in range(n * 4): X[f // 4, f % 4] = Y[f % 4, f // 4] * 2
    => for i, j in T.grid(n, 4): X[i, j] = Y[j, i] * 2
for t, f in T.grid(3, 12): Y[t, f] = X[f // 4, f % 4 + t]
    => for t, i, j in T.grid(3, 3, 4): Y[t, i * 4 + j] = X[i, j + t]
for f in range(24): X[f // 4 % 3, f % 4] = X[f // 4 % 3, f % 4] + 2
    => for i, j, k in T.grid(2, 3, 4): X[j, k] = X[j, k] + 2
for f in range(24): X[T.Cast('int64', f // 4) % 3, f % 4] = 2 + X[T.Cast('int64', f // 4) % 3, f %
    4]
    => for i, j, k in T.grid(2, 3, 4): X[j, k] = 2 + X[j, k]
for f in range(12): X[f // 4, f % 4] = B[f % 4 + n // 2]
    => for i, j in T.grid(3, 4): X[i, j] = B[j + n // 2]
# What the start and the end of a loop make plain.
for i in range(4, 8): A[i % 8] = B[i % 8] * 2 => for i in range(4, 8): A[i] = B[i] * 2
# Divided and put together again.
for f in range(12): A[f] = B[f // 4 * 4 + f % 4] * 2 => for f in range(12): A[f] = B[f] * 2
for i, j in T.grid(3, 4): A[(i * 4 + j) % 12] = B[(i * 4 + j) // 1]
    => for i in range(12): A[i] = B[i]
for i, j in T.grid(3, 4): X[(i * 4 + j) // 4, (i * 4 + j) % 4] = Y[i, j]
    => for i, j in T.grid(3, 4): X[i, j] = Y[i, j]
for i, j in T.grid(3, 8): X[(i * 8 + j) // 4, (i * 8 + j) % 4] = 3
    => for i, j in T.grid(6, 4): X[i, j] = 3
""")
)


def steps_of(func: PrimFunc) -> str:
    """The text of the steps, without the fallback for arguments that overlap."""
    return source_of(func).rpartition("return\n")[2]


@pytest.mark.parametrize("written", SAME)
def test_loops_run_as_they_would_be_written(written: str) -> None:
    func = kernel(lines(written))
    assert steps_of(func) == steps_of(kernel(lines(SAME[written])))
    for n, m, s in SIZES:
        check(func, *arguments(n, m, s))


def test_loops_in_branches_are_split() -> None:
    fused = "for f in range(12): X[f // 4, f % 4] = 2", "for f in range(8): Y[f // 4, f % 4] = 3"
    plain = "for i, j in T.grid(3, 4): X[i, j] = 2", "for i, j in T.grid(2, 4): Y[i, j] = 3"
    texts = []
    for yes, no in (fused, plain):
        func = kernel(f"    if B[0] > 0:\n{lines(yes, depth=2)}    else:\n{lines(no, depth=2)}")
        check(func, *arguments(2, 3, 1))
        texts.append(steps_of(func))
    assert texts[0] == texts[1]


def test_statements_that_share_a_split_loop_are_split_first() -> None:
    shared = "    for i in range(3):\n" + lines(
        "for j in range(4): A[i * 4 + j] = B[i * 4 + j] * 2",
        "for k in range(4): if i * 4 + k < 10: C[i * 4 + k] = D[i * 4 + k] * 3",
        depth=2,
    )
    apart = lines("for i in range(12): A[i] = B[i] * 2", "for i in range(10): C[i] = D[i] * 3")
    assert steps_of(kernel(shared)) == steps_of(kernel(apart))
    check(kernel(shared), *arguments(2, 3, 1))


@pytest.mark.parametrize(
    ("outer", "inner", "name"), [("k_0", "k_1", "k"), ("k", "k1", "k"), ("p", "q", "p")]
)
def test_a_coalesced_loop_is_called_what_both_are(outer: str, inner: str, name: str) -> None:
    loop = f"for i, {outer}, {inner} in T.grid(3, 2, 4): A[i] = A[i] + X[i, {outer} * 4 + {inner}]"
    decided(lines(loop), f"A: add reduction over {name}")


def test_a_divisor_in_memory_may_change() -> None:
    """The extent of the loop is evaluated once; the divisor is read in each iteration."""
    decided(
        """
    for f in range(P[0] * 2):
        A[f // T.max(P[0], 1) + f % T.max(P[0], 1)] = f
        P[0] = P[0] + 2
    for f in range(P[1] * 2):
        B[f // P[1] + f % P[1]] = f
        P[1] = P[1] + 2
""",
        "A: single element",
        "B: single element",
    )


@pytest.mark.parametrize(
    "written",
    [
        # A digit is needed alone, begins elsewhere, or ends where another says.
        "for i, j in T.grid(3, 4): A[i * 4 + j] = B[i * 4 + j] * 2 + C[i]",
        "for i, j in T.grid(3, 4): A[i * 4 + j] = B[i * 4 + j] * 2 + C[j]",
        "for i in range(1, 3): for j in range(4): A[i * 4 + j] = B[i * 4 + j] * 2",
        "for i in range(3): for j in range(1, 4): A[i * 4 + j] = B[i * 4 + j] * 2",
        "for i in range(3): for j in range(i, 4): A[i * 4 + j] = B[i * 4 + j] * 2",
        "for i in range(3): for j in range(i + 1): A[i * 4 + j] = B[i * 4 + j] * 2",
        "for i, j in T.grid(3, 4): A[i * 5 + j] = B[i * 5 + j] * 2",
        "for i, j in T.grid(3, 4): A[i * 3 + j] = B[i * 3 + j] * 2",
        "for i in range(3): for j in range(i + 1): A[i * (i + 1) + j] = B[i * (i + 1) + j] * 2",
        "for i, j in T.grid(3, 4): for k in range(j, 5): A[i * 4 + j] = A[i * 4 + j] + X[0, k]",
        "for i, j in T.grid(3, 4): for k in range(j + 1): A[i * 4 + j] = A[i * 4 + j] + X[0, k]",
        # Of several stores to one element the last one of the text counts.
        "for i, j in T.grid(2, 4): A[P[j * 2 + i]] = B[j * 2 + i]",
        "for i, j in T.grid(2, 4): if j * 2 + i < 7: A[P[j * 2 + i]] = B[j * 2 + i]",
        # Digits that do not make up the whole loop, or do not begin at its start.
        "for f in range(10): X[f // 4, f % 4] = Y[f // 4, f % 4] * 2",
        "for f in range(12): X[f // 4, f % 3] = Y[f // 4, f % 3] * 2",
        "for f in range(4, 12): X[f // 4, f % 4] = Y[f // 4, f % 4] * 2",
        "for f in range(2, 14): X[f // 4, f % 4] = Y[f // 4, f % 4] * 2",
        "for f in range(12): if f < 10: X[f // 4, f % 4] = Y[f // 4, f % 4] * 2",
        "for f in range(12): X[f // 4, f % 4] = Y[f // 4, f % 4] * 2 + A[f // 6]",
        "for i in range(3): for f in range(i * 4): X[f // 4, f % 4] = Y[f // 4, f % 4] + i",
        # Two ranges hold what the condition leaves.
        "for i in range(12): if i != 5: A[i] = B[i] * 2",
        "for i in range(10): A[i] = T.Cast('int32', T.Cast('int8', i) * T.int8(20) // T.int8(20))",
        "for i in range(10): "
        "A[i] = T.Cast('int32', (T.Cast('uint32', i) * T.uint32(2) - T.uint32(4)) // T.uint32(2))",
        # A byte wraps around, and so does a number of 32 bits before it is made longer.
        "for i, j in T.grid(4, 10): "
        "A[i * 10 + j] = T.Cast('int32', T.Cast('int8', (i * 10 + j) * 20) + T.int8(100))",
        "for i, j in T.grid(4, 10): "
        "A[i * 10 + j] = T.Cast('int32', (T.Cast('int64', B[i * 10 + j] * 1000000000) + 1) // 3)",
        # What is looked up outside its buffer, or never, where the condition says so.
        "for i in range(12): if i < 5 and A[P[i] + i] > 0: B[i] = 2",
        "for i in range(12): if i < 8 and A[P[i]] > 0 and i < 5: B[i] = 2",
        "for i, j in T.grid(3, 4): if i * 4 + j < 8 and A[P[i * 4 + j]] > 0: B[i * 4 + j] = 2",
    ],
)
def test_other_loops_do_what_their_text_says(written: str) -> None:
    func = kernel(lines(written))
    assert compile_kernel(func, "kernel").report
    for n, m, s in SIZES:
        check(func, *arguments(n, m, s))


def test_a_condition_on_two_loops_is_the_bound_of_neither() -> None:
    decided(lines("for i, j in T.grid(3, 4): if j <= i: X[i, j] = Y[i, j]"), "X: elementwise")


def test_loops_that_no_index_mentions_stay_apart() -> None:
    decided(
        lines("for i, j, k in T.grid(3, 4, 5): A[k] = A[k] + B[k]"), "A: add reduction over i, j"
    )


@pytest.mark.parametrize("beside", ["", "        C[i] = 1\n"])
def test_a_condition_that_stops_the_program_is_evaluated_although_a_later_one_fails(beside) -> None:
    """All conditions up to the one that fails are evaluated, whatever follows the branch."""
    head = "    for i in range(8):\n        if X[0, P[i]] > -99 and B[i] > -99 and i < 5:\n"
    func = kernel(f"{head}            A[i] = 2\n{beside}")
    check(func, *arguments(2, 3, 1))
    compiled = load(func)
    for run in (lambda args: run_prim_func(func, args, "kernel"), lambda args: compiled(*args)):
        args = arguments(2, 3, 1)
        args[6][6] = SIZE
        with pytest.raises(RuntimeCheckError, match=f"index {SIZE} is outside"):
            run(args)


@T.prim_func
def rounded(
    A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32"), C: T.Buffer((12,), "float32")
):
    for i, j in T.grid(3, 4):
        C[i * 4 + j] = A[i * 4 + j] + B[i * 4 + j] - A[i * 4 + j]


def test_equal_terms_of_a_float_sum_are_not_combined() -> None:
    args = np.full(12, 1e8, np.float32), np.ones(12, np.float32), np.ones(12, np.float32)
    check(rounded, *args)
    load(rounded)(*args)
    np.testing.assert_array_equal(args[2], np.zeros(12))


@T.prim_func
def shifted(C: T.Buffer((12,), "float32"), s: T.float32):
    for i, j in T.grid(3, 4):
        C[i * 4 + j] = T.Cast("float32", i * 4 + j) + s - T.Cast("float32", i * 4 + j)


def test_floats_of_loops_are_not_indices() -> None:
    check(shifted, np.zeros(12, np.float32), 0.3)


@T.prim_func
def bound(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32")):
    for i in range(3):
        v: T.int32 = B[i] * 100000000
        A[i] = (v * 3 + i) % 3
        B[i] = v


def test_a_remainder_of_data_that_overflows_stays() -> None:
    check(bound, np.zeros(3, np.int32), np.array([8, -9, 10], np.int32))


def test_a_coalesced_loop_counts_as_far_as_the_wider_one() -> None:
    halves = (
        "for i in range(T.int64(1073741824)): for j in range(8): if i * 8 + j < 10: A[i * 8 + j]"
    )
    whole = "for i in range(10): A[i] = 2"
    assert steps_of(kernel(lines(f"{halves} = 2"))) == steps_of(kernel(lines(whole)))
