"""Families of simplification, each by examples: what goes in, what comes out."""

from __future__ import annotations

import pytest

from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import decl_buffer

E = tir.PrimExpr
x, y, z, n, m = (tir.Var(name, "int64") for name in "xyznm")
i, j = (tir.Var(name, "int32") for name in "ij")
flag, u = tir.Var("flag", "bool"), tir.Var("u", "uint8")
fld, flm, tdiv, tmod = ops.floordiv, ops.floormod, ops.truncdiv, ops.truncmod
minimum, maximum = ops.minimum, ops.maximum


wide_j = ops.cast_to(j, "int64")


def lit(value: int) -> E:
    return tir.IntImm("int64", value)


CASES = {
    "positive terms first": (3 - y + x, x + 3 - y),
    "coefficients merge": (x + 2 + 3 + 4 + x * 3, x * 4 + 9),
    "terms cancel": (x + (y - x), y),
    "a constant factor is distributed": ((x + 2) * 3, x * 3 + 6),
    "no sign leads": (x * 3 - 4 * x + 1, 1 - x),
    "floor quotients fuse": (fld(fld(x, 2) + 1, 3), fld(x + 2, 6)),
    "multiples leave the quotient": (fld(4 * x + y, 2), x * 2 + fld(y, 2)),
    "multiples leave the remainder": (flm(10 * x + y, 2), flm(y, 2)),
    "a quotient's scale is reduced": (fld(8 * x + 39, 16), fld(x, 2) + 2),
    "a remainder's scale is reduced": (flm(8 * x, 16), flm(x, 2) * 8),
    "quotient and remainder recombine": (fld(x, 8) * 8 + flm(x, 8), x),
    "a remainder is recognised": (x - fld(x, 3) * 3, flm(x, 3)),
    "three levels recombine": (fld(x, 6) * 6 + flm(fld(x, 3), 2) * 3 + flm(x, 3), x),
    "a reshape there and back": (fld(x, 12) * 12 + fld(flm(x, 12), 4) * 4 + flm(x, 4), x),
    "a digit is a remainder divided": (flm(fld(x, 4), 2), fld(flm(x, 8), 4)),
    "a remainder divided": (fld(flm(x, 12), 4), fld(flm(x, 12), 4)),
    "a digit in a symbolic base": (flm(fld(x, 4), n), flm(fld(x, 4), n)),
    "a remainder divided otherwise": (fld(flm(x, 12), 5), fld(flm(x, 12), 5)),
    "a bounded remainder has no quotient": (fld(flm(x, 4), 4), lit(0)),
    "a small part is dropped": (fld(flm(x, 32) + 32 * y, 64), fld(y, 2)),
    "two ways of rounding up": (0 - fld(0 - n, 4), fld(n + 3, 4)),
    "padding to a multiple": (flm(x + flm(0 - x, 9), 9), lit(0)),
    "symbolic factors cancel": (fld(n * m, m), n),
    "symbolic multiples leave": (fld(x * z * 2 + y, z * 2), x + fld(y, z * 2)),
    "symbolic remainders vanish": (flm(x * 32 * x, x), lit(0)),
    "symbolic factors reduce": (fld(x * x * z * 2, x * x * x * 4), fld(z, x * 2)),
    "a sum divides": (fld(n * m + n, m + 1), n),
    "truncated parts recombine": (tdiv(x, 3) * 3 + tmod(x, 3), x),
    "truncated quotients fuse": (tdiv(tdiv(x, 2), 3), tdiv(x, 6)),
    "a sign leaves a truncated remainder": (tmod(0 - x, 2), tmod(x, 2) * -1),
    "a truncated remainder by a negative": (tmod(10 * x, -2), lit(0)),
    "the smaller by a constant": (minimum(x + 1, x + 10), x + 1),
    "the smaller by bounds": (minimum(flm(x, 2), flm(y, 2) + 10), flm(x, 2)),
    "absorption": (minimum(maximum(x, y), x), x),
    "a common offset": (minimum(y + x, z + x), x + minimum(y, z)),
    "a common factor": (minimum(3 * x, 9), minimum(x, 3) * 3),
    "a negative factor": (minimum(-2 * x, 4), maximum(x, -2) * -2),
    "minimum and maximum": (maximum(x, y) + minimum(x, y), x + y),
    "extrema of one offset": (minimum(x + 10, y + 1) - minimum(x, y - 9), lit(10)),
    "repeated operands": (maximum(x, maximum(x, y)), maximum(x, y)),
    "three operands": (maximum(maximum(z, x), y), maximum(maximum(x, y), z)),
    "a clamp": (maximum(minimum(x, y), 0), maximum(minimum(x, y), 0)),
    "a negated minimum": (z - minimum(x, y), z - minimum(x, y)),
    "equal branches": (tir.Select(x < y, z + z, z * 2), z * 2),
    "parity": (flm(x * 10 + 1 + y * 2 + 2, 2), lit(1)),
    "a left shift": (ops.bitwise("tir.shift_left", x, 3), x * 8),
    "a right shift": (ops.bitwise("tir.shift_right", x * 8 + 7, lit(3)), x),
    "a mask": (ops.bitwise("tir.bitwise_and", x * 16 + 3, lit(7)), lit(3)),
    "a widening cast": (
        tir.Cast("int64", i + j + 1) - tir.Cast("int64", i),
        ops.cast_to(j, "int64") + 1,
    ),
    "a binding": (tir.Let(y, lit(3), x + y), x + 3),
    "offsets move": (x + 10 < y + 5, x + 5 < y),
    "constants move": (tir.LT(lit(100), x + 1), tir.LT(lit(99), x)),
    "loose bounds": (2 * x >= 3, tir.LE(lit(2), x)),
    "negative factors turn": (-2 * x >= 1, x <= -1),
    "common terms leave": (x + y < x + z, y < z),
    "less than becomes at most": (x - 1 < y, x <= y),
    "quotients open": (fld(x, 2) <= 1, x <= 3),
    "quotients open downwards": (lit(-3) < fld(x, 2), lit(-5) < x),
    "small terms do not matter": (x * 8 + flm(y, 8) < 16, x < 2),
    "never equal": (x * 3 + 1 == 0, ops.const(False)),
    "equations are reduced": (2 * x == 4 * y, x.equal(y * 2)),
    "negation of an order": (tir.Not(x < y), y <= x),
    "negation of a conjunction": (tir.Not(tir.And(x < y, y < z)), tir.Or(y <= x, z <= y)),
    "the sharper of two": (tir.And(x < 3, x < 5), x < 3),
    "the blunter of two": (tir.Or(x < 3, x < 5), x < 5),
    "tautology": (tir.Or(x < 5, tir.LT(lit(3), x)), ops.const(True)),
    "contradiction": (tir.And(x < y, tir.Not(x < y)), ops.const(False)),
    "a decided choice": (intrin.if_then_else(flm(x, 4) < 4, x, y), x),
    "a truth twice": (tir.And(flag, flag), flag),
    "one of two same truths": (tir.Or(flag, flag), flag),
    "a truth and its opposite": (tir.And(flag, tir.Not(flag)), ops.const(False)),
    "a truth or its opposite": (tir.Or(tir.Not(flag), flag), ops.const(True)),
    "not not": (tir.Not(tir.Not(flag)), flag),
    "not unequal": (tir.Not(x.equal(y)), tir.NE(x, y)),
    "a choice of one truth": (tir.Select(x < y, flag, flag), flag),
    "a decided choice of truths": (tir.Select(flm(x, 4) < 4, flag, x < y), flag),
    "likely and certain": (tir.Call("bool", "tir.likely", (flm(x, 4) < 4,)), ops.const(True)),
    "a number is likely itself": (tir.Call("int64", "tir.likely", (x + x,)), x * 2),
    "unsigned and its least": (tir.GE(u, tir.IntImm("uint8", 0)), ops.const(True)),
    "unsigned and its greatest": (tir.GT(u, tir.IntImm("uint8", 255)), ops.const(False)),
    "unsigned and itself": (tir.LE(u, u), ops.const(True)),
    "unsigned and what a mask lets pass": (
        tir.NE(ops.bitwise("tir.bitwise_and", u, tir.IntImm("uint8", 3)), tir.IntImm("uint8", 9)),
        ops.const(True),
    ),
    "the positive part of a positive part": (
        ops.maximum(ops.maximum(x, lit(0)), lit(0)),
        ops.maximum(x, lit(0)),
    ),
}


