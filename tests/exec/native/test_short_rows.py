"""Rows of few elements: several of them are in the lanes of a vector, and written together."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.machine_code import machine
from relaxpy.exec.native.trees.short_rows import short_rows
from relaxpy.script import from_source
from tests.exec.native.oracle import Array
from tests.exec.native.test_contract import graph, numbers
from tests.guard_pages import guarded

COUNTS = (0, 1, 2, 15, 16, 17, 40, 333)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the trees that are emitted have short rows."""
    results: list[bool] = []

    def counted(tree: object, program: object) -> object:
        rows = short_rows(tree, program)  # type: ignore[arg-type]
        results.append(rows is not None)
        return rows

    for module in ("trees.strategy", "loops.tree_loops"):
        monkeypatch.setattr(f"relaxpy.exec.native.{module}.short_rows", counted)
    return results


def kernel(dtype: str, columns: int) -> str:
    """The largest element of each row, the row scaled by it and reversed, and its sum, in place."""
    return f"""
@T.prim_func
def main(a: T.handle, w: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, {columns}), "{dtype}")
    W = T.match_buffer(w, ({columns},), "{dtype}")
    B = T.match_buffer(b, (n, {columns}), "{dtype}")
    C = T.match_buffer(c, (n,), "{dtype}")
    M = T.alloc_buffer((n,), "{dtype}")
    S = T.alloc_buffer((n, {columns}), "{dtype}")
    for i in range(n):
        M[i] = A[i, 0]
    for i, k in T.grid(n, {columns}):
        M[i] = T.max(M[i], A[i, k])
    for i, k in T.grid(n, {columns}):
        S[i, k] = A[i, k] * M[i] + W[k]
    for i, k in T.grid(n, {columns}):
        C[i] = C[i] + S[i, k]
    for i, k in T.grid(n, {columns}):
        B[i, {columns - 1} - k] = S[i, k] - B[i, {columns - 1} - k]
"""


@pytest.mark.parametrize(("columns", "are_short"), [(7, True), (8, False)])
def test_rows_that_fill_a_vector(columns: int, are_short: bool, found: list[bool]) -> None:
    """The lanes of vectors are then the elements of a row, if nothing is accumulated."""
    main = relaxpy.compile(
        from_source(f"""
@T.prim_func
def main(a: T.handle, W: T.Buffer(({columns},), "float32"), b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, {columns}), "float32")
    B = T.match_buffer(b, (n, {columns}), "float32")
    for i, k in T.grid(n, {columns}):
        B[i, k] = A[i, k] * T.rsqrt(W[k])
"""),
        target="native",
    )["main"]
    assert any(found) == are_short
    for count in COUNTS:
        a, w = numbers((count, columns), "float32"), np.full(columns, 4, np.float32)
        b = np.empty_like(a)
        main(a, w, b)
        np.testing.assert_array_equal(b, a / 2)


@pytest.mark.parametrize(
    ("dtype", "columns"),
    [
        *(("float32", n) for n in (2, 3, 6, 7, 8)),
        *(("float64", 3), ("float64", 8), ("float16", 3), ("int8", 4), ("uint16", 5), ("int64", 2)),
    ],
)
def test_rows(dtype: str, columns: int, found: list[bool]) -> None:
    main = relaxpy.compile(from_source(kernel(dtype, columns)), target="native")["main"]
    assert any(found)
    for count in COUNTS:
        a, b = numbers((count, columns), dtype), numbers((count, columns), dtype)[::-1].copy()
        w, c = numbers((columns,), dtype), numbers((count,), dtype)
        if dtype.startswith("float") and count > 20:
            a[3, 1], a[4, 0], a[5, 1] = np.nan, np.inf, -0.0
        with np.errstate(all="ignore"):
            s = a * a.max(1, keepdims=True) + w
            wanted = s[:, ::-1] - b
            total = c.astype("float32" if dtype == "float16" else dtype)
            for k in range(columns):
                total = total + s[:, k]
        for at_end in (False, True):
            arrays = [guarded(x, at_end=at_end) for x in (a, w, b, c)]
            main(*arrays)
            np.testing.assert_array_equal(arrays[0], a)
            np.testing.assert_array_equal(arrays[2], wanted)
            exact = dtype not in ("float32", "float64", "float16")
            bound = 0 if exact else 4 * columns * np.finfo(dtype).eps
            np.testing.assert_allclose(arrays[3], total, rtol=bound, atol=bound * 40)


