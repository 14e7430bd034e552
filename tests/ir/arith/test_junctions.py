"""Conditions joined by and, or and not: simplified, they hold where they held before."""

from __future__ import annotations

import random
from functools import reduce

import pytest

from relaxpy.arith import Analyzer, Extension
from relaxpy.ir.arith.canonical import Canonical
from relaxpy.ir.arith.prove import simplify
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.iteration import Range
from tests.counting import calls
from tests.fuzz.integers import Integers
from tests.ir.arith.boxes import Env, holds, points
from tests.ir.arith.integers import evaluate

E = tir.PrimExpr
x, y, z = (tir.Var(name, "int32") for name in "xyz")
fld, flm, tdiv, tmod = ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod
both, either = tir.And, tir.Or
no, yes = ops.const(False), ops.const(True)

CASES: dict[str, tuple[E, E]] = {
    "a quotient and a remainder": (both(fld(x, 8).equal(3), flm(x, 8).equal(4)), x.equal(28)),
    "a remainder and a quotient": (both(flm(x, 8).equal(4), fld(x, 8).equal(-3)), x.equal(-20)),
    "a quotient's definition": (both(tir.LE(0, x - y * 5), x - y * 5 < 5), tir.EQ(y, fld(x, 5))),
    "the same the other way round": (
        both(x - y * 5 < 5, tir.LE(0, x - y * 5)),
        tir.EQ(y, fld(x, 5)),
    ),
    "a limit cut by a remainder": (both(x < 20, flm(x, 5) < 2), both(x < 17, flm(x, 5) < 2)),
    "a negative limit cut": (both(x < -20, flm(x, 5) < 2), both(x < -23, flm(x, 5) < 2)),
    "a limit that is not cut": (both(x < 16, flm(x, 5) < 2), both(x < 16, flm(x, 5) < 2)),
    "a quotient and the end of a remainder": (
        both(fld(x, 10).equal(5), flm(x, 10) < 7),
        both(tir.LE(50, x), x < 57),
    ),
    "the same with its last value": (
        both(fld(x, 10).equal(-5), flm(x, 10) <= 7),
        both(tir.LE(-50, x), x <= -43),
    ),
    "a quotient and the begin of a remainder": (
        both(fld(x, 10).equal(5), tir.LT(7, flm(x, 10))),
        both(tir.LT(57, x), x < 60),
    ),
    "equal and not equal": (both(x.equal(y), tir.NE(y, x)), no),
    "equal or not equal": (either(x.equal(y), tir.NE(x, y)), yes),
    "one value and not another": (both(x.equal(1), tir.NE(x, 2)), x.equal(1)),
    "two values": (both(x.equal(1), x.equal(2)), no),
    "not one value or another": (either(tir.NE(x, 1), x.equal(2)), tir.NE(x, 1)),
    "not one value or not another": (either(tir.NE(x, 1), tir.NE(x, 2)), yes),
    "a value within a limit": (both(x.equal(4), x < 9), x.equal(4)),
    "a value beyond a limit": (both(x.equal(14), x < 9), no),
    "all but the last": (both(x <= 9, tir.NE(x, 9)), x < 9),
    "the only one left": (both(x <= y, tir.LE(y, x)), x.equal(y)),
    "chains lean to the left": (
        both(x.equal(1), both(y.equal(1), z.equal(1))),
        both(both(x.equal(1), y.equal(1)), z.equal(1)),
    ),
    "and so does or": (
        either(x.equal(1), either(y.equal(1), z.equal(1))),
        either(either(x.equal(1), y.equal(1)), z.equal(1)),
    ),
    "far parts exclude each other": (both(both(x < 1, y < 1), tir.LT(0, x)), no),
    "a product that is 0": ((x * y).equal(0), either(x.equal(0), y.equal(0))),
    "a product that is not 0": (tir.NE(x * y * x, 0), both(tir.NE(x, 0), tir.NE(y, 0))),
    "a minimum below": (ops.minimum(x, 11) < 10, x < 10),
    "a minimum below anyway": (ops.minimum(x, 8) < 10, yes),
    "a maximum above": (ops.maximum(8, x) > 10, tir.LT(10, x)),
    "a sum below a maximum": (x + 1 < ops.maximum(ops.const(8), x), x < 7),
    "no remainder": (fld(x, 4) * 4 >= x, flm(x, 4).equal(0)),
    "toward zero from above": (tdiv(x, 2) >= 0, tir.LE(-1, x)),
    "toward zero from below": (tdiv(x, 2) <= -1, x <= -2),
    "toward zero below": (tdiv(x, 2) < 3, x < 6),
    "toward zero above": (tir.LT(3, tdiv(x, 2)), tir.LT(7, x)),
    "a negated quotient toward zero": (0 - tdiv(x, 3) >= 0, x <= 2),
}


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES.keys())
def test_joined_conditions_are_simplified(given: E, expected: E) -> None:
    assert simplify(given) is expected, f"{given} gives {simplify(given)}"


@pytest.mark.parametrize("seed", range(120))
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
