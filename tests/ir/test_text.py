"""The short text of scalars, struct info and leaves, as messages show it, parses back."""

import numpy as np
import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import DataType, Op
from relaxpy.ir.core.float_text import bits_of
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import FuncStructInfo, TensorStructInfo
from relaxpy.ir.short_text import document
from relaxpy.ir.short_text.nodes import ShortText
from relaxpy.ir.tir import expr as tir, intrin, ops
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.iteration import IterVar, Range
from relaxpy.script import relax as R

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
K = tir.Var("k")
X = tir.Var("x", "float32")
FLAG = tir.Var("b", "bool")
A = decl_buffer((4, 8), "float32", "A")


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (N + 1, "n + T.int64(1)"),
        (K + 1, "k + 1"),
        (K - (K - 1), "k - (k - 1)"),
        ((K + 1) * 2, "(k + 1) * 2"),
        (K * 2 // 3 % 4, "k * 2 // 3 % 4"),
        (K * -1, "k * -1"),
        (tir.Div(K, 2), "T.Div(k, 2)"),
        (ops.truncmod(K, 2), "T.truncmod(k, 2)"),
        (X / 2.0, "x / T.float32(2.0)"),
        (ops.minimum(K, 3), "T.min(k, 3)"),
        (tir.Min(K, K), "T.Min(k, k)"),
        (K.equal(1), "k == 1"),
        (tir.LT(1, K), "1 < k"),
        (tir.EQ(FLAG, tir.Not(FLAG)), "b == (not b)"),
        (tir.EQ(tir.EQ(FLAG, FLAG), FLAG), "(b == b) == b"),
        (ops.any_of(ops.all_of(K < 1, FLAG), tir.Not(FLAG)), "k < 1 and b or not b"),
        (ops.all_of(ops.any_of(K < 1, FLAG), FLAG), "(k < 1 or b) and b"),
        (tir.Not(ops.all_of(FLAG, K < 1)), "not (b and k < 1)"),
        (ops.const(True), "T.bool(True)"),
        (ops.const(-3), "-3"),
        (ops.const(3, "uint8"), "T.uint8(3)"),
        (ops.const(0.5), "T.float32(0.5)"),
        (ops.const(float("-inf")), 'T.float32("-inf")'),
        (ops.const(float("nan"), "float16"), 'T.float16("nan")'),
        (tir.Cast("float32", K), 'T.Cast("float32", k)'),
        (tir.Select(FLAG, K, 1), "T.Select(b, k, 1)"),
        (intrin.if_then_else(FLAG, K, 1), "T.if_then_else(b, k, 1)"),
        (K << 2, "T.shift_left(k, 2)"),
        (~K, "T.bitwise_not(k)"),
        (intrin.exp(X), "T.exp(x)"),
        (intrin.abs(X), "T.fabs(x)"),
        (intrin.isnan(X), "T.isnan(x)"),
        (intrin.pow(X, 2.0), "T.pow(x, T.float32(2.0))"),
        (tir.Call("float64", "tir.exp", (X,)), 'T.call_intrin("float64", "tir.exp", x)'),
        (tir.Call("int32", "tir.ptx_thing", (K,)), 'T.call_intrin("int32", "tir.ptx_thing", k)'),
        (intrin.call_extern("int32", "f", K), 'T.call_extern("int32", "f", k)'),
        (intrin.call_packed("f", K), 'T.call_packed("f", k)'),
        (intrin.reinterpret("int32", X), 'T.reinterpret("int32", x)'),
        (intrin.address_of(A), "T.address_of(A[0, 0])"),
        (intrin.ret(K), "T.ret(k)"),
        (tir.Let(K, 2, K + 1), "T.Let(k + 1, where={k: 2})"),
        (tir.Ramp(K, 2, 4), "T.Ramp(k, 2, 4)"),
        (tir.Broadcast(K, 4), "T.Broadcast(k, 4)"),
        (tir.Shuffle([tir.Broadcast(K, 2)], [0, 1]), "T.Shuffle([T.Broadcast(k, 2)], [0, 1])"),
        (A[K, 0], "A[k, 0]"),
        (A[K, 0:4:1], "A[k, 0:4]"),
        (A[K, K : K + 8 : 2], "A[k, k:k + 8:2]"),
        (A[0, tir.Ramp(7, -1, 4)], "A[0, T.Ramp(7, -1, 4)]"),
        (decl_buffer((), "int8", "S")[()], "S[()]"),
        (tir.StringImm('say "hi"'), "'say \"hi\"'"),
        (tir.StringImm("it's"), '"it\'s"'),
    ],
)
def test_scalars(expr: tir.PrimExpr, text: str):
    assert str(expr) == text
    assert repr(expr) == text


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (tir.Add(K, 0), "T.Add(k, 0)"),
        (tir.Mul(K, 1), "T.Mul(k, 1)"),
        (tir.FloorDiv(7, 2), "T.FloorDiv(7, 2)"),
        (tir.FloorDiv(K, 0), "T.FloorDiv(k, 0)"),
        (tir.And(FLAG, True), "T.And(b, T.bool(True))"),
        (tir.Not(True), "T.Not(T.bool(True))"),
        (tir.LT(1, 2), "T.LT(1, 2)"),
        (tir.FloorDiv(X, X), "T.FloorDiv(x, x)"),
        (ops.const(2**62, "int64") * 4, "T.int64(4611686018427387904) * T.int64(4)"),
    ],
)
def test_what_would_be_folded_is_written_as_its_node(expr: tir.PrimExpr, text: str):
    assert str(expr) == text


