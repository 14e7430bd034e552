"""Searches, reversed rows, statements in order with independent lanes, and floats as integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.script import from_source
from tests.exec.native.claims import claim
from tests.exec.native.test_contract import graph, numbers
from tests.guard_pages import guarded


@pytest.mark.parametrize("columns", [64, 65, 130, 200])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_the_first_of_equal_extremes_or_the_first_nan(dtype: str, columns: int) -> None:
    func = from_source(
        f"""
@R.function
def main(x: R.Tensor((20, {columns}), "{dtype}")):
    with R.dataflow():
        y = (R.argmax(x, axis=1), R.argmin(x, axis=1))
        R.output(y)
    return y
"""
    )
    main = relaxpy.compile(func, target="native")["main"]
    rng = np.random.default_rng(columns)
    x = rng.integers(-3, 4, (20, columns)).astype(dtype)
    x[0] = 1
    x[1, :-1], x[1, -1] = 0, 1
    x[2, :-1], x[2, -1] = 0, -1
    if dtype != "int8":
        x[3, -1] = np.nan
        x[4, [40, columns - 2]] = np.nan
        x[5] = -np.inf
        x[6] = np.nan
    for at_end in (False, True):
        found = main(guarded(x, at_end=at_end))
        np.testing.assert_array_equal(found[0], x.argmax(1))
        np.testing.assert_array_equal(found[1], x.argmin(1))


@pytest.mark.parametrize("columns", [1, 7, 16, 33, 100])
def test_rows_in_reverse_are_read_and_written_inside_their_memory(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = claim(
        monkeypatch,
        [
            f"for i, j in T.grid(3, {columns}):",
            f"    B[i, j] = A[i, {columns - 1} - j] * T.float32(2)",
            f"for i, j in T.grid(3, {columns}):",
            "    if j % 3 != 1:",
            f"        C[i, {columns - 1} - j] = A[i, j]",
        ],
        ", ".join(f'{x}: T.Buffer((3, {columns}), "float32")' for x in "ABC"),
    )
    rng = np.random.default_rng(columns)
    a, b, c = (rng.standard_normal((3, columns)).astype("float32") for _ in range(3))
    for at_end in (False, True):
        kernel.runs(a, b, c)
        arrays = [guarded(x, at_end=at_end) for x in (a, b, c)]
        kernel.native["main"](*arrays)
        np.testing.assert_array_equal(arrays[1], a[:, ::-1] * 2)
        kept = np.arange(columns) % 3 != 1
        np.testing.assert_array_equal(arrays[2], np.where(kept, a, c[:, ::-1])[:, ::-1])


def test_stores_at_indices_of_rows_stay_in_the_order_of_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = claim(
        monkeypatch,
        [
            "for i, j in T.grid(n, 40):",
            "    B[I[i], j] = A[i, j]",
            "for i, j in T.grid(n, 40):",
            "    C[I[i], j] = C[I[i], j] * T.float32(0.5) + B[I[i], j]",
            "for i, j in T.grid(n - 1, 40):",
            "    A[i + 1, j] = A[i + 1, j] + A[i, j]",
        ],
        'n: T.int64, A: T.Buffer((n, 40), "float32"), B: T.Buffer((9, 40), "float32"), '
        'C: T.Buffer((9, 40), "float32"), I: T.Buffer((n,), "int64")',
    )
    rng = np.random.default_rng(2)
    for n in (1, 2, 30):
        a = rng.integers(-4, 5, (n, 40)).astype("float32")
        b, c = np.zeros((2, 9, 40), "float32")
        index = rng.integers(0, 9, n)
        kernel.runs(n, a, b, c, index)
        index[-1] = 9
        kernel.fails("outside dimension 0 of buffer B", n, a, b, c, index, restored=True)


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_floats_as_integers(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = [f"{s}int{b}" for s in ("", "u") for b in (8, 16, 32, 64)]
    kernel = claim(
        monkeypatch,
        ["for i in range(100):", *(f'    {k}_[i] = T.Cast("{k}", A[i])' for k in kinds)],
        f'A: T.Buffer((100,), "{source}"), '
        + ", ".join(f'{k}_: T.Buffer((100,), "{k}")' for k in kinds),
    )
    a = np.linspace(0, 127.99, 100).astype(source)
    kernel.runs(a, *(np.zeros(100, k) for k in kinds))


@pytest.mark.parametrize("count", [7, 300, 100_000])
@pytest.mark.parametrize("combine", ["add", "mul", "min", "max"])
def test_accumulations_into_one_element_are_not_lanes_or_tasks(combine: str, count: int) -> None:
    func = from_source(
        f"""
