"""Initial values that are loaded: folded into an accumulation, they are still read first."""

import numpy as np
import pytest

import relaxpy
from relaxpy.script import tir as T


@T.prim_func
def dense(x: T.handle, w: T.handle, b: T.handle, y: T.handle):
    n, k, m = T.int64(), T.int64(), T.int64()
    X = T.match_buffer(x, (n, k), "float32")
    W = T.match_buffer(w, (k, m), "float32")
    B = T.match_buffer(b, (m,), "float32")
    Y = T.match_buffer(y, (n, m), "float32")
    for i, j, r in T.grid(n, m, k):
        with T.block("dense"):
            vi, vj, vr = T.axis.remap("SSR", [i, j, r])
            with T.init():
                Y[vi, vj] = B[vj]
            Y[vi, vj] = Y[vi, vj] + X[vi, vr] * W[vr, vj]


@T.prim_func
def sums_from(x: T.handle, b: T.handle, y: T.handle):
    n, m = T.int64(), T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    for i, j in T.grid(n, m):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                Y[vi] = B[vi]
            Y[vi] = Y[vi] + X[vi, vj]


@T.prim_func
def from_scratch(x: T.handle, b: T.handle, y: T.handle):
    n, m = T.int64(), T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    B = T.match_buffer(b, (n,), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    start = T.alloc_buffer((n,), "float32")
    squares = T.alloc_buffer((n, m), "float32")
    for i in range(n):
        with T.block("start"):
            vi = T.axis.spatial(n, i)
            start[vi] = B[vi] * T.float32(2)
    for i, j in T.grid(n, m):
        with T.block("squares"):
            vi, vj = T.axis.remap("SS", [i, j])
            squares[vi, vj] = X[vi, vj] * X[vi, vj]
    for i, j in T.grid(n, m):
        with T.block("sum"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                Y[vi] = start[vi]
            Y[vi] = Y[vi] + squares[vi, vj]


def on(target: str, func: T.prim_func, *arrays: np.ndarray) -> None:
    executable = relaxpy.compile(func, target)
    executable[executable.function_names[0]](*arrays)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("offset", range(7))
def test_a_bias_may_share_memory_with_the_result(k: int, offset: int) -> None:
    found = []
    for target in ("numpy", "reference"):
        base = np.arange(1, 11, dtype="float32")
        result, bias = base[:6].reshape(2, 3), base[offset : offset + 3]
        on(target, dense, np.ones((2, k), "float32"), np.ones((k, 3), "float32"), bias, result)
        found.append(base)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("func", [sums_from, from_scratch])
@pytest.mark.parametrize("offset", range(4))
def test_initial_values_may_share_memory_with_the_result(func: T.prim_func, offset: int) -> None:
    found = []
    for target in ("numpy", "reference"):
        base = np.arange(1, 8, dtype="float32")
        on(target, func, np.ones((3, 2), "float32"), base[offset : offset + 3], base[:3])
        found.append(base)
    np.testing.assert_array_equal(*found)
