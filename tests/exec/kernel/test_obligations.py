"""When a kernel stops: where the program, run in the order of its text, meets what is wrong.

Nowhere else: what no iteration, branch or undecided operand asks for may be out of bounds.
"""

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import ParseError, RuntimeCheckError
from relaxpy.script import from_source

TARGETS = pytest.mark.parametrize("target", ["numpy", "reference"])


def frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def kernel(text: str, target: str) -> Callable[..., Any]:
    """The only function of `text`, for `target`."""
    executable = relaxpy.compile(from_source(text), target)
    return executable[executable.function_names[0]]


@dataclass(frozen=True)
class Program:
    """A kernel, its arguments, and what it does: the error, or the arguments that it changes."""

    name: str
    text: str
    args: Callable[[], list[Any]]
    expected: str | dict[int, Any]


def run(program: Program, target: str) -> None:
    """Run it; what it is not expected to change stays as it is, in case of an error everything."""
    args = program.args()
    wanted = {k: np.array(a) for k, a in enumerate(args)}
    function = kernel(program.text, target)
    if isinstance(program.expected, str):
        with pytest.raises(RuntimeCheckError, match=program.expected) as caught:
            function(*args)
        assert caught.value.diagnostic.span is not None
    else:
        function(*args)
        wanted |= program.expected
        for place, array in wanted.items():
            np.testing.assert_array_equal(args[place], array)


