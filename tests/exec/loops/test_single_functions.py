"""Patterns that run as one function of NumPy or of the runtime, compared with the reference."""

from typing import Any

import numpy as np
import pytest

from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy import runtime
from relaxpy.ir.tir.prim_func import PrimFunc
from tests.exec.loops.support import check, load, source_of
from tests.exec.loops.written import floats, kernel, run_row
from tests.ir.relax.texts import DTYPES
from tests.rows import sections

rng = np.random.default_rng(5)
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 3.0]


def elementwise(value: str, dtype: str = "float32") -> PrimFunc:
    """B[i] = `value`, which mentions A[vi]."""
    short = next(short for short, long in DTYPES.items() if long == dtype)
    return kernel(f"""
def f(A: {short}[n], B: {short}[n]):
    for i in S(n):
        B[vi] = {value}
""")


# ---- limits


@pytest.mark.each_choice
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


# ---- powers


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("exponent", [2, 3])
def test_squares_and_cubes_are_products(exponent: int, dtype: str) -> None:
    func = elementwise(f"T.pow(A[vi], T.{dtype}({exponent}))", dtype)
    limits = np.finfo(dtype)
    edges = [limits.max, -limits.max, limits.tiny, limits.smallest_subnormal, np.sqrt(limits.max)]
    with np.errstate(over="ignore", under="ignore"):
        x = np.array([*SPECIAL, *edges, *rng.standard_normal(50)]).astype(dtype)
        found, expected = np.zeros_like(x), np.power(x, np.dtype(dtype).type(exponent))
    load(func)(x, found)
    if exponent == 2:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=2 * limits.eps, atol=0)
    assert "power" not in source_of(func)


def test_squares_of_squares_do_not_grow() -> None:
    value = "A[vi]"
    for _ in range(60):
        value = f"T.pow({value}, T.float32(2))"
    func, x = elementwise(value), np.array([1, -1, 0.5, 2], np.float32)
    found = np.zeros_like(x)
    load(func)(x, found)
    np.testing.assert_array_equal(found, [1, 1, 0, np.inf])


SINGLE = sections("""
--- a triangle
def f(A: f32[n, m], B: f32[n, m]):
    for i, j in SS(n, m):
        B[vi, vj] = T.Select(vi <= vj, A[vi, vj] * T.float32(2), T.float32(7))
# args: n=0, m=3
# args: n=3, m=0
# args: n=4, m=6
# args: n=6, m=4
# source: np.copyto
--- two triangles
def f(A: f32[n, n], B: f32[n, n]):
    for i, j in SS(n, n):
        B[vi, vj] = T.if_then_else(vi < vj, A[vj, vi], A[vi, vj])
# args: n=0
# args: n=4
# args: n=6
# not source: np.copyto
--- slices of a view
def f(A: f32[2, n, m, 3], at: i64[k], B: f32[n, k, 2]):
    for i, j, c in SSS(n, k, 2):
        B[vi, vj, vc] = A[1, vi, at[vj], vc + 1]
# args: n=0, m=3, k=2, at=np.array([2, 0])
# args: n=2, m=3, k=0
# args: n=4, m=5, k=2, at=np.array([4, 1])
# args: n=4, m=5, k=11, at=np.arange(11) % 5
# args: n=4, m=5, k=11, at=(np.arange(11) % 5)[::-1], A=np.asfortranarray(floats(2, 4, 5, 3))
# args: n=4, m=5, k=2, at=np.array([4, 1]), B=np.asfortranarray(floats(4, 2, 2))
# args: n=4, m=5, k=3, at=np.array([0, -1, 4]) -> index -1 is outside dimension 2 of buffer
# args: n=4, m=5, k=3, at=np.array([0, 5, 4]) -> index 5 is outside dimension 2 of buffer
# args: n=4, m=5, k=3, at=np.array([0, 1 << 40, 4]) -> index 1099511627776 is outside dimension 2
# args: n=4, m=5, k=3, at=np.array([0, -(1 << 40), 4]) -> index -1099511627776 is outside
# source: rt.take
--- single elements
def f(A: f32[n, m, 3], at: i32[n, 2], B: f32[n, 2]):
    for i, j in SS(n, 2):
        B[vi, vj] = A[vi, T.Cast("int64", at[vi, vj]), vj]
# args: n=2, m=5, at=ints(0, 4, 3, 1).reshape(2, 2)
# args: n=2, m=5, at=ints(0, 4, 3, 1).reshape(2, 2), A=np.asfortranarray(floats(2, 5, 3))
# args: n=2, m=5, at=ints(0, 4, 3, -1).reshape(2, 2) -> index -1 is outside dimension 1 of buffer
--- an extreme that is needed is computed too
def f(A: i32[n, m], B: i32[m], C: i64[m]):
    for j, i in SR(m, n):
        with T.init():
            B[vj] = T.int32(-(2**31))
        B[vj] = T.max(B[vj], A[vi, vj])
    for j, i in SR(m, n):
        with T.init():
            C[vj] = T.int64(2**63 - 1)
        C[vj] = T.min(C[vj], T.Select(A[vi, vj] == B[vj], vi, T.int64(2**63 - 1)))
# args: n=6, m=9
# args: n=0, m=9
# source: rt.first_extreme
# source: np.maximum.reduce
""")