@pytest.mark.parametrize(("given", "expected"), CASES.values(), ids=CASES.keys())
def test_simplifies(given: E, expected: E) -> None:
    assert simplify(given) is expected, f"{given} gives {simplify(given)}"


@pytest.mark.parametrize(
    "expr", [tir.FloorDiv(x, lit(0)), tir.Mod(x + y, lit(0)), tir.Div(lit(3), lit(0))]
)
def test_division_by_zero_stays_undecided(expr: E) -> None:
    assert type(simplify(expr)) is type(expr)
    assert prove_equal(expr, lit(0)) is None


def test_a_literal_that_outgrows_its_type_leaves_the_expression() -> None:
    expr = tir.Add(tir.Add(i, tir.IntImm("int32", 2**31 - 1)), tir.IntImm("int32", 5))
    assert simplify(expr) is expr


def test_unsigned_arithmetic_goes_round() -> None:
    u = tir.Var("u", "uint8")
    one, most = tir.IntImm("uint8", 1), tir.IntImm("uint8", 255)
    assert simplify(tir.Sub(u, u)) is tir.IntImm("uint8", 0)
    assert prove_equal(tir.Add(u, most), tir.Sub(u, one)) is True
    assert prove_equal(tir.Add(u, one), u) is False
    halved = tir.FloorDiv(tir.Mul(u, tir.IntImm("uint8", 2)), tir.IntImm("uint8", 2))
    assert prove_equal(halved, u) is None
    assert prove_equal(tir.Mul(u, tir.IntImm("uint8", 3)), one) is None


