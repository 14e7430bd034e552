"""Words of kernels that older programs use."""

import numpy as np
import pytest

import relaxpy
from relaxpy import tir
from relaxpy.errors import MisuseError, ParseError
from relaxpy.ir import structural_equal
from relaxpy.script import from_source, tir as T
from tests.script.marked import check_line, check_marks


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


def test_buffer_decl_and_buffer_are_the_class() -> None:
    @T.prim_func
    def main(A: T.buffer_decl((4,), "int8"), B: T.buffer((4,), "int16")):
        A[0] = T.int8(1)

    assert [main.buffer_map[p].dtype for p in main.params] == ["int8", "int16"]


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
    check_line(text, 4, message, ParseError)


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
        #       ^^^^^^^^^^^^^^^^^^^ with T.If contains with T.Then(): and optionally with T.Else():
            with T.If(n > 0):
            #    ^^^^^^^^^^^ with T.If contains no with T.Then():
                with T.Else():
                    A[0] = T.float32(1)
            with T.While(n > 0) as k:
            #                      ^ T.While has no value: leave out `as`
                pass
            with T.While(n):
            #            ^ expected a Boolean, found `n` of int32 [PX-4]
            # hint: compare it, as in n != 0
                pass
            T.Then()
        #   ^^^^^^^^ write `with ...:`, or while and if as in Python
    """)


def test_a_buffer_over_memory_is_declared_by_its_name_alone() -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        start: T.handle("float32") = A.data
        B = T.Buffer((2, 2), data=start, dtype="float32")
        B[1, 0] = B[0, 1] + T.float32(3)

    @T.prim_func
    def declared(A: T.Buffer((4,), "float32")):
        start: T.handle("float32") = A.data
        B = T.decl_buffer((2, 2), data=start, dtype="float32")
        B[1, 0] = B[0, 1] + T.float32(3)

    assert structural_equal(main, declared.with_attr({"global_symbol": "main"}))
    a = np.arange(4, dtype="float32")
    relaxpy.compile(main)["main"](a)
    np.testing.assert_array_equal(a, np.float32([0, 1, 4, 3]))
    check_marks("""
        @T.prim_func
        def main(A: T.Buffer((4,), "float32")):
            B = T.Buffer((2, 2), "float32")
            B[0, 0] = T.float32(0)
        #   ^^^^^^^^^^^^^^^^^^^^^^ a variable is used without a definition: 'B' [PX-7]
    """)


def test_power_is_pow() -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        for i in range(4):
            A[i] = T.power(A[i], T.float32(3))

    a = np.arange(4, dtype="float32")
    relaxpy.compile(main)["main"](a)
    np.testing.assert_array_equal(a, np.float32([0, 1, 8, 27]))


def test_reducers_of_listed_identities_are_nodes_and_read_back() -> None:
    @T.prim_func
    def main(A: T.Buffer((4,), "float32")):
        T.attr(
            T.comm_reducer(lambda x, y: x + y, [T.float32(0)]),
            "reduce_scope",
            T.reinterpret("handle", T.uint64(0)),
        )
        T.attr(
            T.comm_reducer(
                lambda i, x, j, y: (T.Select(x >= y, i, j), T.Select(x >= y, x, y)),
                [-1, T.min_value("float32")],
            ),
            "reduce_scope",
            T.reinterpret("handle", T.uint64(0)),
        )
        A[0] = T.float32(1)

    outer, inner = main.body, main.body.body
    one, two = outer.node, inner.node
    assert isinstance(one, tir.CommReducer)
    assert isinstance(two, tir.CommReducer)
    assert [v.dtype for v in one.lhs + one.rhs] == ["float32"] * 2
    assert [v.name for v in two.lhs] == ["i", "x"]
    assert [v.name for v in two.rhs] == ["j", "y"]
    assert [v.dtype for v in two.rhs] == ["int32", "float32"]
    six, nine = tir.const(6.0, "float32"), tir.const(9.0, "float32")
    assert structural_equal(
        two.combine((tir.const(0), six), (tir.const(1), nine))[1],
        tir.Select(tir.GE(six, nine), six, nine),
    )
    assert structural_equal(from_source(main.script()), main)
    assert "metadata" not in main.script(show_meta=True)
    assert str(one) == "T.comm_reducer(lambda x, y: x + y, [T.float32(0.0)])"
    other = tir.Var("z", "float32")
    odd = tir.CommReducer(one.lhs, one.rhs, (one.result[0] + other,), one.identity_element)
    assert str(odd) == "<CommReducer>", "the lambda would take z from elsewhere"


@pytest.mark.parametrize(
    ("reducer", "message"),
    [
        ("T.comm_reducer(lambda x, y: x + y, [1, 2])", "a reducer of 2 values combines 4, this"),
        ("T.comm_reducer(lambda x, y: (x, y), [1])", "as many operands on either side"),
        ("T.comm_reducer(3, [1])", "a reducer is a function of values, found 3"),
        ("T.comm_reducer(lambda a, b: a, 1)", "is a function of datatypes, found 1"),
        (
            "T.comm_reducer(lambda a, b: a, lambda d: 0, 2)",
            "a reducer is named by a string, found 2",
        ),
    ],
)
def test_reducers_that_combine_another_number_of_values(reducer: str, message: str) -> None:
    text = f"""
@T.prim_func
def main(A: T.Buffer((4,), "float32")):
    T.attr({reducer}, "reduce_scope", 0)
    A[0] = T.float32(1)
"""
    check_line(text, 4, message, ParseError)


def test_buffers_and_pointers_between_brackets() -> None:
    @T.prim_func
    def main(A: T.Buffer[(2, 4), "float32"], B: T.Buffer[8], C: T.Buffer[2, 4]):  # noqa: F821
        start: T.Ptr[T.float32] = B.data
        flat = T.decl_buffer((8,), data=start)
        for i, j in T.grid(2, 4):
            flat[i * 4 + j] = A[i, j] + C[i, j]

    @T.prim_func
    def called(A: T.Buffer((2, 4), "float32"), B: T.Buffer(8), C: T.Buffer((2, 4))):
        start: T.handle("float32") = B.data
        flat = T.decl_buffer((8,), data=start)
        for i, j in T.grid(2, 4):
            flat[i * 4 + j] = A[i, j] + C[i, j]

    assert structural_equal(main, called.with_attr({"global_symbol": "main"}))
    assert structural_equal(from_source(main.script()), main)
    assert T.Ptr["int8", "shared"].type_annotation.storage_scope == "shared"
    with pytest.raises(MisuseError, match="unknown dtype"):
        T.Buffer[(2, 4), "flaot"]
    text = """
@T.prim_func
def main(A: T.Buffer{}):
    A[0] = T.int8(1)
"""
    read = [from_source(text.format(given)) for given in ('[(8,), "int8"]', '((8,), "int8")')]
    assert structural_equal(*read)
