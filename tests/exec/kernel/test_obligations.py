"""What a call checks of its arguments: dimensions, strides, datatypes and read-only memory."""

import pickle
from contextlib import nullcontext

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.kernel.signature import KernelSignature
from relaxpy.script import from_source
from tests.exec.kernel.outcomes import TARGETS, frozen, kernel

# ---- sizes that are sums or quotients

SUM = """
    @T.prim_func
    def f(n: T.int64, m: T.int64, a: T.handle, b: T.handle):
        A = T.match_buffer(a, (n + m,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            B[0] = B[0] + A[i]
"""
WINDOWS = """
    @T.prim_func
    def f(n: T.int64, m: T.int64, a: T.handle, b: T.handle):
        A = T.match_buffer(a, (n + m,), "float32")
        B = T.match_buffer(b, (n, 2), "float32")
        for i, j in T.grid(n, 2):
            B[i, j] = A[i * 2 + j * m]
"""
GROWING = """
    @T.prim_func
    def f(n: T.int64, m: T.int64, a: T.handle, b: T.handle):
        A = T.match_buffer(a, (n + m,), "float32")
        B = T.match_buffer(b, (n - m,), "float32")
        for i in range(n):
            for j in range(m):
                B[i * 2 - j * m] = A[i]
"""


@TARGETS
@pytest.mark.parametrize(
    ("text", "n", "m", "shapes", "refused"),
    [
        (SUM, 10, -5, [(5,), (10,)], True),
        (SUM, 5, -5, [(0,), (5,)], True),
        (SUM, 0, 3, [(3,), (0,)], False),
        (SUM, 3, 4, [(7,), (3,)], False),
        (WINDOWS, 4, -1, [(3,), (4, 2)], True),
        (WINDOWS, 4, 3, [(7,), (4, 2)], True),
        (WINDOWS, 1, 1, [(2,), (1, 2)], False),
        (WINDOWS, 0, 5, [(5,), (0, 2)], False),
        (GROWING, 2, -2, [(0,), (4,)], False),
        (GROWING, 3, 1, [(4,), (2,)], True),
        (GROWING, 1, 0, [(1,), (1,)], False),
    ],
)
def test_sizes_of_sums_may_have_negative_terms(
    text: str, n: int, m: int, shapes: list[tuple[int, ...]], refused: bool, target: str
) -> None:
    a, b = (np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes)
    function = kernel(text, target)
    if refused:
        with pytest.raises(RuntimeCheckError, match=r"outside dimension 0 of buffer [AB], which"):
            function(n, m, a, b)
        return
    wanted = b.copy()
    for i in range(n):
        if text is SUM:
            wanted[0] = wanted[0] + a[i]
        for j in range(2) if text is WINDOWS else ():
            wanted[i, j] = a[i * 2 + j * m]
        for j in range(m) if text is GROWING else ():
            wanted[i * 2 - j * m] = a[i]
    function(n, m, a, b)
    np.testing.assert_array_equal(b, wanted)


@TARGETS
def test_a_scalar_that_is_a_size_is_compared(target: str) -> None:
    function = kernel(SUM, target)
    message = "f: B is float32\\[n\\], found float32\\[2\\]: dimension 0 should be n = 3"
    with pytest.raises(RuntimeCheckError, match=message):
        function(3, 0, np.ones(3, np.float32), np.ones(2, np.float32))


@TARGETS
@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("size", ["n // m", "n % m", "(n + 3) // (m * 2)", "T.truncdiv(n, m)"])
def test_a_size_is_divided_by_zero(size: str, target: str) -> None:
    text = f"""
        @T.prim_func
        def f(n: T.int64, m: T.int64, a: T.handle):
            A = T.match_buffer(a, ({size},), "float32")
            for i in range(n):
                A[0] = T.float32(1)
    """
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        kernel(text, target)(4, 0, np.ones(4, np.float32))


# ---- strides and offsets

