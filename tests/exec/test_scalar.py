"""Scalar arithmetic beside NumPy's, and the arithmetic of dimensions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy.errors import CompileError, RuntimeCheckError
from relaxpy.exec.runtime.scalar import ScalarEvaluator, checked
from relaxpy.ir.tir import expr as tir, intrin, ops

INT64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(-40, 40)


def value(expr: tir.PrimExpr, **variables: object) -> object:
    named = {v: variables[v.name] for v in _variables(expr)}
    with np.errstate(all="ignore"):
        return ScalarEvaluator(named).value(expr)


def size(expr: tir.PrimExpr, **variables: int) -> object:
    named = {v: variables[v.name] for v in _variables(expr)}
    return ScalarEvaluator(named, checked).value(expr)


def _variables(expr: tir.PrimExpr) -> list[tir.Var]:
    from relaxpy.ir.core.traverse import walk

    return [n for n in walk(expr) if isinstance(n, tir.Var)]


def pair(dtype: str) -> tuple[tir.Var, tir.Var]:
    return tir.Var("a", dtype), tir.Var("b", dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint32"])
@pytest.mark.parametrize("node", [tir.Add, tir.Sub, tir.Mul, tir.Min, tir.Max])
@given(data=st.data())
def test_integers_wrap_as_numpys(dtype: str, node: type, data: st.DataObject) -> None:
    info = np.iinfo(dtype)
    number = st.integers(int(info.min), int(info.max))
    p, q = data.draw(number), data.draw(number)
    functions = {
        tir.Add: np.add,
        tir.Sub: np.subtract,
        tir.Mul: np.multiply,
        tir.Min: np.minimum,
        tir.Max: np.maximum,
    }
    with np.errstate(all="ignore"):
        expected = functions[node](np.array(p, dtype), np.array(q, dtype))
    assert value(node(*pair(dtype)), a=p, b=q) == int(expected)


@pytest.mark.rule("PX-2")
@given(SMALL, SMALL.filter(bool))
def test_integer_division_truncates_or_floors(p: int, q: int) -> None:
    a, b = pair("int64")
    assert size(tir.Div(a, b), a=p, b=q) == math.trunc(Fraction(p, q))
    assert size(tir.Mod(a, b), a=p, b=q) == math.fmod(p, q)
    assert size(tir.FloorDiv(a, b), a=p, b=q) == p // q
    assert size(tir.FloorMod(a, b), a=p, b=q) == p % q


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize("node", [tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod])
def test_division_by_zero_is_an_error(node: type) -> None:
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        size(node(*pair("int64")), a=1, b=0)


@pytest.mark.rule("PX-1", "PX-9")
@pytest.mark.parametrize(
    ("node", "exact"),
    [(tir.Add, lambda p, q: p + q), (tir.Sub, lambda p, q: p - q), (tir.Mul, lambda p, q: p * q)],
)
@given(p=INT64, q=INT64 | SMALL)
def test_sizes_are_exact_or_an_error(node: type, exact: object, p: int, q: int) -> None:
    expected = exact(p, q)  # type: ignore[operator]
    expr = node(*pair("int64"))
    if -(2**63) <= expected < 2**63:
        assert size(expr, a=p, b=q) == expected
    else:
        with pytest.raises(RuntimeCheckError, match="outside the range of int64"):
            size(expr, a=p, b=q)


@pytest.mark.rule("PX-9")
def test_an_overflow_on_the_way_is_an_error_too() -> None:
    a, b = pair("int64")
    with pytest.raises(RuntimeCheckError, match="int64"):
        size(tir.Sub(tir.Mul(a, b), tir.Mul(a, b)), a=2**40, b=2**40)
    with pytest.raises(RuntimeCheckError, match="int64"):
        size(tir.Div(a, b), a=-(2**63), b=-1)


@pytest.mark.rule("PX-4")
@pytest.mark.parametrize("p", [False, True])
@pytest.mark.parametrize("q", [False, True])
def test_logic_takes_and_gives_booleans(p: bool, q: bool) -> None:
    a, b = pair("bool")
    assert value(tir.And(a, b), a=p, b=q) is (p and q)
    assert value(tir.Or(a, b), a=p, b=q) is (p or q)
    assert value(tir.Not(a), a=p) is (not p)


@pytest.mark.rule("PX-5")
def test_select_takes_the_value_that_the_condition_chooses() -> None:
    a, b = pair("int64")
    expr = tir.Select(tir.LT(a, b), a, tir.Mul(b, tir.IntImm("int64", 10)))
    assert size(expr, a=1, b=2) == 1
    assert size(expr, a=3, b=2) == 20


@pytest.mark.rule("PX-7")
def test_an_unbound_variable_is_an_error() -> None:
    with pytest.raises(RuntimeCheckError, match="variable n is not bound"):
        ScalarEvaluator({}, checked).value(tir.Var("n", "int64") + 1)


@given(st.floats(width=32), st.floats(width=32))
@pytest.mark.parametrize("node", [tir.Add, tir.Sub, tir.Mul, tir.Div])
def test_floats_are_rounded_after_each_operation(node: type, p: float, q: float) -> None:
    functions = {tir.Add: np.add, tir.Sub: np.subtract, tir.Mul: np.multiply, tir.Div: np.divide}
    a, b = np.float32(p), np.float32(q)
    with np.errstate(all="ignore"):
        expected = functions[node](a, b)
    found = value(node(*pair("float32")), a=a, b=b)
    assert type(found) is np.float32
    assert found == expected or (found != found and expected != expected)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float64"])
def test_small_floats_stay_in_their_datatype(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype)).type
    a, b = pair(dtype)
    expr = tir.Add(tir.Mul(a, b), tir.Call(dtype, "tir.exp", (a,)))
    found = value(expr, a=kind(0.5), b=kind(2))
    assert type(found) is kind
    assert float(found) == float(kind(float(kind(1.0)) + float(kind(math.exp(0.5)))))


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("exp", math.exp),
        ("log1p", math.log1p),
        ("sqrt", math.sqrt),
        ("rsqrt", lambda x: 1 / math.sqrt(x)),
        ("sin", math.sin),
        ("tan", math.tan),
        ("atan", math.atan),
        ("asin", math.asin),
        ("tanh", math.tanh),
        ("acosh", lambda x: math.nan),
        ("erf", math.erf),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
        ("floor", math.floor),
        ("ceil", math.ceil),
        ("trunc", math.trunc),
        ("fabs", abs),
        ("exp2", lambda x: 2**x),
        ("exp10", lambda x: 10**x),
        ("log2", math.log2),
        ("log10", math.log10),
    ],
)
@pytest.mark.parametrize("x", [0.25, 0.75])
def test_intrinsics_are_correctly_rounded(name: str, oracle: object, x: float) -> None:
    a = tir.Var("a", "float32")
    found = value(tir.Call("float32", f"tir.{name}", (a,)), a=np.float32(x))
    assert type(found) is np.float32
    np.testing.assert_allclose(found, np.float32(oracle(x)), rtol=2**-23)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("x", "expected"), [(0.5, 0.0), (1.5, 2.0), (2.5, 2.0), (-0.5, -0.0), (2.4, 2.0)]
)
@pytest.mark.parametrize("name", ["round", "nearbyint"])
def test_rounding_is_half_to_even(name: str, x: float, expected: float) -> None:
    a = tir.Var("a", "float32")
    assert value(tir.Call("float32", f"tir.{name}", (a,)), a=np.float32(x)) == expected


@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 40))
def test_bit_operations_are_numpys(p: int, q: int) -> None:
    a, b = pair("int32")
    x, y = np.int32(p), np.int32(q)
    for name, function in {
        "bitwise_and": np.bitwise_and,
        "bitwise_or": np.bitwise_or,
        "bitwise_xor": np.bitwise_xor,
        "shift_left": np.left_shift,
        "shift_right": np.right_shift,
    }.items():
        assert value(tir.Call("int32", f"tir.{name}", (a, b)), a=p, b=q) == int(function(x, y))
    assert value(intrin.popcount(a), a=p) == bin(p & (2**32 - 1)).count("1")
    assert value(intrin.clz(a), a=p) == 32 - (p & (2**32 - 1)).bit_length()
    assert value(tir.Call("int32", "tir.bitwise_not", (a,)), a=p) == ~p


@pytest.mark.parametrize("x", [-math.inf, -1e3, 0.0, 1.0, 1e3, math.inf])
@pytest.mark.parametrize("y", [-math.inf, -1e3, 0.0, 1e3, math.inf])
def test_logaddexp_neither_overflows_nor_underflows(x: float, y: float) -> None:
    a, b = pair("float32")
    result = value(intrin.logaddexp(a, b), a=np.float32(x), b=np.float32(y))
    np.testing.assert_allclose(result, np.logaddexp(x, y), rtol=1e-6)


@given(st.integers(-(2**15), 2**15), st.integers(0, 2**31 - 1), st.integers(-5, 5))
def test_fixed_point_products_are_rounded_to_the_nearest_integer(x: int, y: int, s: int) -> None:
    a, b = pair("int32")
    nearest = math.floor(Fraction(x * y) * Fraction(2) ** (s - 31) + Fraction(1, 2))
    args = a, b, ops.const(31), ops.const(s)
    assert value(tir.Call("int32", "tir.q_multiply_shift", args), a=x, b=y) == nearest
    shifts = (max(s, 0), 7, 31, True, False) if s > 0 else (7, -s, 31, False, True)
    args = a, b, *map(ops.const, shifts)
    assert value(tir.Call("int32", "tir.q_multiply_shift_per_axis", args), a=x, b=y) == nearest


@pytest.mark.parametrize(
    ("source", "x", "target", "expected"),
    [
        ("float32", -1.9, "int32", -1),
        ("int32", 300, "uint8", 44),
        ("int32", -1, "uint32", 2**32 - 1),
        ("float32", 0.5, "bool", True),
        ("int64", 0, "bool", False),
        ("bool", True, "float32", 1.0),
        ("float64", 1 + 2**-30, "float32", 1.0),
        ("int64", 2**24 + 1, "float32", 2.0**24),
        ("int64", 2**60 + 2**36 + 1, "float32", 2.0**60 + 2.0**37),
        ("uint64", 2**64 - 1, "float16", math.inf),
    ],
)
def test_casts_convert_as_c_does(source: str, x: object, target: str, expected: object) -> None:
    a = tir.Var("a", source)
    kind = {"float32": np.float32, "float64": np.float64}.get(source, lambda v: v)
    assert value(tir.Cast(target, a), a=kind(x)) == expected


def test_reinterpret_keeps_the_bits() -> None:
    a = tir.Var("a", "float32")
    assert value(intrin.reinterpret("int32", a), a=np.float32(1.0)) == 0x3F800000


def test_vectors_are_computed_lane_by_lane() -> None:
    ramp = tir.Ramp(tir.IntImm("int32", 3), tir.IntImm("int32", 2), 4)
    assert value(ramp) == (3, 5, 7, 9)
    assert value(tir.Add(ramp, tir.Broadcast(tir.IntImm("int32", 1), 4))) == (4, 6, 8, 10)
    assert value(tir.Shuffle([ramp], [tir.IntImm("int32", 2)])) == 7
    odd = tir.EQ(ramp, tir.Broadcast(tir.IntImm("int32", 5), 4))
    zero = tir.Broadcast(tir.IntImm("int32", 0), 4)
    assert value(tir.Select(odd, ramp, zero)) == (0, 5, 0, 0)


def test_only_the_taken_side_of_if_then_else_is_evaluated() -> None:
    a, b = pair("int32")
    expr = intrin.if_then_else(tir.NE(b, tir.IntImm("int32", 0)), tir.FloorDiv(a, b), a)
    assert value(expr, a=7, b=0) == 7
    assert value(expr, a=7, b=2) == 3


def test_let_binds_in_its_body() -> None:
    a = tir.Var("a", "int32")
    bound = tir.Var("t", "int32")
    expr = tir.Let(bound, a + 1, tir.Mul(bound, bound))
    evaluator = ScalarEvaluator({a: 3})
    assert evaluator.value(expr) == 16


def test_an_unknown_intrinsic_is_named() -> None:
    with pytest.raises(CompileError, match=r"intrinsic tir\.ptx_ldmatrix cannot run here"):
        value(tir.Call("int32", "tir.ptx_ldmatrix", ()))
