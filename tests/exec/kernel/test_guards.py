"""What a condition protects stops the program only where the condition holds."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.exec.kernel.support import check, load, methods


def refused(func: PrimFunc, *args: np.ndarray, match: str) -> None:
    """Compiled and by the reference, `func` stops."""
    with pytest.raises(RuntimeCheckError, match=match):
        run_prim_func(func, [a.copy() for a in args], "kernel")
    with pytest.raises(RuntimeCheckError, match=match):
        load(func)(*args)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


@T.prim_func
def looked_up(a: T.handle, at: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,), "int32")
    at_ = T.match_buffer(at, (m,), "int32")
    C = T.match_buffer(c, (m, 2), "int32")
    for i, j in T.grid(m, 2):
        C[i, j] = T.if_then_else(at_[i] >= 0, A[at_[i]], 7) + T.Select(at_[i] < 0, -1, A[at_[i]])


def test_a_place_may_be_outside_where_it_is_not_looked_up() -> None:
    check(looked_up, ints(1, 2), ints(-1, 1, -5, 0), np.zeros((4, 2), np.int32))
    check(looked_up, ints(), ints(-1, -1), np.zeros((2, 2), np.int32))
    refused(looked_up, ints(1, 2), ints(-1, 2), np.zeros((2, 2), np.int32), match="index 2 is out")
    refused(looked_up, ints(), ints(-1, 0), np.zeros((2, 2), np.int32), match="index 0 is out")


@T.prim_func
def picked(
    A: T.Buffer((4,), "int32"),
    at: T.Buffer((4,), "int32"),
    C: T.Buffer((4,), "bool"),
    D: T.Buffer((4,), "int32"),
):
    for i in range(4):
        C[i] = at[i] < 0 or at[i] > 3 or A[at[i]] > 1
    for i in range(4):
        if at[i] >= 0 and at[i] < 9 and A[at[i]] > 1:
            D[i] = A[at[i]]


def test_each_condition_is_asked_only_where_those_before_it_let_it() -> None:
    start = np.zeros(4, bool), ints(5, 5, 5, 5)
    check(picked, ints(1, 2, 3, 0), ints(3, -1, 1, 10), *start)
    refused(picked, ints(1, 2, 3, 0), ints(3, -1, 1, 4), *start, match="index 4 is outside")


@T.prim_func
def shared(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32"), C: T.Buffer((3,), "int32")):
    for i in range(3):
        C[i] = T.Select(B[i] > 0, A[i] // B[i], 0) + A[i] // B[i]


@T.prim_func
def uniform(A: T.Buffer((3,), "int32"), B: T.Buffer((1,), "int32"), C: T.Buffer((3,), "int32")):
    for i in range(3):
        C[i] = T.Select(A[i] > 5, T.truncmod(A[i], B[0]) + 8 // B[0], A[i])


def test_a_quotient_that_is_used_twice_stops_the_program_where_either_use_would() -> None:
    check(shared, ints(7, 8, -9), ints(2, -3, 4), ints(0, 0, 0))
    refused(shared, ints(7, 8, -9), ints(2, 0, 4), ints(0, 0, 0), match="division by zero")


def test_a_divisor_that_is_the_same_in_all_iterations_counts_where_it_divides() -> None:
    check(uniform, ints(1, 2, 5), ints(0), ints(0, 0, 0))
    check(uniform, ints(1, 2, 9), ints(-4), ints(0, 0, 0))
    refused(uniform, ints(1, 2, 9), ints(0), ints(0, 0, 0), match="division by zero")


@T.prim_func
def collected(
    A: T.Buffer((3,), "int32"),
    at: T.Buffer((2, 3), "int32"),
    C: T.Buffer((2,), "int32"),
    D: T.Buffer((3,), "int32"),
):
    for i, k in T.grid(2, 3):
        if at[i, k] < 3:
            C[i] = C[i] + A[at[i, k]]
    for i, k in T.grid(2, 3):
        if at[i, k] < 3:
            D[at[i, k]] = D[at[i, k]] + 6 // at[i, k]


def test_what_is_left_out_of_a_sum_may_be_outside() -> None:
    start = ints(1, 1), ints(0, 0, 0)
    check(collected, ints(1, 2, 3), ints(1, 2, 3, 9, 2, 1).reshape(2, 3), *start)
    wrong = ints(1, 2, -1, 9, 2, 1).reshape(2, 3)
    refused(collected, ints(1, 2, 3), wrong, *start, match="index -1 is outside")
    wrong = ints(1, 2, 0, 9, 2, 1).reshape(2, 3)
    refused(collected, ints(1, 2, 3), wrong, *start, match="division by zero")
    assert methods(collected) == ["add reduction over k", "scatter (add)"]


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
@pytest.mark.parametrize("guard", ["True", "i < 3"])
def test_an_index_outside_a_matched_region_is_refused_inside_its_buffer_too(
    guard: str, target: str
) -> None:
    func = from_source(f"""
        @T.prim_func
        def f(A: T.Buffer((7,), "float32"), n: T.int64):
            for i in range(n):
                with T.block("opaque"):
                    U = T.match_buffer(A[1:4], (3,), "float32")
                    if {guard}:
                        U[i] = T.float32(i)
    """)
    array = np.zeros(7, "float32")
    run = relaxpy.compile(func, target=target)["f"]
    if guard == "True":
        with pytest.raises(RuntimeCheckError, match="outside dimension 0"):
            run(array, 5)
        return
    run(array, 5)
    assert array.tolist() == [0, 0, 1, 2, 0, 0, 0]


def asserted(condition: str) -> PrimFunc:
    """Doubles n numbers, and asserts a condition for each."""
    func = from_source(f"""
@T.prim_func
def f(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (n,), "int32")
    for i in range(n):
        assert {condition}, "it does not hold"
        B[i] = A[i] * 2
""")
    assert isinstance(func, PrimFunc)
    return func


@pytest.mark.parametrize("condition", ["i < n", "0 <= i and i < n + 3", "T.bool(True)"])
def test_an_assertion_that_always_holds_is_not_tested(condition: str) -> None:
    assert methods(asserted(condition)) == ["elementwise"]
    for n in (0, 3):
        check(asserted(condition), np.arange(n, dtype=np.int32), np.zeros(n, np.int32))


@pytest.mark.parametrize("condition", ["i < 3", "i + 1 < n", "A[i] == A[i]", "n // (n - 4) < 9"])
def test_other_assertions_are_tested(condition: str) -> None:
    func, size = asserted(condition), 4
    assert methods(func) != ["elementwise"]
    check(func, np.zeros(0, np.int32), np.zeros(0, np.int32))
    if condition.startswith("A"):
        check(func, np.zeros(size, np.int32), np.zeros(size, np.int32))
    else:
        args = np.zeros(size, np.int32), np.zeros(size, np.int32)
        refused(func, *args, match="it does not hold|divi")
