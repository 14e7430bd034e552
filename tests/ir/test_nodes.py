"""The nodes of Relax: what they hold, what they convert, what they refuse."""

import copy
import dataclasses
import tracemalloc

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, ir, register_func
from relaxpy.errors import Diagnostic, MisuseError, UnknownNameError, UnknownPackedFuncError
from relaxpy.ir.core.node import Attrs, as_attrs
from relaxpy.ir.core.tensor import Tensor
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.nodes import (
    DEFAULT_DERIVE,
    EnvFunc,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from relaxpy.ir.relax.nodes.expr import convert_to_expr
from relaxpy.ir.tir import expr as tir, ops

N = tir.Var("n", "int64")
X = rx.Var("x", TensorStructInfo((N, 4)))
Y = rx.Var("y", TensorStructInfo((N, 4)))


# --- struct infos


@pytest.mark.rule("AST-5")
def test_there_are_six_kinds_of_struct_info():
    sinfos = [
        TensorStructInfo((2, N), "int8"),
        ShapeStructInfo((2, N)),
        PrimStructInfo("int64", N),
        ObjectStructInfo(),
        TupleStructInfo([ObjectStructInfo()]),
        FuncStructInfo([ObjectStructInfo()], ObjectStructInfo(), purity=False),
    ]
    assert {type(i) for i in sinfos} == set(rx.AnyStructInfo.__args__)
    tensor, shape, prim, _, tuple_, func = sinfos
    assert (tensor.ndim, tensor.dtype, tensor.get_shape()) == (
        2,
        "int8",
        (ops.const(2, "int64"), N),
    )
    assert (shape.ndim, len(shape.values)) == (2, 2)
    assert (prim.dtype, prim.value) == ("int64", N)
    assert tuple_.fields == (ObjectStructInfo(),)
    assert (func.purity, func.derive_func) == (False, None)


@pytest.mark.rule("SI-11")
def test_a_rank_left_out_is_that_of_the_shape():
    shape = rx.Var("s", ShapeStructInfo(ndim=3))
    assert TensorStructInfo((2, 3)).ndim == 2
    assert TensorStructInfo(shape).ndim == 3
    assert TensorStructInfo(rx.Var("s", ShapeStructInfo())).ndim == -1
    assert TensorStructInfo(None).ndim == -1
    assert ShapeStructInfo((1, 2)).ndim == 2
    assert ShapeStructInfo().ndim == -1


@pytest.mark.rule("SI-11")
@pytest.mark.parametrize("make", [TensorStructInfo, ShapeStructInfo])
def test_minus_one_is_the_only_negative_rank(make):
    with pytest.raises(MisuseError, match="ndim is -1") as caught:
        make(ndim=-2)
    assert caught.value.diagnostic.rule == "SI-11"


@pytest.mark.rule("SI-3")
@pytest.mark.parametrize("shape", ["n", 4, rx.Var("t", TensorStructInfo((2,)))])
def test_a_shape_is_a_sequence_or_a_variable_that_holds_one(shape: object):
    with pytest.raises(MisuseError) as caught:
        TensorStructInfo(shape)
    assert caught.value.diagnostic.rule == "SI-3"


def test_a_prim_struct_info_needs_a_datatype_or_a_value():
    assert PrimStructInfo(value=3).value is ops.const(3, "int64")
    assert PrimStructInfo(value=True).dtype == "bool"
    assert PrimStructInfo("float32", 1.5).value is ops.const(1.5, "float32")
    with pytest.raises(MisuseError, match="needs a dtype or a value"):
        PrimStructInfo()
    with pytest.raises(MisuseError, match="takes a dtype first"):
        PrimStructInfo(N)


def test_fields_of_struct_infos_are_struct_infos():
    for make in (
        lambda: TupleStructInfo(["float32"]),
        lambda: FuncStructInfo([3], ObjectStructInfo()),
        lambda: FuncStructInfo([], 3),
        lambda: rx.Var("x", "float32"),
    ):
        with pytest.raises(MisuseError, match="expected a StructInfo") as caught:
            make()
        assert isinstance(caught.value, TypeError)


# --- leaves


@pytest.mark.rule("AST-6", "VAL-1", "VAL-2")
def test_constants_hold_arrays_that_cannot_be_written():
    data = np.arange(6, dtype="int8").reshape(2, 3)
    constant = rx.Constant(data)
    data[0, 0] = 9
    assert constant.data[0, 0] == 0
    assert constant.struct_info == TensorStructInfo((2, 3), "int8")
    with pytest.raises(ValueError, match="read-only"):
        constant.data[0, 0] = 1
    assert rx.const(1.0).struct_info == TensorStructInfo((), "float32")
    assert rx.Constant(constant.data).data is constant.data


@pytest.mark.rule("AST-6", "VAL-1")
@pytest.mark.parametrize("value", ["text", 1j, object(), [object()], np.datetime64("2020-01-01")])
def test_a_tensor_holds_numbers_or_booleans(value: object):
    with pytest.raises(MisuseError) as caught:
        rx.const(value)
    assert isinstance(caught.value, TypeError)


def test_const_reads_python_numbers_as_32_bits_and_keeps_arrays():
    assert rx.const(1).data.dtype == "int32"
    assert rx.const([1.5, 2]).data.dtype == "float32"
    assert rx.const(True).data.dtype == "bool"
    assert rx.const(np.float64(1)).data.dtype == "float64"
    assert rx.const([1, 2], "bfloat16").struct_info == TensorStructInfo((2,), "bfloat16")
    assert rx.const(np.arange(3), "float16").data.dtype == "float16"
    nan, inf = rx.const(["nan", "-inf"], "float8_e5m2").data.astype("float32")
    assert np.isnan(nan)
    assert inf == -np.inf


@pytest.mark.rule("AST-6")
def test_prim_values_hold_scalars():
    assert rx.PrimValue(3).value is ops.const(3, "int64")
    assert rx.PrimValue(1.5).value is ops.const(1.5, "float32")
    assert rx.PrimValue(N * 2).struct_info == PrimStructInfo("int64", N * 2)
    with pytest.raises(MisuseError, match="expected a scalar expression"):
        rx.PrimValue([1])


@pytest.mark.rule("AST-6")
def test_strings_and_datatypes_are_objects():
    assert rx.StringImm("a").struct_info == ObjectStructInfo()
    assert rx.DataTypeImm("float").value == "float32"
    with pytest.raises(MisuseError, match="unknown dtype"):
        rx.DataTypeImm("flaot32")


@pytest.mark.rule("AST-7")
def test_variables_have_a_hint_and_perhaps_an_annotation_and_come_in_two_kinds():
    assert X.name_hint == "x"
    assert X.struct_info_annotation == TensorStructInfo((N, 4))
    assert rx.Var("v").struct_info_annotation is None
    assert isinstance(rx.DataflowVar("v"), rx.Var)
    assert not isinstance(rx.Var("v"), rx.DataflowVar)
    assert rx.Var("v") != rx.Var("v")


@pytest.mark.rule("AST-8")
def test_a_global_variable_has_its_name_only():
    assert rx.GlobalVar("f").name_hint == "f"
    assert rx.GlobalVar("f").struct_info is None


@pytest.mark.rule("AST-9", "VAL-3", "VAL-4")
def test_tuples_are_built_and_projected():
    pair = rx.Tuple([X, rx.Tuple([])])
    assert pair.struct_info == TupleStructInfo([X.struct_info, TupleStructInfo(())])
    assert pair[1].struct_info == TupleStructInfo(())
    assert len(pair) == 2
    assert list(pair) == [X, pair[1]]
    assert rx.TupleGetItem(pair, 0).struct_info == X.struct_info
    assert rx.Var("t", pair.struct_info)[1].index == 1
    assert rx.Tuple([1, 2.0, "s", (X,)]).fields[3].fields == (X,)


@pytest.mark.rule("AST-9")
@pytest.mark.parametrize("index", [-1, 1.0, "0", N])
def test_a_tuple_index_is_a_constant_from_zero(index: object):
    with pytest.raises(MisuseError, match="a tuple index is an integer >= 0") as caught:
        rx.TupleGetItem(rx.Var("t"), index)
    assert caught.value.diagnostic.rule == "AST-9"


@pytest.mark.rule("DER-33")
def test_a_projection_beyond_the_fields_is_refused():
    with pytest.raises(MisuseError, match="index 2 is out of bounds for a tuple of 2 fields"):
        rx.TupleGetItem(rx.Tuple([X, Y]), 2)
    with pytest.raises(IndexError):
        rx.Var("t", TupleStructInfo(()))[0]
    with pytest.raises(MisuseError, match=r"R\.take"):
        X["a"]


@pytest.mark.rule("AST-16", "VAL-8")
def test_shapes_hold_scalars():
    shape = rx.ShapeExpr([N, 3, N * 2])
    assert list(shape) == [N, ops.const(3, "int64"), N * 2]
    assert shape[0] is N
    assert shape.struct_info == ShapeStructInfo((N, 3, N * 2))
    with pytest.raises(MisuseError, match="a dimension is an integer"):
        rx.ShapeExpr(["n"])


@pytest.mark.rule("AST-21")
@pytest.mark.parametrize("misplaced", [X, rx.Var("s", rx.PrimStructInfo("int64"))])
def test_a_relax_expression_is_not_part_of_a_scalar(misplaced: object):
    for make in (lambda: N + misplaced, lambda: ops.add(N, misplaced)):
        with pytest.raises((MisuseError, TypeError)):
            make()


@pytest.mark.rule("AST-21")
def test_a_scalar_of_known_value_stands_for_its_value():
    assert ops.add(N, rx.PrimValue(1)) is N + 1
    assert N + rx.PrimValue(N * 2) is N + N * 2


@pytest.mark.rule("AST-14")
def test_packed_functions_and_operators_are_known_by_name():
    assert rx.ExternFunc("my.f").global_symbol == "my.f"
    sinfo = rx.ExternFunc("my.f").struct_info
    assert isinstance(sinfo, FuncStructInfo)
    assert (sinfo.params, sinfo.derive_func) == (None, rx.DEFAULT_DERIVE)
    assert Op("relax.add") is Op("relax.add")
    assert Op("relax.add").name == "relax.add"


def test_columns_of_operators_are_registered_by_level():
    name = "relax.test.registered"
    try:
        assert ir.register_op_attr(name, "column", 1) == 1

        @ir.register_op_attr(name, "function")
        def function() -> int:
            return 3

        assert function() == 3
        assert ir.Op.get(name).get_attr("function") is function
        ir.register_op_attr(name, "column", 2, level=5)
        assert ir.Op.get(name).get_attr("column") == 1
        ir.register_op_attr(name, "column", 3, level=11)
        assert ir.Op.get(name).get_attr("column") == 3
        ir.Op.get(name).set_attr("column", 4)
        assert ir.Op.get(name).get_attr("column") == 3
        ir.Op.get(name).set_attr("column", 4, plevel=12)
        assert ir.Op.get(name).get_attr("column") == 4
    finally:
        for key in ("column", "function"):
            ir.Op(name).reset_attr(key)


def test_nodes_are_made_by_the_name_of_their_kind():
    assert ir.make_node("tir.Add", a=N, b=1) is N + 1
    assert ir.make_node("ir.DictAttrs", axis=[1]) == ir.DictAttrs({"axis": (1,)})
    assert ir.make_node("relax.StringImm", value="s").value == "s"
    assert ir.make_node("DictAttrs", axis=1) == ir.DictAttrs({"axis": 1})
    for key in ("ir.IntImm", "IntImm"):
        assert ir.make_node(key, dtype="int32", value=10, span=None).value == 10
    assert isinstance(ir.make_node("relax.expr.Var", name_hint="x"), rx.Var)
    for key in ("Var", "te.Var", 3):  # there are two kinds of variables
        with pytest.raises(UnknownNameError, match="no kind of node"):
            ir.make_node(key)
    with pytest.raises(ValueError, match=r"did you mean 'tir\.Add'"):
        ir.make_node("tir.Adb")
    with pytest.raises(MisuseError, match=r"cannot build a tir\.Add"):
        ir.make_node("tir.Add", c=3)
    with pytest.raises(MisuseError, match="mismatched types"):
        ir.make_node("tir.Add", a=N, b=tir.Var("i"))


def test_positions_can_be_made_by_hand():
    span = ir.Span(ir.SourceName("model.rx"), 1, 2, 1, 5)
    assert str(span) == "model.rx:1:2"
    assert str(Diagnostic("here", span=span)) == "model.rx:1:2: here"


def test_operators_cannot_be_changed_and_are_named_by_strings():
    with pytest.raises(AttributeError, match="an operator cannot be changed"):
        Op("relax.add").name = "relax.sub"
    with pytest.raises(MisuseError, match="an operator is named by a string, found 3"):
        Op(3)
    with pytest.raises(ValueError, match="no operator is registered as 3"):
        Op.get(3)


@pytest.mark.parametrize("value", [3, [1, 2], ["ab", 3]])
def test_attributes_are_given_as_a_table(value: object):
    with pytest.raises(MisuseError, match="attributes are a table of names and values"):
        Attrs(value)


def test_attributes_do_not_hold_themselves():
    value: list[object] = []
    value.append(value)
    with pytest.raises(MisuseError, match="contains itself"):
        Attrs({"a": value})


def test_an_operator_that_nobody_registered_is_not_found():
    Op("relax.unregistered_operator")
    with pytest.raises(ValueError, match="no operator is registered") as caught:
        Op.get("relax.unregistered_operator")
    assert isinstance(caught.value, KeyError)
    assert Op.get("tirx.exp") is Op.get("tir.exp")


# --- expressions with parts


@pytest.mark.rule("AST-15")
def test_calls_hold_operator_operands_attributes_and_struct_infos():
    call = rx.Call(Op("relax.add"), [X, Y], {"axis": [1, 2]}, [TensorStructInfo((2,))])
    assert call.args == (X, Y)
    assert call.attrs == Attrs({"axis": (1, 2)})
    assert call.sinfo_args == (TensorStructInfo((2,)),)
    assert call.attrs.get_int_tuple("axis") == (1, 2)
    assert Attrs({"n": 3}).get_int("n") == 3
    assert Attrs({"s": "NCHW"}).get_str("s") == "NCHW"
    with pytest.raises(MisuseError, match="expected an integer under 'axis', found"):
        call.attrs.get_int("axis")
    with pytest.raises(AttributeError, match="no attribute 'axes' among axis"):
        call.attrs.get_int_tuple("axes")
    assert rx.Call(rx.Var("f"), [X]).op.name_hint == "f"
    assert rx.Call(Op("relax.add"), (X,)).sinfo_args == ()
    assert rx.Var("f")(X, 1).args[1].value is ops.const(1, "int64")


@pytest.mark.rule("AST-15")
def test_struct_infos_of_a_call_are_struct_infos():
    with pytest.raises(MisuseError, match="expected a StructInfo"):
        rx.Call(Op("relax.add"), (X,), sinfo_args=("float32",))


@pytest.mark.rule("AST-13", "NF-7")
def test_an_if_has_both_branches_and_wraps_them():
    condition = rx.Var("c", TensorStructInfo((), "bool"))
    whole = rx.SeqExpr((), X)
    found = rx.If(condition, whole, Y)
    assert found.true_branch is whole
    assert (found.false_branch.blocks, found.false_branch.body) == ((), Y)
    assert found.false_branch.struct_info is Y.struct_info
    with pytest.raises(TypeError):
        rx.If(condition, X)


@pytest.mark.rule("AST-10", "AST-17", "AST-18", "AST-19")
def test_sequences_hold_blocks_of_bindings_and_a_result():
    plain = rx.BindingBlock([rx.VarBinding(Y, X), rx.MatchCast(None, X, ObjectStructInfo())])
    flow = rx.DataflowBlock([rx.VarBinding(rx.DataflowVar("lv"), X)])
    sequence = rx.SeqExpr([plain, flow], Y)
    assert sequence.blocks == (plain, flow)
    assert sequence.body is Y
    assert not isinstance(plain, rx.DataflowBlock)
    assert plain.bindings[1].var is None


@pytest.mark.rule("AST-18", "AST-19")
def test_a_binding_needs_a_variable_and_a_cast_a_struct_info_and_a_value():
    with pytest.raises(TypeError):
        rx.VarBinding(Y)
    with pytest.raises(TypeError):
        rx.MatchCast(Y, X)
    with pytest.raises(MisuseError, match="expected a StructInfo"):
        rx.MatchCast(Y, X, None)


@pytest.mark.rule("AST-9", "AST-16")
def test_members_are_counted_from_either_end():
    pair, shape = rx.Tuple([X, Y]), rx.ShapeExpr([N, 3])
    assert (pair[0], pair[-1], pair[-2]) == (X, Y, X)
    assert shape[-2] is N
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"Tuple index out of range: {index} of 2 members"):
            pair[index]
        with pytest.raises(IndexError, match=f"ShapeExpr index out of range: {index} of 2 members"):
            shape[index]


