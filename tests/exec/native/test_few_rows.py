"""Contractions with few rows, which read the second operand once in the order of memory."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from relaxpy.exec.native.contraction.few_rows import DotEmitter, RowLanesEmitter, SpanEmitter
from relaxpy.exec.native.contraction.geometry import RegisterTile
from relaxpy.exec.native.contraction.operands import Gemm
from relaxpy.exec.native.llvm.writer import I32, Function
from relaxpy.exec.native.machine_code.machine import Machine, host, narrow
from tests.exec.native.contractions import Kernel, check, expected
from tests.exec.native.test_tiles import extreme_bytes, numbers, run, shapes
from tests.guard_pages import guarded


def dot(f: Function, contraction: Gemm, tile: RegisterTile) -> DotEmitter:
    return DotEmitter(f, contraction)


def span(f: Function, contraction: Gemm, tile: RegisterTile) -> SpanEmitter:
    return SpanEmitter(f, contraction, tile.lanes)


def row_lanes(f: Function, contraction: Gemm, tile: RegisterTile) -> RowLanesEmitter:
    return RowLanesEmitter(f, contraction)


LAYOUTS = {"mk,nk->mn": dot, "mk,kn->mn": span, "km,kn->nm": span}


@pytest.mark.parametrize(
    ("m", "n", "k"), [(1, 1, 1), (3, 67, 35), (2, 130, 48), (4, 1100, 5), (1, 4099, 258)]
)
@pytest.mark.parametrize("subscripts", LAYOUTS)
def test_edges_of_all_sizes(subscripts: str, m: int, n: int, k: int) -> None:
    run(subscripts, {"m": m, "n": n, "k": k}, "float32", emitter=LAYOUTS[subscripts])


@pytest.mark.parametrize("subscripts", LAYOUTS)
def test_one_kernel_serves_all_columns_and_sums(subscripts: str) -> None:
    small = shapes(subscripts, {"m": 3, "n": 2, "k": 2})
    arrays = [np.zeros(s, "float32") for s in small]
    kernel = Kernel(subscripts, arrays, symbolic="mnk", fixed="m", emitter=LAYOUTS[subscripts])
    for n, k in ((1, 0), (0, 4), (5, 3), (70, 33), (2100, 7)):
        a, b, c = shapes(subscripts, {"m": 3, "n": n, "k": k})
        placed = [guarded(x, at_end=True) for x in (numbers(a, "float32"), numbers(b, "float32"))]
        result = guarded(np.full(c, 77, "float32"), at_end=True)
        kernel(*placed, result)
        check(subscripts, *placed, result)


@pytest.mark.parametrize("machine", [host, narrow])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8"])
def test_one_kernel_reads_any_number_of_rows_along_the_sum(dtype, machine) -> None:
    result_type = "int32" if dtype == "int8" else dtype
    arrays = [np.zeros((4, 4), dtype), np.zeros((4, 4), dtype), np.zeros((4, 4), result_type)]
    accumulator = I32 if dtype == "int8" else None
    kernel = Kernel(
        "mk,nk->mn", arrays, symbolic="mnk", emitter=dot, machine=machine(), accumulator=accumulator
    )
    few = (1, 70, 33), (2, 1, 300), (3, 65, 0), (4, 130, 16), (7, 3, 100), (0, 9, 9)
    for m, n, k in (*few, (8, 67, 130), (9, 65, 64), (16, 5, 65), (17, 3, 128)):
        a, b, c = shapes("mk,nk->mn", {"m": m, "n": n, "k": k})
        placed = [guarded(x, at_end=bool(m % 2)) for x in (numbers(a, dtype), numbers(b, dtype))]
        result = guarded(np.full(c, 77, result_type), at_end=True)
        kernel(*placed, result)
        check("mk,nk->mn", *placed, result)


@pytest.mark.parametrize("machine", [host, narrow])
@pytest.mark.parametrize("dtype", ["float16", "float32", "int8"])
def test_columns_that_no_cache_keeps_are_read_in_order_or_prefetched(dtype, machine) -> None:
    n, k = {"float32": 1171}.get(dtype, 299), 901
    of_sums, accumulator = ("int32", I32) if dtype == "int8" else (dtype, None)
    found = []

    def at_most_8(f: Function, contraction: Gemm, tile: RegisterTile) -> DotEmitter:
        row = replace(contraction.row, most=8)
        found.append(DotEmitter(f, replace(contraction, row=row)))
        return found[-1]

    for most, several in ((1, (1,)), (8, range(1, 9))):
        arrays = [np.zeros(shape, dtype) for shape in ((most, k), (n, k))]
        kernel = Kernel(
            "mk,nk->mn", [*arrays, np.zeros((most, n), of_sums)], symbolic="m", emitter=at_most_8,
            machine=machine(), accumulator=accumulator,
        )  # fmt: skip
        for m in several:
            a, b, c = shapes("mk,nk->mn", {"m": m, "n": n, "k": k})
            placed = [guarded(numbers(shape, dtype), at_end=True) for shape in (a, b)]
            result = guarded(np.full(c, 77, of_sums), at_end=True)
            kernel(*placed, result)
            check("mk,nk->mn", *placed, result)
        columns = {(emitter.group, emitter.ahead) for emitter in found}
        assert all(ahead == group * k if most > 1 else group == 1 for group, ahead in columns)
        found.clear()


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
@pytest.mark.parametrize("subscripts", LAYOUTS)
def test_datatypes_and_the_width_of_vectors(subscripts: str, dtype: str) -> None:
    extents = {"m": 2, "n": 37, "k": 70}
    emitter = LAYOUTS[subscripts]
    one = run(subscripts, extents, dtype, emitter=emitter)
    two = run(subscripts, extents, dtype, emitter=emitter, machine=narrow())
    assert one.tobytes() == two.tobytes()


@pytest.mark.each_choice
@pytest.mark.parametrize("m", range(1, 9))
@pytest.mark.parametrize("n", [1, 64, 65, 130])
def test_any_number_of_rows_of_bytes(m: int, n: int) -> None:
    extents = {"m": m, "n": n, "k": 300}
    run("mk,nk->mn", extents, "int8", "int32", accumulator=I32, emitter=dot)


@pytest.mark.each_choice
@pytest.mark.parametrize("machine", [host, narrow])
@pytest.mark.parametrize(("left", "right"), [*product(("int8", "uint8"), repeat=2)])
def test_products_of_all_bytes_are_exact(left, right, machine) -> None:
    rng = np.random.default_rng(5)
    options = {"accumulator": I32, "machine": machine(), "emitter": dot}
    names = "bmjk,bnjk->bmn"
    m = 7 if left < right else 3
    one = [np.zeros((2, m, 2, 2), left), np.zeros((2, 2, 2, 2), right), np.zeros((2, m, 2), "i4")]
    any_size = Kernel(names, one, symbolic="bmnjk", fixed="m", over="jk", **options)
    for b, n, j, k in ((1, 5, 1, 64), (2, 67, 3, 130), (3, 1, 1, 9), (2, 6, 1, 0), (2, 70, 2, 63)):
        arrays = [
            guarded(extreme_bytes(shape, dtype, rng), at_end=bool(n % 2))
            for shape, dtype in (((b, m, j, k), left), ((b, n, j, k), right))
        ]
        result = guarded(np.full((b, m, n), 77, "int32"), at_end=True)
        any_size(*arrays, result)
        np.testing.assert_array_equal(result, expected(names, *arrays))
        if k:
            result[...] = 77
            Kernel(names, [*arrays, result], over="jk", **options)(*arrays, result)
            np.testing.assert_array_equal(result, expected(names, *arrays))


def test_batches_and_several_axes_of_the_sum() -> None:
    extents = {"m": 2, "n": 37, "k": 20, "b": 3, "j": 4}
    run("bmjk,bnjk->bmn", extents, "float32", over="jk", emitter=dot)
    run("bmjk,bjkn->bmn", extents, "float32", over="kj", emitter=span)


@pytest.mark.each_choice
@pytest.mark.parametrize("machine", [host, narrow])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_rows_are_the_lanes_of_registers(dtype: str, machine: Callable[[], Machine]) -> None:
    options = {"emitter": row_lanes, "machine": machine()}
    names = "bmk,bnk->bmn"
    for k in (1, 3, 8, 30, 64, 255):
        one = [np.zeros((2, 2, n), dtype) for n in (k, k, 2)]
        any_size = Kernel(names, one, symbolic="bmn", **options)
        for m, n in ((8, 130), (5, 1), (8, 8), (6, 67), (7, 0), (1, 64)):
            placed = [guarded(numbers((3, rows, k), dtype), at_end=bool(n % 2)) for rows in (m, n)]
            result = guarded(np.full((3, m, n), 77, dtype), at_end=True)
            any_size(*placed, result)
            check(names, *placed, result)
            result[...] = 77
            Kernel(names, [*placed, result], **options)(*placed, result)
            check(names, *placed, result)
