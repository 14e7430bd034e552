"""Kernels that a generator found and shortened: where each stops, or what it changes."""

import pytest

from relaxpy.errors import ParseError
from relaxpy.script import from_source
from tests.exec.loops.outcomes import TARGETS, run, written
from tests.rows import sections

SHORTENED = sections("""
--- a matched region is larger than its buffer
def f(Y: f32[2, 2]):
    with T.block("b4"):
        vv = T.axis.spatial(1, 0)
        M = T.match_buffer(Y[vv, 0 : 0 + 8], (8,), "float32")
        T.evaluate(0)
# args: np.array([[1.0, 1.0], [1.0, 1.0]], "float32")
# error: the region .* of M lies outside its buffer
--- the extent of a loop is a scalar of few bits
def f(c: T.int8, Y: i32[9]):
    for i in range(c):
        with T.block("b"):
            D = T.alloc_buffer((1,), "int32")
            D[0] = i
            Y[i] = D[0]
# args: 5, np.zeros(9, "int32")
# result: {1: [0, 1, 2, 3, 4, 0, 0, 0, 0]}
--- an index is a remainder by a size of 0
def f(G: bool[n]):
    G[T.int32(1) % n] = T.bool(True)
# args: np.zeros((0,), "bool")
# error: division by zero
--- a block stores a pair under a loop of one iteration
def f(Y: f32[()], B: f32[1], Q: f32[()]):
    for i in range(T.int64(1)):
        for j in range(2):
            with T.block("b3"):
                vy = T.axis.spatial(1, 0)
                vi = T.axis.spatial(T.int64(1), i)
                vv = T.axis.reduce(1, T.int64(0))
                with T.init():
                    Q[()] = T.float32(0)
                t = T.Select(Y[()] < B[vi], T.float32(1), Q[()])
                tmp = T.Select(Y[()] < B[vi], Y[()], B[vi])
                Q[()] = t
                B[vi] = tmp
# args: np.array(1.0, "float32"), np.array([1.0], "float32"), np.array(1.0, "float32")
# result: {2: 0.0}
--- an array of no elements that cannot be written
def f(G: f32[n]):
    for i in range(n):
        G[i] = T.float32(1)
# args: frozen(np.zeros((0,), "float32"))
--- a branch that no iteration takes reads outside
def f(rx: T.handle, b: f32[k1]):
    job = T.match_buffer(rx, (k1, k1), "float32")
    F = T.alloc_buffer((k1, k1), "float32")
    for zero in range(k1):
        for enumerate in range(k1):
            F[zero, enumerate] = T.float32(1)
            job[zero, enumerate] = T.if_then_else(zero >= 1, b[1], T.float32(0)) + T.Cast(
                "float32", T.int64(1)
            )
# args: np.array([[1.0]], "float32"), np.array([1.0], "float32")
# result: {0: [[1.0]]}
--- a scatter into memory that cannot be written
def f(Y: f32[2], B: i32[()]):
    for i in range(2):
        Y[B[()]] = Y[B[()]] + T.float32(1)
# args: frozen(np.array([1.0, 1.0], "float32")), np.array(1, "int32")
# error: the memory of buffer Y is read-only
--- a branch of another datatype reads outside
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
# args: np.array([1.0, 1.0, 1.0], "float32")
# error: index -1 is outside dimension 0 of buffer Y
--- a sum of literals of uint64
def f():
    Y = T.alloc_buffer((), "uint64")
    Y[()] = T.uint64(0)
    for i in range(2):
        Y[()] = Y[()] ^ T.uint64(0)
--- an index divides by a computed size of 0
def f(G: f32[n], B: f32[n - 1], Q: f32[()]):
    for i in range(4 * 4):
        Q[()] = B[i % 4 % (n - 1)]
# args: np.array([1.0], "float32"), np.zeros((0,), "float32"), np.array(1.0, "float32")
# error: division by zero
--- `or` is decided before the read outside
def f(Y: bool[2]):
    Q = T.alloc_buffer((), "bool")
    Q[()] = T.bool(False)
    for i in range(2):
        Q[()] = Q[()] or T.Cast("int32", Y[i + 1]) >= T.int32(1)
# args: np.array([True, True], "bool")
--- a read outside, of a value in a branch not taken
def f(G: f32[n]):
    Y = T.alloc_buffer((n, n), "float32")
    Q = T.alloc_buffer((n,), "float32")
    for i in range(n):
        Y[i, 0] = T.float32(1)
    for i in S(n):
        D = T.alloc_buffer((n,), "float32")
        for j in range(n):
            for k in range(3):
                if j * 3 + k < n:
                    D[j * 3 + k] = T.Cast("float32", T.int64(1)) + T.if_then_else(
                        vi + 1 < n, Y[j * 3 + k, 1], T.float32(0)
                    )
        Q[vi] = T.float32(1)
# args: np.array([1.0], "float32")
""")


@TARGETS
@pytest.mark.parametrize("name", SHORTENED)
def test_shortened_programs(name: str, target: str) -> None:
    run(written(name, SHORTENED[name]), target)


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