@pytest.mark.rule("AST-11", "AST-12", "NF-6")
def test_functions_have_parameters_and_a_body_and_no_name():
    func = rx.Function([X], X)
    assert (func.params, func.body.blocks, func.body.body) == ((X,), (), X)
    assert rx.Function([X], func.body).body is func.body
    with pytest.raises(MisuseError, match="expected a Relax expression, found int"):
        rx.Function([X], 1)
    assert (func.ret_struct_info, func.is_pure, func.attrs) == (None, True, Attrs())
    assert not hasattr(func, "name_hint")
    named = func.with_attr("global_symbol", "f").with_attrs({"a": [1]})
    assert named.attrs == {"global_symbol": "f", "a": (1,)}
    assert named.without_attr("a").attrs == {"global_symbol": "f"}
    assert named.__name__ == "f"
    assert not hasattr(func, "__name__")
    assert rx.Function.__name__ == "Function"
    assert func.attrs == {}


@pytest.mark.rule("AST-23")
def test_a_function_may_stand_wherever_an_expression_may():
    func = rx.Function([X], X)
    assert rx.Call(func, (Y,)).op is func
    assert rx.Tuple([func]).fields[0] is func
    assert rx.SeqExpr([], func).body is func


def test_python_values_become_expressions():
    assert isinstance(rx.convert_to_expr(True).value, tir.IntImm)
    assert rx.convert_to_expr(2).value.dtype == "int64"
    assert rx.convert_to_expr(2.5).value.dtype == "float64"
    assert isinstance(rx.convert_to_expr("s"), rx.StringImm)
    assert isinstance(rx.convert_to_expr([X]), rx.Tuple)
    for value in (None, {}, object(), np.zeros(2)):
        with pytest.raises(MisuseError, match="expected a Relax expression"):
            rx.convert_to_expr(value)