def test_dimensions_have_plain_integers_where_they_are_64_bits_wide():
    writer = ShortText()
    i32 = tir.Var("i", "int32")
    assert writer.leaf(rx.ShapeExpr([N * 2 + 1, 4])) == "R.shape([n * 2 + 1, 4])"
    mixed = rx.ShapeExpr([tir.FloorDiv(7, 2).astype("int64"), tir.Cast("int64", i32 + 1)])
    assert writer.leaf(mixed) == (
        'R.shape([T.Cast("int64", T.FloorDiv(7, 2)), T.Cast("int64", i + T.int32(1))])'
    )
    literal = tir.Add(ops.const(1, "int64"), ops.const(2, "int64"))
    assert writer.leaf(rx.ShapeExpr([literal])) == "R.shape([T.Add(T.int64(1), T.int64(2))])"
    assert writer.leaf(rx.PrimValue(tir.LT(ops.const(1, "int64"), N))) == ("R.prim_value(1 < n)")


@pytest.mark.parametrize(
    ("sinfo", "text"),
    [
        (rx.ObjectStructInfo(), "R.Object"),
        (rx.PrimStructInfo("int64"), 'R.Prim("int64")'),
        (rx.PrimStructInfo(value=N), "R.Prim(value=n)"),
        (rx.ShapeStructInfo(), "R.Shape"),
        (rx.ShapeStructInfo(ndim=2), "R.Shape(ndim=2)"),
        (rx.ShapeStructInfo((N, 2)), "R.Shape([n, 2])"),
        (rx.ShapeStructInfo(()), "R.Shape([])"),
        (TensorStructInfo(None, ""), "R.Tensor"),
        (TensorStructInfo((), "int8"), 'R.Tensor((), dtype="int8")'),
        (TensorStructInfo((N,), ""), "R.Tensor((n,))"),
        (TensorStructInfo(None, "int8", ndim=2), 'R.Tensor(dtype="int8", ndim=2)'),
        (TensorStructInfo(rx.Var("s", rx.ShapeStructInfo())), 'R.Tensor(s, dtype="float32")'),
        (rx.TupleStructInfo(()), "R.Tuple()"),
        (rx.TupleStructInfo([rx.ObjectStructInfo()]), "R.Tuple(R.Object)"),
        (FuncStructInfo.opaque_func(), "R.Callable"),
        (FuncStructInfo.opaque_func(purity=True), "R.Callable(purity=True)"),
        (
            FuncStructInfo.opaque_func(ret=rx.PrimStructInfo("bool")),
            'R.Callable(ret=R.Prim("bool"))',
        ),
        (
            FuncStructInfo.opaque_func(derive_func=rx.DEFAULT_DERIVE),
            'R.Callable(derive_func="default_derive")',
        ),
        (
            FuncStructInfo([rx.ObjectStructInfo()], rx.TupleStructInfo(())),
            "R.Callable((R.Object,), R.Tuple(), True)",
        ),
    ],
)
def test_infos(sinfo: rx.StructInfo, text: str):
    assert str(sinfo) == text


