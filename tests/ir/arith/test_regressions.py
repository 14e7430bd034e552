"""Questions that once had a wrong answer, or an error that is none of the package's."""

import math

import numpy as np
import pytest

from relaxpy import tir as T
from relaxpy.arith import Analyzer, ConstIntBound, IntSet, ModularSet, prove_equal, simplify
from relaxpy.ir.tir import ops
from relaxpy.ir.tir.iteration import Range
from tests.fuzz.scalars import evaluate, same
from tests.rows import check_all

FLOATS = ("float16", "bfloat16", "float32", "float64")
SPECIAL = (0.0, -0.0, 1.0, -1.5, 3.0, 1e-3, math.inf, -math.inf, math.nan)
w, b, x, y, z = (T.Var(name, "int32") for name in "wbxyz")
m, n = T.Var("m", "int64"), T.Var("n", "int64")


def half(dtype: str, value: float) -> T.PrimExpr:
    return T.FloatImm(dtype, value)


FLOAT_RULES = {
    "x + 0": lambda f, c: T.Add(f, c(0.0)),
    "x + -0": lambda f, c: T.Add(f, c(-0.0)),
    "0 + x": lambda f, c: T.Add(c(0.0), f),
    "x - 0": lambda f, c: T.Sub(f, c(0.0)),
    "x - -0": lambda f, c: T.Sub(f, c(-0.0)),
    "0 - x": lambda f, c: T.Sub(c(0.0), f),
    "x - x": lambda f, c: T.Sub(f, f),
    "x * 0": lambda f, c: T.Mul(f, c(0.0)),
    "x * 1": lambda f, c: T.Mul(f, c(1.0)),
    "x * -1 * -1": lambda f, c: T.Mul(T.Mul(f, c(-1.0)), c(-1.0)),
    "x / 1": lambda f, c: T.Div(f, c(1.0)),
    "x / x": lambda f, c: T.Div(f, f),
    "0 / x": lambda f, c: T.Div(c(0.0), f),
    "min(x, x)": lambda f, c: T.Min(f, f),
    "min(x, inf)": lambda f, c: T.Min(f, c(math.inf)),
    "max(x, nan)": lambda f, c: T.Max(f, c(math.nan)),
    "x == x": lambda f, c: T.EQ(f, f),
    "x != x": lambda f, c: T.NE(f, f),
    "x <= x": lambda f, c: T.LE(f, f),
    "not (x < 1)": lambda f, c: T.Not(T.LT(f, c(1.0))),
    "not (x == 1)": lambda f, c: T.Not(T.EQ(f, c(1.0))),
    "x < 1 or x >= 1": lambda f, c: T.Or(T.LT(f, c(1.0)), T.GE(f, c(1.0))),
    "x < 1 and x >= 1": lambda f, c: T.And(T.LT(f, c(1.0)), T.GE(f, c(1.0))),
    "Select(x == x, x, 0)": lambda f, c: T.Select(T.EQ(f, f), f, c(0.0)),
    "Select(x < 0, 0 - x, x)": lambda f, c: T.Select(T.LT(f, c(0.0)), T.Sub(c(0.0), f), f),
    "x + 0 at once": lambda f, c: ops.add(f, c(0.0)),
    "0 + x at once": lambda f, c: ops.add(c(0.0), f),
    "x - 0 at once": lambda f, c: ops.sub(f, c(-0.0)),
    "x * 0 at once": lambda f, c: ops.mul(f, c(0.0)),
    "there and back": lambda f, c: T.Cast(f.dtype, T.Cast("float16", f)),
}


@pytest.mark.parametrize("rule", FLOAT_RULES)
def test_simplified_floats_keep_every_value(rule: str) -> None:
    check_all(FLOATS, lambda dtype: check_floats(rule, dtype))