@R.function
def main(
    t: R.Tensor((5,), "int64"), i: R.Tensor(({count},), "int64"), u: R.Tensor(({count},), "int64"),
    rows: R.Tensor((5, 33), "int64"), v: R.Tensor(({min(count, 300)}, 33), "int64"),
    k: R.Tensor(({min(count, 300)}, 1), "int64"),
):
    with R.dataflow():
        y = R.scatter_elements(t, i, u, reduction="{combine}")
        z = R.scatter_nd(rows, k, v, reduction="{combine}")
        R.output(y, z)
    return (y, z)
"""
    )
    ex = relaxpy.compile(func, target="native")
    assert {row.backend for row in ex.report()} == {"native"}
    rng = np.random.default_rng(count)
    at = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[combine].at
    t, rows = rng.integers(-9, 9, 5), rng.integers(-9, 9, (5, 33))
    i, u = rng.integers(0, 5, count), rng.integers(-3, 4, count)
    few = min(count, 300)
    k, v = rng.integers(0, 5, (few, 1)), rng.integers(-3, 4, (few, 33))
    expected, expected_rows = t.copy(), rows.copy()
    at(expected, i, u)
    at(expected_rows, k[:, 0], v)
    found, found_rows = ex["main"](t, i, u, rows, v, k)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(found_rows, expected_rows)


def test_a_search_in_more_positions_than_the_result_without_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = claim(
        monkeypatch,
        [
            "n = T.int64()",
            'X = T.match_buffer(x, (40, n), "float32")',
            "for i in range(40):",
            "    Y[i] = T.int64(5)",
            "    for k in range(n):",
            "        Y[i] = T.min(Y[i], T.Select(X[i, k] > T.float32(0), k, T.int64(5)))",
        ],
        'x: T.handle, Y: T.Buffer((40,), "int64")',
    )
    numbers = np.zeros((40, 100), "float32")
    numbers[:, 7] = 1
    kernel.runs(numbers, np.zeros(40, "int64"))


@pytest.mark.parametrize(
    ("source", "dtype"),
    [
        ("int32", "int8"),
        ("int32", "uint16"),
        ("int64", "int32"),
        ("int64", "int16"),
        ("float32", "uint8"),
        ("float64", "int16"),
        ("float32", "bfloat16"),
        ("bool", "int8"),
    ],
)
def test_nothing_is_stored_after_the_last_element(source: str, dtype: str) -> None:
    """A rest of one iteration, in which only one lane is active."""
    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype
    for count in (1, 9, 17, 33, 65):
        text = f"""
@T.prim_func
def main(A: T.Buffer((4, 80), "{source}"), C: T.Buffer((4, 80), "{dtype}")):
    for i, k in T.grid(4, {count}):
        C[i, k + 3] = T.cast(A[i, k + 3], "{dtype}")
    for i, k in T.grid(4, 8):
        if k < 1:
            C[i, k + 71] = T.cast(A[i, k], "{dtype}")
"""
        a = np.random.default_rng(0).integers(0, 90, (4, 80)).astype(source)
        c = np.full((4, 80), 77, kind)
        wanted = c.copy()
        wanted[:, 3 : 3 + count] = a[:, 3 : 3 + count].astype(kind)
        wanted[:, 71] = a[:, 0].astype(kind)
        relaxpy.compile(from_source(text), target="native")["main"](a, c)
        np.testing.assert_array_equal(c, wanted)


@pytest.mark.parametrize("columns", [1, 15, 63, 64, 65, 130, "m"])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_sums_of_few_rows_are_inside_their_memory(columns: int | str, dtype: str) -> None:
    text = f"""