# --- nodes as data


@pytest.mark.rule("AST-22")
def test_building_and_printing_evaluates_nothing():
    calls: list[object] = []
    derive = rx.EnvFunc("d", lambda call, ctx: calls.append(call) or ObjectStructInfo())
    sinfo = FuncStructInfo.opaque_func(derive_func=derive)
    call = rx.Call(rx.ExternFunc("no.such.function", sinfo), (X,))
    func = rx.Function([X], rx.SeqExpr([rx.BindingBlock([rx.VarBinding(Y, call)])], Y))
    assert "no.such.function" in str(IRModule({"main": func}))
    assert call.struct_info is None
    assert calls == []


def test_nodes_cannot_be_changed_but_replaced():
    call = rx.Call(Op("relax.add"), (X, Y))
    with pytest.raises(dataclasses.FrozenInstanceError):
        call.args = ()
    with pytest.raises(AttributeError):
        call.attrs.axis = 1
    assert dataclasses.replace(call, args=(Y,)).args == (Y,)
    assert call.with_struct_info(ObjectStructInfo()).struct_info == ObjectStructInfo()
    assert copy.copy(call) is call
    assert copy.deepcopy(call) is call


def test_attributes_are_a_table_of_frozen_values():
    attrs = Attrs({"axes": [1, [2]], "how": {"a": 1}})
    assert attrs["axes"] == (1, (2,))
    assert attrs.axes == (1, (2,))
    assert attrs.how.a == 1
    assert attrs.axes[0].dtype == attrs.axes[1][0].dtype == "int64"
    assert attrs.axes[0].value == 1
    assert isinstance(attrs.axes, relaxpy.ir.Array)
    assert isinstance(attrs.how, relaxpy.ir.container.Map)
    assert attrs == {"axes": (1, (2,)), "how": {"a": 1}}
    assert hash(attrs) == hash(Attrs({"how": {"a": 1}, "axes": (1, (2,))}))
    assert attrs.updated({"new": 1}).without("axes", "how") == {"new": 1}
    assert list(attrs) == ["axes", "how"]
    assert copy.deepcopy(attrs) is attrs
    data = np.arange(3)
    kept = Attrs({"data": data, "deep": [data]})
    data[0] = 9
    assert kept == Attrs({"data": np.arange(3), "deep": (np.arange(3),)})
    assert kept != Attrs({"data": np.arange(4), "deep": (np.arange(3),)})
    numbers = Attrs({"data": (0, 1, 2), "deep": (data,)})
    assert numbers != kept
    assert kept != numbers
    assert as_attrs({}) is as_attrs(Attrs()) is as_attrs(None)
    assert not kept.data.flags.writeable
    assert Attrs({"a": 1}) == Attrs({"a": 1.0})
    assert hash(Attrs({"a": 1})) == hash(Attrs({"a": 1.0}))
    assert Attrs({"a": 1}) != 3
    with pytest.raises(AttributeError, match="no attribute 'axis' among axes, how"):
        _ = attrs.axis
    with pytest.raises(KeyError):
        attrs["axis"]


