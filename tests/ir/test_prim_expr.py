"""PrimExprs: construction, interning, matching of datatypes, folding, truth."""

import math
import operator
import sys
from threading import Barrier, Thread

import numpy as np
import pytest
from hypothesis import given, strategies as st

from relaxpy import tir as face
from relaxpy.errors import MisuseError
from relaxpy.ir.relax.nodes import ShapeExpr, ShapeStructInfo, TensorStructInfo
from relaxpy.ir.tir import expr as tir, intrin, intrinsics, ops
from relaxpy.ir.tir.buffer import BufferLoad, decl_buffer
from relaxpy.ir.tir.expr import PrimExpr, Var

N = Var("n", "int64")
I32 = Var("i", "int32")
F16, F32, F64 = Var("h", "float16"), Var("x", "float32"), Var("d", "float64")
FLAG = Var("b", "bool")
VECTOR = Var("v", "float32x4")
HANDLE = Var("p", "handle")
INT32 = st.integers(-(2**31), 2**31 - 1)


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


# --- kinds of node


@pytest.mark.rule("AST-1")
def test_leaves_are_variables_and_literals():
    assert N.name == "n"
    assert tir.IntImm("int64", 2**63 - 1).value == 2**63 - 1
    assert tir.FloatImm("float32", 0.5).value == 0.5


@pytest.mark.rule("AST-1")
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int64", 2**63), ("int64", -(2**63) - 1), ("uint8", -1), ("uint8", 256), ("bool", 2)],
)
def test_a_literal_outside_its_datatype_is_refused(dtype: str, value: int):
    with pytest.raises(MisuseError, match="outside the range"):
        tir.IntImm(dtype, value)


@pytest.mark.parametrize("dtype", ["float32", "int32x4", "handle"])
def test_an_integer_literal_has_a_scalar_integer_datatype(dtype: str):
    with pytest.raises(MisuseError, match="scalar integer dtype"):
        tir.IntImm(dtype, 1)


@pytest.mark.parametrize("value", [1.5, math.nan, "1", None, [1]])
def test_an_integer_literal_is_an_integer(value: object):
    with pytest.raises(MisuseError, match="expected an integer, found"):
        tir.IntImm("int32", value)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 1e39),
        ("float16", 65520.0),
        ("float64", 10**400),
        ("bfloat16", -1e39),
        ("float8_e4m3fn", 449.0),
        ("float8_e8m0fnu", 0.0),
    ],
)
def test_a_finite_literal_is_in_the_range_of_its_datatype(dtype: str, value: float):
    with pytest.raises(MisuseError, match=f"outside the range of {dtype}"):
        tir.FloatImm(dtype, value)


def test_an_integer_of_one_bit_is_0_or_1():
    assert tir.IntImm("int1", 1).value == 1
    with pytest.raises(MisuseError, match="-1 is outside the range of int1"):
        tir.IntImm("int1", -1)


def test_a_float_literal_may_be_infinite_or_round_to_the_greatest_value():
    assert tir.FloatImm("float16", 65519.0).value == 65519.0
    assert tir.FloatImm("float32", 3.4028235e38).value == 3.4028235e38
    assert tir.FloatImm("float16", -math.inf).value == -math.inf
    assert math.isnan(tir.FloatImm("float32", np.float32("nan")).value)
    for value in ("1.5", None, [1.5], 1j):
        with pytest.raises(MisuseError, match="expected a number, found"):
            tir.FloatImm("float32", value)


def test_a_float_literal_has_a_scalar_float_datatype():
    with pytest.raises(MisuseError, match="scalar float dtype"):
        tir.FloatImm("int32", 1.0)


@pytest.mark.rule("AST-2")
@pytest.mark.parametrize("kind", [tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Min, tir.Max])
def test_binary_nodes_have_operands_a_and_b(kind: type[tir.BinaryOpExpr]):
    node = kind(N, 2)
    assert node.a is N
    assert node.b is tir.IntImm("int64", 2)
    assert node.dtype == "int64"


@pytest.mark.rule("AST-2")
def test_binary_nodes_neither_promote_nor_fold():
    with pytest.raises(MisuseError, match="Add: mismatched types int64 and int32") as caught:
        tir.Add(N, I32)
    assert isinstance(caught.value, TypeError)
    assert isinstance(tir.Add(1, 2), tir.Add)


