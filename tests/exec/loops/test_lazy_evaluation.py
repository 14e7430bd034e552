"""Only what is evaluated may be out of bounds or divide by zero: branches, operands, iterations."""

import pytest

from tests.exec.loops.outcomes import TARGETS, run, written
from tests.rows import sections

CASES = sections("""
--- an invariant operand decides and
def f(C: T.Buffer((1,), "bool"), A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if T.And(C[0], A[k + 1] > 0):
            Y[k] = 5
# args: np.array([False], "bool"), np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
--- an invariant operand does not decide and
def f(C: T.Buffer((1,), "bool"), A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if T.And(C[0], A[k + 1] > 0):
            Y[k] = 5
# args: np.array([True], "bool"), np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# error: index 4 is outside dimension 0 of buffer A
--- or is decided in each iteration that would read outside
def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        Y[k] = T.Select(T.Or(k >= 3, A[k + 1] > 1), 1, 0)
# args: np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# result: {1: [0, 1, 1, 1]}
--- a branch of Select and of if_then_else
def f(A: T.Buffer((4,), "int32"), D: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        Y[k] = T.Select(D[k] != 0, 12 // D[k], A[3 - k] + T.if_then_else(k < 2, 1, A[k]))
# args: np.array([5, 6, 7, 8], "int32"), np.array([0, 2, 0, 4], "int32"), np.array([0, 0, 0, 0],
#   "int32")
# result: {2: [9, 6, 13, 3]}
--- the extent of a loop under a guard
def f(count: T.Buffer((1,), "int32"), n: T.int32, m: T.int32, Y: T.Buffer((4,), "int32")):
    for j in range(2):
        if count[0] > 0:
            for i in range(n // m):
                Y[i] = Y[i] + 1
# args: np.array([0], "int32"), 3, 0, np.array([0, 0, 0, 0], "int32")
--- the extent of a loop in a loop without iterations
def f(count: T.Buffer((1,), "int32"), n: T.int32, m: T.int32, Y: T.Buffer((4,), "int32")):
    for j in range(m):
        for i in range(count[j] + n // m):
            Y[i] = Y[i] + 1
# args: np.array([0], "int32"), 3, 0, np.array([0, 0, 0, 0], "int32")
--- a condition on loops without iterations
def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if A[k + 1] > 0:
            for i in range(n):
                Y[k] = Y[k] + 1
# args: np.array([0, 1, 2, 3], "int32"), 0, np.array([0, 0, 0, 0], "int32")
# error: index 4 is outside dimension 0 of buffer A
--- a condition on a condition that never holds
def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if A[k + 1] > 0:
            if k == 4:
                Y[k] = Y[k] + 1
# args: np.array([0, 1, 2, 3], "int32"), 0, np.array([0, 0, 0, 0], "int32")
# error: index 4 is outside dimension 0 of buffer A
--- an invariant condition under one that never holds
def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if A[k] > 9:
            if A[n] > 0:
                Y[k] = 5
# args: np.array([0, 1, 2, 3], "int32"), 4, np.array([0, 0, 0, 0], "int32")
--- an invariant operand that is false, after one that stops the program
def f(A: T.Buffer((4,), "int32"), n: T.int32, Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if T.And(A[k + n] > 0, A[0] > 0):
            Y[k] = 5
# args: np.array([0, 1, 2, 3], "int32"), 4, np.array([0, 0, 0, 0], "int32")
# error: index [4-7] is outside dimension 0 of buffer A
--- a bound of the loop after an operand that stops the program
def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if T.And(A[k + 1] > 0, k < 3):
            Y[k] = 5
# args: np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# error: index 4 is outside dimension 0 of buffer A
--- a bound of the loop before an operand that would stop the program
def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        if T.And(k < 3, A[k + 1] > 0):
            Y[k] = 5
# args: np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# result: {1: [5, 5, 5, 0]}
--- a let that only a branch uses
def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    for k in range(4):
        t = A[k + 1]
        if k < 3:
            Y[k] = t
# args: np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# error: index 4 is outside dimension 0 of buffer A
--- a let in an expression that does not use it
def f(A: T.Buffer((4,), "int32"), Y: T.Buffer((4,), "int32")):
    x = T.int32()
    for k in range(4):
        Y[k] = T.Let(k, where={x: 7 // A[k]})
# args: np.array([3, 2, 1, 0], "int32"), np.array([0, 0, 0, 0], "int32")
# error: division by zero
--- a conjunction over a row is decided before it leaves the row
def f(A: T.Buffer((3, 3), "int32"), n: T.int32, Y: T.Buffer((3,), "bool")):
    for i in range(3):
        Y[i] = T.bool(True)
        for k in range(n):
            Y[i] = T.And(Y[i], A[i, k] > 0)
# args: np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]], "int32"), 5, np.array([True, True, True],
#   "bool")
# result: {2: [False, False, False]}
--- a region of another shape
def f(n: T.int32, Y: T.Buffer((8,), "int32")):
    with T.block("b"):
        M = T.match_buffer(Y[0:n], (4,), "int32")
        M[0] = 1
# args: 5, np.array([0, 0, 0, 0, 0, 0, 0, 0], "int32")
# error: does not have the shape of M
--- a region whose position its block changes
def f(A: T.Buffer((2, 2), "int32"), Y: T.Buffer((2,), "int32")):
    R = T.alloc_buffer((1,), "int32")
    R[0] = 0
    with T.block("b"):
        V = T.match_buffer(A[R[0], 0:2], (2,), "int32")
        R[0] = 1
        for i in range(2):
            Y[i] = V[i]
# args: np.array([[1, 2], [3, 4]], "int32"), np.array([0, 0], "int32")
# result: {1: [1, 2]}
--- a region at an element of itself that it changes
def f(A: T.Buffer((2, 2), "int32"), Y: T.Buffer((2,), "int32")):
    with T.block("b"):
        V = T.match_buffer(A[A[0, 0], 0:2], (2,), "int32")
        A[0, 0] = 0
        for i in range(2):
            V[i] = V[i] + 5
            Y[i] = V[i]
# args: np.array([[1, 2], [3, 4]], "int32"), np.array([0, 0], "int32")
# result: {0: [[0, 2], [8, 9]], 1: [8, 9]}
--- regions of regions, in a loop
def f(A: T.Buffer((3, 4), "int32"), Y: T.Buffer((3,), "int32")):
    for j in range(3):
        with T.block("b"):
            vj = T.axis.spatial(3, j)
            V = T.match_buffer(A[A[vj, 0] : A[vj, 0] + 2, 0:4], (2, 4), "int32")
            W = T.match_buffer(V[V[0, 0], 2:4], (2,), "int32")
            A[vj, 0] = 7
            V[0, 0] = 1
            Y[vj] = W[0] * 10 + W[1]
# args: np.array([[0, 1, 2, 3], [1, 4, 5, 6], [0, 7, 8, 9]], "int32"), np.array([0, 0, 0], "int32")
# result: {0: [[1, 1, 2, 3], [1, 4, 5, 6], [7, 7, 8, 9]], 1: [23, 89, 56]}
--- the offset of a region, which its block changes
def f(A: T.Buffer((2, 2), "int32"), Y: T.Buffer((2,), "int32")):
    R = T.alloc_buffer((1,), "int32")
    R[0] = 1
    with T.block("b"):
        s = T.int32()
        o = T.int32()
        V = T.match_buffer(A[R[0], 0:2], (2,), "int32", strides=[s], elem_offset=o)
        R[0] = 0
        for i in range(2):
            Y[i] = V[i] * 10 + o
# args: np.array([[1, 2], [3, 4]], "int32"), np.array([0, 0], "int32")
# result: {1: [32, 42]}
--- a view with a step back, from element 3 on
def f(Y: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
    B = T.decl_buffer((4,), "int32", data=Y.data, elem_offset=3, strides=[-1])
    for i in range(4):
        Z[i] = B[i]
# args: np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# result: {1: [3, 2, 1, 0]}
--- a view with a step back, from element 2 on
def f(Y: T.Buffer((4,), "int32"), Z: T.Buffer((4,), "int32")):
    B = T.decl_buffer((4,), "int32", data=Y.data, elem_offset=2, strides=[-1])
    for i in range(4):
        Z[i] = B[i]
# args: np.array([0, 1, 2, 3], "int32"), np.array([0, 0, 0, 0], "int32")
# error: buffer B of shape .* is larger than its memory|index -1 is outside .* buffer Y_flat
--- an init fails after what comes before it
def f(X: T.Buffer((4,), "int32"), Y: T.Buffer((3,), "int32")):
    for i, k in T.grid(3, 4):
        with T.block("before"):
            vk = T.axis.spatial(4, k)
            assert X[vk] > 0, "first"
        with T.block("sum"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                assert X[vk + 1] > 0, "second"
                Y[vi] = 0
            Y[vi] = Y[vi] + X[vk]
# args: np.array([0, 0, 1, 1], "int32"), np.array([0, 0, 0], "int32")
# error: first
""")


@TARGETS
@pytest.mark.parametrize("name", CASES)
def test_only_what_is_evaluated_stops_a_program(name: str, target: str) -> None:
    run(written(name, CASES[name]), target)
