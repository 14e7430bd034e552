"""Conditions joined by and, or and not: simplified, they hold where they held before."""

import random
from functools import reduce

import pytest

from relaxpy.arith import Analyzer, Extension
from relaxpy.ir.arith.canonical import Canonical
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from tests.counting import calls
from tests.fuzz.integers import Integers
from tests.fuzz.seed import COUNT
from tests.ir.arith.boxes import Env, evaluate, holds, points

E = tir.PrimExpr
x, y = (tir.Var(name, "int32") for name in "xy")
fld, flm = ops.floordiv, ops.floormod
both, either = tir.And, tir.Or


@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_random_conditions_keep_their_truth(seed: int) -> None:
    chosen = random.Random(seed)
    given = Integers(chosen, [x, y]).condition(chosen.randint(1, 4))
    simple = Canonical().simplify(given)
    for env in points({x: range(-12, 13), y: range(-6, 7)}):
        assert holds(given, env) == holds(simple, env), f"{given} gives {simple} at {env}"


SAFE = {
    "a guard that follows": both(tir.LT(0, y), flm(x, y) < y),
    "a guard that is sharpened": both(both(tir.LT(0, y), fld(x, y) < 3), y < 2),
    "a guard of a disjunction": either(y.equal(0), either(flm(x, y) >= y, tir.LT(1, y))),
    "a guard in a disjunction": either(both(tir.NE(y, 0), fld(x, y) < 3), x < 2),
}


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("extensions", range(8))
@pytest.mark.parametrize("given", SAFE.values(), ids=SAFE.keys())
def test_what_guards_a_division_stays_before_it(given: E, extensions: int) -> None:
    made = Analyzer()
    made.bind(y, Range(0, 9))
    made.enabled_extensions = Extension(extensions)
    simple = made.simplify(given)
    for env in points({x: range(-3, 4), y: range(9)}):
        assert in_turn(given, env) == in_turn(simple, env), f"{given} gives {simple} at {env}"


def in_turn(expr: E, env: Env) -> bool:
    """The truth of a condition whose second parts are evaluated where the first do not decide."""
    match expr:
        case tir.Or(a=a, b=b):
            return in_turn(a, env) or in_turn(b, env)
        case tir.And(a=a, b=b):
            return in_turn(a, env) and in_turn(b, env)
        case tir.Not(a=a):
            return not in_turn(a, env)
        case _:
            return bool(evaluate(expr, env))


@pytest.mark.parametrize("extensions", [Extension.NoExtensions, Extension(7)])
@pytest.mark.parametrize("join", [both, either])
def test_parts_are_compared_once(join: type[tir.Junction], extensions: Extension) -> None:
    def compared(size: int) -> int:
        parts = [tir.LT(tir.Var(f"v{k}", "int32"), k) for k in range(size)]
        made = Analyzer()
        made.enabled_extensions = extensions
        return calls(lambda: made.simplify(reduce(join, parts)))

    assert compared(24) < 6 * compared(12)