@pytest.mark.parametrize("columns", [3, 4])
def test_a_result_does_not_depend_on_the_other_rows(columns: int, found: list[bool]) -> None:
    text = graph(f'x: R.Tensor(("n", {columns}), "float32")', "R.nn.softmax(x)")
    main = relaxpy.compile(from_source(text), target="native")["main"]
    x = numbers((1000, columns)) * np.float32(5)
    x[7] = np.nan, *([0] * (columns - 1))
    x[8], x[9] = -np.inf, np.inf
    whole = main(x)
    assert any(found)
    with np.errstate(invalid="ignore"):
        shifted = np.exp(x - x.max(1, keepdims=True))
        np.testing.assert_allclose(whole, shifted / shifted.sum(1, keepdims=True), rtol=1e-6)
    for count in COUNTS:
        np.testing.assert_array_equal(main(x[:count]), whole[:count])


def test_images_whose_channels_are_last(found: list[bool]) -> None:
    args = 'x: R.Tensor((9, 33, 3), "uint8"), m: R.Tensor((3,), "float32")'
    text = graph(args, 'R.divide(R.subtract(R.astype(x, "float32"), m), m)')
    x, m = numbers((9, 33, 3), "uint8"), np.array([3, 5, 7], "float32")
    np.testing.assert_array_equal(
        relaxpy.compile(from_source(text), target="native")(x, m), (x - m) / m
    )
    assert any(found)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float64"])
@pytest.mark.parametrize("shape", [(8, 3, 5, 7), (5, 2, 40, 13), (3, 7, 33, 31)])
def test_batches_of_images(shape: tuple[int, ...], dtype: str, found: list[bool]) -> None:
    x = numbers(shape, dtype)
    for axes in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 3, 2, 1)):
        text = graph(f'x: R.Tensor({shape}, "{dtype}")', f"R.permute_dims(x, {axes})")
        main = relaxpy.compile(from_source(text), target="native")["main"]
        for at_end in (False, True):
            result = main(guarded(x, at_end=at_end))
            np.testing.assert_array_equal(result, x.transpose(axes))
    assert any(found) == (shape[1] < 4)  # others are transposed in squares


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7])
def test_rows_inside_the_rows_of_a_block(size: int, found: list[bool]) -> None:
    args = f'x: R.Tensor(("m", 1, {size}), "float32"), y: R.Tensor((1, "n", {size}), "float32")'
    body = "R.sqrt(R.sum(R.square(R.subtract(x, y)), axis=[2]))"
    main = relaxpy.compile(from_source(graph(args, body)), target="native")["main"]
    assert any(found)
    for rows in (1, 7, 40):
        for count in COUNTS:
            x, y = numbers((rows, 1, size)), numbers((1, count, size))[:, ::-1] + np.float32(1)
            for at_end in (False, True):
                result = main(guarded(x, at_end=at_end), guarded(y, at_end=at_end))
                wanted = np.sqrt(((x - y) ** 2).sum(2))
                np.testing.assert_allclose(result, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("columns", [2, 3])
def test_rows_in_buffers_of_which_a_block_has_some_rows(columns: int) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((2, 300, {columns}), "float32"), B: T.Buffer((300, {columns}), "float32"),
         C: T.Buffer((300, 2), "float32")):
    S = T.alloc_buffer((2, 300, {columns}), "float32")
    M = T.alloc_buffer((2, 300), "float32")
    for i, n, k in T.grid(300, 2, {columns}):
        S[n, i, k] = T.exp(A[n, i, k]) * B[i, k]
    for i, n in T.grid(300, 2):
        M[n, i] = T.float32(0)
    for i, n, k in T.grid(300, 2, {columns}):
        M[n, i] = M[n, i] + S[n, i, k]
    for i, n in T.grid(300, 2):
        C[i, n] = M[n, i] / (M[1 - n, i] + T.float32(1))
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    a, b, c = numbers((2, 300, columns)), numbers((300, columns)), numbers((300, 2))
    main(a, b, c)
    m = (np.exp(a) * b).sum(2)
    np.testing.assert_allclose(c, (m / (m[::-1] + 1)).T, rtol=1e-4, atol=1e-5)


