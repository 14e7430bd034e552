"""The kernels of a small classifier: all of them run over whole arrays."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func.function import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, LetStmt, SeqStmt
from relaxpy.script import tir as T
from tests.exec.kernel.support import check, load, methods

rng = np.random.default_rng(7)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@T.prim_func
def dense(x: T.handle, w: T.handle, b: T.handle, y: T.handle):
    n = T.int64()
    m = T.int64()
    h = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    W = T.match_buffer(w, (m, h), "float32")
    B = T.match_buffer(b, (h,), "float32")
    Y = T.match_buffer(y, (n, h), "float32")
    acc = T.alloc_buffer((n, h), "float32")
    for i, j, k in T.grid(n, h, m):
        with T.block("matmul"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                acc[vi, vj] = T.float32(0)
            acc[vi, vj] = acc[vi, vj] + X[vi, vk] * W[vk, vj]
    for i, j in T.grid(n, h):
        with T.block("bias"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = acc[vi, vj] + B[vj]


@T.prim_func
def relu(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 6), "float32")
    Y = T.match_buffer(y, (n, 6), "float32")
    for i, j in T.grid(n, 6):
        with T.block("relu"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = T.max(X[vi, vj], T.float32(0))


@T.prim_func
def softmax(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 10), "float32")
    Y = T.match_buffer(y, (n, 10), "float32")
    highest = T.alloc_buffer((n,), "float32")
    powers = T.alloc_buffer((n, 10), "float32")
    total = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 10):
        with T.block("max"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                highest[vi] = T.min_value("float32")
            highest[vi] = T.max(highest[vi], X[vi, vk])
    for i, j in T.grid(n, 10):
        with T.block("exp"):
            vi, vj = T.axis.remap("SS", [i, j])
            powers[vi, vj] = T.exp(X[vi, vj] - highest[vi])
    for i, k in T.grid(n, 10):
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                total[vi] = T.float32(0)
            total[vi] = total[vi] + powers[vi, vk]
    for i, j in T.grid(n, 10):
        with T.block("norm"):
            vi, vj = T.axis.remap("SS", [i, j])
            Y[vi, vj] = powers[vi, vj] / total[vi]


@T.prim_func
def argmax(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 10), "float32")
    Y = T.match_buffer(y, (n,), "int64")
    best = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 10):
        with T.block("argmax"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                best[vi] = T.min_value("float32")
                Y[vi] = T.int64(0)
            if X[vi, vk] > best[vi]:
                best[vi] = X[vi, vk]
                Y[vi] = vk


@pytest.mark.parametrize("n", [0, 1, 5])
def test_relu_softmax_and_argmax_agree_with_the_reference(n: int) -> None:
    check(relu, floats(n, 6), floats(n, 6))
    check(softmax, floats(n, 10), floats(n, 10))
    check(argmax, floats(n, 10), np.full(n, -1))


def test_nothing_in_a_model_runs_one_element_at_a_time() -> None:
    found = [m for func in (dense, relu, softmax, argmax) for m in methods(func)]
    assert not [m for m in found if "scalar" in m or "loop" in m]


def test_an_argmax_takes_the_first_of_equals_and_passes_over_nan() -> None:
    x = floats(4, 10)
    x[0] = 1.0
    x[1, 3] = np.nan
    x[2] = np.nan
    x[3] = -np.inf
    check(argmax, x, np.full(4, -1))


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ((floats(2, 5), floats(2, 6)), r"kernel: X is float32\[n, 6\], found float32\[2, 5\]"),
        ((floats(2, 6), floats(3, 6)), "dimension 0 should be n = 2"),
        ((floats(2, 6).astype(np.float64), floats(2, 6)), "found float64"),
        ((floats(6), floats(2, 6)), r"found float32\[6\]"),
        ((floats(), floats(2, 6)), r"found float32\[\]"),
        (([[1.0] * 6], floats(1, 6)), "found list"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: tuple[object, ...], found: str) -> None:
    with pytest.raises(RuntimeCheckError, match=found):
        load(relu)(*args)


def test_a_datatype_object_that_is_another_but_equal_is_accepted() -> None:
    x = floats(2, 6)
    odd = np.dtype("float32").newbyteorder("=")
    y = np.zeros((2, 6), odd)
    load(relu)(x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


@T.prim_func
def argmin_by_selection(x: T.handle, y: T.handle):
    n = T.int64()
    X = T.match_buffer(x, (n, 10), "float32")
    Y = T.match_buffer(y, (n,), "int32")
    best = T.alloc_buffer((n,), "float32")
    for i, k in T.grid(n, 10):
        with T.block("argmin"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                best[vi] = T.max_value("float32")
                Y[vi] = -1
            place = T.Select(best[vi] < X[vi, vk], Y[vi], T.Cast("int32", vk))
            value = T.Select(best[vi] < X[vi, vk], best[vi], X[vi, vk])
            Y[vi] = place
            best[vi] = value


def test_an_argmin_by_selection_takes_the_last_of_equals_and_lets_nan_win() -> None:
    x = np.round(floats(5, 10))
    x[1, 3] = np.nan
    x[2] = np.nan
    x[3] = np.inf
    check(argmin_by_selection, x, np.zeros(5, np.int32))
    assert methods(argmin_by_selection)[-1].endswith("argmin over k")


def two_conditions(*, greatest: bool, last: bool) -> PrimFunc:
    """The arg-extreme of TVM's operators: of equals, the places decide."""
    n = tir.Var("n", "int64")
    size = ops.const(6, "int64")
    x = decl_buffer([n, size], "float32", "x")
    best = decl_buffer([n], "float32", "best")
    place = decl_buffer([n], "int32", "place")

    def combine(a: Any, b: Any) -> Any:
        better = a[1] > b[1] if greatest else a[1] < b[1]
        first = a[0] > b[0] if last else a[0] < b[0]
        tied = tir.And(ops.convert(a[1].equal(b[1])), first)
        chosen = tir.Select(tir.Or(better, tied), a[0], b[0])
        return chosen, tir.Select(better, a[1], b[1])

    i, k = tir.Var("i", "int64"), tir.Var("k", "int64")
    old, new = (place[i], best[i]), (ops.cast_to(k, "int32"), x[i, k])
    v, w = tir.Var("v", "int32"), tir.Var("w", "float32")
    chosen, value = combine(old, new)
    stores = SeqStmt((BufferStore(place, v, [i]), BufferStore(best, w, [i])))
    body = LetStmt(v, chosen, LetStmt(w, value, stores))
    inner = For(k, ops.const(0, "int64"), size, ForKind.SERIAL, body)
    return PrimFunc([x, best, place], For(i, ops.const(0, "int64"), n, ForKind.SERIAL, inner))


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("last", [True, False])
def test_of_equal_extremes_the_places_decide(greatest: bool, last: bool) -> None:
    func = two_conditions(greatest=greatest, last=last)
    assert methods(func)[-1].endswith(f"{'argmax' if greatest else 'argmin'} over k")
    x = np.round(floats(40, 6))
    x[3, 2] = x[4, 0] = x[4, 5] = np.nan
    for start in (-1, 3, 9):
        best = np.round(floats(40))
        best[5] = np.nan
        check(func, x, best, np.full(40, start, np.int32))


@T.prim_func
def flat_places(
    X: T.Buffer((3, 4), "float32"), best: T.Buffer((3,), "float32"), place: T.Buffer((3,), "int32")
):
    for i, k in T.grid(3, 4):
        if X[i, k] > best[i]:
            best[i] = X[i, k]
            place[i] = i * 4 + k


def test_the_place_of_an_extreme_may_depend_on_its_row() -> None:
    check(flat_places, floats(3, 4), np.full(3, -9, np.float32), np.zeros(3, np.int32))


def test_a_dense_layer_is_stored_where_memory_is_not_contiguous() -> None:
    x, w, b, out = floats(3, 5), floats(5, 4), floats(4), np.zeros((3, 8), np.float32)
    relaxpy.compile(dense, "numpy")["dense"](x, w, b, out[:, ::2])
    np.testing.assert_allclose(out[:, ::2], x @ w + b, rtol=1e-5, atol=1e-6)
    assert not out[:, 1::2].any()