def test_symbols_of_a_signature_are_quoted():
    writer = ShortText()
    sinfo = TensorStructInfo((N, N * 2, M, 4, M + 1))
    assert writer.struct_info(sinfo, quoted=frozenset([N])) == (
        'R.Tensor(("n", "n * 2", m, 4, m + 1), dtype="float32")'
    )


@pytest.mark.parametrize(
    ("leaf", "text"),
    [
        (rx.PrimValue(3), "R.prim_value(3)"),
        (rx.PrimValue(ops.const(1.5, "float64")), "R.prim_value(T.float64(1.5))"),
        (rx.StringImm('a "b"\n'), "R.str('a \"b\"\\n')"),
        (rx.DataTypeImm("bool"), 'R.dtype("bool")'),
        (rx.Tuple([]), "R.tuple()"),
        (rx.Tuple([rx.Var("x")]), "(x,)"),
        (rx.ExternFunc("my.f"), 'R.ExternFunc("my.f")'),
        (rx.ExternFunc("f", FuncStructInfo.opaque_func()), 'R.ExternFunc("f", R.Callable)'),
        (rx.GlobalVar("main"), "main"),
        (rx.const(1.5), 'R.const(1.5, "float32")'),
        (rx.const(True), 'R.const(True, "bool")'),
        (rx.const([[1, 2], [3, 4]], "int8"), 'R.const([[1, 2], [3, 4]], "int8")'),
        (Op("relax.add"), "Op(relax.add)"),
    ],
)
def test_leaves(leaf: rx.Expr, text: str):
    assert str(leaf) == text


def test_other_parts():
    assert str(Range(2, 5)) == "I.Range(2, 5)"
    assert str(IterVar(Range(4), "i", 0)) == 'T.iter_var(i, T.Range(0, 4), "DataPar", "")'
    assert str(A[K, 0:4]) == "A[k, 0:4]"
    assert str(rx.Var("x")) == "x"


def test_no_expression_is_too_deep():
    expr: tir.PrimExpr = K
    for _ in range(20_000):
        expr = tir.Max(expr, tir.Var("j"))
    assert str(expr).startswith("T.max(T.max(")


# --- literals


@pytest.mark.parametrize(
    "text", ["", "a", "it's", 'a "b"', "both ' and \"", "\n\\\t", "é\u2028", "\ud800"]
)
def test_strings_are_python_literals(text: str):
    assert eval(document.string_text(text)) == text


@pytest.mark.parametrize(
    "value", [0.0, -0.0, 1.5, 1e300, *map(float, ("inf", "-inf", "nan", "-nan"))]
)
def test_floats_are_python_expressions(value: float):
    assert bits_of(eval(document.python_float_text(value))) == bits_of(value)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