@pytest.mark.rule("SI-16")
def test_struct_infos_are_equal_up_to_their_own_shape_variables():
    m = tir.Var("m", "int64")

    def signature(size: tir.Var) -> FuncStructInfo:
        return FuncStructInfo([TensorStructInfo((size,))], TensorStructInfo((size,)))

    assert TensorStructInfo((N, 2)) == TensorStructInfo((N, 2))
    assert TensorStructInfo((N, 2)) != TensorStructInfo((m, 2))
    assert signature(N) == signature(m)
    assert hash(signature(N)) == hash(signature(m))
    assert TensorStructInfo((2,)) != ShapeStructInfo((2,))
    assert TensorStructInfo((2,)) != "R.Tensor((2,))"


# --- what does not fit together


VALUES: dict[str, tuple[str, object]] = {
    "call of an int": ("AST-15", lambda: rx.Call(Op("relax.add"), X)),
    "infos of a call": ("AST-5", lambda: rx.Call(rx.ExternFunc("f"), (X,), None, X.struct_info)),
    "tuple": ("AST-9", lambda: rx.Tuple(3)),
    "variable of a binding": ("AST-18", lambda: rx.VarBinding("x", X)),
    "global variable of a binding": ("AST-18", lambda: rx.VarBinding(rx.GlobalVar("g"), X)),
    "variable of a cast": ("AST-19", lambda: rx.MatchCast("x", X, X.struct_info)),
    "bindings": ("AST-17", lambda: rx.BindingBlock(3)),
    "binding": ("AST-17", lambda: rx.DataflowBlock([X])),
    "blocks": ("AST-10", lambda: rx.SeqExpr(rx.BindingBlock([]), X)),
    "block": ("AST-10", lambda: rx.SeqExpr([rx.VarBinding(Y, X)], X)),
    "parameters": ("AST-11", lambda: rx.Function(X, X)),
    "parameter": ("AST-11", lambda: rx.Function(["x"], X)),
    "dimensions": ("PX-9", lambda: ShapeStructInfo(3)),
    "truth value as dimension": ("PX-9", lambda: rx.ShapeExpr([np.True_])),
    "truth literal as dimension": ("PX-9", lambda: rx.ShapeExpr([ops.const(True)])),
    "fields": ("AST-5", lambda: TupleStructInfo(X.struct_info)),
    "parameters of a function info": ("AST-5", lambda: FuncStructInfo(3, ObjectStructInfo())),
    "rank": ("SI-11", lambda: TensorStructInfo(ndim="2")),
    "string as scalar": ("RES-46", lambda: rx.PrimValue("s")),
    "string as value": ("RES-46", lambda: PrimStructInfo(value="s")),
    "fraction as integer": ("WF-22", lambda: PrimStructInfo("int64", 2.5)),
}