SHORTENED = [
    Program(
        "a let that nothing uses reads an empty buffer",
        """
            @T.prim_func
            def f(y_handle: T.handle):
                Y = T.match_buffer(y_handle, ((0 // 2),), "float32")
                t = Y[0]
        """,
        lambda: [np.zeros((0,), "float32")],
        "index 0 is outside dimension 0 of buffer Y",
    ),
    Program(
        "a matched region is larger than its buffer",
        """
            @T.prim_func
            def f(Y: T.Buffer((2, 2), "float32")):
                with T.block("b4"):
                    vv = T.axis.spatial(1, 0)
                    M = T.match_buffer(Y[vv, 0:0 + 8], (8,), "float32")
                    T.evaluate(0)
        """,
        lambda: [np.array([[1.0, 1.0], [1.0, 1.0]], "float32")],
        "the region .* of M lies outside its buffer",
    ),
    Program(
        "an index is a remainder by a size of 0",
        """
            @T.prim_func
            def f(g_handle: T.handle):
                n = T.int64()
                G = T.match_buffer(g_handle, (n,), "bool")
                G[(T.int32(1) % n)] = T.bool(True)
        """,
        lambda: [np.zeros((0,), "bool")],
        "division by zero",
    ),
    Program(
        "the first element of a buffer of a computed size of 0",
        """
            @T.prim_func
            def f(n: T.int64, g_handle: T.handle):
                G = T.match_buffer(g_handle, ((n + 1),), "float32")
                Y = T.alloc_buffer((), "float32")
                Y[()] = G[0]
        """,
        lambda: [-1, np.zeros((0,), "float32")],
        "index 0 is outside dimension 0 of buffer G",
    ),
    Program(
        "a block stores a pair under a loop of one iteration",
        """
            @T.prim_func
            def f(y_handle: T.handle, b_handle: T.handle, q_handle: T.handle):
                Y = T.match_buffer(y_handle, (), "float32")
                B = T.match_buffer(b_handle, (1,), "float32")
                Q = T.match_buffer(q_handle, (), "float32")
                for i in range(T.int64(1)):
                    for j in range(2):
                        with T.block("b3"):
                            vy = T.axis.spatial(1, 0)
                            vi = T.axis.spatial(T.int64(1), i)
                            vv = T.axis.reduce(1, T.int64(0))
                            with T.init():
                                Q[()] = T.float32(0.0)
                            t = T.Select((Y[()] < B[vi]), T.float32(1.0), Q[()])
                            tmp = T.Select((Y[()] < B[vi]), Y[()], B[vi])
                            Q[()] = t
                            B[vi] = tmp
        """,
        lambda: [np.array(1.0, "float32"), np.array([1.0], "float32"), np.array(1.0, "float32")],
        {2: 0.0},
    ),
    Program(
        "a view is larger than the empty memory that no iteration meets",
        """
            @T.prim_func
            def f():
                Y = T.alloc_buffer((0, 2), "float32")
                B = T.decl_buffer((2,), "float32", data=Y.data, elem_offset=(0 * 4))
                for i in range(T.int64(0)):
                    Y[T.int64(1), 0] = B[0]
        """,
        list,
        {},
    ),
    Program(
        "an array of no elements that cannot be written",
        """
            @T.prim_func
            def f(g_handle: T.handle):
                n = T.int64()
                G = T.match_buffer(g_handle, (n,), "float32")
                for i in range(n):
                    G[i] = T.float32(1.0)
        """,
        lambda: [frozen(np.zeros((0,), "float32"))],
        {},
    ),
    Program(
        "what `or` has decided reads outside",
        """
            @T.prim_func
            def stop(z: T.handle):
                ndarray = T.match_buffer(z, (), "int32")
                max = T.alloc_buffer((2,), "int32")
                bfloat16 = T.alloc_buffer((), "bool")
                bfloat16[()] = T.bool(True)
                for a in range(2):
                    bfloat16[()] = (bfloat16[()] or T.Cast("bool", max[ndarray[()]]))
        """,
        lambda: [np.array(3, "int32")],
        {},
    ),
    Program(
        "a gather beside a loop without iterations",
        """
            @T.prim_func
            def f(w_handle: T.handle, B: T.Buffer(((1 * 3),), "int32")):
                n = T.int64()
                W = T.match_buffer(w_handle, (n,), "float32")
                G = T.alloc_buffer((n,), "float32")
                D = T.alloc_buffer(((1 * 3), n), "float32")
                for j in range(2):
                    for k in range(n):
                        D[j, k] = G[B[j]]
        """,
        lambda: [np.zeros((0,), "float32"), np.array([0, 0, 0], "int32")],
        {},
    ),
    Program(
        "a sum of a gather over no iterations",
        """
            @T.prim_func
            def f(d_handle: T.handle, a_handle: T.handle, H: T.Buffer((2,), "int32")):
                n = T.int64()
                D = T.match_buffer(d_handle, (2,), "int32")
                A = T.match_buffer(a_handle, (n,), "float32")
                Y = T.alloc_buffer((), "int32")
                for i in range(n):
                    for j in range(2):
                        Y[()] = (Y[()] + H[D[j]])
        """,
        lambda: [np.array([4, 1], "int32"), np.zeros((0,), "float32"), np.array([1, 1], "int32")],
        {},
    ),
    Program(
        "a computed size of 0 allocates and loops over nothing",
        """
            @T.prim_func
            def f(reversed: T.handle, where_: T.int64, math: T.handle):
                work = T.match_buffer(reversed, ((where_ + 1),), "float32")
                stop = T.match_buffer(math, ((5 + 1),), "float32")
                scan = T.alloc_buffer(((where_ + 1),), "float32")
                for blocks in range((where_ + 1)):
                    scan[blocks] = stop[(0 - 1)]
                for bfloat16 in range(T.int64(0)):
                    work[T.int64(1)] = T.float32(1.0)
        """,
        lambda: [
            np.zeros((0,), "float32"),
            -1,
            np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0], "float32"),
        ],
        {},
    ),
    Program(
        "a branch that no iteration takes reads outside",
        """
            @T.prim_func
            def f(rx: T.handle, b_handle: T.handle):
                k1 = T.int64()
                job = T.match_buffer(rx, (k1, k1), "float32")
                b = T.match_buffer(b_handle, (k1,), "float32")
                F = T.alloc_buffer((k1, k1), "float32")
                for zero in range(k1):
                    for enumerate in range(k1):
                        F[zero, enumerate] = T.float32(1.0)
                        job[zero, enumerate] = T.if_then_else(
                            zero >= 1, b[1], T.float32(0.0)
                        ) + T.Cast("float32", T.int64(1))
        """,
        lambda: [np.array([[1.0]], "float32"), np.array([1.0], "float32")],
        {0: [[1.0]]},
    ),
    Program(
        "a sum over no iterations, of a scalar extent",
        """
            @T.prim_func
            def f(m: T.int64, h_handle: T.handle, c_handle: T.handle, x_handle: T.handle):
                H = T.match_buffer(h_handle, (2,), "int32")
                C = T.match_buffer(c_handle, ((m * 2),), "float32")
                X = T.match_buffer(x_handle, (2,), "float32")
                Y = T.alloc_buffer((), "float32")
                for i in range(2):
                    for j in range(m):
                        Y[()] = (Y[()] + X[H[i]])
                for j in range(T.int64(0)):
                    C[T.int64(1)] = T.float32(1.0)
        """,
        lambda: [
            0,
            np.array([3, 3], "int32"),
            np.zeros((0,), "float32"),
            np.array([1.0, 1.0], "float32"),
        ],
        {},
    ),
    Program(
        "a let in the value of a let",
        """
            @T.prim_func
            def f(y_handle: T.handle):
                lv = T.float32()
                let = T.float32()
                Y = T.match_buffer(y_handle, (2,), "float32")
                F = T.alloc_buffer((), "float32")
                with T.block("rows"):
                    vx = T.axis.spatial(T.int64(1), 0)
                    F[()] = T.Let(
                        T.float32(1.0),
                        where={lv: T.Let(T.float32(1.0), where={let: Y[T.min(vx, 1)]})},
                    )
        """,
        lambda: [np.array([1.0, 1.0], "float32")],
        {},
    ),
    Program(
        "a let that nothing uses reads past the end",
        """
            @T.prim_func
            def f(y_handle: T.handle):
                Y = T.match_buffer(y_handle, (0,), "int32")
                t = Y[T.int32(1)]
        """,
        lambda: [np.zeros((0,), "int32")],
        "index 1 is outside dimension 0 of buffer Y",
    ),
    Program(
        "a scatter into memory that cannot be written",
        """
            @T.prim_func
            def f(y_handle: T.handle, b_handle: T.handle):
                Y = T.match_buffer(y_handle, (2,), "float32")
                B = T.match_buffer(b_handle, (), "int32")
                for i in range(2):
                    Y[B[()]] = (Y[B[()]] + T.float32(1.0))
        """,
        lambda: [frozen(np.array([1.0, 1.0], "float32")), np.array(1, "int32")],
        "the memory of buffer Y is read-only",
    ),
    Program(
        "a scalar makes a buffer empty that is read",
        """
            @T.prim_func
            def f(g_handle: T.handle, b_handle: T.handle, n: T.int64):
                G = T.match_buffer(g_handle, (), "float32")
                B = T.match_buffer(b_handle, ((n + 2),), "float32")
                G[()] = B[T.int64(1)]
        """,
        lambda: [np.array(1.0, "float32"), np.zeros((0,), "float32"), -2],
        "index 1 is outside dimension 0 of buffer B",
    ),
    Program(
        "a branch of another datatype reads outside",
        """
            @T.prim_func
            def f(y_handle: T.handle):
                Y = T.match_buffer(y_handle, ((3 + 0),), "float32")
                Q = T.alloc_buffer(((3 + 0),), "float32")
                for i in range(2):
                    for j in range(2):
                        Q[i] = T.Cast("float32", T.if_then_else(
                            i == 1,
                            T.bfloat16(1.0),
                            T.Cast("bfloat16", T.if_then_else(j >= 1, Y[0 - 1], T.float32(1.0))),
                        ))
        """,
        lambda: [np.array([1.0, 1.0, 1.0], "float32")],
        "index -1 is outside dimension 0 of buffer Y",
    ),
    Program(
        "a sum of literals of uint64",
        """
            @T.prim_func
            def f():
                Y = T.alloc_buffer((), "uint64")
                Y[()] = T.uint64(0)
                for i in range(2):
                    Y[()] = (Y[()] ^ T.uint64(0))
        """,
        list,
        {},
    ),
    Program(
        "an index divides by a computed size of 0",
        """
            @T.prim_func
            def f(g_handle: T.handle, b_handle: T.handle, Q: T.Buffer((), "float32")):
                n = T.int64()
                G = T.match_buffer(g_handle, (n,), "float32")
                B = T.match_buffer(b_handle, ((n - 1),), "float32")
                for i in range((4 * 4)):
                    Q[()] = B[((i % 4) % (n - 1))]
        """,
        lambda: [np.array([1.0], "float32"), np.zeros((0,), "float32"), np.array(1.0, "float32")],
        "division by zero",
    ),
    Program(
        "a computed size below 0 allocates nothing",
        """
            @T.prim_func
            def f(g_handle: T.handle):
                n = T.int64()
                G = T.match_buffer(g_handle, (n,), "float32")
                Y = T.alloc_buffer((n, ((n - 3) + 1)), "float32")
                Q = T.alloc_buffer((n,), "float32")
                Z = T.alloc_buffer((n,), "float32")
                for i in range(n):
                    for j in range((n - 1)):
                        Y[i, T.int64(1)] = (Y[i, T.int64(1)] + T.float32(1.0))
                for i in range(n):
                    Q[i] = T.float32(1.0)
                for i in range(n):
                    Z[i] = ((T.float32(1.0) + Q[i]) + T.float32(1.0))
        """,
        lambda: [np.array([1.0], "float32")],
        {},
    ),
    Program(
        "a divisor of 0 in a loop without iterations",
        """
            @T.prim_func
            def f(g_handle: T.handle, n: T.int64):
                G = T.match_buffer(g_handle, ((n + 1),), "float32")
                Y = T.alloc_buffer((), "float32")
                for i in range((n + 1)):
                    Y[()] = (Y[()] + G[((i + 1) % (n + 1))])
        """,
        lambda: [np.zeros((0,), "float32"), -1],
        {},
    ),
    Program(
        "`or` is decided before the read outside",
        """
            @T.prim_func
            def f(y_handle: T.handle):
                Y = T.match_buffer(y_handle, (2,), "bool")
                Q = T.alloc_buffer((), "bool")
                Q[()] = T.bool(False)
                for i in range(2):
                    Q[()] = (Q[()] or (T.Cast("int32", Y[(i + 1)]) >= T.int32(1)))
        """,
        lambda: [np.array([True, True], "bool")],
        {},
    ),
    Program(
        "a table of no elements is looked up in no iteration",
        """
            @T.prim_func
            def f(n: T.int64, g_handle: T.handle, b_handle: T.handle, q_handle: T.handle):
                G = T.match_buffer(g_handle, ((0 + n),), "float32")
                B = T.match_buffer(b_handle, (0,), "bool")
                Q = T.match_buffer(q_handle, (T.int32(2),), "int32")
                X = T.alloc_buffer((T.int32(2), (0 + n)), "bool")
                for i in range(T.int32(2)):
                    for j in range(n):
                        X[i, j] = B[Q[i]]
                for i in range(T.int32(0)):
                    G[T.int32(1)] = T.float32(1.0)
        """,
        lambda: [0, np.zeros((0,), "float32"), np.zeros((0,), "bool"), np.array([0, 0], "int32")],
        {},
    ),
    Program(
        "a read outside, of a value in a branch not taken",
        """
            @T.prim_func
            def f(g_handle: T.handle):
                n = T.int64()
                G = T.match_buffer(g_handle, (n,), "float32")
                Y = T.alloc_buffer((n, n), "float32")
                Q = T.alloc_buffer((n,), "float32")
                for i in range(n):
                    Y[i, 0] = T.float32(1.0)
                for i in range(n):
                    with T.block("b1"):
                        vi = T.axis.remap("S", [i])
                        D = T.alloc_buffer((n,), "float32")
                        for j in range(n):
                            for k in range(3):
                                if (((j * 3) + k) < n):
                                    D[j * 3 + k] = T.Cast("float32", T.int64(1)) + T.if_then_else(
                                        vi + 1 < n, Y[j * 3 + k, 1], T.float32(0.0)
                                    )
                        Q[vi] = T.float32(1.0)
        """,
        lambda: [np.array([1.0], "float32")],
        {},
    ),
]
"""Programs of a generator, as it shortened them."""