def test_every_bit_of_a_constant_is_kept(dtype: str):
    values = [1.5, 0.1, -0.0, 0.0, "nan", "-nan", 3.0]
    values += [] if dtype == "float8_e4m3fn" else ["inf", "-inf"]
    constant = rx.const(values, dtype)
    text = str(constant)
    again = eval(text, {"R": rx})
    assert again.data.tobytes() == constant.data.tobytes()
    assert again.data.dtype == constant.data.dtype


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (np.frombuffer(b"\x01\x00\xc0\x7f", "float32"), 'R.const(["0x7fc00001"], "float32")'),
        (np.zeros((0, 3)), 'R.const([], "float64", shape=(0, 3))'),
        (np.zeros((2, 0, 3), "int8"), 'R.const([], "int8", shape=(2, 0, 3))'),
        (np.zeros((2, 0), "bool"), 'R.const([[], []], "bool")'),
    ],
)
def test_what_lists_cannot_say_is_said_otherwise(data: np.ndarray, text: str):
    constant = rx.Constant(data)
    assert str(constant) == text
    again = eval(text, {"R": R})
    assert again.data.tobytes() == data.tobytes()
    assert (again.data.shape, again.data.dtype) == (data.shape, data.dtype)


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
)
def test_all_bits_that_a_float_can_have_read_back(dtype: str):
    kind = DataType(dtype).numpy()
    raw = np.random.default_rng(0).integers(0, 256, 512 * kind.itemsize, dtype="uint8")
    raw = np.arange(256, dtype="uint8") if kind.itemsize == 1 else raw
    data = raw.view(kind)
    arguments = [document.flat(part) for part in document.constant_literal(data)]
    again = eval(f"R.const({', '.join(arguments)})", {"R": R})
    assert again.data.tobytes() == data.tobytes()


def test_bits_are_no_more_than_the_datatype_has():
    with pytest.raises(MisuseError, match="cannot make a tensor"):
        rx.const(["0x100000000"], "float32")
    with pytest.raises(MisuseError, match="0 elements have no shape"):
        R.const([], "float32", shape=(3,))


def test_what_is_nested_too_deeply_is_named():
    sinfo: rx.StructInfo = rx.ObjectStructInfo()
    for _ in range(3000):
        sinfo = rx.TupleStructInfo([sinfo])
    assert str(sinfo) == "<TupleStructInfo, nested too deeply to be shown>"


@pytest.mark.parametrize(
    "data", [np.zeros((0,)), np.zeros((2, 0)), np.array(3), np.array([], "bool")]
)
def test_empty_and_scalar_constants_keep_their_shape(data: np.ndarray):
    again = eval(str(ShortText().leaf(rx.Constant(data))), {"R": rx})
    assert again.data.shape == data.shape


# --- lines


def lines(doc: object, width: int) -> list[str]:
    return list(document.Layout(width).lines(doc, 0))


def test_lines_break_at_brackets_only_where_they_must():
    doc = document.Concat("x = ", document.call("f", "aaaa", document.tuple_doc(["bbbb"]), "cccc"))
    assert lines(doc, 80) == ["x = f(aaaa, (bbbb,), cccc)"]
    assert lines(doc, 25) == ["x = f(", "    aaaa, (bbbb,), cccc", ")"]
    assert lines(doc, 20) == ["x = f(", "    aaaa,", "    (bbbb,),", "    cccc,", ")"]


def test_operators_stand_at_the_beginning_of_lines_in_parentheses():
    doc = document.Concat(
        "x = ", document.Infix(document.Infix("aaaa", "+", "bbbb", 9), "-", "cccc", 9)
    )
    assert lines(doc, 15) == ["x = (", "    aaaa", "    + bbbb", "    - cccc", ")"]


def test_what_follows_a_bracket_counts():
    doc = document.Concat(document.call("f", "aaaa"), " = ", document.call("g", "bbbb"))
    assert lines(doc, 14) == ["f(aaaa) = g(", "    bbbb", ")"]
    assert lines(doc, 10) == ["f(", "    aaaa", ") = g(", "    bbbb", ")"]


def test_many_words_fill_lines():
    doc = document.Group("[", map(str, range(100, 130)), "]")
    found = lines(doc, 30)
    assert found[1] == "    100, 101, 102, 103, 104,"
    assert max(map(len, found)) <= 30
    assert eval("".join(found)) == list(range(100, 130))


def test_what_cannot_break_stays_long():
    assert lines("x" * 50, 20) == ["x" * 50]
    assert lines(document.Group("f(", [], ")"), 1) == ["f()"]


def test_deep_brackets_do_not_end_in_recursion():
    doc: object = "x"
    for _ in range(5000):
        doc = document.Group("(", [doc], ")")
    assert len(document.flat(doc)) == 10_001
    assert "".join("".join(lines(doc, 20)).split()).replace(",", "") == document.flat(doc)
