"""Patterns that run as one function of NumPy or of the runtime, compared with the reference."""

from typing import Any

import numpy as np
import pytest

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel import runtime
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import from_source, tir as T
from tests.exec.kernel.support import check, load, source_of

rng = np.random.default_rng(5)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 3.0]


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def elementwise(value: str, dtype: str = "float32") -> PrimFunc:
    """B[i] = `value`, which mentions A[vi]."""
    func = from_source(f"""
@T.prim_func
def kernel(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "{dtype}")
    B = T.match_buffer(b, (n,), "{dtype}")
    for i in range(n):
        with T.block("B"):
            vi = T.axis.spatial(n, i)
            B[vi] = {value}
""")
    assert isinstance(func, PrimFunc)
    return func


# ---- limits


@pytest.mark.parametrize(
    ("value", "function"),
    [
        ("T.max(T.min(A[vi], one(2)), one(-1))", "rt.clip"),
        ("T.min(T.max(A[vi], one(-1)), one(2))", "rt.clip"),
        ("T.max(A[vi], one(1))", "rt.at_least"),
        ("T.min(A[vi], one(1))", "rt.at_most"),
        ("T.max(T.min(A[vi], one(-1)), one(2))", "rt.at_least"),
        ("T.min(A[vi] + A[vi], one(1)) + T.max(T.min(A[vi] + A[vi], one(1)), one(0))", ""),
        ("T.max(T.min(A[vi] * A[vi], one(1)), one(0)) - A[vi] * A[vi]", ""),
    ],
)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "uint8"])
@pytest.mark.parametrize("repeats", [1, 1000])
def test_limits_by_numbers(value: str, function: str, dtype: str, repeats: int) -> None:
    if dtype == "uint8" and "-1" in value:
        value = value.replace("-1", "0")
    func = elementwise(value.replace("one", f"T.{dtype}"), dtype)
    numbers = SPECIAL if dtype.startswith("float") else [0, 1, 2, 3, 100, 127]
    x = np.array(numbers).astype(dtype)
    expected, found = np.zeros_like(x), np.zeros(len(x) * repeats, dtype)
    check(func, x, expected)
    load(func)(x, expected)
    load(func)(np.tile(x, repeats), found)
    for row in found.reshape(repeats, -1):
        np.testing.assert_array_equal(row, expected)
    if dtype != "float16":
        assert function in source_of(func)


# ---- choices


@T.prim_func
def diagonal(a: T.handle, b: T.handle, k: T.int64):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.Select(vi + k == vj, T.float32(3), T.float32(-1))


@T.prim_func
def chosen(a: T.handle, b: T.handle, k: T.int64):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.Select(T.Cast("int64", A[vi]) == vj, T.float32(1), T.Cast("float32", k))


@pytest.mark.parametrize("func", [diagonal, chosen])
@pytest.mark.parametrize(("n", "m"), [(0, 4), (4, 0), (1, 1), (5, 7), (7, 5)])
@pytest.mark.parametrize("k", [-9, -2, 0, 3, 9])
def test_one_position_that_differs_may_be_out_of_bounds(
    func: PrimFunc, n: int, m: int, k: int
) -> None:
    check(func, rng.integers(-3, 9, n).astype(np.int32), floats(n, m), k)
    assert "rt.store_at" in source_of(func)


@T.prim_func
def triangle(a: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    B = T.match_buffer(b, (n, m), "float32")
    for i, j in T.grid(n, m):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.Select(vi <= vj, A[vi, vj] * T.float32(2), T.float32(7))


@T.prim_func
def triangles(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, n), "float32")
    B = T.match_buffer(b, (n, n), "float32")
    for i, j in T.grid(n, n):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = T.if_then_else(vi < vj, A[vj, vi], A[vi, vj])


@pytest.mark.parametrize(("n", "m"), [(0, 3), (3, 0), (4, 6), (6, 4)])
def test_choices_by_position(n: int, m: int) -> None:
    check(triangle, floats(n, m), floats(n, m))
    check(triangles, floats(n, n), floats(n, n))
    assert "np.copyto" in source_of(triangle)
    assert "np.copyto" not in source_of(triangles)


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32", "float64", "int64"])
@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [
        ((300, 400), (300, 400), (300, 400)),
        ((300, 1), (1, 400), (300, 400)),
        ((400,), (300, 400), ()),
        ((), (300, 400), (300, 400)),
        ((300, 400), (), ()),
        ((1, 40000), (1, 40000), (1, 1)),
        ((7, 1), (1, 3), (7, 3)),
        ((0, 1), (1, 40000), (0, 40000)),
    ],
)
@pytest.mark.parametrize("order", ["C", "F"])
def test_where_is_numpys(
    dtype: str, condition: tuple[int, ...], yes: tuple[int, ...], no: tuple[int, ...], order: Any
) -> None:
    def numbers(shape: tuple[int, ...]) -> Any:
        data = np.resize(np.array(SPECIAL), shape) if dtype.startswith("f") else floats(*shape) * 9
        return np.asarray(data, dtype=dtype, order=order)[()]

    test, a, b = rng.integers(0, 2, condition).astype(bool)[()], numbers(yes), -1 * numbers(no)
    b = b.astype(dtype)
    expected = np.where(test, a, b)
    out = np.empty(expected.shape, dtype)
    assert runtime.where(test, a, b, out=out) is out
    for found in (runtime.where(test, a, b), out):
        assert found.tobytes() == expected.tobytes()
        assert found.dtype == dtype
    if np.shape(b) == expected.shape:
        runtime.where(test, a, b, out=b)
        assert b.tobytes() == expected.tobytes()


