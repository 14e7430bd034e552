"""What integer reasoning says holds when expressions are evaluated from their definitions."""

import itertools
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings, strategies as st

from relaxpy.ir.arith.canonical import Canonical
from relaxpy.ir.arith.tvm.analyzer import Analyzer, ModularSet
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.iteration import Range
from tests.fuzz.integers import VARIABLES, conditions, expressions, literal
from tests.ir.arith.boxes import value as value_of

POINTS = list(itertools.product((-9, -5, -3, -1, 0, 1, 2, 4, 7), repeat=3))
SEEDS = st.integers(0, 1 << 30)
Env = Mapping[tir.Var, int]


def some_points(seed: int) -> list[Env]:
    chosen = random.Random(seed).sample(POINTS, 30)
    return [dict(zip(VARIABLES, point, strict=True)) for point in chosen]


def check_value(engine: Canonical, expr: tir.PrimExpr, env: Env) -> None:
    value = value_of(expr, env)
    if value is None:
        return
    assert value_of(engine.simplify(expr), env) == value
    low, high = engine.bound(expr)
    assert low <= value <= high
    coeff, base = engine.residue(expr)
    assert expr.dtype.is_bool or (value == base if coeff == 0 else (value - base) % coeff == 0)


@settings(max_examples=150)
@given(st.one_of(expressions(), conditions()), SEEDS)
def test_what_holds_of_the_canonical_form_holds_of_the_expression(
    expr: tir.PrimExpr, seed: int
) -> None:
    engine = Canonical()
    for env in some_points(seed):
        check_value(engine, expr, env)


@pytest.mark.rule("CMP-2")
@settings(max_examples=150)
@given(expressions(size=5), expressions(size=5), SEEDS)
def test_equal_and_unequal_hold_for_all_values(a: tir.PrimExpr, b: tir.PrimExpr, seed: int) -> None:
    answer = Canonical().prove_equal(a, b)
    for env in some_points(seed) if answer is not None else []:
        x, y = value_of(a, env), value_of(b, env)
        assert x is None or y is None or (x == y) == answer


@pytest.mark.rule("CMP-1", "CMP-2")
@settings(max_examples=150)
@given(expressions(size=5), expressions(size=5), expressions(size=3))
def test_equality_is_an_equivalence_that_operations_keep(
    a: tir.PrimExpr, b: tir.PrimExpr, c: tir.PrimExpr
) -> None:
    engine = Canonical()
    assert engine.prove_equal(a, a) is True
    assert engine.prove_equal(a, b) == engine.prove_equal(b, a)
    assert engine.prove_equal(tir.Sub(tir.Add(a, c), c), a) is True
    if engine.prove_equal(a, b) and engine.prove_equal(b, c):
        assert engine.prove_equal(a, c)
    if engine.prove_equal(a, b):
        for kind in (tir.Add, tir.Mul, tir.FloorDiv, tir.Max):
            assert engine.prove_equal(kind(a, c), kind(b, c)) is True


@settings(max_examples=150)
@given(expressions(size=6))
def test_simplifying_twice_is_simplifying_once(expr: tir.PrimExpr) -> None:
    engine = Canonical()
    once = engine.simplify(expr)
    assert engine.prove_equal(expr, once) is not False
    assert engine.prove_equal(engine.simplify(once), once) is True


@settings(max_examples=150)
@given(
    st.one_of(expressions(), conditions()),
    conditions(),
    st.tuples(st.integers(-9, 9), st.integers(1, 12)),
    st.tuples(st.integers(1, 5), st.integers(0, 4)),
    SEEDS,
)
def test_what_holds_under_constraints_holds_where_they_do(
    expr: tir.PrimExpr,
    condition: tir.PrimExpr,
    run: tuple[int, int],
    residue: tuple[int, int],
    seed: int,
) -> None:
    x, y, z = VARIABLES
    (low, extent), (coeff, base) = run, residue
    chosen = random.Random(seed)
    analyzer = Analyzer()
    analyzer.bind(x, Range.from_min_extent(literal(low), literal(extent)))
    analyzer.update(y, ModularSet(coeff, base % coeff))
    with analyzer.constraint_scope(condition):
        simple = analyzer.simplify(expr)
        least, greatest = analyzer.const_int_bound(expr).interval
        known = analyzer.modular_set(expr)
        for _ in range(40):
            env = {
                x: chosen.randrange(low, low + extent),
                y: chosen.randrange(-6, 7) * coeff + base % coeff,
                z: chosen.randrange(-9, 10),
            }
            value = value_of(expr, env) if value_of(condition, env) else None
            if value is None:
                continue
            assert value_of(simple, env) == value
            assert least <= value <= greatest
            if not expr.dtype.is_bool:
                apart = value - known.base
                assert apart % known.coeff == 0 if known.coeff else apart == 0
