"""Loops without iterations: nothing is read, no program stops, and reductions are initialised."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError
from relaxpy.script import from_source, tir as T
from tests.exec.loops.support import source_of
from tests.exec.loops.written import run_row
from tests.rows import sections

EMPTY = sections("""
--- what is read in every iteration is not read in none
def f(X: f32[n, m], Y: f32[n, m], Z: f32[n, m]):
    for i, j in T.grid(n, m):
        Y[i, j] = X[i, j] - X[0, j]
    for i, j in T.grid(n, m):
        Z[i, j] = X[i, j] * X[0, 0]
# args: n=0, m=2
# args: n=2, m=0
# args: n=0, m=0
# args: n=3, m=2
# whole: yes
--- what is read in every iteration of a sum is not read in none
def f(X: f32[n, m], Y: f32[n], Z: f32[n, n]):
    for i in range(n):
        Y[i] = T.float32(3)
        for k in range(m):
            Y[i] = Y[i] + X[i, k] * X[i, 0]
    for i, j in T.grid(n, n):
        Z[i, j] = T.float32(3)
        for k in range(m):
            Z[i, j] = Z[i, j] + X[i, k] * X[j, k] * X[0, 0]
# args: n=0, m=2
# args: n=2, m=0
# args: n=0, m=0
# args: n=3, m=2
# whole: yes
# rtol: 1e-4
--- nothing is divided by zero in no iteration
def f(X: i32[n], D: i32[1]):
    for i in range(n):
        X[i] = X[i] // D[0]
# args: n=0, D=ints(0)
# args: n=2, D=ints(0) -> division by zero
--- a loop may end before it begins
def f(A: f32[n], X: f32[m, 4], Y: f32[m], Z: f32[m, m]):
    for i in range(m):
        Y[i] = T.float32(2)
        for k in range(n - 3):
            Y[i] = Y[i] + X[i, k]
    for i, j in T.grid(m, m):
        Z[i, j] = T.float32(0)
        for k in range(n - 3):
            Z[i, j] = Z[i, j] + X[i, k] * X[j, k]
    for i in range(n - 3):
        A[i] = A[i] + T.float32(1)
# args: n=0, m=2
# args: n=1, m=2
# args: n=3, m=2
# args: n=5, m=2
# rtol: 1e-4
--- a place that is looked up outside stops the program
def f(A: i32[m], at: i32[m], n: T.int32):
    for i in range(n):
        A[i + 1] = A[at[i - 1]] + A[i]
# args: m=3, n=0
# args: m=3, n=1 -> index -1 is outside
--- PX-3: bounds stop the program also around loops without iterations
def f(X: f32[n], c: T.int32):
    for i in range(c // c):
        for k in range(n):
            X[k] = X[k] + T.min(T.log1p(T.Cast("float32", k)), T.Cast("float32", i))
# args: n=0, c=0 -> division by zero
# args: n=3, c=0 -> division by zero
--- PX-1: two loops of negative extent are not one of their product
def f(k: T.int32, m: T.int32, B: f32[2]):
    for j, p, q in SRR(2, k, m):
        with T.init():
            B[vj] = T.float32(0)
        B[vj] = B[vj] + T.float32(1)
# args: k=-3, m=-2
# args: k=-3, m=2
# args: k=3, m=-2
# args: k=0, m=-2
# args: k=3, m=2
""")


@pytest.mark.rule("PX-1", "PX-3")
@pytest.mark.parametrize("fact", EMPTY)
def test_loops_without_iterations(fact: str) -> None:
    run_row(EMPTY[fact])


@T.prim_func(check_well_formed=False)
def unbound(x: T.handle):
    n = T.int64()
    q = T.int64()
    X = T.match_buffer(x, (n,), "int64")
    for i in range(n):
        X[i] = q + i


@pytest.mark.rule("PX-7")
def test_a_variable_that_nothing_binds_is_refused_before_anything_runs() -> None:
    with pytest.raises(CompileError, match="the variable q is not bound"):
        source_of(unbound)


ACCUMULATIONS = {
    "products": ("", "", "A[i, k] * B[k, j]"),
    "elements": ("", "", "A[i, k]"),
    "elements where a condition holds": ("", "if A[i, k] > 0:", "B[k, j]"),
    "products, from a number": ("C[i, j] = T.float32(-0.0)", "", "A[i, k] * B[k, j]"),
    "products, from an element": ("C[i, j] = D[i]", "", "A[i, k] * B[k, j]"),
    "elements, from an element": ("C[i, j] = D[i]", "", "A[i, k]"),
}


@pytest.mark.parametrize(
    ("initial", "condition", "operand"), ACCUMULATIONS.values(), ids=ACCUMULATIONS
)
@pytest.mark.parametrize("target", ["numpy", "native"])
def test_negative_zero_remains_if_nothing_is_added(target, initial, condition, operand) -> None:
    func = from_source(f"""
@T.prim_func
def kernel(a: T.handle, b: T.handle, c: T.handle, d: T.handle):
    n, m, p = T.int64(), T.int64(), T.int64()
    A, B = T.match_buffer(a, (n, p), "float32"), T.match_buffer(b, (p, m), "float32")
    C, D = T.match_buffer(c, (n, m), "float32"), T.match_buffer(d, (n,), "float32")
    for i, j in T.grid(n, m):
        {initial or "pass"}
        for k in range(p):
            {condition or "if True:"}
                C[i, j] = C[i, j] + {operand}
""")
    for p in (0, 2):
        results = []
        for run in (target, "reference"):
            c, d = np.full((2, 3), -0.0, np.float32), np.full(2, -0.0, np.float32)
            a, b = np.full((2, p), -0.0, np.float32), np.ones((p, 3), np.float32)
            relaxpy.compile(func, target=run)["kernel"](a, b, c, d)
            results.append(c)
        assert not np.any(results[0])
        if p == 0 or "B" not in operand or condition:
            assert np.array_equal(*map(np.signbit, results))


BINDING = """
def f(D: i64[4], Y: i64[4], n: T.int64):
    for i in range(4):
        for k in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(9, 8 // D[i])
                vk = T.axis.reduce(n, k)
                with T.init():
                    INIT
                Y[vi] = Y[vi] + vk
# args: n=0, D=[1, 2, 0, 4]OUTCOME
# args: n=1, D=[1, 2, 0, 4] -> division by zero .PX-3
"""


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize(
    ("init", "outcome"),
    [
        ("Y[vi] = i64(5)", ""),
        ("Y[vi] = T.if_then_else(D[vi] != 0, vj, i64(5))", ""),
        ("Y[vi] = vj", " -> division by zero .PX-3"),
    ],
)
def test_without_iterations_only_the_init_evaluates_a_binding(init: str, outcome: str) -> None:
    run_row(BINDING.replace("INIT", init).replace("OUTCOME", outcome))
