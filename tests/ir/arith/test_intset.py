"""Interval sets: what they are, and what expressions cover."""

import pytest
from hypothesis import given, settings, strategies as st

from relaxpy import arith, tir as T
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from tests.fuzz.integers import VARIABLES, expressions
from tests.ir.arith.boxes import points, value

E = T.PrimExpr
x, y, z = (T.Var(name, "int32") for name in "xyz")
fld, flm, tdiv, tmod = ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod


def test_intervals_without_ends_and_without_members() -> None:
    assert arith.IntervalSet(2, 3).min_value is ops.const(2)
    assert arith.IntSet.single_point(2) == arith.IntervalSet(2, 2)
    everything = arith.IntervalSet(arith.neg_inf(), arith.pos_inf())
    assert everything.is_everything()
    assert not everything.is_nothing()
    nothing = arith.IntervalSet(arith.pos_inf(), arith.neg_inf())
    assert nothing.is_nothing()
    assert not nothing.is_everything()
    assert arith.IntervalSet(3, 2).is_nothing()
    assert arith.IntervalSet(None, 3).min_value is arith.neg_inf()
    assert (str(arith.neg_inf()), str(arith.pos_inf())) == ("neg_inf", "pos_inf")


def test_an_end_is_an_integer() -> None:
    with pytest.raises(MisuseError, match="expected an integer end"):
        arith.IntervalSet(0, 1.5)
    with pytest.raises(MisuseError, match="an integer vector"):
        arith.IntSet.vector(T.const(1.0, "float32x4"))
    with pytest.raises(MisuseError, match="an IntervalSet or a Range"):
        arith.Analyzer().int_set(x, {x: 3})  # type: ignore[dict-item]


def test_vectors_lie_between_their_first_and_last_lane() -> None:
    assert arith.IntSet.vector(T.Ramp(10, 3, 2)) == arith.IntervalSet(10, 13)
    assert arith.IntSet.vector(T.Ramp(x, -2, 4)) == arith.IntervalSet(x - 6, x)
    assert arith.IntSet.vector(T.Broadcast(x, 4)) == arith.IntervalSet(x, x)
    found = arith.Analyzer().int_set(T.Ramp(x * 2, 1, 4), {x: arith.IntervalSet(0, 3)})
    assert found == arith.IntervalSet(0, 9)


def test_presburger_sets_are_conditions() -> None:
    assert arith.PresburgerSet().is_everything()
    assert arith.PresburgerSet(T.all(x < 1, x > 0)).is_nothing()
    some = arith.PresburgerSet(x < 1)
    assert not some.is_nothing()
    assert not some.is_everything()


IN_ORDER: list[tuple[E, dict[T.Var, tuple[int, int]], tuple[E | int, E | int]]] = [
    (x + y, {x: (0, 10)}, (y, y + 10)),
    (x + y, {x: (0, 10), y: (1, 11)}, (1, 21)),
    (x - y, {x: (0, 10), y: (1, 11)}, (-11, 9)),
    (x * z, {x: (0, 10)}, (0, z * 10)),
    (x * -2, {x: (1, 10)}, (-20, -2)),
    (tdiv(x, z), {x: (0, 10)}, (0, tdiv(10, z))),
    (tdiv(x, 2), {x: (1, 10)}, (0, 5)),
    (fld(x, z), {x: (0, 10)}, (0, fld(10, z))),
    (fld(x, 2), {x: (-1, 10)}, (-1, 5)),
    (tmod(x, z), {x: (0, 10)}, (0, z - 1)),
    (flm(x, 10), {x: (-10, 10)}, (0, 9)),
    (flm(x, 10), {x: (3, 5)}, (3, 5)),
    (flm(x, 10), {x: (13, 15)}, (3, 5)),
    (flm(x, 10), {x: (3, 15)}, (0, 9)),
    (flm(x, 10), {x: (1, 21)}, (0, 9)),
    (ops.maximum(x, x + 1), {x: (0, 10)}, (1, 11)),
    (ops.minimum(x - 1, x + 1), {x: (0, 10)}, (-1, 9)),
    (ops.minimum(x, y), {}, (ops.minimum(x, y), ops.minimum(x, y))),
    (T.Select(x > 0, x - 1, x + 1), {x: (0, 10)}, (-1, 11)),
    (T.if_then_else(x >= 0, x, y), {x: (0, 10)}, (0, 10)),
]


