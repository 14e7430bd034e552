"""Values that loops in Python build, whose text would double with each pass."""

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, arith, te, tir
from relaxpy.ir import assert_structural_equal
from relaxpy.script import from_source
from tests.counting import calls

STEPS = 20
TARGETS = ("native", "numpy", "reference")


def run(func: tir.PrimFunc, target: str, *args: np.ndarray) -> None:
    relaxpy.compile(IRModule({"main": func}), target)["main"](*args)


def check_text(func: tir.PrimFunc) -> None:
    text = func.script()
    assert len(text) < 20_000
    again = from_source(text)
    assert_structural_equal(again, func)


@pytest.mark.parametrize("target", TARGETS)
def test_an_iteration_of_two_values(target: str) -> None:
    x = te.placeholder((4, 8), "float32", "x")
    y = te.placeholder((4, 8), "float32", "y")

    def orbit(i: tir.Var, j: tir.Var) -> tir.PrimExpr:
        a = b = tir.const(0, "float32")
        for _ in range(STEPS):
            a, b = a * a - b * b + x[i, j], a * b + a * b + y[i, j]
        return a + b

    func = te.create_prim_func([x, y, te.compute((4, 8), orbit, "orbit")])
    check_text(func)
    rng = np.random.default_rng(0)
    c, d = rng.uniform(-0.4, 0.2, (2, 4, 8)).astype("float32")
    out = np.empty((4, 8), "float32")
    run(func, target, c, d, out)
    a = b = np.zeros((4, 8))
    for _ in range(STEPS):
        a, b = a * a - b * b + c, 2 * a * b + d
    np.testing.assert_allclose(out, a + b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_integers_wrap_around(target: str) -> None:
    x = te.placeholder((6, 5), "int32", "x")
    k = te.reduce_axis((0, 5), "k")

    def squared(i: tir.Var, k: tir.Var) -> tir.PrimExpr:
        value = x[i, k]
        for _ in range(STEPS):
            value = value * value + 1
        return value

    func = te.create_prim_func([x, te.compute((6,), lambda i: te.sum(squared(i, k), k), "y")])
    check_text(func)
    given = np.arange(30, dtype="int32").reshape(6, 5)
    out = np.empty(6, "int32")
    run(func, target, given, out)
    expected = given.copy()
    for _ in range(STEPS):
        expected = expected * expected + np.int32(1)
    assert out.tolist() == expected.sum(1, dtype="int32").tolist()


@pytest.mark.parametrize("target", TARGETS)
def test_what_may_fail_is_computed_only_where_its_condition_holds(target: str) -> None:
    x = te.placeholder((5,), "float32", "x")

    def guarded(i: tir.Var) -> tir.PrimExpr:
        value = x[i - 1]
        for _ in range(10):
            value = value * value + x[i - 1]
        return tir.if_then_else(i >= 1, value, tir.const(7, "float32"))

    func = te.create_prim_func([x, te.compute((5,), guarded, "y")])
    out = np.empty(5, "float32")
    run(func, target, np.full(5, 0.1, "float32"), out)
    expected = 0.1
    for _ in range(10):
        expected = expected * expected + 0.1
    np.testing.assert_allclose(out, [7] + [expected] * 4, rtol=1e-5)


def test_powers_are_simplified_in_bounded_work() -> None:
    def simplified(count: int) -> None:
        value: tir.PrimExpr = tir.Var("x", "int32")
        for _ in range(count):
            value = value * value
        arith.Analyzer().simplify(value)

    simplified(2)
    assert calls(lambda: simplified(40)) < 5 * calls(lambda: simplified(10))


@pytest.mark.parametrize("target", TARGETS)
def test_choices_between_values_of_the_pass_before(target: str) -> None:
    """Each pass uses the one before it on both sides of a condition."""
    x = te.placeholder((64,), "float32", "x")

    def bounced(i: tir.Var) -> tir.PrimExpr:
        value = x[i]
        for _ in range(STEPS):
            value = tir.if_then_else(value > 3, value - 2, value + 1)
        return value

    func = te.create_prim_func([x, te.compute((64,), bounced, "y")])
    given = np.linspace(-30, 30, 64, dtype="float32")
    out = np.empty_like(given)
    run(func, target, given, out)
    expected = given.copy()
    for _ in range(STEPS):
        expected = np.where(expected > 3, expected - np.float32(2), expected + np.float32(1))
    np.testing.assert_array_equal(out, expected)
