"""Vectors: simplified, every lane keeps its value."""

import random

import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from tests.fuzz.integers import Integers
from tests.fuzz.scalars import NoValueError, evaluate, same
from tests.fuzz.seed import COUNT
from tests.ir.arith.boxes import points

E = T.PrimExpr
x, y = T.Var("x", "int32"), T.Var("y", "int32")
x64 = T.Var("x64", "int64")
u = T.Var("u", "uint32")
vx, vc = T.Var("vx", "int32x2"), T.Var("vc", "bool")
fld, flm, tdiv, tmod = ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod
Ramp, Copies = T.Ramp, T.Broadcast
long = T.const(4, "int64")
v4, v8 = T.vscale() * 4, T.vscale() * 8
assert isinstance(long, T.IntImm)


def two(scalar: E) -> E:
    return Copies(scalar, 2)


def zero(dtype: str = "int32") -> E:
    return T.const(0, dtype)


CASES: list[tuple[E, E, E | bool]] = [
    (Ramp(x, 1, 4) + Ramp(y, 2, 4), Ramp(x + y, 3, 4), True),
    (Ramp(x, 1, 2) + y, Ramp(x + y, 1, 2), True),
    (y + Ramp(x, 1, 2), Ramp(x + y, 1, 2), True),
    (Ramp(x, 1, v4) + Ramp(y, 2, v4), Ramp(x + y, 3, v4), True),
    (two(y) + two(x), two(x + y), True),
    (T.Add(Copies(0, 4), Copies(y, 4)), Copies(y, 4), True),
    (Copies(x, 4) + Ramp(0, 1, long), Ramp(x, 1, 4), True),
    (Copies(x, long) + Ramp(0, 1, 4), Ramp(x, 1, 4), True),
    (Copies(x64, 4) + Ramp(zero("int64"), 1, 4), Ramp(x64, 1, 4), True),
    (T.Add(Copies(0, v8), Copies(y, v8)), Copies(y, v8), True),
    (Ramp(x, 4, 4) - Ramp(y, 2, 4), Ramp(x - y, 2, 4), True),
    (Ramp(x, 1, 2) - y, Ramp(x - y, 1, 2), True),
    (y - Ramp(x, 1, 2), Ramp(y - x, -1, 2), True),
    (Ramp(x, 4, 4) * 2, Ramp(x * 2, 8, 4), True),
    (2 * Ramp(x, 4, 4), Ramp(x * 2, 8, 4), True),
    (T.Mul(Copies(0, 4), Copies(x, 4)), Copies(0, 4), True),
    (tdiv(two(y), two(x)), two(tdiv(y, x)), True),
    (tdiv(Ramp(x, 4, 4), 2), Ramp(tdiv(x, 2), 2, 4), x >= 0),
    (tdiv(Ramp(x * 8 + 1, 1, 4), 8), Copies(x, 4), x >= 0),
    (tdiv(Ramp(x * 8 + 15, 1, 4), 8), tdiv(Ramp(x * 8 + 15, 1, 4), 8), True),
    (tmod(Ramp(x, 4, 4), 2), Copies(tmod(x, 2), 4), x >= 0),
    (tmod(Ramp(x * 8 + 1, 1, 4), 8), Ramp(1, 1, 4), x >= 0),
    (fld(Ramp(x, 4, 4), 2), Ramp(fld(x, 2), 2, 4), True),
    (fld(Ramp(x, 4, v4), 2), Ramp(fld(x, 2), 2, v4), True),
    (fld(Ramp(x * 8 + 1, 1, 4), 8), Copies(x, 4), True),
    (fld(Ramp(x * 8 + 15, 1, 4), 8), fld(Ramp(x * 8 + 15, 1, 4), 8), True),
    (fld(Ramp(x, 8, 5), Copies(4, 5)), Ramp(fld(x, 4), 2, 5), True),
    (fld(Ramp(flm(x * 4, 256), 1, 4), 8), Copies(fld(flm(x * 4, 256), 8), 4), True),
    (fld(Ramp(x, 7, 4), 4), fld(Ramp(x, 7, 4), 4), True),
    (fld(Ramp(x * 8, 1, 4), 4), Copies(x * 2, 4), True),
    (fld(Ramp(x * 8, 1, v4), 4), fld(Ramp(x * 8, 1, v4), 4), True),
    (fld(Ramp(x * 8, 3, 4), 4), fld(Ramp(x * 8, 3, 4), 4), True),
    (fld(Ramp(x * 4, 1, 4), 64), Copies(fld(x, 16), 4), True),
    (fld(Ramp(x * 8, 2, 4), 64), Copies(fld(x, 8), 4), True),
    (fld(Ramp(x * 4, 1, 5), 64), fld(Ramp(x * 4, 1, 5), 64), True),
    (fld(Ramp(x * 4 + 3, 1, 4), 64), fld(Ramp(x * 4 + 3, 1, 4), 64), True),
    (fld(Ramp(x * 7, 1, 4), 64), fld(Ramp(x * 7, 1, 4), 64), True),
    (flm(Ramp(x, 4, 4), 2), Copies(flm(x, 2), 4), True),
    (flm(Ramp(x, 4, v8), 2), Copies(flm(x, 2), v8), True),
    (flm(Ramp(x * 8 + 1, 1, 4), 8), Ramp(1, 1, 4), True),
    (flm(Ramp(x * 8 + 1, 1, v4), 8), flm(Ramp(1, 1, v4), 8), True),
    (flm(Ramp(x * 8 + 1, 15, 4), 8), flm(Ramp(1, 15, 4), 8), True),
    (flm(Ramp(x * 8, 1, 4), 4), Ramp(0, 1, 4), True),
    (flm(Ramp(x * 8, 1, 5), 4), flm(Ramp(0, 1, 5), 4), True),
    (flm(Ramp(x * 8 + 7, 1, 4), 4), flm(Ramp(3, 1, 4), 4), True),
    (flm(Ramp(x * 4, 1, 4), 64), Ramp(flm(x * 4, 64), 1, 4), True),
    (flm(Ramp(x * 8, 2, 4), 64), Ramp(flm(x * 8, 64), 2, 4), True),
    (flm(Ramp(x * 2, 1, 8), 20), flm(Ramp(x * 2, 1, 8), 20), True),
    (ops.minimum(two(y), two(x)), two(ops.minimum(y, x)), True),
    (ops.maximum(ops.maximum(vx, two(y)), two(x)), ops.maximum(vx, two(ops.maximum(y, x))), True),
    (T.EQ(two(y), two(x)), two(T.EQ(y, x)), True),
    (T.GT(two(y), two(x)), two(x < y), True),
    (T.LE(two(y), two(x)), two(y <= x), True),
    (T.And(two(y <= x), two(vc)), two(T.And(y <= x, vc)), True),
    (T.Or(two(y <= x), two(vc)), two(T.Or(y <= x, vc)), True),
    (T.Not(two(y <= x)), two(x < y), True),
    (T.LT(Ramp(x, 1, 4), Copies(x + 4, 4)), Copies(ops.const(True), 4), True),
    (T.LT(Ramp(x, 1, 4), Copies(x + 3, 4)), T.LT(Ramp(x, 1, 4), Copies(x + 3, 4)), True),
    (T.Cast("int64x4", Ramp(x, 1, 4)), Ramp(T.Cast("int64", x), 1, 4), True),
    (Ramp(x, 0, 4), Copies(x, 4), True),
]


