"""What a call checks of its arguments: dimensions, strides, datatypes and read-only memory."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.signature import KernelSignature
from relaxpy.script import from_source
from tests.exec.loops.outcomes import TARGETS, frozen, kernel
from tests.exec.loops.written import run_row
from tests.rows import sections

OBLIGATIONS = sections("""
--- sizes of sums may have negative terms: a sum
def f(n: T.int64, m: T.int64, A: f32[n + m], B: f32[n]):
    for i in range(n):
        B[0] = B[0] + A[i]
# args: n=10, m=-5 -> outside dimension 0 of buffer [AB], which
# args: n=5, m=-5 -> outside dimension 0 of buffer [AB], which
# args: n=0, m=3
# args: n=3, m=4
# args: n=3, m=0, A=floats(3), B=floats(2) -> B is .*: dimension 0 should be n = 3
--- sizes of sums may have negative terms: windows
def f(n: T.int64, m: T.int64, A: f32[n + m], B: f32[n, 2]):
    for i, j in T.grid(n, 2):
        B[i, j] = A[i * 2 + j * m]
# args: n=4, m=-1 -> outside dimension 0 of buffer [AB], which
# args: n=4, m=3 -> outside dimension 0 of buffer [AB], which
# args: n=1, m=1
# args: n=0, m=5
--- sizes of sums may have negative terms: growing
def f(n: T.int64, m: T.int64, A: f32[n + m], B: f32[n - m]):
    for i in range(n):
        for j in range(m):
            B[i * 2 - j * m] = A[i]
# args: n=2, m=-2
# args: n=3, m=1 -> outside dimension 0 of buffer [AB], which
# args: n=1, m=0
--- a size is divided by zero
def f(n: T.int64, m: T.int64, A: f32[SIZE]):
    for i in range(n):
        A[0] = f32(1)
# with SIZE: n // m | n % m | (n + 3) // (m * 2) | T.truncdiv(n, m)
# args: n=4, m=0, A=floats(4) -> division by zero
--- strides that are declared are compared
def f(a: T.handle, B: f32[2, 3]):
    A = T.match_buffer(a, (2, 3), "float32", strides=[4, 1])
    for i, j in T.grid(2, 3):
        B[i, j] = A[i, j]
# memory: 14: m[:8].reshape(2, 4)[:, :3], m[8:].reshape(2, 3)
# args: A=floats(2, 3) -> A has stride 3 in dimension 0, expected 4
# args: A=floats(4, 4)[::2, :3] -> A has stride 8 in dimension 0, expected 4
--- strides that are equal are compared
def f(a: T.handle, b: T.handle):
    s = T.int64()
    A = T.match_buffer(a, (2, 3), "float32", strides=[s, 1])
    B = T.match_buffer(b, (2, 3), "float32", strides=[s, 1])
    for i, j in T.grid(2, 3):
        B[i, j] = A[i, j]
# args: A=floats(2, 3), B=floats(2, 3)
# args: A=floats(2, 4)[:, :3], B=floats(2, 3) -> B has stride 3 in dimension 0, expected 4
--- a dimension of one element may have any stride
def f(a: T.handle, B: f32[1, 3]):
    A = T.match_buffer(a, (1, 3), "float32", strides=[4, 1])
    for i, j in T.grid(1, 3):
        B[i, j] = A[i, j]
# args: A=floats(1, 9)[:, :3]
--- a dimension of several elements has the stride that is declared
def f(a: T.handle, B: f32[2, 1]):
    A = T.match_buffer(a, (2, 1), "float32", strides=[4, 1])
    for i, j in T.grid(2, 1):
        B[i, j] = A[i, j]
# args: A=floats(2, 3)[:, :1] -> stride 3 in dimension 0, expected 4
--- strides between elements are refused
def f(a: T.handle, B: f64[4]):
    A = T.match_buffer(a, (4,), "float64", strides=[1])
    for i in range(4):
        B[i] = A[i]
# args: A=np.ones(4)
# args: A=np.zeros(4, [("x", "f8"), ("y", "f4")])["x"] -> A has stride 1.5 in dimension 0
--- an offset that is declared is compared
def f(a: T.handle, B: f32[2, 3]):
    A = T.match_buffer(a, (2, 3), "float32", elem_offset=4)
    for i, j in T.grid(2, 3):
        B[i, j] = A[i, j]
# args: A=floats(2, 3) -> has offset 0, expected 4
--- an offset that is a variable is zero
def f(a: T.handle, B: f32[2, 3]):
    o = T.int64()
    A = T.match_buffer(a, (2, 3), "float32", elem_offset=o)
    for i, j in T.grid(2, 3):
        B[i, j] = T.Cast("float32", o)
# args: A=floats(2, 3)
# args: A=floats(3, 3) -> A
--- an element that an array contains twice is visited twice
def f(X: f32[4], Y: f32[4]):
    for i in range(4):
        Y[i] = Y[i] + X[i]