@pytest.mark.parametrize("size", [3, runtime.MANY_CHOSEN])
@pytest.mark.parametrize("plain", [False, True])
def test_where_takes_truths_of_python(size: int, plain: bool) -> None:
    test, other = (rng.integers(0, 2, size).astype(bool) for _ in range(2))
    for args in [
        (plain, other, not plain),
        (plain, not plain, other),
        (test, plain, other),
        (test, other, plain),
        (test, plain, not plain),
        (plain, other, other[::-1]),
    ]:
        expected = np.where(*args)
        out = np.empty(size, bool)
        assert runtime.where(*args, out=out) is out
        for found in (runtime.where(*args), out):
            np.testing.assert_array_equal(found, expected)
            assert found.dtype == bool


@pytest.mark.parametrize(
    "choice",
    [
        "T.if_then_else(vj == m, A[vi] < T.int32(0), m > T.int64(1))",
        "T.if_then_else(m == T.int64(1), A[vi] < T.int32(0), m > T.int64(0))",
        "T.if_then_else(A[vi] < T.int32(0), m > T.int64(1), m < T.int64(1))",
        "T.if_then_else(A[vi] < T.int32(0), T.bool(True), m < T.int64(1))",
        "T.Select(m == T.int64(1), m > T.int64(0), A[vi] < T.int32(0))",
    ],
)
@pytest.mark.parametrize("value", ["{}", "A[vi] > T.int32(3) or {}", "not {}"])
def test_choices_between_truths_of_scalars(choice: str, value: str) -> None:
    func = from_source(f"""
@T.prim_func
def kernel(a: T.handle, m: T.int64, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "int32")
    B = T.match_buffer(b, (2, n), "bool")
    for j, i in T.grid(2, n):
        with T.block("B"):
            vj, vi = T.axis.remap("SS", [j, i])
            B[vj, vi] = {value.format(choice)}
""")
    assert isinstance(func, PrimFunc)
    x = rng.integers(-9, 9, 5).astype(np.int32)
    for m in range(3):
        check(func, x, m, np.zeros((2, 5), bool))


# ---- slices at computed positions