@pytest.mark.parametrize(("given", "expected", "condition"), CASES)
def test_vectors_are_simplified(given: E, expected: E, condition: E | bool) -> None:
    made = Analyzer()
    with made.constraint_scope(condition):
        found = made.simplify(given)
        assert found is made.simplify(expected), f"{given} gives {found}"


@pytest.mark.parametrize(
    ("given", "is_ramp"),
    [
        (1 - Ramp(x, -(2**31), 2), False),
        (1 - Ramp(x, 1 - 2**31, 2), True),
        (Ramp(x, -7, 2) - Ramp(y, 2**31 - 1, 2), False),
        (Ramp(x, -1, 2) - Ramp(y, 2**31 - 1, 2), True),
        (Ramp(x, 7, 2) + Ramp(y, 2**31 - 1, 2), False),
        (Ramp(x, 65536, 2) * 65536, False),
        (Ramp(x, 65536, 2) * -32768, True),
        (Copies(u, 2) - Ramp(u, T.const(1, "uint32"), 2), True),  # unsigned numbers wrap
    ],
)
def test_lanes_are_a_ramp_only_if_the_datatype_has_its_stride(given: E, is_ramp: bool) -> None:
    assert isinstance(Analyzer().simplify(given), T.Ramp) is is_ramp


def test_a_vector_is_not_divided_by_zero() -> None:
    for kind in (T.Div, T.Mod, T.FloorDiv, T.FloorMod):
        for vector in (Ramp(1, 1, 2), Copies(x, 2), vx):
            with pytest.raises(MisuseError, match="by zero"):
                Analyzer().rewrite_simplify(kind(vector, Copies(0, 2)))