def check_floats(rule: str, dtype: str) -> None:
    f = T.Var("f", dtype)

    def plain(value: float) -> T.PrimExpr:
        return T.FloatImm(dtype, value)

    expr = FLOAT_RULES[rule](f, plain)
    found, vector = simplify(expr), simplify(T.Broadcast(expr, 2))
    kind = T.FloatImm(dtype, 0.0).dtype.numpy().type
    for special in SPECIAL:
        env = {f: kind(special)}
        assert same(evaluate(found, env), evaluate(expr, env)), (found, special)
        assert same(evaluate(vector, env)[0], evaluate(expr, env)), (vector, special)


@pytest.mark.parametrize("special", SPECIAL)
def test_zero_added_to_a_float_at_once(special: float) -> None:
    f = T.Var("f", "float32")
    env = {f: np.float32(special)}
    with np.errstate(all="ignore"):
        assert same(evaluate(f + 0.0, env), np.float32(special) + np.float32(0.0))
        assert same(evaluate(f - 0.0, env), np.float32(special) - np.float32(0.0))


def test_neutral_literals_of_floats_go() -> None:
    f = T.Var("f", "float32")
    for expr in (f - 0.0, f + -0.0, f * 1.0, f / 1.0, T.Mul(half("float32", 1.0), f)):
        assert simplify(expr) is f


WIDE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", *FLOATS[2:])
KINDS = (T.Add, T.Sub, T.Mul, T.Div, T.Min, T.Max, T.LT, T.GE, T.EQ)


@pytest.mark.parametrize("dtype", WIDE)
def test_operations_on_literals_are_literals(dtype: str) -> None:
    kinds = KINDS if "float" in dtype else (*KINDS, T.FloorDiv, T.FloorMod, T.Mod)
    for kind in kinds:
        made = kind(ops.const(7, dtype), ops.const(3, dtype))
        for found in (simplify(made), simplify(T.Select(x < y, made, made))):
            assert isinstance(found, T.ConstExpr), made
            assert same(evaluate(found, {}), evaluate(made, {})), (made, found)


@pytest.mark.parametrize("kind", [T.FloorDiv, T.FloorMod, T.Div])
def test_operations_on_literals_without_a_literal_value_stay(kind: type[T.BinaryOpExpr]) -> None:
    by_zero = kind(half("float32", 7.0), half("float32", 0.0))
    assert simplify(by_zero) is by_zero
    if kind is not T.Div:
        rounded = kind(half("float32", 7.0), half("float32", 0.1))
        assert simplify(rounded) is rounded


@pytest.mark.parametrize("kind", [T.Min, T.Max])
@pytest.mark.parametrize(("a", "b"), [(0.0, -0.0), (-0.0, 0.0), (float("nan"), 1.0)])
def test_an_extremum_of_literals_that_are_not_ordered_stays(kind, a: float, b: float) -> None:
    made = kind(half("float32", a), half("float32", b))
    assert simplify(made) is made


@pytest.mark.parametrize(("low", "size", "by"), [(2, 8, 2), (2, 8, 3), (3, 4, 2), (5, 6, 4)])
def test_truncated_digits_are_divided_once(low: int, size: int, by: int) -> None:
    div, mod = T.Div, T.Mod
    digit = div(mod(x, ops.const(low * size)), ops.const(low))
    expected = div(mod(x, ops.const(low * size)), ops.const(low * by))
    for sign in (1, -1):
        divided = div(digit * sign, ops.const(by))
        assert simplify(divided) is simplify(expected * sign)
        for value in range(-3 * low * size, 3 * low * size):
            env = {x: value}
            assert same(evaluate(simplify(divided), env), evaluate(divided, env)), value


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [0.1, 1 / 3, 2049.0, 65503.0, 65504.0, 1e-7])
def test_a_cast_of_a_literal_is_of_what_its_datatype_holds(dtype: str, value: float) -> None:
    literal = T.FloatImm(dtype, value)
    for target in (*FLOATS, "int32", "int64"):
        found = simplify(T.Cast(target, literal))
        assert same(evaluate(found, {}), evaluate(T.Cast(target, literal), {})), (target, found)