LITERAL = """
    @T.prim_func
    def f(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (2, 3), "float32", strides=[4, 1])
        B = T.match_buffer(b, (2, 3), "float32")
        for i, j in T.grid(2, 3):
            B[i, j] = A[i, j]
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


@TARGETS
def test_strides_that_are_declared_are_compared(target: str) -> None:
    literal, shared = kernel(LITERAL, target), kernel(SHARED, target)
    b = np.zeros((2, 3), np.float32)
    literal(rows(2, 4), b)
    np.testing.assert_array_equal(b, rows(2, 4))
    shared(rows(2, 3), b)
    for function, args, found in (
        (literal, (rows(2, 3), b), "f: A has stride 3 in dimension 0, expected 4"),
        (shared, (rows(2, 4), b), "f: B has stride 3 in dimension 0, expected 4"),
        (literal, (rows(4, 4)[::2], b), "f: A has stride 8 in dimension 0, expected 4"),
    ):
        before = b.copy()
        with pytest.raises(RuntimeCheckError, match=found):
            function(*args)
        np.testing.assert_array_equal(b, before)


@TARGETS
def test_a_dimension_of_one_element_may_have_any_stride(target: str) -> None:
    text = LITERAL.replace("(2, 3)", "(1, 3)").replace("grid(2", "grid(1")
    b = np.zeros((1, 3), np.float32)
    kernel(text, target)(rows(1, 9), b)
    np.testing.assert_array_equal(b, [[0, 1, 2]])
    one_column = LITERAL.replace("(2, 3)", "(2, 1)").replace("grid(2, 3", "grid(2, 1")
    with pytest.raises(RuntimeCheckError, match="stride 3 in dimension 0, expected 4"):
        kernel(one_column, target)(rows(2, 3)[:, :1], np.zeros((2, 1), np.float32))


@TARGETS
def test_strides_between_elements_are_refused(target: str) -> None:
    pairs = np.zeros(4, [("x", "f8"), ("y", "f4")])
    text = LITERAL.replace("(2, 3)", "(4,)").replace("[4, 1]", "[1]").replace("float32", "float64")
    text = text.replace("i, j in T.grid(2, 3)", "i in range(4)").replace("i, j", "i")
    kernel(text, target)(np.ones(4), np.zeros(4))
    with pytest.raises(RuntimeCheckError, match=r"f: A has stride 1.5 in dimension 0, expected 1"):
        kernel(text, target)(pairs["x"], np.zeros(4))


@TARGETS
def test_an_offset_that_is_declared_is_compared(target: str) -> None:
    text = LITERAL.replace("strides=[4, 1]", "elem_offset=4")
    with pytest.raises(RuntimeCheckError, match="has offset 0, expected 4"):
        kernel(text, target)(rows(2, 3), rows(2, 3))


@TARGETS
def test_an_offset_that_is_a_variable_is_zero(target: str) -> None:
    text = LITERAL.replace("strides=[4, 1]", "elem_offset=o").replace(
        "A = T.match", "o = T.int64()\n        A = T.match", 1
    )
    b = np.zeros((2, 3), np.float32)
    function = kernel(text.replace("B[i, j] = A[i, j]", "B[i, j] = T.Cast('float32', o)"), target)
    b[...] = 7
    function(np.zeros((2, 3), np.float32), np.ascontiguousarray(b))
    with pytest.raises(RuntimeCheckError):
        function(np.zeros((3, 3), np.float32), b)


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


def test_a_kernel_looks_once_at_arguments_of_any_equal_datatype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
def test_memory_that_cannot_be_written_stops_a_store_before_anything_is_written(
    target: str,
) -> None:
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


COUNT = """
    @T.prim_func
    def f(X: T.Buffer((4,), "float32"), Y: T.Buffer((4,), "float32")):
        for i in range(4):
            Y[i] = Y[i] + X[i]
"""


@TARGETS
def test_an_element_that_an_array_contains_twice_is_visited_twice(target: str) -> None:
    base = np.array([1.0], np.float32)
    same = np.lib.stride_tricks.as_strided(base, (4,), (0,))
    kernel(COUNT, target)(np.array([1, 2, 3, 4], np.float32), same)
    np.testing.assert_array_equal(base, [11])