@T.prim_func
def main(a: T.handle, i: T.handle, o: T.handle):
    {"m = T.int64()" if columns == "m" else ""}
    A = T.match_buffer(a, (9, {columns}), "{dtype}")
    I = T.match_buffer(i, (4, 3), "int64")
    O = T.match_buffer(o, (4, {columns}), "{dtype}")
    for i, j in T.grid(4, {columns}):
        O[i, j] = T.{dtype}(0)
    for i, k, j in T.grid(4, 3, {columns}):
        O[i, j] = O[i, j] + A[I[i, k], j]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    rng = np.random.default_rng(1)
    for count in (0, 1, 79, 129, 200) if isinstance(columns, str) else (columns,):
        a = rng.integers(-9, 9, (9, count)).astype(dtype)
        places = rng.integers(0, 9, (4, 3))
        for at_end in (False, True):
            arrays = [guarded(x, at_end=at_end) for x in (a, places, np.ones((4, count), dtype))]
            main(*arrays)
            np.testing.assert_array_equal(arrays[2], a[places].sum(1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_sparse_rows_of_any_length(dtype: str) -> None:
    """Rows fill gathers of vectors, or leave a rest of each size; the last one is inside."""
    lengths = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40, 64, 65, 100]
    rows, count = len(lengths), sum(lengths)
    func = from_source(f"""
@T.prim_func
def main(
    P: T.Buffer(({rows + 1},), "int32"), I: T.Buffer(({count},), "int32"),
    V: T.Buffer(({count},), "{dtype}"), X: T.Buffer((50,), "{dtype}"),
    O: T.Buffer(({rows},), "{dtype}"),
):
    for i in range({rows}):
        O[i] = T.{dtype}(0)
        for j in range(P[i], P[i + 1]):
            O[i] = O[i] + V[j] * X[I[j]]
""")
    main = relaxpy.compile(func, target="native")["main"]
    rng = np.random.default_rng(5)
    starts = np.cumsum([0, *lengths]).astype("int32")
    values, x = (rng.integers(-9, 10, n).astype(dtype) for n in (count, 50))
    places = rng.integers(0, 50, count).astype("int32")
    out = np.ones(rows, dtype)
    main(*(guarded(a, at_end=True) for a in (starts, places, values, x)), out)
    terms = np.split((values * x[places]).astype(dtype), starts[1:-1])
    np.testing.assert_array_equal(out, [t.sum(dtype=dtype) for t in terms])


def test_tables_of_bytes() -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((256,), "uint8"), I: T.Buffer((N,), "uint8"), O: T.Buffer((N,), "uint8")):
    for i in range(N):
        O[i] = A[T.Cast("int32", I[i])]
"""
    table = np.random.default_rng(3).permutation(256).astype("uint8")
    for count in (1, 15, 16, 17, 100, 1000):
        main = relaxpy.compile(from_source(text.replace("N", str(count))), target="native")["main"]
        places = (np.arange(count) * 7).astype("uint8")
        out = np.zeros(count, "uint8")
        main(guarded(table, at_end=True), guarded(places, at_end=True), out)
        np.testing.assert_array_equal(out, table[places])


@pytest.mark.each_choice
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8", "int32"])
@pytest.mark.parametrize("columns", [9, 10, 13, 17, 20, 31, 33, 63, 65, 127])
def test_rows_that_do_not_fill_their_vectors(columns: int, dtype: str) -> None:
    body = (
        "(R.max(x, axis=[1]), R.sum(x, axis=[1]), R.argmin(x, axis=1),"
        " R.subtract(x, R.min(x, 1, True)))"
    )
    text = graph(f'x: R.Tensor((40, {columns}), "{dtype}")', body)
    main = relaxpy.compile(from_source(text), target="native")["main"]
    x = numbers((40, columns), dtype)
    if dtype.startswith("float"):
        x[3, 1], x[4, columns - 1], x[5, 0] = np.nan, np.inf, -np.inf
    found = main(guarded(x, at_end=True))
    with np.errstate(invalid="ignore"):
        wanted = x.max(1), x.sum(1, dtype=x.dtype), x.argmin(1), x - x.min(1, keepdims=True)
    for n, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if n == 1 and dtype.startswith("float"):
            bound = 40 * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(a, b, rtol=bound, atol=bound * columns)
        else:
            np.testing.assert_array_equal(a, b)