@pytest.mark.rule("AST-2", "PX-4")
@pytest.mark.parametrize("kind", [tir.And, tir.Or])
def test_logical_nodes_take_and_give_booleans(kind: type[tir.Junction]):
    node = kind(FLAG, N < 1)
    assert (node.a, node.dtype) == (FLAG, "bool")
    with pytest.raises(MisuseError, match="expected a Boolean") as caught:
        kind(FLAG, N)
    assert caught.value.diagnostic.rule == "PX-4"


@pytest.mark.rule("AST-3", "PX-4")
def test_not_takes_one_boolean():
    assert tir.Not(FLAG).a is FLAG
    with pytest.raises(MisuseError, match="expected a Boolean"):
        tir.Not(N)


@pytest.mark.rule("AST-3", "PX-5")
def test_select_has_a_condition_and_two_values():
    node = tir.Select(N < 2, N, 1)
    assert node.condition is (N < 2)
    assert node.true_value is N
    assert node.false_value is tir.IntImm("int64", 1)


@pytest.mark.rule("PX-5")
@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((N, 1, 2), "expected a Boolean"),
        ((FLAG, N, I32), "Select: mismatched types"),
        ((Var("c", "uint1x2"), VECTOR, VECTOR), "cannot choose among"),
    ],
)
def test_select_refuses_other_conditions_and_values(args: tuple[PrimExpr, ...], message: str):
    with pytest.raises(MisuseError, match=message):
        tir.Select(*args)


@pytest.mark.rule("AST-21")
def test_two_variables_of_one_name_are_two():
    other = Var("n", "int64")
    assert other is not N
    assert not bool(other == N)
    assert len({N, other, N}) == 2


def test_a_size_variable_is_a_variable_of_another_kind():
    assert isinstance(tir.SizeVar("n", "int64"), Var)
    assert type(tir.SizeVar("n", "int64").renamed("m")) is tir.SizeVar


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tir.Ramp(VECTOR, 1, 4), "scalar base"),
        (lambda: tir.Ramp(I32, 1, 1), "at least 2 lanes"),
        (lambda: tir.Broadcast(VECTOR, 4), "scalar value"),
        (lambda: tir.Broadcast(1, 1), "at least 2 lanes"),
        (lambda: tir.Shuffle([VECTOR, I32], [0]), "one element dtype"),
        (lambda: tir.Shuffle([VECTOR], []), "at least one index"),
        (lambda: tir.Cast("int32", VECTOR), "keeps the lanes"),
        (lambda: tir.Let(I32, N, N), "binds i of int32 to a value of int64"),
        (lambda: tir.Call("int32", "exp", ()), "begins with 'tir.'"),
        (lambda: tir.Call("int32", 3, ()), "needs an Op or a GlobalVar, found 3"),
        (lambda: tir.Call("int32", "tir.exp", None), "expected a list of arguments, found None"),
        (lambda: tir.Call("int32", I32, ()), "needs an Op or a GlobalVar, found i"),
        (lambda: tir.Add("a", "b"), 'Add needs numbers, found "a"'),
        (lambda: tir.Div(tir.StringImm("a"), "b"), 'Div needs numbers, found "a"'),
        (lambda: tir.Max("a", tir.Var("h", "handle")), 'Max needs numbers, found "a"'),
        (lambda: tir.Mod(tir.Var("h", "handle"), "b"), 'Mod needs numbers, found "b"'),
        (lambda: tir.Shuffle([VECTOR], [4]), "of 4 lanes has no lane 4"),
        (lambda: tir.Shuffle([VECTOR], [1.5]), "index of a Shuffle is an integer"),
        (lambda: tir.Shuffle(3, [0]), "expected a list of expressions, found 3"),
        (lambda: tir.Ramp(I32, 1, "4"), "expected an integer, found '4'"),
        (lambda: tir.Ramp(I32, 1, 4.5), "expected an integer, found 4.5"),
        (lambda: tir.Broadcast(I32, N), "expected an integer, found n"),
        (lambda: tir.Let("i", 1, 2), "defines a tir.Var, found 'i'"),
        (lambda: tir.Cast("void", I32), "int32 to void"),
        (lambda: tir.Var(3), "named by a string, found 3"),
        (lambda: tir.Var(None), "named by a string, found None"),
    ],
)
def test_a_misshapen_node_is_refused(make, message: str):
    with pytest.raises(MisuseError, match=message):
        make()