@pytest.mark.rule("AST-10", "AST-11", "AST-15", "AST-17", "AST-18", "AST-19")
@pytest.mark.parametrize("case", VALUES)
def test_parts_of_another_kind_are_refused_where_they_are_given(case: str):
    rule, make = VALUES[case]
    with pytest.raises(MisuseError) as caught:
        make()
    assert caught.value.diagnostic.rule == rule
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    "make",
    [
        lambda: rx.Call(Op("relax.add"), (X, 3)),
        lambda: rx.Call(Op("relax.add"), (X, N)),
        lambda: rx.Call(3, (X,)),
        lambda: rx.If(X, X, 3),
        lambda: rx.TupleGetItem(3, 0),
        lambda: rx.TupleGetItem(Op("relax.add"), 0),
        lambda: rx.VarBinding(Y, 3),
        lambda: rx.MatchCast(Y, 3, X.struct_info),
        lambda: rx.SeqExpr([], 3),
        lambda: rx.Function([X], None),
    ],
)
def test_what_is_not_an_expression_is_not_part_of_one(make: object):
    with pytest.raises(MisuseError, match="expected a Relax expression, found"):
        make()


@pytest.mark.parametrize(
    "kind", [rx.Var, rx.DataflowVar, rx.GlobalVar, rx.ExternFunc, rx.StringImm]
)
def test_names_and_texts_are_strings(kind: type):
    with pytest.raises(MisuseError, match="is a string, found 3"):
        kind(3)


