"""Kernels as schedules leave them: tiles, packed layouts, places that are clamped."""

import ml_dtypes
import numpy as np
import pytest

from relaxpy.script import tir as T
from tests.exec.kernel.support import check, methods

rng = np.random.default_rng(5)


def whole(*shape: int, kind: str = "float32") -> np.ndarray:
    """Whole numbers, of which sums are exact in any order."""
    return rng.integers(-4, 5, shape).astype(kind)


@T.prim_func
def packed_result(
    A: T.Buffer((3, 4), "float32"),
    B: T.Buffer((4, 4), "float32"),
    C: T.Buffer((3, 2, 3), "float32"),
):
    for k_0, j, k_1, i in T.grid(2, 4, 3, 3):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            vk = T.axis.reduce(4, k_0 * 3 + k_1)
            T.where(k_0 * 3 + k_1 < 4)
            with T.init():
                C[vi, vj // 3, vj % 3] = T.float32(-2)
            C[vi, vj // 3, vj % 3] = C[vi, vj // 3, vj % 3] + A[vi, vk] * B[vk, vj]


def test_an_accumulation_begins_once_though_some_of_its_loops_run_in_order() -> None:
    check(packed_result, whole(3, 4), whole(4, 4), whole(3, 2, 3))


@T.prim_func
def clamped_factor(
    A: T.Buffer((5,), "float32"), S: T.Buffer((1,), "float32"), C: T.Buffer((), "float32")
):
    for k in range(5):
        with T.block("C"):
            vk = T.axis.reduce(5, k)
            with T.init():
                C[()] = T.float32(0)
            C[()] = C[()] + A[vk] * S[T.min(T.max(vk % 2, 0), 0)]


def test_a_factor_may_be_the_same_in_all_iterations_of_a_loop_that_it_mentions() -> None:
    check(clamped_factor, whole(5), whole(1), whole())


@T.prim_func
def end_backwards(A: T.Buffer((4,), "float8_e5m2"), B: T.Buffer((3,), "float8_e5m2")):
    for i in range(3):
        B[i] = A[2 - i]


def test_datatypes_that_numpy_cannot_name_are_read_backwards() -> None:
    check(end_backwards, whole(4).astype(ml_dtypes.float8_e5m2), np.zeros(3, ml_dtypes.float8_e5m2))


@T.prim_func
def late_ties(X: T.Buffer((3, 5), "int8"), Y: T.Buffer((3,), "int8"), P: T.Buffer((3,), "int64")):
    for i, k in T.grid(3, 5):
        better = T.meta_var(Y[i] >= X[i, k])
        place: T.int64 = T.Select(
            T.Or(better, T.And(Y[i] == X[i, k], P[i] < T.Cast("int64", k))),
            P[i],
            T.Cast("int64", k),
        )
        value: T.int8 = T.Select(better, Y[i], X[i, k])
        P[i] = place
        Y[i] = value


def test_places_are_not_asked_of_ties_that_are_decided_before() -> None:
    check(late_ties, whole(3, 5, kind="int8"), np.full(3, 4, np.int8), np.full(3, 9))


@T.prim_func
def least_of_one_value(Y: T.Buffer((), "uint8"), P: T.Buffer((), "int64")):
    for k in range(5):
        if Y[()] > T.uint8(9):
            Y[()] = T.uint8(9)
            P[()] = T.Cast("int64", k)


def test_an_arg_extreme_of_what_is_always_the_same() -> None:
    check(least_of_one_value, np.array(200, np.uint8), np.array(-1))


@T.prim_func
def narrow_scalars(A: T.Buffer((4,), "uint8"), Y: T.Buffer((4,), "uint8"), n: T.int64):
    for i in range(4):
        Y[i] = T.Cast("uint8", n) + T.uint8(200)
        for _ in range(3):
            A[i] = A[i] - T.uint8(5)


@pytest.mark.filterwarnings("error")
def test_scalars_that_wrap_do_not_warn() -> None:
    check(narrow_scalars, np.zeros(4, np.uint8), np.zeros(4, np.uint8), 120)


@T.prim_func
def left_tiles(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32")):
    for i_0, i_1 in T.grid(3, 3):
        if i_0 * 3 + i_1 < 7:
            if A[i_0 * 3 + i_1] < 0:
                T.evaluate(T.break_loop())
            B[i_0 * 3 + i_1] = A[i_0 * 3 + i_1]


@T.prim_func
def left_rows(A: T.Buffer((3, 4), "int32"), B: T.Buffer((12,), "int32")):
    for f in range(12):
        if A[f // 4, f % 4] < 0:
            T.evaluate(T.break_loop())
        B[f] = A[f // 4, f % 4]


def test_loops_that_are_left_early_are_neither_joined_nor_divided() -> None:
    check(left_tiles, np.array([1, -2, 3, 4, 5, 6, -7], np.int32), np.zeros(7, np.int32))
    check(left_rows, np.array([[1, -2, 3, 4]] * 3, np.int32), np.zeros(12, np.int32))


@T.prim_func
def windows(B: T.Buffer((16,), "int32"), C: T.Buffer((2,), "int32")):
    W = T.decl_buffer((5, 2), "int32", data=B.data, strides=[1, 4])
    for i, j in T.grid(5, 2):
        W[i, j] = W[4 - i, j] + C[j]


@T.prim_func
def rows_of_windows(B: T.Buffer((16,), "int32"), C: T.Buffer((2,), "int32")):
    W = T.decl_buffer((4, 4), "int32", data=B.data, strides=[4, 1])
    for i, j in T.grid(4, 4):
        W[i, j] = W[i, j] + C[1]


def test_strides_may_lead_to_one_element_from_several_places() -> None:
    check(windows, whole(16, kind="int32"), whole(2, kind="int32"))
    check(rows_of_windows, whole(16, kind="int32"), whole(2, kind="int32"))
    assert methods(rows_of_windows) == ["elementwise"]
