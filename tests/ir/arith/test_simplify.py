"""What simplification leaves alone, and equality: proved, disproved or not known."""

import pytest

from relaxpy.ir.arith.prove import prove_equal, simplify
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.buffer import decl_buffer

E = tir.PrimExpr
x, y, z, n, m = (tir.Var(name, "int64") for name in "xyznm")
i, flag = tir.Var("i", "int32"), tir.Var("flag", "bool")
fld, flm = ops.floordiv, ops.floormod


def lit(value: int) -> E:
    return tir.IntImm("int64", value)


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
    sixes = tir.Add(tir.Mul(u, tir.IntImm("uint8", 6)), one)
    assert simplify(tir.FloorMod(sixes, tir.IntImm("uint8", 2))) is one
    wrapped = tir.FloorMod(sixes, tir.IntImm("uint8", 3))
    assert simplify(wrapped) is wrapped


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