def test_integers_of_numpy_are_integers():
    pair = rx.Var("t", TupleStructInfo([ObjectStructInfo(), ObjectStructInfo()]))
    assert pair[np.int64(1)].index == 1
    assert type(rx.TupleGetItem(pair, np.uint8(1)).index) is int
    assert TensorStructInfo(ndim=np.int32(2)).ndim == 2
    assert PrimStructInfo("int64", 2.0).value is ops.const(2, "int64")
    for index in (True, np.True_):
        with pytest.raises(MisuseError, match="AST-9"):
            rx.TupleGetItem(pair, index)
        with pytest.raises(MisuseError, match="AST-9"):
            _ = pair[index]


@pytest.mark.rule("AST-6")
def test_no_view_changes_a_constant():
    data = np.ones(3, "float32")
    view = data.view()
    view.flags.writeable = False
    spread = np.broadcast_to(data, (2, 3))
    constants = [
        rx.Constant(array) for array in (view, spread, data.view(Tensor), view.view(Tensor))
    ]
    data[:] = 9
    assert all(isinstance(c.data, Tensor) and (c.data == 1).all() for c in constants)


@pytest.mark.rule("AST-6", "VAL-1")
def test_constants_have_the_byte_order_of_the_machine():
    constant = rx.Constant(np.array([1, 2], ">i4"))
    assert constant.data.dtype.isnative
    assert constant.data.tolist() == [1, 2]
    assert constant.struct_info == TensorStructInfo((2,), "int32")
    with pytest.raises(MisuseError, match="cannot make a tensor"):
        rx.Constant([[1], [1, 2]])