@TARGETS
@pytest.mark.parametrize("program", SHORTENED, ids=lambda p: p.name)
def test_shortened_programs(program: Program, target: str) -> None:
    run(program, target)


@pytest.mark.rule("PX-3")
def test_a_division_that_is_proved_to_be_by_zero_is_refused_when_it_is_read() -> None:
    text = """
        @T.prim_func
        def f():
            Y = T.alloc_buffer((T.int64(0),), "float32")
            F = T.alloc_buffer((), "float32")
            for i in range(0):
                F[()] = Y[0 % T.int64(0)]
    """
    with pytest.raises(ParseError, match="by zero"):
        from_source(text)


# ---- sizes that nothing checks

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
    if target == "reference":
        message = "f: dimension 0 of buffer B is 2, expected 3 \\(= n\\)"
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


# ---- how arguments lie in memory

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
def test_of_one_element_along_a_dimension_any_stride_will_do(target: str) -> None:
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
def test_a_datatype_is_told_by_what_it_is(target: str) -> None:
    """Arrays that were pickled have a dtype of their own, which equals NumPy's."""
    a = np.arange(6, dtype=np.float32)
    for kind in (a.dtype, pickle.loads(pickle.dumps(a)).dtype, np.dtype("f4", metadata={"k": 1})):
        b = np.zeros(4, np.float32)
        kernel(TWICE, target)(a.astype(kind), b.view(kind))
        np.testing.assert_array_equal(b, [4, 6, 8, 10])
    for wrong in (">f4", "f8", [("x", "f4")]):
        with pytest.raises(RuntimeCheckError) as caught:
            kernel(TWICE, target)(np.zeros(6, wrong), np.zeros(4, np.float32))
        if target == "numpy":
            assert caught.value.diagnostic.hint == 'convert it with .astype("float32")'
    if target == "numpy":
        message = r"f: A is float32\[n \+ 2\], found float32\[6\] with swapped bytes"
        with pytest.raises(RuntimeCheckError, match=message):
            kernel(TWICE, target)(np.zeros(6, ">f4"), np.zeros(4, np.float32))


