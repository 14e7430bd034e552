"""Words of kernels that older programs use."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import ParseError
from relaxpy.ir import structural_equal
from relaxpy.script import from_source, tir as T
from tests.script.marked import check_marks


def test_buffer_store_is_an_assignment() -> None:
    @T.prim_func
    def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer(4, "float32")):
        for i in range(4):
            T.buffer_store(A, B[i] + 1, [i, 0])
            T.buffer_store(B, 2, i)

    @T.prim_func
    def expected(A: T.Buffer((4, 4), "float32"), B: T.Buffer(4, "float32")):
        for i in range(4):
            A[i, 0] = B[i] + T.float32(1)
            B[i] = T.float32(2)

    plain = {"global_symbol": "main"}
    assert structural_equal(main, expected.with_attr(plain))
    assert structural_equal(from_source(main.script()), main)
    a, b = np.zeros((4, 4), "float32"), np.arange(4, dtype="float32")
    relaxpy.compile(main)["main"](a, b)
    np.testing.assert_array_equal(a[:, 0], [1, 2, 3, 4])
    np.testing.assert_array_equal(b, [2, 2, 2, 2])


def test_buffer_decl_is_buffer() -> None:
    @T.prim_func
    def main(A: T.buffer_decl((4,), "int8")):
        A[0] = T.int8(1)

    assert main.buffer_map[main.params[0]].dtype == "int8"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("T.buffer_store(3, 1, [0])", "expected a buffer, found 3"),
        ("T.buffer_store(A, 1, [0])", "dimension|indices|index"),
        ('T.buffer_store(A, "x", [0, 0])', "x"),
        ('T.buffer_store(A, 1, [0, "i"])', "i"),
    ],
)
def test_wrong_stores_are_located(statement: str, message: str) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((4, 4), "float32")):
    {statement}
"""
    with pytest.raises(ParseError, match=message) as caught:
        from_source(text)
    assert caught.value.diagnostic.span is not None
    assert caught.value.diagnostic.span.line == 4


def test_loops_and_branches_as_contexts() -> None:
    func = from_source("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), n: T.int32):
    with T.While(n > 3):
        with T.If(n == 4):
            with T.Then():
                A[0] = T.float32(1)
            with T.Else():
                break
    with T.If(n < 0):
        with T.Then():
            A[1] = T.float32(2)
""")
    plain = from_source("""
@T.prim_func
def main(A: T.Buffer((4,), "float32"), n: T.int32):
    while n > 3:
        if n == 4:
            A[0] = T.float32(1)
        else:
            break
    if n < 0:
        A[1] = T.float32(2)
""")
    assert structural_equal(func, plain)
    check_marks("""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32"), n: T.int32):
            with T.If(n > 0):
                A[0] = T.float32(1)
        #       ^^^^^^^^^^^^^^^^^^^ with T.If holds with T.Then(): and perhaps with T.Else():
            with T.If(n > 0):
            #    ^^^^^^^^^^^ with T.If holds with T.Then():
                with T.Else():
                    A[0] = T.float32(1)
            with T.While(n > 0) as k:
            #                      ^ with T.While stands alone, without `as`
                pass
            with T.While(n):
            #            ^ expected a Boolean, found `n` of int32 [PX-4]
            # hint: compare it, as in n != 0
                pass
            T.Then()
        #   ^^^^^^^^ write `with ...:`, or while and if as in Python
    """)
