"""Loops without iterations: nothing is read, no program stops, and reductions are initialised."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.script import from_source, tir as T
from tests.exec.kernel.support import check, load, methods, source_of

rng = np.random.default_rng(11)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


@T.prim_func
def less_first(x: T.handle, y: T.handle, z: T.handle):
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n, m), "float32")
    Z = T.match_buffer(z, (n, m), "float32")
    for i, j in T.grid(n, m):
        Y[i, j] = X[i, j] - X[0, j]
    for i, j in T.grid(n, m):
        Z[i, j] = X[i, j] * X[0, 0]


@T.prim_func
def scaled_sums(x: T.handle, y: T.handle, z: T.handle):
    n = T.int64()
    m = T.int64()
    X = T.match_buffer(x, (n, m), "float32")
    Y = T.match_buffer(y, (n,), "float32")
    Z = T.match_buffer(z, (n, n), "float32")
    for i in range(n):
        Y[i] = T.float32(3)
        for k in range(m):
            Y[i] = Y[i] + X[i, k] * X[i, 0]
    for i, j in T.grid(n, n):
        Z[i, j] = T.float32(3)
        for k in range(m):
            Z[i, j] = Z[i, j] + X[i, k] * X[j, k] * X[0, 0]


@pytest.mark.parametrize("shape", [(0, 2), (2, 0), (0, 0), (3, 2)])
def test_what_is_read_in_every_iteration_is_not_read_in_none(shape: tuple[int, int]) -> None:
    check(less_first, floats(*shape), floats(*shape), floats(*shape))
    n = shape[0]
    check(scaled_sums, floats(*shape), floats(n), floats(n, n), rtol=1e-4)
    assert not [m for m in methods(less_first) + methods(scaled_sums) if "loop" in m]


@T.prim_func
def quotients(x: T.handle, D: T.Buffer((1,), "int32")):
    n = T.int64()
    X = T.match_buffer(x, (n,), "int32")
    for i in range(n):
        X[i] = X[i] // D[0]


def test_nothing_is_divided_by_zero_in_no_iteration() -> None:
    zero = np.zeros(1, np.int32)
    check(quotients, np.zeros(0, np.int32), zero)
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        load(quotients)(np.ones(2, np.int32), zero)


@T.prim_func
def tails(a: T.handle, x: T.handle, y: T.handle, z: T.handle):
    n = T.int64()
    m = T.int64()
    A = T.match_buffer(a, (n,), "float32")
    X = T.match_buffer(x, (m, 4), "float32")
    Y = T.match_buffer(y, (m,), "float32")
    Z = T.match_buffer(z, (m, m), "float32")
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


@pytest.mark.parametrize("n", [0, 1, 3, 5])
def test_a_loop_may_end_before_it_begins(n: int) -> None:
    check(tails, floats(n), floats(2, 4), floats(2), floats(2, 2), rtol=1e-4)


@T.prim_func
def looked_up(a: T.handle, at: T.handle, n: T.int32):
    m = T.int64()
    A = T.match_buffer(a, (m,), "int32")
    at_ = T.match_buffer(at, (m,), "int32")
    for i in range(n):
        A[i + 1] = A[at_[i - 1]] + A[i]


def test_a_place_that_is_looked_up_outside_stops_the_program() -> None:
    with pytest.raises(RuntimeCheckError, match="index -1 is outside"):
        load(looked_up)(np.ones(3, np.int32), np.zeros(3, np.int32), 1)
    check(looked_up, np.ones(3, np.int32), np.zeros(3, np.int32), 0)


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


@pytest.mark.parametrize(("k", "m"), [(-3, -2), (-3, 2), (3, -2), (0, -2), (3, 2)])
@pytest.mark.rule("PX-1")
def test_two_loops_of_negative_extent_are_not_one_of_their_product(k: int, m: int) -> None:
    @T.prim_func
    def count(K: T.int32, M: T.int32, B: T.Buffer((2,), "float32")):
        for j in range(2):
            for k, m in T.grid(K, M):
                with T.block("count"):
                    vj, _vk, _vm = T.axis.remap("SRR", [j, k, m])
                    with T.init():
                        B[vj] = T.float32(0)
                    B[vj] = B[vj] + T.float32(1)

    for target in ("numpy", "reference"):
        result = np.full(2, 7, np.float32)
        relaxpy.compile(count, target=target)["count"](k, m, result)
        assert result.tolist() == [max(k, 0) * max(m, 0)] * 2


@T.prim_func
def repeated(x: T.handle, c: T.int32):
    n = T.int64()
    X = T.match_buffer(x, (n,), "float32")
    for i in range(c // c):
        for k in range(n):
            X[k] = X[k] + T.min(T.log1p(T.Cast("float32", k)), T.Cast("float32", i))


@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
@pytest.mark.rule("PX-3")
def test_bounds_stop_the_program_also_around_loops_without_iterations(target: str) -> None:
    kernel = relaxpy.compile(repeated, target=target)["repeated"]
    for n in (0, 3):
        with pytest.raises(RuntimeCheckError, match="division by zero"):
            kernel(np.ones(n, np.float32), 0)


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
def test_negative_zero_remains_if_nothing_is_added(
    target: str, initial: str, condition: str, operand: str
) -> None:
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
@T.prim_func
def f(D: T.Buffer((4,), "int64"), Y: T.Buffer((4,), "int64"), n: T.int64):
    for i in range(4):
        for k in range(n):
            with T.sblock("b"):
                vi = T.axis.spatial(4, i)
                vj = T.axis.spatial(9, 8 // D[i])
                vk = T.axis.reduce(n, k)
                with T.init():
                    {init}
                Y[vi] = Y[vi] + vk
"""


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("target", ["numpy", "native", "reference"])
@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("Y[vi] = T.int64(5)", [5, 5, 5, 5]),
        ("Y[vi] = T.if_then_else(D[vi] != 0, vj, T.int64(5))", [8, 4, 5, 2]),
        ("Y[vi] = vj", None),
    ],
)
def test_without_iterations_only_the_init_evaluates_a_binding(
    init: str, expected: list[int] | None, target: str
) -> None:
    run = relaxpy.compile(from_source(BINDING.format(init=init)), target=target)["f"]
    divisors, result = np.array([1, 2, 0, 4]), np.full(4, -1)
    if expected is None:
        with pytest.raises(RuntimeCheckError, match=r"division by zero \[PX-3\]"):
            run(divisors, result, 0)
    else:
        run(divisors, result, 0)
        assert result.tolist() == expected
    with pytest.raises(RuntimeCheckError, match=r"division by zero \[PX-3\]"):
        run(divisors, result, 1)