def test_vectors_have_the_lanes_they_are_given():
    assert tir.Ramp(I32, 2, 4).dtype == "int32x4"
    assert tir.Broadcast(F32, 8).dtype == "float32x8"
    assert tir.Shuffle([VECTOR, VECTOR], [0, 5]).dtype == "float32x2"
    assert (VECTOR < 1.0).dtype == "uint1x4"


# --- identity and truth


def test_equal_expressions_are_one_object():
    assert (N * 2 + 1) is (N * 2 + 1)
    assert {N * 2: "even"}[N * 2] == "even"
    assert tir.FloatImm("float32", 0.0) is not tir.FloatImm("float32", -0.0)
    assert tir.FloatImm("float32", math.nan) is tir.FloatImm("float32", math.nan)
    assert tir.IntImm("int32", 1) is not tir.IntImm("int64", 1)


def test_comparison_builds_a_node_whose_truth_is_sameness():
    assert isinstance(N == N + 0, tir.EQ)
    assert bool(N == N + 0)
    assert not bool(N == N + 1)
    assert bool(N != N + 1)
    assert N in [I32, N]
    assert N in [HANDLE, VECTOR, N], "what cannot be compared is another"
    assert HANDLE != N
    assert (N == "n") is False
    assert (N == None) is False  # noqa: E711


def test_literals_compare_by_value():
    assert tir.IntImm("int32", 3) == 3
    assert not bool(tir.IntImm("int32", 3) == 4)
    assert isinstance(tir.IntImm("int32", 3) == I32, tir.EQ)


def test_string_literals_compare_with_strings():
    text = tir.StringImm("a")
    assert (text == "a") is True
    assert (text != "a") is False
    assert text != "b"
    assert text == tir.StringImm("a")
    assert text != tir.StringImm("b")
    assert {text: 1}[tir.StringImm("a")] == 1


@pytest.mark.parametrize(
    "use", [bool, lambda e: e and True, lambda e: not e, lambda e: 1 if e else 2]
)
def test_an_unknown_value_has_no_truth(use):
    with pytest.raises(MisuseError, match="not known yet") as caught:
        use(N < 2)
    assert "T.And" in str(caught.value)


def test_nodes_cannot_be_changed():
    for node in (N, N + 1, tir.IntImm("int32", 1)):
        with pytest.raises(AttributeError):
            node.dtype = "int8"


def test_expressions_built_by_several_threads_are_one_object():
    start, found = Barrier(4), []

    def build() -> None:
        start.wait()
        found.append([N * k + k for k in range(2, 300)])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [Thread(target=build) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert all(len({id(e) for e in same}) == 1 for same in zip(*found, strict=True))


def test_dropped_expressions_are_forgotten():
    import gc

    from relaxpy.ir.tir.prim_expr import _interned

    before = len(_interned)
    temporary = Var("t") + Var("u")  # as a limited number of literals is kept
    assert len(_interned) > before
    del temporary
    gc.collect()
    assert len(_interned) <= before


# --- matching of datatypes


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (I32, N, "int64"),
        (I32, Var("u", "uint32"), "uint32"),
        (N, Var("u", "uint32"), "int64"),
        (I32, FLAG, "int32"),
        (N, 1.5, "float32"),
        (F16, 1, "float16"),
        (F16, F32, "float32"),
        (F64, 1.5, "float64"),
        (F32, Var("q", "bfloat16"), "float32"),
        (VECTOR, 1.0, "float32x4"),
        (VECTOR, F32, "float32x4"),
        (I32, 2**40, "int64"),
        (Var("u", "uint8"), 1, "uint8"),
        (Var("u", "uint8"), -1, "int32"),
        (I32, 2, "int32"),
        (N, 2, "int64"),
    ],
)
def test_operands_are_matched_to_the_wider_or_floating_datatype(a, b, expected: str):
    assert ops.add(a, b).dtype == expected
    assert ops.add(b, a).dtype == expected