@pytest.mark.parametrize("fact", SINGLE)
def test_patterns_of_one_function(fact: str) -> None:
    run_row(SINGLE[fact])


POSITIONS = {
    "of a diagonal": "T.Select(vi + k == vj, T.float32(3), T.float32(-1))",
    "looked up": 'T.Select(T.Cast("int64", A[vi]) == vj, T.float32(1), T.Cast("float32", k))',
}


@pytest.mark.parametrize("position", POSITIONS)
def test_one_position_that_differs_may_be_out_of_bounds(position: str) -> None:
    sizes = [(0, 4), (4, 0), (1, 1), (5, 7), (7, 5)]
    calls = [f"n={n}, m={m}, k={k}" for n, m in sizes for k in (-9, -2, 0, 3, 9)]
    run_row(
        f"""
def f(A: i32[n], B: f32[n, m], k: T.int64):
    for i, j in SS(n, m):
        B[vi, vj] = {POSITIONS[position]}
# source: rt.store_at
"""
        + "".join(f"# args: {call}, A=rng.integers(-3, 9, {call[2]}, np.int32)\n" for call in calls)
    )


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
def test_where_is_numpys(dtype, condition, yes, no, order) -> None:
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


@pytest.mark.parametrize("size", [3, tuning.NumPy.MANY_CHOSEN])
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
    run_row(f"""
def f(A: i32[n], m: T.int64, B: bool[2, n]):
    for j, i in SS(2, n):
        B[vj, vi] = {value.format(choice)}
# args: n=5, m=0
# args: n=5, m=1
# args: n=5, m=2
""")


# ---- slices at computed positions


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
    row = f"""
def f(A: i64[4], X: f32[4, 3], B: f32[6, {columns}]):
    for i, j in SS(4, 3):
        B[{index}] = {update.format(index=index)}
# args: A=np.array([5, 0, 5, 2])
# args: A=np.array([5, 0, 6, 2]) -> index 6 is outside dimension 0 of buffer
"""
    run_row(row)
    assert ("(4,)" in source_of(kernel(row)).partition("rt.scatter")[2]) is whole


# ---- positions of extremes


def search(condition: str, init: str = "-inf", combine: str = "max") -> PrimFunc:
    return kernel(f"""
def f(A: f32[n, m], C: i64[n]):
    best = T.alloc_buffer((n, 1), "float32")
    for i, j in SR(n, m):
        with T.init():
            best[vi, 0] = T.float32("{init}")
        best[vi, 0] = T.{combine}(best[vi, 0], A[vi, vj])
    for i, j in SR(n, m):
        with T.init():
            C[vi] = T.int64({(1 << 63) - 1})
        C[vi] = T.min(C[vi], T.Select({condition}, vj, T.int64({(1 << 63) - 1})))
""")


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