def test_vectors_of_scalable_length() -> None:
    ramp = Ramp(x, 1, T.vscale() * 4)
    assert ramp.dtype == "int32xvscalex4"
    assert Ramp(x, 1, T.vscale()).dtype == "int32xvscalex1"
    assert (ramp + y).dtype == ramp.dtype
    assert str(ramp) == "T.Ramp(x, 1, T.vscale() * 4)"
    with pytest.raises(MisuseError, match="multiple of vscale"):
        Copies(x, T.vscale() * -1)
    with pytest.raises(MisuseError, match="cannot match"):
        ramp + Ramp(x, 1, T.vscale() * 8)
    with pytest.raises(MisuseError, match="cannot match"):
        ramp + Ramp(x, 1, 4)


w = T.vscale()
SCALABLE: list[tuple[E, E, list[E]]] = [
    (ops.minimum(x + w * 4, x), x, []),
    (ops.minimum(x - w * 4, x), x - w * 4, []),
    (ops.minimum(x + w * 4, x + w * 8), x + w * 4, []),
    (ops.minimum(x + w * 4 - flm(4, w * 4), x), x, []),
    (ops.minimum(w * x, w * y), w * x, [x < y]),
    (ops.maximum(x + w * 4, x), x + w * 4, []),
    (ops.maximum(x - w * 4, x), x, []),
    (ops.maximum(w * x, w * y), w * x, [x > y]),
    (fld(x * w * 4 + y, w * 4), x + fld(y, w * 4), []),
    (fld(x, w * 4), zero(), [x >= 0, x < w * 4]),
    (flm(x * w * 4 + y, w * 4), flm(y, w * 4), []),
    (flm(x, w * 4), x, [x >= 0, x < w * 4]),
]


@pytest.mark.parametrize(("given", "expected", "conditions"), SCALABLE)
def test_a_vector_has_at_least_the_least_length(given: E, expected: E, conditions: list[E]) -> None:
    made = Analyzer()
    with made.constraint_scope(ops.all_of(True, *conditions)):
        assert made.simplify(given) is made.simplify(expected)


@pytest.mark.parametrize("seed", range(2 * COUNT))
def test_random_vectors_keep_every_lane(seed: int) -> None:
    chosen = random.Random(seed)
    count = chosen.randint(2, 5)
    given = Integers(chosen, [x, y]).compared_vector(chosen.randint(1, 5), count)
    made = Analyzer()
    low = chosen.choice([-6, 0])
    with made.constraint_scope(T.all(x >= low, x <= 6, y >= low, y <= 6)):
        simple, bound = made.simplify(given), made.const_int_bound(given)
    for env in points({x: range(low, 7), y: range(low, 7)}):
        try:
            before = evaluate(given, env)
        except NoValueError:
            continue
        assert same(evaluate(simple, env, exact=False), before), f"{given} gives {simple} at {env}"
        assert all(bound.min_value <= lane <= bound.max_value for lane in before)