@pytest.mark.parametrize("value", [70000, 2**24 + 1, 2**53 + 1, 2**62 + 3, -(2**63)])
def test_a_literal_beyond_a_float_stays_a_cast(value: int) -> None:
    for target in FLOATS:
        expr = T.Cast(target, T.IntImm("int64", value))
        found = simplify(expr)
        assert isinstance(found, T.Cast) or same(evaluate(found, {}), evaluate(expr, {}))


def test_literals_of_one_value_are_not_distinguished() -> None:
    assert prove_equal(half("float16", 0.1), half("float16", 0.1000001)) is not False
    assert prove_equal(half("float16", 0.1), half("float16", 0.2)) is False


def test_choices_that_go_into_one_another() -> None:
    s = T.Select(x > 0, y, z)
    expr = T.Select(w > 0, s * -1, b) + s
    found = simplify(expr)
    for at in (-1, 1):
        for inner in (-1, 1):
            env = {w: at, x: inner, y: 3, z: 5, b: 7}
            assert evaluate(found, env) == evaluate(expr, env)


def test_coefficients_beyond_every_float() -> None:
    for count in (17, 18, 40):
        expr: T.PrimExpr = n * m
        for _ in range(count):
            expr = expr * 2**62
        made = Analyzer()
        made.simplify(T.Max(expr, 0))
        assert made.const_int_bound(expr) == ConstIntBound(
            ConstIntBound.NEG_INF, ConstIntBound.POS_INF
        )
        with made.constraint_scope(expr > m * 3):
            made.modular_set(expr)
            made.int_set(expr, {m: Range(0, 4)})


def test_a_narrower_datatype_does_not_reach_what_is_computed_on_the_way() -> None:
    for wide in (
        T.Mod(T.IntImm("int64", 8), n),
        T.FloorMod(n, T.IntImm("int64", 7)),
        T.Min(T.Max(n, T.IntImm("int64", -3)), T.IntImm("int64", 9)),
    ):
        found = simplify(T.Cast("int32", wide))
        for value in (-(2**63), -5, 1, 6, 2**63 - 1):
            assert evaluate(found, {n: value}) == evaluate(wide, {n: value})


def test_unsigned_integers_of_64_bits_wrap_around() -> None:
    u = T.Var("u", "uint64")
    assert Analyzer().const_int_bound(u + T.IntImm("uint64", 3)).min_value == 0
    most = T.IntImm("uint64", 2**64 - 1)
    assert Analyzer().modular_set(most) == ModularSet(0, 2**64 - 1)
    assert IntSet.vector(T.Ramp(u, T.IntImm("uint64", 1), 4)).is_everything()
    assert Analyzer().int_set(T.Ramp(u, T.IntImm("uint64", 1), 4), {}).is_everything()


def test_an_end_beyond_the_datatype_is_none() -> None:
    far = T.Select(x < 0, T.IntImm("int32", 2**31 - 1), y)
    found = Analyzer().int_set(far + 4, {x: Range(-2, 3), y: Range(0, 3)})
    assert not found.has_upper_bound()
    ramp = T.Ramp(T.IntImm("int32", 2**31 - 2), T.IntImm("int32", 1), 4)
    assert IntSet.vector(ramp).is_everything()
    assert simplify(T.LE(ramp, T.Broadcast(x, 4))).dtype.is_bool
    steep = T.Ramp(T.IntImm("int32", 0), T.IntImm("int32", 2**31 - 1), 4)
    assert simplify(T.LE(steep, T.Ramp(x, T.IntImm("int32", 2), 4))).dtype.is_bool


def test_the_bounds_of_an_extremum_of_a_remainder_end() -> None:
    large = T.IntImm("int64", 2**31 - 1)
    u = T.Cast("int64", T.Cast("int32", T.Var("u", "uint16")))
    remainder = ops.floormod(u + large, T.Cast("int64", T.Cast("int32", n)))
    found = Analyzer().const_int_bound(T.Max(m, remainder))
    assert found.max_value >= 2**31 - 2