def test_what_neighbouring_rows_write_is_not_kept_in_registers(found: list[bool]) -> None:
    text = """
@T.prim_func
def main(A: T.Buffer((40, 3), "float32"), B: T.Buffer((40, 3), "float32")):
    S = T.alloc_buffer((40, 3), "float32")
    for i, k in T.grid(40, 3):
        S[i, k] = T.exp(A[i, k])
    for i, k in T.grid(40, 3):
        B[i, k] = S[39 - i, k] + S[i, 2 - k]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    a, b = numbers((40, 3)), np.zeros((40, 3), "float32")
    main(a, b)
    s = np.exp(a)
    np.testing.assert_allclose(b, s[::-1] + s[:, ::-1], rtol=1e-6)


def test_bfloat16(found: list[bool]) -> None:
    text = graph('x: R.Tensor((50, 3), "bfloat16")', "R.add(R.sum(x, -1, True), x)")
    x = numbers((50, 3), ml_dtypes.bfloat16)
    wide: Array = x.astype("float32")
    total = wide.sum(1, keepdims=True).astype(ml_dtypes.bfloat16).astype("float32")
    wanted = (total + wide).astype(ml_dtypes.bfloat16).astype("float32")
    result = relaxpy.compile(from_source(text), target="native")(x)
    np.testing.assert_array_equal(np.asarray(result).astype("float32"), wanted)
    assert any(found)


def test_statements_of_single_elements(found: list[bool]) -> None:
    text = """
@T.prim_func
def main(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n, 3), "float32")
    B = T.match_buffer(b, (n, 3), "float32")
    C = T.match_buffer(c, (n, 3), "float32")
    for i in range(n):
        C[i, 0] = A[i, 1] * B[i, 2] - A[i, 2] * B[i, 1]
        C[i, 1] = A[i, 2] * B[i, 0] - A[i, 0] * B[i, 2]
        C[i, 2] = A[i, 0] * B[i, 1] - A[i, 1] * B[i, 0]
"""
    main = relaxpy.compile(from_source(text), target="native")["main"]
    assert any(found)
    for count in COUNTS:
        a, b = numbers((count, 3)), numbers((count, 3))[::-1].copy()
        for at_end in (False, True):
            arrays = [guarded(x, at_end=at_end) for x in (a, b, np.zeros_like(a))]
            main(*arrays)
            np.testing.assert_array_equal(arrays[2], np.cross(a, b))


@pytest.mark.parametrize(("columns", "results"), [(3, 3), (4, 4), (2, 5), (5, 3)])
def test_products_with_a_small_matrix(columns: int, results: int, found: list[bool]) -> None:
    args = (
        f'x: R.Tensor(("n", {columns}), "float32"), w: R.Tensor(({columns}, {results}), "float32")'
    )
    main = relaxpy.compile(from_source(graph(args, "R.matmul(x, w)")), target="native")["main"]
    assert any(found)
    w = numbers((columns, results))
    for count in COUNTS:
        x = numbers((count, columns))
        for at_end in (False, True):
            result = main(guarded(x, at_end=at_end), guarded(w, at_end=at_end))
            np.testing.assert_allclose(result, x @ w, rtol=1e-5, atol=1e-5)


@pytest.fixture
def avx2(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels are compiled for vectors of 256 bits."""
    narrow = machine.narrow()
    features = (narrow.triple, narrow.cpu, narrow.features)
    monkeypatch.setattr(machine, "_stored_processor", lambda: None)
    monkeypatch.setattr(machine, "_processor", lambda _: features)
    machine.host.cache_clear()
    yield
    machine.host.cache_clear()


@pytest.mark.parametrize("columns", [2, 3, 5, 7, 8])
@pytest.mark.usefixtures("avx2")
def test_a_known_number_of_rows_that_remain(columns: int) -> None:
    """LLVM 22 loaded elements beyond the last row, where it knew that one row remains."""
    params = "".join(
        f'A{n}: T.Buffer(({n}, {columns}), "float64"), B{n}: T.Buffer(({n}, {columns}), "float64"),'
        for n in (17, 18, 33)
    )
    loops = "".join(
        f"    for i, k in T.grid({n}, {columns - 1}):\n        B{n}[i, k] = A{n}[i, k + 1]\n"
        for n in (17, 18, 33)
    )
    text = f"@T.prim_func\ndef main({params}):\n{loops}"
    main = relaxpy.compile(from_source(text), target="native")["main"]
    arrays = [
        guarded(numbers((n, columns), "float64"), at_end=True) for n in (17, 17, 18, 18, 33, 33)
    ]
    main(*arrays)
    for a, b in zip(arrays[::2], arrays[1::2], strict=True):
        np.testing.assert_array_equal(b[:, :-1], a[:, 1:])
