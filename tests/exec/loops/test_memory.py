"""Accesses of regions, allocations, vectors and views of memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from relaxpy.errors import CompileError
from relaxpy.exec.numpy.compiler import compile_kernel
from relaxpy.exec.reference.kernel import run_prim_func
from relaxpy.script import tir as T
from tests.exec.loops.support import check, load, source_of
from tests.exec.loops.written import floats, kernel, run_row
from tests.rows import sections

MEMORY = sections("""
--- matched regions
def f(X: f32[8, 6], Y: f32[8, 6]):
    for i in S(4):
        A = T.match_buffer(X[vi * 2 : vi * 2 + 2, 0:6], (2, 6), "float32", offset_factor=1)
        B = T.match_buffer(Y[vi * 2 : vi * 2 + 2, 0:6], (2, 6), "float32", offset_factor=1)
        for a, b in T.grid(2, 6):
            B[a, b] = A[a, b] + T.float32(1)
--- local memory of a loop whose bound a statement names
def f(A: f32[3, 2], X: f32[8, 4], Y: f32[3, 4]):
    for r in range(3):
        n: T.int32 = T.Cast("int32", T.abs(A[r, 0])) % 8
        A[r, 0] = T.float32(7)
        for z in range(n):
            V = T.decl_buffer((4,), "float32")
            for c in range(4):
                V[c] = X[z, c]
            for c in range(4):
                Y[r, c] = T.Select(V[c] > Y[r, c], V[c], Y[r, c] + V[c])
--- a value with several uses is computed once, side by side
def f(X: f32[16], Y: f32[16]):
    for i in range(16):
        a = X[i] * X[i] - X[i]
        b = a * a - a
        c = b * b - b
        d = c * c - c
        e = d * d - d
        Y[i] = e * e - e
# methods: elementwise; elementwise; elementwise; elementwise; elementwise; elementwise
--- vector loads and stores are one more loop
def f(X: f32[16], Y: f32[16]):
    for i in range(4):
        Y[i * 4 : i * 4 + 4 : 1] = X[i * 4 : i * 4 + 4 : 1] + T.broadcast(T.float32(2), 4)
# methods: elementwise
--- a size that is computed is checked
def f(A: f32[n], B: f32[n + 1]):
    for i in range(n):
        B[i + 1] = A[i]
# args: n=3
# args: A=floats(3), B=floats(3) -> dimension 0 should be n \\+ 1 = 4
--- an access outside a buffer stops the program
def f(A: f32[4], n: T.int32):
    for i in range(n):
        A[i] = T.float32(1)
# args: n=3
# args: n=5 -> index 4 is outside
# args: n=2.5 -> n is an int32.*\\[EV-27\\]
--- an assertion that fails stops the program
def f(A: f32[4], n: T.int32):
    assert n > 0, "n is positive"
    A[0] = T.float32(n)
# args: n=2
# args: n=0 -> n is positive
--- what overlaps runs in the order of the text
def f(A: f32[6], B: f32[6]):
    for i in range(6):
        B[i] = A[i] + T.float32(1)
# memory: 7: m[:6], m[1:]
--- operands of a chain may be the result
def f(A: f32[4], B: f32[4], C: f32[4]):
    for i in range(4):
        C[i] = T.exp(T.exp(A[i]) + B[i])
# memory: 8: m[:4], m[4:], m[4:]
# memory: 8: m[4:], m[:4], m[4:]
# memory: 8: m[4:], m[4:], m[4:]
--- operands of a remainder may be the result
def f(A: f32[4], B: f32[4], C: f32[4]):
    for i in range(4):
        C[i] = T.FloorMod(A[i], B[i])
# memory: 8: m[:4], m[4:], m[4:]
# memory: 8: m[4:], m[:4], m[4:]
# memory: 8: m[4:], m[4:], m[4:]
--- a copy within shared memory takes no pass
def f(A: f32[4, 3], B: f32[4, 3]):
    half = T.alloc_buffer((4, 3), "float32")
    for i, j in T.grid(4, 3):
        half[i, j] = A[i, j] * T.float32(0.5)
    for i, j in T.grid(4, 3):
        B[i, j] = half[i, j]
# ends: np.multiply(A, rt.float32[0.5], out=B)
--- a reshaped parameter is not allocated
def f(x: f32[3, 4], out: f32[12]):
    flat = T.alloc_buffer((12,), "float32")
    turned = T.alloc_buffer((12,), "float32")
    for i in S(12):
        flat[vi] = x[vi // 4, vi % 4]
    for i in S(12):
        turned[vi] = x[vi % 3, vi // 3]
    for i in S(12):
        out[vi] = flat[11 - vi] * turned[vi]
# source: flat = x.reshape((12,))
# not source: turned = x.reshape
""")


@pytest.mark.parametrize("fact", MEMORY)
def test_accesses_of_memory(fact: str) -> None:
    run_row(MEMORY[fact])


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


FLATTENED = kernel("""
def f(x: f32[n, T.int64(4)], out: f32[n * T.int64(4)], same: f32[n, T.int64(4)]):
    flat = T.alloc_buffer((n * T.int64(4),), "float32")
    for i in S(n * T.int64(4)):
        flat[vi] = x[vi // T.int64(4), vi % T.int64(4)]
    for i, j in SS(n, T.int64(4)):
        same[vi, vj] = x[vi, vj] + T.float32(1)
    for i in S(n * T.int64(4)):
        out[vi] = flat[n * T.int64(4) - T.int64(1) - vi]
""")


@pytest.mark.parametrize("arrange", [np.ascontiguousarray, np.asfortranarray, lambda x: x[::-1]])
def test_a_parameter_in_another_shape_has_the_memory_of_the_parameter(arrange: Any) -> None:
    x = arrange(np.arange(12, dtype="float32").reshape(3, 4))
    check(FLATTENED, x, np.zeros(12, "float32"), np.zeros((3, 4), "float32"))


def test_a_parameter_that_is_written_in_place_is_copied_first() -> None:
    x = np.arange(12, dtype="float32").reshape(3, 4)
    out, whole = np.zeros(12, "float32"), x.copy()
    load(FLATTENED)(whole, out, whole)
    np.testing.assert_array_equal(whole, x + 1)
    np.testing.assert_array_equal(out, x.ravel()[::-1])