def test_floats_are_left_alone() -> None:
    f = tir.Var("f", "float32")
    assert simplify(f + 1.0 - 1.0) is f + 1.0 - 1.0
    assert simplify(tir.Cast("float32", x + 1 - x)) is tir.FloatImm("float32", 1.0)


def test_lets_of_floats_and_truths() -> None:
    f, g = tir.Var("f", "float32"), tir.Var("g", "float32")
    assert (
        simplify(tir.Let(f, tir.FloatImm("float32", 2.0), f * g))
        is tir.FloatImm("float32", 2.0) * g
    )
    assert simplify(tir.Let(f, g + 1.5, f * g)) is (g + 1.5) * g
    twice = tir.Let(f, g + 1.5, f * f)
    assert simplify(twice) is twice
    assert simplify(tir.Let(flag, x < x, tir.Or(flag, y < z))) is (y < z)
    called = tir.Let(f, tir.Call("float32", "tir.call_extern", (tir.StringImm("h"),)), f)
    assert simplify(called) is called


@pytest.mark.rule("CMP-3")
def test_different_literals_are_unequal() -> None:
    assert prove_equal(lit(3), lit(4)) is False
    assert prove_equal(lit(3), tir.IntImm("int32", 3)) is True
    assert prove_equal(tir.FloatImm("float32", 1.0), tir.FloatImm("float32", 2.0)) is False
    nan, zero = tir.FloatImm("float32", float("nan")), tir.FloatImm("float32", 0.0)
    assert prove_equal(nan, nan) is True
    assert prove_equal(nan, zero) is None
    assert prove_equal(zero, tir.FloatImm("float32", -0.0)) is None


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        (n * 2, n + n, True),
        (n, n + 1, False),
        (n * 2, m * 2 + 1, False),
        (n * n + 1, lit(0), False),
        (flm(n, 4), lit(4), False),
        (n, m, None),
        (n * m, n, None),
        (n, lit(3), None),
    ],
)
def test_equal_unequal_unknown(a: E, b: E, answer: bool | None) -> None:
    assert prove_equal(a, b) is answer
    assert prove_equal(b, a) is answer


def test_deep_sums_are_not_deep_recursion() -> None:
    deep: E = x
    for _ in range(20_000):
        deep = tir.Add(deep, y)
    assert prove_equal(deep, x + y * 20_000) is True


@pytest.mark.parametrize("kind", [tir.FloorDiv, tir.Mod, tir.Min])
def test_deep_expressions_end_in_an_answer(kind: type[tir.BinaryOpExpr]) -> None:
    deep: E = x
    for k in range(400):
        deep = kind(tir.Add(deep, y), lit(k % 3 + 2))
    assert prove_equal(tir.Sub(deep, deep), lit(0)) is True
    assert prove_equal(deep, deep + 1) in (False, None)


def test_remainders_of_remainders_stay_small() -> None:
    nested: E = x
    for k in range(40):
        nested = flm(fld(nested * (k % 3 + 2) + y, k % 5 + 2), k % 7 + 3)
    assert len(str(simplify(nested))) < 20 * len(str(nested))


def test_large_products_stay_products() -> None:
    product: E = lit(1)
    for k in range(40):
        product = ops.mul(product, tir.Var(f"v{k}", "int64") + 1)
    assert prove_equal(product, product + 1) is False


@pytest.mark.parametrize("kind", [tir.Min, tir.Max, tir.FloorDiv, tir.FloorMod, tir.Mod])
def test_bound_variables_of_let_are_replaced(kind: type[tir.BinaryOpExpr]) -> None:
    bound = tir.Var("bound", "int64")
    assert prove_equal(tir.Let(bound, x + 1, kind(bound, y)), kind(x + 1, y)) is True


def test_elements_of_buffers_of_one_name_are_in_the_order_of_their_first_comparison() -> None:
    orders = set()
    for _ in range(40):
        first, second = (decl_buffer((4,), "int64", "a")[0] for _ in range(2))
        least = simplify(tir.Min(first, second))
        assert isinstance(least, tir.Min)
        orders.add(least.a is first)
    assert len(orders) == 1
