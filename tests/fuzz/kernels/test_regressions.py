"""Programs that the machine found, shortened: what each of them does, the oracle knows."""

from typing import Any

import numpy as np
import pytest

from tests.exec.loops.written import written_out
from tests.fuzz.kernels.compare import examine
from tests.fuzz.kernels.program import Argument, Call, Memory, Program, Scalar, View
from tests.rows import sections


def call(*args: Any) -> Call:
    """A call with arrays, which may have gaps, and with numbers."""
    memories: list[Memory] = []
    arguments: list[Argument] = []
    for arg in args:
        if isinstance(arg, np.ndarray):
            shape = tuple(map(int, arg.shape))
            whole = arg if arg.flags.c_contiguous else arg.base
            strides = tuple(step // arg.itemsize for step in arg.strides)
            origin = "copy" if arg is whole else "view"
            arguments.append(View(len(memories), 0, shape, strides, origin=origin))
            memories.append(Memory(arg.dtype.name, tuple(whole.reshape(-1).tolist())))
        else:
            arguments.append(Scalar(arg))
    return Call(tuple(memories), tuple(arguments))


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def floats(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


FOUND = sections("""
--- steps of plain numbers are those of floats, and of whole numbers those of integers
def f(A: f32[6], B: i32[2]):
    A[0] = T.ceil(-0.609)
    A[1] = T.trunc(-0.199)
    A[2] = T.floor(1.75)
    A[3] = T.round(2.5)
    A[4] = T.fabs(-0.5)
    A[5] = T.exp(0.0)
    B[0] = T.abs(-3)
# calls: call(floats(6) + 1, ints(1, 1))
--- the extent of a loop is an element of memory that is allocated before it
def f(n: T.int64, A: i32[2], C: i32[3]):
    B = T.alloc_buffer((2,), "int32")
    for i in range(2):
        B[i] = A[i]
    for i in T.serial(B[1]):
        for j in range(n):
            for k in range(3):
                C[k] = C[k] + 1
# calls: *(call(n, ints(5, m), ints(1, 2, 3)) for n in (0, 2) for m in (0, 3))
--- an extent that is read outside of its buffer is an error of the call
def f(n: T.int64, C: i32[1]):
    B = T.alloc_buffer((1,), "int32")
    B[0] = 1
    for i in T.serial(B[n]):
        for j in range(n):
            C[0] = C[0] + 1
# calls: *(call(n, ints(1)) for n in (0, 1))
--- a view may be of scratch whose size is evaluated where its block begins
def f(m: T.int64, C: f32[2]):
    A = T.alloc_buffer((4 // m,), "float32")
    B = T.decl_buffer((2,), "float32", data=A.data)
    with T.block("b"):
        D = T.alloc_buffer((8 // m,), "int32")
        E = T.decl_buffer((2, 1), "float32", data=D.data, elem_offset=2)
        for i in range(2):
            E[1 - i, 0] = C[i]
        for i in range(2):
            B[i] = E[i, 0]
    for i in range(2):
        C[i] = A[i] + C[1 - i]
# calls: *(call(m, floats(2)) for m in (0, 1, 2, 3, -1))
--- the bounds of a loop are evaluated in the iterations of the outer loop that a test leaves
def f(m: T.int64, Y: i8[k], D: i8[()]):
    Q = T.alloc_buffer((), "int8")
    for i in range(k):
        if i != 1:
            T.evaluate(0)
        else:
            for j in range(k // m):
                D[()] = Q[()]
        Q[()] = 1
# calls: *(call(m, np.ones(k, np.int8), np.array(3, np.int8)) for m in (0, 1) for k in (1, 2, 3))
--- the ends of a loop that does nothing may stop the program
def f(A: i32[4], m: T.int64):
    for i in range(4):
        for j in range(i // m):
            T.evaluate(0)
    A[0] = 1
# calls: call(ints(0, 0, 0, 0), 0)
# calls: call(ints(0, 0, 0, 0), 2)
--- the extent of a loop over an empty loop may stop the program
def f(A: i32[n]):
    for i in range(n // n):
        for j in range(0):
            A[j] = 1
# calls: call(ints())
# calls: call(ints(0))
--- the bounds inside an empty loop that chooses places are not evaluated
def f(A: i32[n]):
    for i in range(n):
        for j in range(n // n):
            with T.block("b"):
                vi, vj = T.axis.remap("SR", [i, j])
                with T.init():
                    A[vi] = 0
                A[vi] = A[vi] + 1
# calls: call(ints())
# calls: call(ints(3, 4))
--- the second operand of an or is evaluated where the first does not hold
def f(C: i32[m], B: i32[1]):
    for i in range(m):
        if i > 4 or B[i * 3] > 0:
            C[i] = 1
# calls: call(ints(0, 0), ints(1))
# calls: call(ints(0), ints(1))
--- an evaluation may stop the program
def f(A: i32[1, n]):
    T.evaluate(A[0, 0])
    T.evaluate(T.float32(1))
# calls: call(ints().reshape(1, 0))
# calls: call(ints(1).reshape(1, 1))
--- a loop that never runs says nothing about its variable
def f(A: i32[4], m: T.int32, k: T.int64):
    for i in T.serial(1, T.max(m, 1)):
        for j in range(0):
            for a in range(k // 3):
                for b in range(3):
                    A[1] = 1
# calls: call(ints(0, 0, 0, 0), 5, 7)
--- quotients that cancel in a condition are divided all the same
def f(A: i32[4], n: T.int64):
    if 4 // n == 4 // n:
        A[0] = 7
# calls: *(call(ints(0, 0, 0, 0), n) for n in (0, 1))
--- quotients that cancel in the ends of a loop are divided all the same
def f(A: i32[4], n: T.int64):
    for i in range(4 // n - 4 // n + 1):
        A[i] = 7
# calls: *(call(ints(0, 0, 0, 0), n) for n in (0, 1))
--- quotients that cancel in an index are divided where no loop shows that they may be
def f(A: i32[4], B: i32[n]):
    for i in range(4):
        A[i * n // n] = 7
# calls: call(ints(0, 0, 0, 0), ints())
# calls: call(ints(0, 0, 0, 0), ints(1))
--- a view whose places overlap and that is stored to has its own shape
def f(A: i32[3], m: T.int64):
    V = T.decl_buffer((2, 2), "int32", data=A.data, strides=[1, 1])
    V[0, m] = V[0, 1 - m] + 4
# calls: *(call(ints(1, 2, 3), m) for m in (-1, 0, 1, 2))
--- a view that moves has its own shape and fits its memory
def f(A: i32[4], C: i32[4], m: T.int64, k: T.int64):
    for i in range(k):
        V = T.decl_buffer((2,), "int32", data=A.data, elem_offset=i)
        C[i] = V[m]
# calls: *(call(ints(1, 2, 3, 4), ints(0, 0, 0, 0), m, k) for m in (-1, 0, 1, 2) for k in (3, 4))
--- a view that moves over scratch is not larger than it
def f(A: i32[4], n: T.int64):
    S = T.alloc_buffer((n,), "int32")
    for i in range(n):
        S[i] = T.Cast("int32", i)
    for i in range(3):
        V = T.decl_buffer((2, 1), "int32", data=S.data, elem_offset=2 - i, strides=[-1, 1])
        A[i] = V[0, 0]
# calls: *(call(ints(0, 0, 0, 0), n) for n in (2, 3, 4))
--- a sum without iterations begins in the iteration in which its iterators do
def f(Y: i32[3], n: T.int32, m: T.int32):
    for i in range(3):
        for k in range(n):
            for j in range(m):
                with T.block("sum"):
                    vi = T.axis.spatial(3, i)
                    vk = T.axis.reduce(3, k)
                    vj = T.axis.reduce(3, j - 2)
                    with T.init():
                        Y[vi] = 0
                    Y[vi] = Y[vi] + 1
# calls: *(call(ints(5, 6, 7), n, m) for n in (0, 1) for m in (0, 2, 3))
--- loops of which some have no iteration begin with their first
def f(Y: i32[3], n: T.int32, m: T.int32, p: T.int32):
    for i in range(3):
        for a in range(m):
            for b in range(p):
                for c in range(n):
                    for d in range(3):
                        with T.block("sum"):
                            vi = T.axis.spatial(3, i)
                            v0 = T.axis.reduce(3, (c + a) % 2)
                            v1 = T.axis.reduce(9, b * m + d)
                            v2 = T.axis.reduce(9, b - 2)
                            with T.init():
                                Y[vi] = 0
                            Y[vi] = Y[vi] + 1
# calls: *(call(ints(5, 6, 7), *sizes) for sizes in ((1, 0, 1), (0, 2, 3), (2, 1, 3), (2, 2, 0)))
--- a condition on a loop without iterations divides by nothing
def f(Y: i32[3], n: T.int32, m: T.int32):
    for i in range(3):
        for a in range(n - m):
            for b in range(n):
                for c in range(2):
                    if (a + c) % m >= 1:
                        with T.block("sum"):
                            vi = T.axis.spatial(3, i)
                            v0 = T.axis.reduce(3, b)
                            v1 = T.axis.reduce(3, a)
                            with T.init():
                                Y[vi] = 0
                            Y[vi] = Y[vi] + 1
# calls: *(call(ints(5, 6, 7), *sizes) for sizes in ((0, 0), (0, 1), (2, 1), (1, 0), (3, 2)))
--- memory inside a loop without iterations has no size
def f(x: T.int32):
    for i in range(0):
        for j in range(1 // x):
            with T.block("opaque"):
                a = T.alloc_buffer((2, 1), "float32")
# calls: *(call(n) for n in (0, 1))
--- the bounds of a loop without effect are evaluated
def f(X: i32[n], m: T.int64):
    for i in range(m // n):
        if n == -1:
            X[i] = 1
# calls: *(call(ints(*range(n)), m) for n, m in ((0, 1), (2, 3)))
--- a loop inside one without iterations divides by nothing
def f(A: i32[5], n: T.int32):
    for i in range(n):
        for j in T.parallel(4 // n):
            A[i] = i
# calls: *(call(ints(5, 6, 7, 8, 9), n) for n in (0, 1, 4))
--- a conditional sum in a view begins from its init
def f(A: f32[9], B: f32[3]):
    E = T.decl_buffer((7,), "float32", data=A.data, elem_offset=2)
    for w in range(2):
        for i in range(4):
            for j in range(2):
                if i + j < 4:
                    with T.block("sum"):
                        v = T.axis.spatial(7, 1)
                        k = T.axis.reduce(8, i * 2 + j)
                        with T.init():
                            E[v] = T.float32(2)
                        E[v] = E[v] + B[0]
# calls: call(floats(9), floats(3) + 1)
--- a view without dimensions accumulates under a condition
def f(A: f32[()], B: f32[()]):
    K = T.decl_buffer((), "float32", data=A.data)
    L = T.decl_buffer((), "float32", data=B.data)
    for i in range(3):
        for j in range(2):
            if i + j < 3:
                K[()] = T.max(K[()], T.Cast("float32", i + j))
    for i in range(3):
        if T.Cast("float32", i) < A[()]:
            L[()] = T.Cast("float32", i)
# calls: call(np.full((), 0.5, np.float32), np.ones((), np.float32))
--- a loop of an axis and of a sum begins the sum everywhere if another has no iteration
def f(Y: i32[3], n: T.int32, m: T.int32):
    for i in range(n):
        for j in range(m):
            with T.block("sum"):
                vj = T.axis.spatial(3, j)
                vk = T.axis.reduce(9, i * 3 + j)
                with T.init():
                    Y[vj] = 0
                Y[vj] = Y[vj] + 1
# calls: *(call(ints(5, 6, 7), n, m) for n in (0, 1, 2) for m in (0, 1, 3, 4))
--- the bound of a loop is read outside of a buffer, and so is the store in it
def f(A: i32[0], n: T.int64):
    K = T.alloc_buffer((3,), "int32")
    for i in range(3):
        K[i] = i
    for i in range(K[n]):
        for j in range(K[n + 1]):
            A[T.floormod(i, 2) + j] = 1
# calls: *(call(ints(), n) for n in (-1, 0, 1, 2, 3, 4))
--- a variable is what a region has, in a block that begins sums of no iterations
def f(A: i32[2], B: i32[3], m: T.int32):
    for j in range(m):
        with T.block("b"):
            vj = T.axis.spatial(3, j)
            H = T.match_buffer(B[vj], (), "int32")
            t: T.int32 = H[()] + 1
            for i in range(2):
                for k in range(m):
                    with T.block("sum"):
                        vi = T.axis.spatial(2, i)
                        vk = T.axis.reduce(3, k)
                        with T.init():
                            A[vi] = 5
                        A[vi] = A[vi] + vk
# calls: *(call(ints(1, 2), ints(5, 6, 7), m) for m in (0, 1, 3))
--- what nothing uses of a view over memory with gaps stops the program, if it runs
def f(A: i32[2], B: i32[1], m: T.int64):
    V = T.decl_buffer((2,), "int32", data=A.data)
    if m > 0:
        T.evaluate(V[0])
        B[0] = 7
# calls: *(call(a, ints(0), m) for a in (ints(1, 2), ints(1, 2, 3, 4)[::2]) for m in (0, 1))
--- a region of a view over memory with gaps stops the program, if it runs
def f(A: i32[2], B: i32[1], m: T.int64):
    V = T.decl_buffer((2,), "int32", data=A.data)
    if m > 0:
        with T.block("b"):
            R = T.match_buffer(V[0:1], (1,), "int32")
            B[0] = 5
        B[0] = 7
# calls: *(call(a, ints(0), m) for a in (ints(1, 2), ints(1, 2, 3, 4)[::2]) for m in (0, 1))
""")


def program(text: str) -> Program:
    """A kernel, and its calls, which comments after it list."""
    code, *calls = text.replace("\n#   ", " ").split("# calls: ")
    return Program(written_out(code), tuple(c for each in calls for c in eval(f"[{each}]")))


@pytest.mark.parametrize("fact", FOUND)
def test_what_was_found_stays_mended(fact: str) -> None:
    assert examine(program(FOUND[fact])).failures == []
