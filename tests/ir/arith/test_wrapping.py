"""Arithmetic on data wraps around: no rule may change where, and each is tried at all 8-bit values.

The values are NumPy's (`tests/fuzz/wrapping.py`); nothing here folds by the package.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, arith, tir as T
from relaxpy.ir import structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.iteration import Range
from relaxpy.script import from_source
from relaxpy.tir import transform
from tests.fuzz.seed import COUNT, SEED
from tests.fuzz.wrapping import EVERY, WIDTHS, Points, Session

E = T.PrimExpr
QUESTIONS_EACH = 8
#: Small ones of both signs, and those at the ends.
LITERALS = (-128, -127, -100, -64, -5, -3, -2, -1, 1, 2, 3, 4, 5, 7, 16, 63, 64, 100, 126, 127)
FEW = (-128, -5, -1, 2, 5, 100, 127)


def byte(value: int) -> E:
    """A literal of int8."""
    return T.IntImm("int8", value)


def wide(value: E) -> E:
    """`value` in 16 bits."""
    return T.Cast("int16", value)


#: Expressions of an element and two literals, each for a rule that assumed that nothing wraps.
FORMS: dict[str, Callable[[E, E, E], E]] = {
    "(a + c) // d": lambda a, c, d: T.FloorDiv(T.Add(a, c), d),
    "(a + c) % d": lambda a, c, d: T.FloorMod(T.Add(a, c), d),
    "trunc((a + c) / d)": lambda a, c, d: T.Div(T.Add(a, c), d),
    "truncmod(a + c, d)": lambda a, c, d: T.Mod(T.Add(a, c), d),
    "a * c // d": lambda a, c, d: T.FloorDiv(T.Mul(a, c), d),
    "trunc(a * c / d)": lambda a, c, d: T.Div(T.Mul(a, c), d),
    "a * c % d": lambda a, c, d: T.FloorMod(T.Mul(a, c), d),
    "a // c // d": lambda a, c, d: T.FloorDiv(T.FloorDiv(a, c), d),
    "trunc(trunc(a / c) / d)": lambda a, c, d: T.Div(T.Div(a, c), d),
    "a // c * c + a % c": lambda a, c, d: T.Add(T.Mul(T.FloorDiv(a, c), c), T.FloorMod(a, c)),
    "(a // c + d) // 2": lambda a, c, d: T.FloorDiv(T.Add(T.FloorDiv(a, c), d), byte(2)),
    "a % c // d": lambda a, c, d: T.FloorDiv(T.FloorMod(a, c), d),
    "max(a + c, a) - d": lambda a, c, d: T.Sub(T.Max(T.Add(a, c), a), d),
    "min(a, c) + d": lambda a, c, d: T.Add(T.Min(a, c), d),
    "max(a, c) * d": lambda a, c, d: T.Mul(T.Max(a, c), d),
    "min(a + c, d)": lambda a, c, d: T.Min(T.Add(a, c), d),
    "a + c > d": lambda a, c, d: T.GT(T.Add(a, c), d),
    "a + c > a + d": lambda a, c, d: T.GT(T.Add(a, c), T.Add(a, d)),
    "a * c < d": lambda a, c, d: T.LT(T.Mul(a, c), d),
    "a * c == d": lambda a, c, d: T.EQ(T.Mul(a, c), d),
    "a // c <= d": lambda a, c, d: T.LE(T.FloorDiv(a, c), d),
    "c - a < d": lambda a, c, d: T.LT(T.Sub(c, a), d),
    "a < c and a < d": lambda a, c, d: T.And(T.LT(a, c), T.LT(a, d)),
    "wide(a + c) - d": lambda a, c, d: T.Sub(wide(T.Add(a, c)), wide(d)),
    "wide(a) + c < d": lambda a, c, d: T.LT(T.Add(wide(a), wide(c)), wide(d)),
    "int8(wide(a) * c) // d": lambda a, c, d: T.FloorDiv(
        T.Cast("int8", T.Mul(wide(a), wide(c))), d
    ),
    "(a + c) - c": lambda a, c, d: T.Sub(T.Add(a, c), c),
    "select(a < c, a + d, a) - d": lambda a, c, d: T.Sub(T.Select(T.LT(a, c), T.Add(a, d), a), d),
    "(a + c) >> 3": lambda a, c, d: T.Call("int8", "tir.shift_right", [T.Add(a, c), byte(3)]),
    "(a << 2) // d": lambda a, c, d: T.FloorDiv(T.Call("int8", "tir.shift_left", [a, byte(2)]), d),
    "(a + c) & 7": lambda a, c, d: T.Call("int8", "tir.bitwise_and", [T.Add(a, c), byte(7)]),
}


@pytest.mark.rule("PX-1", "PX-2")
@pytest.mark.parametrize("form", FORMS)
def test_a_rule_keeps_all_values_of_an_element(form: str) -> None:
    element = decl_buffer((1,), "int8", "A")[0]
    points = Points({element: np.arange(-128, 128).astype("int8")}, {element})
    for c, d in product(LITERALS, FEW):
        expr = FORMS[form](element, byte(c), byte(d))
        found = arith.simplify(expr)
        before, after = points.of(expr), points.of(found)
        wrong = points.atoms[element][before.numbers != after.numbers]
        assert wrong.size == 0, f"c = {c}, d = {d}: {found} differs at {wrong}"


@pytest.mark.rule("PX-1", "CMP-2")
@pytest.mark.parametrize("number", range(40))
def test_answers_about_data_hold_at_all_values(number: int) -> None:
    Session(f"fixed:{number}").ask(QUESTIONS_EACH)


@pytest.mark.rule("PX-1", "CMP-2")
@pytest.mark.parametrize("number", range(2 * COUNT))
def test_answers_about_other_data_hold_at_all_values(number: int) -> None:
    print(f"RELAXPY_FUZZ_SEED={SEED}")
    Session(f"{SEED}:{number}").ask(QUESTIONS_EACH)


@pytest.mark.rule("PX-1")
@pytest.mark.parametrize("dtype", EVERY)
def test_literals_that_overflow_wrap_around(dtype: str) -> None:
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    ends = [low, low + 1, high - 1, high, *((-1, 7) if dtype in WIDTHS else (1, 7))]
    no_atom = Points({T.Var("x", dtype): np.zeros(1, dtype)}, set())
    outer = T.FloorDiv, T.FloorMod, T.Div, T.Mod, T.Min, T.Max, T.Add, T.LT, T.EQ
    for p, q, inner in product(ends, ends, (T.Add, T.Sub, T.Mul, T.FloorDiv, T.Div)):
        sides = T.IntImm(dtype, p), T.IntImm(dtype, q)
        overflows = inner(*sides) if q else T.Add(*sides)
        for kind in outer:
            expr = kind(overflows, T.IntImm(dtype, 7))
            found = arith.simplify(expr)
            assert no_atom.of(expr).numbers == no_atom.of(found).numbers, f"{expr} is not {found}"


def test_what_bounds_show_not_to_wrap_is_simplified() -> None:
    a = decl_buffer((1,), "int8", "A")[0]
    x = T.Cast("int32", a)
    i = T.Var("i", "int32")
    analyzer = arith.Analyzer()
    analyzer.bind(i, Range(0, 100))
    assert arith.simplify(x * 2 // 2).same_as(x)
    assert arith.simplify((x + 5) // 5).same_as(arith.simplify(x // 5 + 1))
    assert arith.simplify(x + 1 > x).value == 1
    assert arith.simplify(T.max(x + 1, x)).same_as(x + 1)
    assert analyzer.simplify((i * 8 + x % 8) // 8).same_as(i)


def test_a_cast_that_keeps_a_loop_variable_or_a_size_is_no_data() -> None:
    i, n = T.Var("i", "int64"), T.SizeVar("n", "int64")
    short, m = T.Cast("int64", T.Cast("int32", i)), T.SizeVar("m", "int32")
    analyzer = arith.Analyzer()
    analyzer.bind(i, Range(0, 18))
    eight = T.IntImm("int64", 8)
    for value, expected in (
        (short, i),
        (short + i, i * 2),
        (short * 2 + n - i, i + n),
        (T.floordiv(short + n * 8, eight), T.floordiv(i, eight) + n),
        (T.Cast("int32", T.Cast("int64", m)) + m, m * 2),
    ):
        assert structural_equal(analyzer.simplify(value), analyzer.simplify(expected)), value
        assert not any(isinstance(node, T.Cast) for node in walk(analyzer.simplify(value)))
    assert analyzer.can_prove(short <= i + n)
    long = T.Cast("int64", T.Cast("int32", n))
    assert not analyzer.can_prove(long <= n + 1)
    assert not analyzer.can_prove(n <= long)


def test_variables_are_data_where_they_are_declared_to_be() -> None:
    n, k = T.Var("n", "int32"), T.Var("k", "int32")
    analyzer = arith.Analyzer()
    analyzer.declare_data(k)
    assert analyzer.simplify(n * 2 // 2).same_as(n)
    assert analyzer.simplify(k * 2 // 2).same_as(k * 2 // 2)
    assert not analyzer.can_prove(k + 1 > k)
    assert analyzer.can_prove(n + 1 > n)
    assert analyzer.simplify(k + 1 - 1).same_as(k)


KERNEL = """
@T.prim_func
def main(
    A: T.Buffer((256,), "int8"), C: T.Buffer((9, 256), "int8"), k: T.int8, X: T.handle
):
    n = T.int32()
    B = T.match_buffer(X, (n,), "int8")
    for i in range(256):
        q: T.int8 = A[i] + T.int8(1)
        C[0, i] = T.floordiv(A[i] * T.int8(2), T.int8(2))
        C[1, i] = T.Cast("int8", A[i] + T.int8(1) > A[i])
        C[2, i] = T.floordiv(A[i], T.int8(-5))
        C[3, i] = T.max(q + T.int8(1), q)
        C[4, i] = T.floormod(k * T.int8(6), T.int8(3)) + A[i]
        C[5, i] = T.truncdiv(A[i] + k, T.int8(-3))
        if A[i] + T.int8(3) < T.int8(5):
            C[6, i] = T.int8(1)
        if q + T.int8(1) > q:
            C[7, i] = T.int8(1)
        C[8, i] = T.Cast("int8", (i * n + n) // (i + 1)) + B[0]
"""


@pytest.mark.parametrize("target", ["native", "numpy", "reference"])
def test_simplify_keeps_what_a_kernel_computes(target: str) -> None:
    mod = IRModule({"main": from_source(KERNEL)})
    changed = transform.Simplify()(mod)
    a, b = np.arange(-128, 128).astype("int8"), np.zeros(3, "int8")
    results = []
    for module in (mod, changed):
        c = np.zeros((9, 256), "int8")
        relaxpy.compile(module, target)["main"](a, c, 100, b)
        results.append(c)
    with np.errstate(all="ignore"):
        q = a + np.int8(1)
        expected = [a * np.int8(2) // np.int8(2), a + np.int8(1) > a, a // np.int8(-5)]
        expected += [np.maximum(q + np.int8(1), q), np.int8(88) % np.int8(3) + a]  # 100 * 6 is 88
        whole = (a + np.int8(100)).astype(int)
        expected += [np.trunc(whole / -3).astype("int8"), a + np.int8(3) < 5, q + np.int8(1) > q]
        expected += [np.full(256, 3, "int8")]
    for found in results:
        np.testing.assert_array_equal(found, np.array(expected, "int8"))
    assert "(i * n + n)" not in changed.script()  # sizes and loops do not overflow