@pytest.mark.parametrize("value", [2**40, -(2**31) - 1, [1, 2**31], np.array([2**40])])
def test_a_number_that_32_bits_cannot_hold_needs_a_datatype(value: object):
    with pytest.raises(MisuseError, match="int32 cannot represent") as caught:
        rx.const(value)
    assert "int64" in str(caught.value)
    assert rx.const(value, "int64").data.tolist() == np.array(value).tolist()
    assert rx.const([2**31 - 1, -(2**31)]).data.dtype == "int32"


def test_functions_are_found_by_their_names() -> None:
    register_func("tests.env_func.add_one", lambda x: x + 1)
    found = EnvFunc.get("tests.env_func.add_one")
    assert found == EnvFunc.get("tests.env_func.add_one")
    assert (found.name, found(1), found.func(2)) == ("tests.env_func.add_one", 2, 3)
    assert EnvFunc.get("default_derive") is DEFAULT_DERIVE
    for name in ("tests.env_func.nothing", 3):
        with pytest.raises(UnknownPackedFuncError, match="no packed function is registered"):
            EnvFunc.get(name)


@pytest.mark.rule("SUB-17", "SI-13")
def test_derivations_are_the_same_if_they_do_the_same():
    m, n = tir.Var("n", "int64"), tir.Var("n", "int64")
    one = FuncStructInfo.opaque_func(ret=TensorStructInfo((n,)))
    other = FuncStructInfo.opaque_func(ret=TensorStructInfo((m,)))
    again = FuncStructInfo.opaque_func(ret=TensorStructInfo((n,)))
    assert one.derive_func == again.derive_func
    assert one.is_base_of(again)
    assert not one.is_base_of(other)
    named = FuncStructInfo.opaque_func(derive_func="default_derive")
    assert named.derive_func is rx.DEFAULT_DERIVE
    for wrong in ("no_such", 3):
        with pytest.raises(MisuseError if wrong == 3 else KeyError, match="deriv"):
            FuncStructInfo.opaque_func(derive_func=wrong)