def test_casts_of_literals_are_folded_and_of_others_are_not():
    assert ops.add(N, tir.IntImm("int32", 2)).b is tir.IntImm("int64", 2)
    cast = ops.add(N, I32).b
    assert isinstance(cast, tir.Cast)
    assert cast.value is I32
    for value, is_folded in ((1 << 1000, True), ((1 << 53) + 1, False), ((1 << 1024) - 1, False)):
        found = ops.cast_to(ops.const(value, "int2048"), "float64")
        assert isinstance(found, tir.FloatImm if is_folded else tir.Cast)


@pytest.mark.parametrize(("a", "b"), [(HANDLE, N), (N, HANDLE)])
def test_a_handle_matches_no_number(a: Var, b: Var):
    with pytest.raises(MisuseError, match="cannot match types"):
        ops.add(a, b)


def test_vectors_of_other_lengths_do_not_match():
    with pytest.raises(MisuseError, match="cannot match"):
        ops.add(VECTOR, Var("w", "float32x8"))


def test_scalable_vectors_stay_scalable():
    vector = Var("s", "int32xvscalex4")
    assert (vector + vector).dtype == "int32xvscalex4"
    assert (vector < vector).dtype == "uint1xvscalex4"
    assert (vector + 1).b is tir.Broadcast(1, intrin.vscale() * 4)
    with pytest.raises(MisuseError, match="cannot match types"):
        ops.add(vector, Var("v", "int32x4"))
    with pytest.raises(MisuseError, match="a cast keeps the lanes"):
        vector.astype("int64x4")


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (1, "int32"),
        (2**31, "int64"),
        (1.5, "float32"),
        (1e300, "float64"),
        (math.inf, "float32"),
        ("s", "handle"),
        (np.int8(3), "int32"),
        (np.bool_(1), "bool"),
    ],
)
def test_python_values_become_expressions(value: object, dtype: str):
    assert ops.convert(value).dtype == dtype


def test_const_keeps_the_datatype_of_a_numpy_scalar():
    assert ops.const(np.int8(3)).dtype == "int8"
    assert ops.const(np.float16(0.5)).dtype == "float16"
    assert ops.const(2.7, "int32") is tir.IntImm("int32", 2)
    assert ops.const(1, "float32x4") is tir.Broadcast(tir.FloatImm("float32", 1.0), 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e30, 2**31])
def test_const_refuses_what_is_outside_the_datatype(value: float):
    with pytest.raises(MisuseError, match="outside the range of int32"):
        ops.const(value, "int32")


@pytest.mark.parametrize("value", [None, [1], object(), "1"])
def test_const_refuses_what_is_not_a_number(value: object):
    with pytest.raises(MisuseError, match="a constant is a number"):
        ops.const(value, "int32")


@pytest.mark.parametrize("value", [None, [1], object()])
def test_convert_refuses_what_is_not_an_expression(value: object):
    with pytest.raises(MisuseError, match="expected a scalar expression") as caught:
        ops.convert(value)
    assert isinstance(caught.value, TypeError)


# --- folding


@pytest.mark.rule("PX-1")
@given(INT32, INT32)
def test_sums_and_products_of_literals_are_those_of_wrapped_integers(a: int, b: int):
    x, y = ops.const(a, "int32"), ops.const(b, "int32")
    assert int(x + y) == wrapped(a + b)
    assert int(x - y) == wrapped(a - b)
    assert int(x * y) == wrapped(a * b)
    assert int(ops.minimum(x, y)) == min(a, b)
    assert int(ops.maximum(x, y)) == max(a, b)