# memory: 5: m[1:], np.lib.stride_tricks.as_strided(m, (4,), (0,))
""")


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("name", OBLIGATIONS)
def test_what_a_call_checks(name: str) -> None:
    run_row(OBLIGATIONS[name])


SUM = """
    @T.prim_func
    def f(n: T.int64, m: T.int64, a: T.handle, b: T.handle):
        A = T.match_buffer(a, (n + m,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            B[0] = B[0] + A[i]
"""
SHARED = """
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        s = T.int64()
        A = T.match_buffer(a, (2, 3), "float32", strides=[s, 1])
        B = T.match_buffer(b, (2, 3), "float32", strides=[s, 1])
        for i, j in T.grid(2, 3):
            B[i, j] = A[i, j]
"""


def rows(count: int, width: int) -> np.ndarray:
    return np.arange(count * width, dtype=np.float32).reshape(count, width)[:, :3]


# ---- datatypes

TWICE = """
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n + 2,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            B[i] = A[i + 2] * T.float32(2)
"""


@TARGETS
def test_datatypes_are_compared_by_value(target: str) -> None:
    """Arrays that were pickled have a dtype object that is not, but equals, NumPy's."""
    a = np.arange(6, dtype=np.float32)
    for kind in (a.dtype, pickle.loads(pickle.dumps(a)).dtype, np.dtype("f4", metadata={"k": 1})):
        b = np.zeros(4, np.float32)
        kernel(TWICE, target)(a.astype(kind), b.view(kind))
        np.testing.assert_array_equal(b, [4, 6, 8, 10])
    for wrong in (">f4", "f8", [("x", "f4")]):
        with pytest.raises(RuntimeCheckError) as caught:
            kernel(TWICE, target)(np.zeros(6, wrong), np.zeros(4, np.float32))
        assert caught.value.diagnostic.hint == 'convert it with .astype("float32")'
    message = r"f: A is float32\[n \+ 2\], found float32\[6\] with swapped bytes"
    with pytest.raises(RuntimeCheckError, match=message):
        kernel(TWICE, target)(np.zeros(6, ">f4"), np.zeros(4, np.float32))


def test_a_kernel_looks_once_at_arguments_of_any_equal_datatype(monkeypatch) -> None:
    function = kernel(TWICE, "numpy")
    b = np.zeros(4, np.float32)
    function(np.zeros(6, np.float32), b)
    monkeypatch.setattr(KernelSignature, "bind", None)
    a = pickle.loads(pickle.dumps(np.zeros(6, np.float32)))
    function(a, b)


@TARGETS
def test_a_call_is_checked_whatever_earlier_calls_were(target: str) -> None:
    """What fits is remembered from call to call, with the values of scalars and strides."""
    twice, shared, total = (kernel(text, target) for text in (TWICE, SHARED, SUM))
    a, b, c = (np.ones(n, np.float32) for n in (6, 4, 5))
    out = np.zeros((2, 3), np.float32)
    calls = [
        (twice, (a, b), True),
        (twice, (c, b), False),
        (twice, (c, b[:3]), True),
        (twice, (a.astype(np.float64), b), False),
        (twice, ([1.0] * 6, b), False),
        (twice, (a, b), True),
        (shared, (rows(2, 3), out), True),
        (shared, (rows(2, 4), out), False),
        (shared, (rows(2, 3), out), True),
        (total, (4, 2, a, b.copy()), True),
        (total, (4, 1, a, b.copy()), False),
        (total, (4, True, c, b.copy()), True),
        (total, (4, 1, c, b.copy()), True),
        (total, (3, 2, c, b.copy()), False),
    ]
    for _ in range(2):
        for function, args, fits in calls:
            with nullcontext() if fits else pytest.raises(RuntimeCheckError):
                function(*args)


# ---- memory that cannot be written, or contains an element twice

TWO_TARGETS = """
    @T.prim_func
    def f(X: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
        for i in range(4):
            Y[i] = X[i] + 1
        for i in range(4):
            if X[i] > 2:
                Z[i] = X[i]
"""


@TARGETS
def test_memory_that_cannot_be_written_stops_a_store_before_anything_is_written(target) -> None:
    function = kernel(TWO_TARGETS, target)
    y = np.zeros(4, np.int32)
    function(np.arange(3, -1, -1, np.int32) * 0, y, frozen(np.zeros(4, np.int32)))
    np.testing.assert_array_equal(y, 1)
    z = frozen(np.zeros(4, np.int32))
    y[:] = 7
    with pytest.raises(RuntimeCheckError, match="f: the memory of buffer Z is read-only"):
        function(np.arange(4, dtype=np.int32), y, z)
    np.testing.assert_array_equal(y, 7)
    np.testing.assert_array_equal(z, 0)


IN_PLACE = """
    @I.ir_module
    class Module:
        @T.prim_func(private=True)
        def add_one(A: T.Buffer((3,), "float32")):
            for i in range(3):
                with T.block("b"):
                    vi = T.axis.spatial(3, i)
                    A[vi] = A[vi] + T.float32(1)

        @R.function(pure=False)
        def main(x: R.Tensor((3,), "float32")):
            out = R.Tensor((3,), "float32")
            y = R.call_tir_inplace(Module.add_one, (x,), inplace_indices=[0], out_sinfo=out)
            return y
"""


@TARGETS
def test_a_graph_does_not_write_in_place_what_cannot_be_written(target: str) -> None:
    function = relaxpy.compile(from_source(IN_PLACE), target)["main"]
    with pytest.raises(RuntimeCheckError) as caught:
        function(frozen(np.ones(3, np.float32)))
    found = caught.value.diagnostic
    assert found.message == "add_one: the memory of buffer A is read-only"
    assert found.span is not None
    assert found.span.line == 9
    if target == "numpy":
        assert found.notes == ("called at <string>:14:17",)
    assert function(np.ones(3, np.float32)).tolist() == [2, 2, 2]


REGION = """
    @T.prim_func
    def f(Y: T.Buffer((4, 2), "float32")):
        for i in range(4):
            with T.block("copied"):
                vi = T.axis.spatial(4, i)
                M = T.match_buffer(Y[vi, 0:2], (2,), "float32")
                M[1] = M[0]
"""


@TARGETS
def test_a_broadcast_array_is_not_written_through_a_matched_region(target: str) -> None:
    base = np.array([1, 2], np.float32)
    with pytest.raises(RuntimeCheckError, match="the memory of buffer Y is read-only"):
        kernel(REGION, target)(np.broadcast_to(base, (4, 2)))
    np.testing.assert_array_equal(base, [1, 2])