@pytest.mark.parametrize(("expr", "domains", "ends"), IN_ORDER)
def test_what_expressions_cover(expr, domains, ends) -> None:
    made = arith.Analyzer()
    made.update(z, arith.ConstIntBound(1, 100))
    found = made.int_set(expr, {var: arith.IntervalSet(*d) for var, d in domains.items()})
    for end, expected in zip((found.min_value, found.max_value), ends, strict=True):
        assert made.can_prove_equal(end, expected), found


def test_a_remainder_in_one_block_keeps_its_order() -> None:
    made = arith.Analyzer()
    made.bind(x, Range(0, 2))
    found = made.int_set(flm(y, 8), {y: arith.IntervalSet(z * 8 + x * 4, z * 8 + x * 4 + 3)})
    assert made.can_prove_equal(found.min_value, x * 4)
    assert made.can_prove_equal(found.max_value, x * 4 + 3)


@settings(max_examples=150)
@given(expressions(size=6), st.tuples(st.integers(-4, 4), st.integers(0, 4)))
def test_every_value_lies_in_the_set(expr: E, run: tuple[int, int]) -> None:
    first, second, third = VARIABLES
    low, more = run
    domains = {
        first: arith.IntervalSet(low, low + more),
        second: arith.IntervalSet(third, third + 2),
    }
    found = arith.Analyzer().int_set(expr, domains)
    for c in (-3, 0, 2):
        sides = {first: range(low, low + more + 1), second: range(c, c + 3), third: range(c, c + 1)}
        for env in points(sides):
            reached = value(expr, env)
            least = value(found.min_value, env) if found.has_lower_bound() else None
            greatest = value(found.max_value, env) if found.has_upper_bound() else None
            assert reached is None or least is None or least <= reached
            assert reached is None or greatest is None or reached <= greatest


def test_unions_keep_what_can_be_joined() -> None:
    low, high = arith.IntervalSet(None, 0), arith.IntervalSet(1, None)
    assert arith.union_lower_bound([low, high]).is_everything()
    assert arith.union_lower_bound(
        [low, high, arith.IntervalSet(arith.pos_inf(), arith.neg_inf())]
    ).is_everything()
    assert arith.union_lower_bound(
        [arith.IntervalSet(0, 3), arith.IntervalSet(9, 9), arith.IntervalSet(4, 5)]
    ) == (arith.IntervalSet(0, 5))
    assert arith.union_lower_bound([]).is_nothing()
    with pytest.raises(MisuseError, match="expected an IntervalSet"):
        arith.union_lower_bound([3])  # type: ignore[list-item]


def test_domains_over_other_variables_are_opened() -> None:
    iters = {x: Range(0, y), y: Range(2, 6)}
    assert arith.Analyzer().int_set(x + z, iters) == arith.IntervalSet(z, z + 4)
    assert arith.Analyzer().int_set(ops.minimum(z, x), iters).max_value is ops.minimum(z, 4)
    assert arith.detect_iter_map([x, y], iters).errors == (
        "the range of x depends on other iterators",
    )


def test_domains_in_a_circle_have_no_end() -> None:
    assert arith.Analyzer().int_set(x * z, {x: Range(0, y), y: Range(0, x)}).is_everything()


@pytest.mark.rule("PX-3")
def test_what_divides_by_zero_covers_nothing_that_is_known() -> None:
    for kind in (T.FloorDiv, T.Div, T.FloorMod, T.Mod):
        assert arith.Analyzer().int_set(kind(x, T.const(0)), {x: Range(0, 4)}).is_everything()


@pytest.mark.parametrize("by", [-1, 32, 1 << 30])
def test_a_shift_by_no_number_of_bits_is_not_known(by: int) -> None:
    shifted = T.Call("int32", "tir.shift_right", (x, T.const(by)))
    assert arith.Analyzer().const_int_bound(shifted) == arith.Analyzer().const_int_bound(y)
    assert arith.Analyzer().simplify(shifted) is shifted
