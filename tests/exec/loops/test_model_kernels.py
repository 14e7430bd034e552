"""The kernels of a small classifier: all of them run over whole arrays."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import BufferStore, For, ForKind, LetStmt, SeqStmt
from tests.exec.loops.support import check, load, methods
from tests.exec.loops.written import floats, kernel, run_row
from tests.rows import sections

DENSE = """
def dense(X: f32[n, m], W: f32[m, h], B: f32[h], Y: f32[n, h]):
    acc = T.alloc_buffer((n, h), "float32")
    for i, j, k in SSR(n, h, m):
        with T.init():
            acc[vi, vj] = T.float32(0)
        acc[vi, vj] = acc[vi, vj] + X[vi, vk] * W[vk, vj]
    for i, j in SS(n, h):
        Y[vi, vj] = acc[vi, vj] + B[vj]
"""
RELU = """
def kernel(X: f32[n, 6], Y: f32[n, 6]):
    for i, j in SS(n, 6):
        Y[vi, vj] = T.max(X[vi, vj], T.float32(0))
"""
CLASSIFIER = sections(f"""
--- a dense layer{DENSE}# args: n=3, m=5, h=4
# whole: yes
--- rectification{RELU}# args: n=0
# args: n=1
# args: n=5
# whole: yes
--- softmax
def f(X: f32[n, 10], Y: f32[n, 10]):
    highest = T.alloc_buffer((n,), "float32")
    powers = T.alloc_buffer((n, 10), "float32")
    total = T.alloc_buffer((n,), "float32")
    for i, k in SR(n, 10):
        with T.init():
            highest[vi] = T.min_value("float32")
        highest[vi] = T.max(highest[vi], X[vi, vk])
    for i, j in SS(n, 10):
        powers[vi, vj] = T.exp(X[vi, vj] - highest[vi])
    for i, k in SR(n, 10):
        with T.init():
            total[vi] = T.float32(0)
        total[vi] = total[vi] + powers[vi, vk]
    for i, j in SS(n, 10):
        Y[vi, vj] = powers[vi, vj] / total[vi]
# args: n=0
# args: n=1
# args: n=5
# whole: yes
--- an argmax takes the first of equals and passes over nan
def f(X: f32[n, 10], Y: i64[n]):
    best = T.alloc_buffer((n,), "float32")
    for i, k in SR(n, 10):
        with T.init():
            best[vi] = T.min_value("float32")
            Y[vi] = T.int64(0)
        if X[vi, vk] > best[vi]:
            best[vi] = X[vi, vk]
            Y[vi] = vk
# args: n=0
# args: n=1
# args: n=5
# args: n=4, X=np.where(np.eye(4, 10), np.nan, [[1], [2], [np.nan], [-np.inf]]).astype("float32")
# whole: yes
--- an argmin by selection takes the last of equals and lets nan win
def f(X: f32[n, 10], Y: i32[n]):
    best = T.alloc_buffer((n,), "float32")
    for i, k in SR(n, 10):
        with T.init():
            best[vi] = T.max_value("float32")
            Y[vi] = -1
        place = T.Select(best[vi] < X[vi, vk], Y[vi], T.Cast("int32", vk))
        value = T.Select(best[vi] < X[vi, vk], best[vi], X[vi, vk])
        Y[vi] = place
        best[vi] = value
# args: n=5, X=np.round(floats(5, 10))
# args: n=4, X=np.where(np.eye(4, 10), np.nan, [[1], [2], [np.nan], [np.inf]]).astype("float32")
# methods: elementwise; elementwise; argmin over k
--- the place of an extreme may depend on its row
def f(X: f32[3, 4], best: f32[3], place: i32[3]):
    for i, k in T.grid(3, 4):
        if X[i, k] > best[i]:
            best[i] = X[i, k]
            place[i] = i * 4 + k
# args: best=np.full(3, -9, "float32")
""")


@pytest.mark.parametrize("kind", CLASSIFIER)
def test_kernels_of_a_classifier(kind: str) -> None:
    run_row(CLASSIFIER[kind])


@pytest.mark.parametrize(
    ("args", "found"),
    [
        ((floats(2, 5), floats(2, 6)), r"kernel: X is float32\[n, 6\], found float32\[2, 5\]"),
        ((floats(2, 6), floats(3, 6)), "dimension 0 should be n = 2"),
        ((floats(2, 6).astype(np.float64), floats(2, 6)), "found float64"),
        ((floats(6), floats(2, 6)), r"found float32\[6\]"),
        ((floats(), floats(2, 6)), r"found float32\[\]"),
        (([[1.0] * 6], floats(1, 6)), "found list"),
        ((SimpleNamespace(shape=(2, 6), dtype="float32"), floats(2, 6)), "found SimpleNamespace"),
    ],
)
def test_arguments_that_do_not_fit_are_named(args: tuple[object, ...], found: str) -> None:
    run = load(kernel(RELU))
    run(floats(2, 6), floats(2, 6))  # what is checked of the last arguments is known
    with pytest.raises(RuntimeCheckError, match=found):
        run(*args)


def test_a_datatype_object_that_is_another_but_equal_is_accepted() -> None:
    x = floats(2, 6)
    odd = np.dtype("float32").newbyteorder("=")
    y = np.zeros((2, 6), odd)
    load(kernel(RELU))(x, y)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


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


def test_a_dense_layer_is_stored_where_memory_is_not_contiguous() -> None:
    x, w, b, out = floats(3, 5), floats(5, 4), floats(4), np.zeros((3, 8), np.float32)
    relaxpy.compile(kernel(DENSE), "numpy")["dense"](x, w, b, out[:, ::2])
    np.testing.assert_allclose(out[:, ::2], x @ w + b, rtol=1e-5, atol=1e-6)
    assert not out[:, 1::2].any()
