"""Accesses of regions, allocations, vectors and views of memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.kernel import compile_kernel
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.script import tir as T
from tests.exec.kernel.support import check, load, methods, source_of

rng = np.random.default_rng(5)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@T.prim_func
def regions(X: T.Buffer((8, 6), "float32"), Y: T.Buffer((8, 6), "float32")):
    for i in range(4):
        with T.block("tile"):
            vi = T.axis.spatial(4, i)
            A = T.match_buffer(X[vi * 2 : vi * 2 + 2, 0:6], (2, 6), "float32", offset_factor=1)
            B = T.match_buffer(Y[vi * 2 : vi * 2 + 2, 0:6], (2, 6), "float32", offset_factor=1)
            for a, b in T.grid(2, 6):
                B[a, b] = A[a, b] + T.float32(1)


@T.prim_func
def vectors(X: T.Buffer((16,), "float32"), Y: T.Buffer((16,), "float32")):
    for i in range(4):
        Y[i * 4 : i * 4 + 4 : 1] = X[i * 4 : i * 4 + 4 : 1] + T.broadcast(T.float32(2), 4)


def test_vector_loads_and_stores_are_one_more_loop() -> None:
    check(vectors, floats(16), floats(16))
    assert methods(vectors) == ["elementwise"]


@T.prim_func
def two_sizes(a: T.handle, b: T.handle):
    n = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    B = T.match_buffer(b, (n + 1,), "float32")
    for i in range(n):
        B[i + 1] = A[i]


def test_a_size_that_is_computed_is_checked() -> None:
    check(two_sizes, floats(3), floats(4))
    with pytest.raises(RuntimeCheckError, match=r"dimension 0 should be n \+ 1 = 4"):
        load(two_sizes)(floats(3), floats(3))


@T.prim_func
def outside(A: T.Buffer((4,), "float32"), n: T.int32):
    for i in range(n):
        A[i] = T.float32(1)


def test_an_access_outside_a_buffer_stops_the_program() -> None:
    a = floats(4)
    load(outside)(a, 3)
    assert a[:3].tolist() == [1, 1, 1]
    with pytest.raises(RuntimeCheckError, match="index 4 is outside"):
        load(outside)(a, 5)
    with pytest.raises(RuntimeCheckError, match=r"n is an int32.*\[EV-27\]"):
        load(outside)(a, 2.5)


@T.prim_func
def asserted(A: T.Buffer((4,), "float32"), n: T.int32):
    assert n > 0, "n is positive"
    A[0] = T.float32(n)


def test_an_assertion_that_fails_stops_the_program() -> None:
    a = floats(4)
    load(asserted)(a, 2)
    assert a[0] == 2
    with pytest.raises(RuntimeCheckError, match="n is positive"):
        load(asserted)(a, 0)


@T.prim_func
def in_place(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
    for i, j in T.grid(4, 3):
        B[i, j] = T.max(A[i, j] * T.float32(2), T.float32(0))


def test_a_chain_of_operations_may_work_in_place_as_a_whole() -> None:
    a = floats(4, 3)
    wanted = np.maximum(a * 2, 0)
    load(in_place)(a, a)
    np.testing.assert_array_equal(a, wanted)
    [exclusion] = compile_kernel(in_place, "in_place").checked.exclusions
    assert exclusion.same == 1


@T.prim_func
def two_operands(
    A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")
):
    for i in range(4):
        C[i] = T.exp(T.exp(A[i]) + B[i])


@T.prim_func
def rest(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        C[i] = T.FloorMod(A[i], B[i])


@pytest.mark.parametrize("func", [two_operands, rest])
def test_an_argument_that_is_the_result_is_read_before_it_is_overwritten(func: PrimFunc) -> None:
    for first, second in ((0, 1), (1, 0), (1, 1)):
        ours = list(np.array([[7, 5, 3, 2], [2, 3, 4, 3]], np.float32) / 2)
        theirs = [a.copy() for a in ours]
        load(func)(ours[first], ours[second], ours[1])
        run_prim_func(func, [theirs[first], theirs[second], theirs[1]])
        np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5)


@T.prim_func
def shifted(A: T.Buffer((6,), "float32"), B: T.Buffer((6,), "float32")):
    for i in range(6):
        B[i] = A[i] + T.float32(1)


def test_what_overlaps_runs_in_the_order_of_the_text() -> None:
    memory = floats(7)
    wanted = memory.copy()
    for i in range(6):
        wanted[i + 1] = wanted[i] + 1
    load(shifted)(memory[:6], memory[1:])
    np.testing.assert_array_equal(memory, wanted)


@T.prim_func
def onward(A: T.Buffer((5,), "float32"), B: T.Buffer((6,), "float32")):
    for i in range(5):
        B[i + 1] = A[i] + T.float32(1)


@pytest.mark.parametrize(
    "first_five",
    [
        lambda x: sliding_window_view(x, 5)[0],
        lambda x: np.from_dlpack(x)[:5],
        lambda x: np.frombuffer(x, x.dtype)[:5],
        lambda x: np.asarray(x.view(np.recarray)[:])[:5],
        lambda x: x[::-1][:5],
    ],
)
def test_memory_is_known_again_in_any_view(first_five: Callable[[Any], Any]) -> None:
    ours, theirs = np.zeros(6, np.float32), np.zeros(6, np.float32)
    load(onward)(first_five(ours), ours)
    run_prim_func(onward, [first_five(theirs), theirs])
    np.testing.assert_array_equal(ours, theirs)


@T.prim_func
def needs_hardware(A: T.Buffer((4,), "float32")):
    T.evaluate(T.call_intrin("float32", "tir.ptx_commit_group"))


def test_an_effect_that_no_array_has_is_refused() -> None:
    with pytest.raises(CompileError, match="ptx_commit_group"):
        source_of(needs_hardware)


@T.prim_func
def copied(A: T.Buffer((4, 3), "float32"), B: T.Buffer((4, 3), "float32")):
    half = T.alloc_buffer((4, 3), "float32")
    for i, j in T.grid(4, 3):
        half[i, j] = A[i, j] * T.float32(0.5)
    for i, j in T.grid(4, 3):
        B[i, j] = half[i, j]


def test_a_copy_within_shared_memory_takes_no_pass() -> None:
    check(copied, floats(4, 3), floats(4, 3))
    assert source_of(copied).endswith("np.multiply(A, 0.5, out=B)\n")


@T.prim_func
def flattened(a: T.handle, b: T.handle, c: T.handle):
    n = T.int64()
    x = T.match_buffer(a, (n, T.int64(4)), "float32")
    out = T.match_buffer(b, (n * T.int64(4),), "float32")
    same = T.match_buffer(c, (n, T.int64(4)), "float32")
    flat = T.alloc_buffer((n * T.int64(4),), "float32")
    for i in range(n * T.int64(4)):
        with T.block("flat"):
            v = T.axis.spatial(n * T.int64(4), i)
            flat[v] = x[v // T.int64(4), v % T.int64(4)]
    for i, j in T.grid(n, T.int64(4)):
        with T.block("same"):
            p, q = T.axis.remap("SS", [i, j])
            same[p, q] = x[p, q] + T.float32(1)
    for i in range(n * T.int64(4)):
        with T.block("out"):
            v = T.axis.spatial(n * T.int64(4), i)
            out[v] = flat[n * T.int64(4) - T.int64(1) - v]


@pytest.mark.parametrize("arrange", [np.ascontiguousarray, np.asfortranarray, lambda x: x[::-1]])
def test_a_parameter_in_another_shape_has_the_memory_of_the_parameter(arrange: Any) -> None:
    x = arrange(np.arange(12, dtype="float32").reshape(3, 4))
    check(flattened, x, np.zeros(12, "float32"), np.zeros((3, 4), "float32"))


def test_a_parameter_that_is_written_in_place_is_copied_first() -> None:
    x = np.arange(12, dtype="float32").reshape(3, 4)
    out, whole = np.zeros(12, "float32"), x.copy()
    load(flattened)(whole, out, whole)
    np.testing.assert_array_equal(whole, x + 1)
    np.testing.assert_array_equal(out, x.ravel()[::-1])


def test_a_reshaped_parameter_is_not_allocated() -> None:
    @T.prim_func
    def func(x: T.Buffer((3, 4), "float32"), out: T.Buffer((12,), "float32")):
        flat = T.alloc_buffer((12,), "float32")
        turned = T.alloc_buffer((12,), "float32")
        for i in range(12):
            with T.block("flat"):
                v = T.axis.spatial(12, i)
                flat[v] = x[v // 4, v % 4]
        for i in range(12):
            with T.block("turned"):
                v = T.axis.spatial(12, i)
                turned[v] = x[v % 3, v // 3]
        for i in range(12):
            with T.block("out"):
                v = T.axis.spatial(12, i)
                out[v] = flat[11 - v] * turned[v]

    source = source_of(func)
    assert "flat = x.reshape((12,))" in source
    assert "turned = x.reshape" not in source
    check(func, np.arange(12, dtype="float32").reshape(3, 4), np.zeros(12, "float32"))