def test_a_function_called_on_expressions_builds_a_call():
    func = rx.Function([X], X)
    call = func(Y, attrs={"a": 1})
    assert (call.op, call.args, call.attrs["a"]) == (func, (Y,), 1)
    assert isinstance(func((Y, Y)).args[0], rx.Tuple)
    with pytest.raises(MisuseError, match=r"by position, found x=\.\.\."):
        func(x=Y)


def test_literals_among_attributes_are_pythons():
    found = Attrs(
        {
            "number": tir.IntImm("int32", 3),
            "truth": tir.IntImm("bool", 1),
            "text": tir.StringImm("x"),
            "members": [tir.IntImm("int32", 1), {"inner": tir.IntImm("int32", 2)}],
            "wide": tir.IntImm("int64", 3),
        }
    )
    assert found["number"] == 3
    assert type(found["number"]) is int
    assert found["truth"] is True
    assert type(found["text"]) is str
    assert found["members"] == (1, Attrs({"inner": 2}))
    assert isinstance(found["wide"], tir.IntImm)


@pytest.mark.rule("DER-7", "AST-6")
@pytest.mark.parametrize(
    "dtype", ["int8", "int64", "uint8", "uint64", "float16", "float32", "float64"]
)
def test_a_scalar_of_numpy_keeps_its_datatype(dtype: str) -> None:
    scalar = np.dtype(dtype).type(3)
    for node in (rx.PrimValue(scalar), convert_to_expr(scalar)):
        assert node.struct_info == rx.PrimStructInfo(dtype, ops.const(3, dtype))
    assert rx.PrimStructInfo(value=scalar) == node.struct_info


@pytest.mark.rule("DER-7")
def test_numbers_of_python_have_the_datatypes_of_old() -> None:
    assert rx.PrimValue(3).struct_info.dtype == "int64"
    assert rx.PrimValue(1.5).struct_info.dtype == "float32"
    assert rx.PrimValue(np.bool_(True)).struct_info.dtype == "bool"


@pytest.mark.parametrize("exponent", [400, 10000])
@pytest.mark.parametrize(
    "make",
    [
        rx.PrimValue,
        lambda n: rx.PrimStructInfo(value=n),
        lambda n: rx.ShapeExpr([n]),
        lambda n: rx.TensorStructInfo([n]),
        lambda n: rx.TensorStructInfo(ndim=n),
        rx.const,
        lambda n: rx.const([n]),
        lambda n: rx.const(n, "int64"),
        lambda n: tir.IntImm("int64", n),
        lambda n: tir.FloatImm("float32", n),
        lambda n: ops.const(n, "int32"),
        lambda n: tir.Var("n", "int64") + n,
    ],
)
def test_numbers_of_very_many_digits_are_refused(make, exponent: int):
    with pytest.raises(MisuseError) as caught:
        make(-(10**exponent))
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("dtype", [None, "float32"])
def test_a_literal_copies_only_arrays_that_can_change(dtype: str | None) -> None:
    data = np.arange(6, dtype="float32")
    literal = rx.const(data, dtype)
    view = data.view()
    view.flags.writeable = False
    of_view = rx.const(view, dtype)
    data[0] = 7
    assert literal.data[0] == of_view.data[0] == 0
    data.flags.writeable = False
    assert np.shares_memory(rx.const(data, dtype).data, data)
    main = rx.Function([x := rx.Var("x", rx.TensorStructInfo((6,), "float32"))], x)
    bound = main.bind_params({"x": data})
    assert isinstance(bound.body, rx.SeqExpr)
    assert isinstance(bound.body.body, rx.Constant)
    assert np.shares_memory(bound.body.body.data, data)
    tracemalloc.start()
    rx.const(np.zeros(1 << 17, "float64"))
    assert tracemalloc.get_traced_memory()[1] < (1 << 20) + (1 << 19) + (1 << 18)
    tracemalloc.stop()