def test_a_kernel_looks_once_at_arguments_of_any_equal_datatype(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    function = kernel(TWICE, "numpy")
    monkeypatch.setattr("relaxpy.exec.kernel.arguments._with_declarations", None)
    a = pickle.loads(pickle.dumps(np.zeros(6, np.float32)))
    function(a, a[:4].copy())


# ---- memory that cannot be written, or has an element twice

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
def test_an_element_that_an_array_has_twice_is_met_twice(target: str) -> None:
    base = np.array([1.0], np.float32)
    same = np.lib.stride_tricks.as_strided(base, (4,), (0,))
    kernel(COUNT, target)(np.array([1, 2, 3, 4], np.float32), same)
    np.testing.assert_array_equal(base, [11])


# ---- what is evaluated at all

LAZY = [
    Program(
        "and is decided by what is the same in all iterations",
        """
        @T.prim_func
        def f(C: T.Buffer((1,), "bool"), A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if T.And(C[0], A[k + 1] > 0):
                    Y[k] = 5
        """,
        lambda: [np.array([False]), np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        {},
    ),
    Program(
        "and is not decided",
        """
        @T.prim_func
        def f(C: T.Buffer((1,), "bool"), A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if T.And(C[0], A[k + 1] > 0):
                    Y[k] = 5
        """,
        lambda: [np.array([True]), np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        "index 4 is outside dimension 0 of buffer A",
    ),
    Program(
        "or is decided in each iteration that may not look",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                Y[k] = T.Select(T.Or(k >= 3, A[k + 1] > 1), 1, 0)
        """,
        lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        {1: [0, 1, 1, 1]},
    ),
    Program(
        "a conjunction over a row is decided before it leaves it",
        """
        @T.prim_func
        def f(A: T.Buffer((3, 3), "int32"), n: T.int32, Y: T.Buffer((3,), "bool")):
            for i in range(3):
                Y[i] = T.bool(True)
                for k in range(n):
                    Y[i] = T.And(Y[i], A[i, k] > 0)
        """,
        lambda: [np.tri(3, dtype=np.int32) - np.eye(3, dtype=np.int32), 5, np.ones(3, bool)],
        {2: [False] * 3},
    ),
    Program(
        "a branch of Select and of if_then_else",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), D: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                Y[k] = T.Select(D[k] != 0, 12 // D[k], A[3 - k] + T.if_then_else(k < 2, 1, A[k]))
        """,
        lambda: [
            np.array([5, 6, 7, 8], np.int32),
            np.array([0, 2, 0, 4], np.int32),
            np.zeros(4, np.int32),
        ],
        {2: [9, 6, 13, 3]},
    ),
    Program(
        "the end of a loop under a guard",
        """
        @T.prim_func
        def f(C: T.Buffer((1,), "int32"), n: T.int32, m: T.int32, Y: T.Buffer((4,), "int32")):
            for j in range(2):
                if C[0] > 0:
                    for i in range(n // m):
                        Y[i] = Y[i] + 1
        """,
        lambda: [np.zeros(1, np.int32), 3, 0, np.zeros(4, np.int32)],
        {},
    ),
    Program(
        "the end of a loop in a loop without iterations",
        """
        @T.prim_func
        def f(C: T.Buffer((1,), "int32"), n: T.int32, m: T.int32, Y: T.Buffer((4,), "int32")):
            for j in range(m):
                for i in range(C[j] + n // m):
                    Y[i] = Y[i] + 1
        """,
        lambda: [np.zeros(1, np.int32), 3, 0, np.zeros(4, np.int32)],
        {},
    ),
    Program(
        "a condition on loops without iterations",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if A[k + 1] > 0:
                    for i in range(n):
                        Y[k] = Y[k] + 1
        """,
        lambda: [np.arange(4, dtype=np.int32), 0, np.zeros(4, np.int32)],
        "index 4 is outside dimension 0 of buffer A",
    ),
    Program(
        "a condition on a condition that never holds",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if A[k + 1] > 0:
                    if k == 4:
                        Y[k] = Y[k] + 1
        """,
        lambda: [np.arange(4, dtype=np.int32), 0, np.zeros(4, np.int32)],
        "index 4 is outside dimension 0 of buffer A",
    ),
    Program(
        "what is the same in all iterations, after what never holds",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if A[k] > 9:
                    if A[n] > 0:
                        Y[k] = 5
        """,
        lambda: [np.arange(4, dtype=np.int32), 4, np.zeros(4, np.int32)],
        {},
    ),
    Program(
        "what is the same in all iterations and does not hold, after what stops the program",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if T.And(A[k + n] > 0, A[0] > 0):
                    Y[k] = 5
        """,
        lambda: [np.arange(4, dtype=np.int32), 4, np.zeros(4, np.int32)],
        "index [4-7] is outside dimension 0 of buffer A",
    ),
    Program(
        "what bounds a loop, after what stops the program",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if T.And(A[k + 1] > 0, k < 3):
                    Y[k] = 5
        """,
        lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        "index 4 is outside dimension 0 of buffer A",
    ),
    Program(
        "what bounds a loop, before what would stop the program",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                if T.And(k < 3, A[k + 1] > 0):
                    Y[k] = 5
        """,
        lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        {1: [5, 5, 5, 0]},
    ),
    Program(
        "a let that only a branch uses",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            for k in range(4):
                t = A[k + 1]
                if k < 3:
                    Y[k] = t
        """,
        lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        "index 4 is outside dimension 0 of buffer A",
    ),
    Program(
        "a let in an expression that does not use it",
        """
        @T.prim_func
        def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
            x = T.int32()
            for k in range(4):
                Y[k] = T.Let(k, where={x: 7 // A[k]})
        """,
        lambda: [np.arange(3, -1, -1).astype(np.int32), np.zeros(4, np.int32)],
        "division by zero",
    ),
    Program(
        "a region whose shape is another",
        """
        @T.prim_func
        def f(n: T.int32, Y: T.Buffer((8,), "int32")):
            with T.block("b"):
                M = T.match_buffer(Y[0:n], (4,), "int32")
                M[0] = 1
        """,
        lambda: [5, np.zeros(8, np.int32)],
        "does not have the shape of M",
    ),
    Program(
        "a view with a step back that stays inside",
        """
        @T.prim_func
        def f(Y: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
            B = T.decl_buffer((4,), "int32", data=Y.data, elem_offset=3, strides=[-1])
            for i in range(4):
                Z[i] = B[i]
        """,
        lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        {1: [3, 2, 1, 0]},
    ),
    Program(
        "a view with a step back that leaves its memory",
        """
        @T.prim_func
        def f(Y: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
            B = T.decl_buffer((4,), "int32", data=Y.data, elem_offset=2, strides=[-1])
            for i in range(4):
                Z[i] = B[i]
        """,
        lambda: [np.arange(4, dtype=np.int32), np.zeros(4, np.int32)],
        "buffer B of shape .* is larger than its memory|index -1 is outside .* buffer Y_flat",
    ),
]


@TARGETS
@pytest.mark.parametrize("program", LAZY, ids=lambda p: p.name)
def test_only_what_is_evaluated_stops_a_program(program: Program, target: str) -> None:
    run(program, target)