@pytest.mark.rule("PX-1", "PX-2")
@given(INT32, INT32.filter(lambda b: b != 0))
def test_quotients_of_literals_truncate_or_floor(a: int, b: int):
    x, y = ops.const(a, "int32"), ops.const(b, "int32")
    exact = a / b
    assert int(ops.truncdiv(x, y)) == wrapped(math.trunc(exact))
    assert int(ops.div(x, y)) == wrapped(math.trunc(exact))
    assert int(ops.floordiv(x, y)) == wrapped(a // b)
    assert int(ops.floormod(x, y)) == a % b
    assert int(ops.truncmod(x, y)) == int(math.fmod(a, b))


@pytest.mark.rule("PX-2")
def test_division_truncates_toward_zero():
    assert int(ops.div(-7, 2)) == -3
    assert int(ops.floordiv(-7, 2)) == -4


@pytest.mark.rule("PX-3")
@pytest.mark.parametrize(
    "function", [ops.div, ops.truncdiv, ops.truncmod, ops.floordiv, ops.floormod]
)
def test_dividing_by_a_literal_zero_is_refused(function):
    with pytest.raises(MisuseError, match="by zero") as caught:
        function(N, 0)
    assert caught.value.diagnostic.rule == "PX-3"


@pytest.mark.rule("PX-3")
def test_dividing_by_a_float_zero_is_refused():
    with pytest.raises(MisuseError, match="by zero"):
        ops.div(F32, 0.0)


@pytest.mark.rule("PX-3")
def test_dividing_a_vector_by_zeros_is_refused():
    with pytest.raises(MisuseError, match="by zero"):
        _ = Var("v", "int32x4") // 0


@pytest.mark.rule("PX-9")
def test_dimensions_are_64_bit_integers():
    for dims in (
        ShapeExpr([2, N]).values,
        ShapeStructInfo([2, N]).values,
        TensorStructInfo([2, N]).get_shape(),
    ):
        assert dims is not None
        assert [d.dtype for d in dims] == ["int64", "int64"]


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("dim", [1.5, True, "n", None, F32, VECTOR])
def test_a_dimension_is_an_integer(dim: object):
    with pytest.raises(MisuseError):
        ShapeExpr([dim])


@pytest.mark.rule("PX-9")
@pytest.mark.parametrize("sign", [operator.add, operator.mul])
def test_a_result_outside_64_bits_is_not_folded(sign):
    big = ops.const(2**62, "int64")
    assert isinstance(sign(big, big), tir.BinaryOpExpr)
    assert sign(ops.const(2**31 - 1), ops.const(2)).dtype == "int32"


@given(st.floats(width=32), st.floats(width=32))
def test_float_literals_are_folded_in_their_own_precision(a: float, b: float):
    with np.errstate(all="ignore"):
        expected = np.float32(a) + np.float32(b)
    folded = ops.add(tir.FloatImm("float32", a), tir.FloatImm("float32", b))
    assert np.array(float(folded)).tobytes() == np.array(float(expected)).tobytes() or (
        math.isnan(float(expected)) and math.isnan(float(folded))
    )


def test_folding_sees_literals_in_their_own_precision():
    """0.1 is no float32: what folding makes of it is what running makes of the nearest one."""
    tenth, nearest = ops.const(0.1), ops.const(np.float32(0.1))
    assert ops.compare(tir.EQ, tenth, nearest) is ops.const(True)
    third = ops.const(1.1)
    assert float(tenth + third) == float(np.float32(0.1) + np.float32(1.1))
    assert ops.const(16777217.0).astype("int32") is ops.const(16777216)
    assert ops.const(0.1).astype("float64") is ops.const(float(np.float32(0.1)), "float64")


@pytest.mark.parametrize("function", [ops.minimum, ops.maximum])
def test_extremes_of_nan_are_nan(function):
    nan, one = ops.const(math.nan), ops.const(1.0)
    assert math.isnan(function(nan, one).value)
    assert math.isnan(function(one, nan).value)


def test_half_precision_literals_are_left_alone():
    assert isinstance(ops.add(ops.const(1.0, "float16"), ops.const(2.0, "float16")), tir.Add)


def test_neutral_operands_disappear():
    zero, one = ops.const(0, "int64"), ops.const(1, "int64")
    assert N + 0 is N
    assert 0 + N is N
    assert N - 0 is N
    assert N * 1 is N
    assert 1 * N is N
    assert (N * 0) is zero
    assert (0 * N) is zero
    assert N // 1 is N
    assert (N % 1) is zero
    assert (zero // N) is zero
    assert ops.minimum(N, N) is N
    assert one is not zero


def test_what_needs_algebra_is_not_folded():
    assert isinstance(N - N, tir.Sub)
    assert str(N + 1 + 2) == "n + T.int64(1) + T.int64(2)"
    assert isinstance(F32 * 0.0, tir.Mul), "0 * nan is nan"


def test_comparisons_and_logic_on_literals_are_folded():
    two, three = ops.const(2), ops.const(3)
    assert (two < three) is ops.const(True)
    assert two.equal(3) is ops.const(False)
    assert ops.all_of(FLAG, True) is FLAG
    assert ops.all_of(FLAG, False) is ops.const(False)
    assert ops.any_of(False, FLAG) is FLAG
    assert ops.logical_not(True) is ops.const(False)
    with pytest.raises(MisuseError, match="at least one condition"):
        ops.all_of()


@pytest.mark.parametrize(
    ("sign", "value"),
    [
        (operator.lshift, 12 << 2),
        (operator.rshift, 12 >> 2),
        (operator.and_, 12 & 2),
        (operator.or_, 12 | 2),
        (operator.xor, 12 ^ 2),
    ],
)
def test_bit_operations_on_literals_are_folded(sign, value: int):
    assert int(sign(ops.const(12), ops.const(2))) == value
    assert isinstance(sign(I32, 2), tir.Call)
    with pytest.raises(MisuseError, match="needs integers"):
        sign(F32, F32)


def test_shifts_stay_inside_the_width():
    assert I32 << 0 is I32
    with pytest.raises(MisuseError, match=r"outside \[0, 32\)"):
        _ = I32 << 32


def test_a_slash_between_integers_is_refused():
    with pytest.raises(MisuseError, match="rounding of / on integers is ambiguous") as caught:
        _ = N / 2
    assert "//" in str(caught.value)
    assert isinstance(F32 / 2, tir.Div)


@pytest.mark.parametrize("function", [ops.floordiv, ops.truncdiv])
def test_integer_division_refuses_floats(function):
    with pytest.raises(MisuseError, match="needs integers"):
        function(F32, 2.0)


def test_negation_is_a_product_and_inversion_is_for_integers():
    assert -N is N * -1
    assert isinstance(~I32, tir.Call)
    with pytest.raises(MisuseError, match="~ needs an integer"):
        _ = ~F32
    for unsigned in (Var("u", "uint8"), FLAG):
        with pytest.raises(MisuseError, match="- needs a number with a sign"):
            _ = -unsigned


# --- casts and intrinsics


def test_casts():
    assert N.astype("int64") is N
    assert ops.const(2.9).astype("int32") is tir.IntImm("int32", 2)
    assert ops.cast_to(I32, "float32x4") is tir.Broadcast(tir.Cast("float32", I32), 4)
    ramp = tir.Ramp(I32, 1, 4)
    assert ops.cast_to(ramp, "int64x4") is tir.Ramp(
        tir.Cast("int64", I32), ops.const(1, "int64"), 4
    )
    for value, dtype in [(VECTOR, "float16"), (ramp, "int64x8"), (ramp + ramp, "float32x2")]:
        with pytest.raises(MisuseError, match="a cast keeps the lanes"):
            ops.cast_to(value, dtype)
    with pytest.raises(MisuseError, match="cannot cast a handle"):
        HANDLE.astype("int64")
    with pytest.raises(MisuseError, match="outside the range"):
        ops.const(300).astype("int8")


def test_intrinsics_keep_the_datatype_of_their_operand():
    assert intrin.exp(F16).dtype == "float16"
    assert intrin.clz(N).dtype == "int32"
    assert intrin.isnan(F32).dtype == "bool"
    assert str(intrin.isnan(tir.Var("h", "float16x4"))) == 'T.isnan(T.Cast("float32x4", h))'
    assert intrin.isnan(N) is ops.const(False)
    assert intrin.floor(N) is N
    assert intrin.abs(ops.const(-3)) is ops.const(3)
    assert intrin.if_then_else(True, N, 1) is N
    assert intrin.max_value("int8") is ops.const(127, "int8")
    with pytest.raises(MisuseError, match="pow needs floats"):
        intrin.pow(N, 2)
    for dtype in ("int32", "float8_e4m3fn", "float4_e2m1fn"):
        with pytest.raises(MisuseError, match="has no infinity"):
            intrin.infinity(dtype)
    assert intrin.infinity("bfloat16").value == math.inf
    assert intrin.min_value("float8_e8m0fnu").value == 2.0**-127
    assert intrin.max_value("float32x4").dtype == "float32x4"
    assert intrin.abs(ops.const(-(2**31))) is ops.const(-(2**31)), "as it wraps when run"
    assert isinstance(intrin.abs(ops.const(-(2**63), "int64")), tir.Sub)
    with pytest.raises(MisuseError, match="if_then_else takes one condition"):
        intrin.if_then_else(Var("c", "uint1x4"), VECTOR, VECTOR)
    with pytest.raises(MisuseError, match="keeps the bits"):
        intrin.reinterpret("int64", F32)


def test_bits_have_functions_beside_the_operators():
    for name, sign in [
        ("bitwise_and", operator.and_),
        ("bitwise_or", operator.or_),
        ("bitwise_xor", operator.xor),
        ("shift_left", operator.lshift),
        ("shift_right", operator.rshift),
    ]:
        assert getattr(face, name)(I32, 3) is sign(I32, 3)
        assert getattr(face, name)(12, 3) is ops.const(sign(12, 3))
    assert face.bitwise_not(I32) is ~I32
    assert face.isnullptr(HANDLE).dtype == "bool"
    assert face.call_cpacked("f", 1).args == (tir.StringImm("f"), ops.const(1))


def test_effects_of_intrinsics():
    kinds = intrinsics.CallEffectKind
    assert intrinsics.effect_of(intrin.exp(F32)) == kinds.Pure
    assert intrinsics.effect_of(intrin.call_extern("int32", "f")) == kinds.UpdateState
    assert intrinsics.effect_of(intrin.call_pure_extern("int32", "f")) == kinds.Pure
    assert intrinsics.effect_of(tir.Call("int32", "tir.unheard_of", ())) == kinds.UpdateState


def test_an_assumed_integer_is_not_zero():
    n, flag = tir.Var("n", "int32"), tir.Var("flag", "bool")
    assert intrin.assume(n).args == (n != 0,)
    assert intrin.assume(cond=flag).args == (flag,)
    with pytest.raises(MisuseError, match="expected a Boolean"):
        intrin.assume(F32)


def test_loads_have_as_many_indices_as_the_buffer_dimensions():
    buffer = decl_buffer((4, N), "float32", "A")
    assert BufferLoad(buffer, [0, N]).dtype == "float32"
    assert BufferLoad(buffer, [0, tir.Ramp(0, 1, 4)]).dtype == "float32x4"
    for indices, message in [
        ([0], "2 dimensions, found 1"),
        ([0, F32], "an index of A is an integer"),
        ([tir.Ramp(0, 1, 2), 0], "only the last index"),
    ]:
        with pytest.raises(MisuseError, match=message):
            BufferLoad(buffer, indices)


def test_results_of_equality_have_the_names_of_tvm():
    for result, kind in ((I32 == N, face.expr.EqualOp), (I32 != N, face.expr.NotEqualOp)):
        assert isinstance(result, kind)
        assert result.asobject() is result


# --- intrinsics

_REAL = "exp exp2 exp10 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh"
_REAL += " asinh acosh atanh erf sigmoid floor ceil trunc round nearbyint"


def test_functions_of_one_number_are_calls_of_the_intrinsics_of_their_names():
    for name in _REAL.split():
        call = getattr(face, name)(F32)
        assert (call.op.name, call.args, call.dtype) == (f"tir.{name}", (F32,), "float32")
    assert {*intrinsics.UNARY_MATH} == {*_REAL.split(), "fabs", "popcount", "clz"}
    assert {*intrinsics.BINARY_MATH} == {
        *("atan2", "copysign", "fmod", "hypot", "ldexp", "nextafter", "pow")
    }


def test_integer_divisions_may_divide_by_zero_unless_the_divisor_is_another_number():
    for kind in (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod):
        for divisor, may in ((0, True), (1, False), (-2, False), (I32, True)):
            assert ops.may_divide_by_zero(kind(I32, ops.convert(divisor))) is may
    assert not ops.may_divide_by_zero(tir.Div(F32, F32))
    assert not ops.may_divide_by_zero(I32 * 0)