@T.prim_func
def columns(a: T.handle, at: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    A = T.match_buffer(a, (2, n, m, 3), "float32")
    at_ = T.match_buffer(at, (k,), "int64")
    B = T.match_buffer(b, (n, k, 2), "float32")
    for i, j, c in T.grid(n, k, 2):
        with T.block("B"):
            vi, vj, vc = T.axis.remap("SSS", [i, j, c])
            B[vi, vj, vc] = A[1, vi, at_[vj], vc + 1]


@pytest.mark.parametrize(("n", "m", "k"), [(0, 3, 2), (2, 3, 0), (4, 5, 2), (4, 5, 11)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_slices_of_a_view(n: int, m: int, k: int, order: Any) -> None:
    x = np.asarray(floats(2, n, m, 3), order=order)
    at = rng.integers(0, m, k)
    check(columns, x, at, floats(n, k, 2))
    check(columns, x, at[::-1], np.asfortranarray(floats(n, k, 2)))
    assert "rt.take" in source_of(columns)


@pytest.mark.parametrize("wrong", [-1, 5, 1 << 40, -(1 << 40)])
def test_positions_of_slices_are_checked(wrong: int) -> None:
    at = np.array([0, wrong, 4])
    with pytest.raises(RuntimeCheckError, match=f"index {wrong} is outside dimension 2 of buffer"):
        load(columns)(floats(2, 4, 5, 3), at, floats(4, 3, 2))


@T.prim_func
def along(a: T.handle, at: T.handle, b: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m, 3), "float32")
    at_ = T.match_buffer(at, (n, 2), "int32")
    B = T.match_buffer(b, (n, 2), "float32")
    for i, j in T.grid(n, 2):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, T.Cast("int64", at_[vi, vj]), vj]


@pytest.mark.parametrize("order", ["C", "F"])
def test_single_elements(order: Any) -> None:
    at = rng.integers(0, 5, (4, 2)).astype(np.int32)
    x = np.asarray(floats(4, 5, 3), order=order)
    check(along, x, at, floats(4, 2))
    at[2, 1] = -1
    with pytest.raises(RuntimeCheckError, match="index -1 is outside dimension 1 of buffer"):
        load(along)(x, at, floats(4, 2))


# ---- stores at computed positions


@pytest.mark.parametrize(
    ("index", "columns", "whole"),
    [
        ("A[vi], vj", 3, True),
        ("A[vi], vj", 5, False),  # a part of the axis
        ("A[vi], 2 - vj", 3, False),
        ("A[vi], vi + vj", 8, False),
        ("A[(vi + vj) % 4], vj", 3, False),
    ],
)
@pytest.mark.parametrize("update", ["X[vi, vj]", "B[{index}] + X[vi, vj]"])
def test_whole_rows_are_stored_at_once(index: str, columns: int, whole: bool, update: str) -> None:
    func = from_source(f"""
@T.prim_func
def kernel(a: T.handle, x: T.handle, b: T.handle):
    A = T.match_buffer(a, (4,), "int64")
    X = T.match_buffer(x, (4, 3), "float32")
    B = T.match_buffer(b, (6, {columns}), "float32")
    for i, j in T.grid(4, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[{index}] = {update.format(index=index)}
""")
    assert isinstance(func, PrimFunc)
    check(func, np.array([5, 0, 5, 2]), floats(4, 3), floats(6, columns))
    assert ("(4,)" in source_of(func).partition("rt.scatter")[2]) is whole
    with pytest.raises(RuntimeCheckError, match="index 6 is outside dimension 0 of buffer"):
        load(func)(np.array([5, 0, 6, 2]), floats(4, 3), floats(6, columns))


# ---- positions of extremes


def search(condition: str, init: str = "-inf", combine: str = "max") -> PrimFunc:
    func = from_source(f"""
@T.prim_func
def kernel(a: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "float32")
    C = T.match_buffer(c, (n,), "int64")
    best = T.alloc_buffer((n, 1), "float32")
    for i, j in T.grid(n, m):
        with T.block("best"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                best[vi, 0] = T.float32("{init}")
            best[vi, 0] = T.{combine}(best[vi, 0], A[vi, vj])
    for i, j in T.grid(n, m):
        with T.block("C"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                C[vi] = T.int64({(1 << 63) - 1})
            C[vi] = T.min(C[vi], T.Select({condition}, vj, T.int64({(1 << 63) - 1})))
""")
    assert isinstance(func, PrimFunc)
    return func


WHOLE = "A[vi, vj] == best[vi, 0] or T.isnan(A[vi, vj])"


@pytest.mark.parametrize(
    ("func", "is_search"),
    [
        (search(WHOLE), True),
        (search(WHOLE, "inf", "min"), True),
        (search(WHOLE, "0"), False),
        (search("A[vi, vj] == best[vi, 0]"), False),
        (search("A[vi, vj] == best[vi, 0] or T.isnan(A[vi, 0])"), False),
        (search("A[vi, vj] * T.float32(2) == best[vi, 0] or T.isnan(A[vi, vj])"), False),
        (search("A[vi, vj] == best[n - 1 - vi, 0] or T.isnan(A[vi, vj])"), False),
    ],
)
def test_searches_for_extremes(func: PrimFunc, is_search: bool) -> None:
    x = np.round(floats(9, 7))
    x[0] = -np.inf
    x[1] = np.inf
    x[2, [3, 5]] = np.nan
    x[3, 6] = np.nan
    x[4] = 0.0
    x[4, 1::2] = -0.0
    check(func, x, np.zeros(9, np.int64))
    check(func, np.asfortranarray(x), np.zeros(9, np.int64))
    check(func, x[:0], np.zeros(0, np.int64))
    check(func, x[:, :0], np.zeros(9, np.int64))
    assert ("rt.first_extreme" in source_of(func)) is is_search
    assert ("best" in source_of(func)) is not is_search


@T.prim_func
def both(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n, m), "int32")
    B = T.match_buffer(b, (m,), "int32")
    C = T.match_buffer(c, (m,), "int64")
    for j, i in T.grid(m, n):
        with T.block("B"):
            vj, vi = T.axis.remap("SR", [j, i])
            with T.init():
                B[vj] = T.int32(-(2**31))
            B[vj] = T.max(B[vj], A[vi, vj])
    for j, i in T.grid(m, n):
        with T.block("C"):
            vj, vi = T.axis.remap("SR", [j, i])
            with T.init():
                C[vj] = T.int64(2**63 - 1)
            C[vj] = T.min(C[vj], T.Select(A[vi, vj] == B[vj], vi, T.int64(2**63 - 1)))


def test_an_extreme_that_is_needed_is_computed_too() -> None:
    x = rng.integers(-2, 3, (6, 9)).astype(np.int32)
    check(both, x, np.zeros(9, np.int32), np.zeros(9, np.int64))
    check(both, x[:0], np.zeros(9, np.int32), np.zeros(9, np.int64))
    assert "rt.first_extreme" in source_of(both)
    assert "np.maximum.reduce" in source_of(both)
