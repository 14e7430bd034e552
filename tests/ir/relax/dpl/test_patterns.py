"""Patterns against single expressions: what each kind matches, and what it does not."""

import pytest

from relaxpy import relax as rx, tir
from relaxpy.errors import MisuseError, UnknownNameError
from relaxpy.relax import dpl
from relaxpy.relax.analysis import get_var2val
from relaxpy.relax.dpl import (
    FunctionPattern,
    has_attr,
    has_dtype,
    is_call_dps_packed,
    is_call_packed,
    is_call_tir,
    is_const,
    is_dfv,
    is_expr,
    is_gv,
    is_op,
    is_shape,
    is_tuple,
    is_tuple_get_item,
    is_var,
    reject,
    wildcard,
)
from relaxpy.script import relax as R
from tests.ir.relax.texts import graph

F32 = "float32"


def tensor(name: str, shape: tuple[object, ...] = (4, 4), dtype: str = F32) -> rx.Var:
    return rx.Var(name, R.Tensor(shape, dtype))


X, Y, Z = tensor("x"), tensor("y"), tensor("z")

Module = graph("""
@kernel
def twice(a: f32[4, 4], b: f32[4, 4]):
    for i, j in SS(4, 4):
        b[vi, vj] = a[vi, vj] * T.float32(2)

@kernel
def thrice(a: f32[4, 4], b: f32[4, 4]):
    for i, j in SS(4, 4):
        b[vi, vj] = a[vi, vj] * T.float32(3)

def main(x: f32[4, 4]) -> f32[4, 4]:
    lv = R.call_tir(cls.twice, (x,), f32[4, 4])
    lv1 = R.call_tir(cls.thrice, (lv,), f32[4, 4])
    return lv1
""")

MAIN = Module["main"]
FIRST, SECOND = MAIN.body.blocks[0].bindings


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (wildcard(), [X, rx.const(1.0), rx.Tuple([])], []),
        (is_var(), [X, rx.DataflowVar("x")], [rx.GlobalVar("x"), rx.const(1.0)]),
        (is_var("x"), [X, rx.DataflowVar("x")], [Y, rx.GlobalVar("x")]),
        (is_dfv("x"), [rx.DataflowVar("x")], [X, rx.DataflowVar("y")]),
        (is_gv(), [rx.GlobalVar("f"), rx.GlobalVar("g")], [X]),
        (is_gv("f"), [rx.GlobalVar("f")], [rx.GlobalVar("g"), rx.GlobalVar("ff"), rx.Var("f")]),
        (dpl.ExternFuncPattern("f"), [rx.ExternFunc("f")], [rx.ExternFunc("g"), rx.GlobalVar("f")]),
        (dpl.ExternFuncPattern(), [rx.ExternFunc("f")], [X]),
        (is_const(), [rx.const([1.0, 2.0])], [X, rx.PrimValue(1)]),
        (is_expr(X), [X], [tensor("x"), Y]),
        (is_expr(rx.const(1.5)), [rx.const(1.5)], [rx.const(1.0), rx.const(1.5, "float64")]),
        (is_expr(R.add(X, Y)), [R.add(X, Y)], [R.add(Y, X), R.multiply(X, Y)]),
        (is_shape([2, 3]), [rx.ShapeExpr([2, 3])], [rx.ShapeExpr([2]), rx.ShapeExpr([3, 2]), X]),
        (has_dtype(F32), [X], [tensor("i", (4,), "int32"), rx.Var("o", R.Object())]),
        (has_dtype(F32, is_const()), [rx.const(1.0)], [X, rx.const(1)]),
        (wildcard().has_shape([4, 4]), [X], [tensor("x", (4,)), rx.Var("x", R.Tensor(ndim=2))]),
        (is_var("x") | is_gv("f"), [X, rx.GlobalVar("f")], [Y, rx.GlobalVar("x")]),
        (is_var("x") & has_dtype(F32), [X], [Y, tensor("x", (4,), "int32")]),
        (~is_var("x"), [Y, rx.const(1.0)], [X]),
        (reject(is_const()), [X], [rx.const(1.0)]),
        (is_op("relax.add")(wildcard(), is_const()), [R.add(X, rx.const(1.0))], [R.add(X, Y)]),
        (is_op("relax.add"), [], [R.add(X, Y)]),
        (is_call_packed("f"), [rx.Call(rx.ExternFunc("f"), [X, Y])], [R.add(X, Y)]),
        (
            is_call_packed("f", [is_var("x"), is_var("y")]),
            [rx.Call(rx.ExternFunc("f"), [X, Y])],
            [rx.Call(rx.ExternFunc("f"), [Y, X]), rx.Call(rx.ExternFunc("f"), [X])],
        ),
    ],
)
def test_a_pattern_matches_these_and_not_those(pattern, yes, no) -> None:
    assert [pattern.match(expr) for expr in yes] == [True] * len(yes)
    assert [pattern.match(expr) for expr in no] == [False] * len(no)


def test_a_tuple_pattern_matches_field_by_field() -> None:
    pair = is_tuple([wildcard(), is_dfv()])
    local = rx.DataflowVar("y", R.Tensor((4, 4), F32))
    assert len(pair) == 2
    assert pair.match(rx.Tuple([X, local]))
    assert not pair.match(rx.Tuple([local, X]))
    assert not pair.match(rx.Tuple([]))
    assert not pair.match(rx.Tuple([X, local, local]))
    item = rx.TupleGetItem(rx.Tuple([X, local]), 1)
    assert pair[1].match(item)
    assert pair[-1].match(item)
    assert pair[None].match(item)
    assert not pair[0].match(item)
    assert [part.index for part in pair] == [0, 1]
    assert is_tuple_get_item(pair).match(item)
    assert not is_tuple_get_item(pair, 0).match(item)
    with pytest.raises(IndexError, match="index 2 is out of range for 2 fields"):
        pair[2]
    with pytest.raises(IndexError):
        pair[-3]


def test_an_unordered_tuple_matches_in_some_order() -> None:
    pattern = is_tuple([is_const(), is_var("x"), wildcard()], unordered=True)
    one = rx.const(1.0)
    assert pattern.match(rx.Tuple([X, Y, one]))
    assert pattern.match(rx.Tuple([one, one, X]))
    assert not pattern.match(rx.Tuple([X, Y, Z]))
    assert not pattern.match(rx.Tuple([one, Y, Z]))
    assert not pattern.match(rx.Tuple([one, X]))


def test_fields_that_share_a_pattern_are_ordered_consistently() -> None:
    value = wildcard()
    pattern = is_tuple(
        [is_op("relax.exp")(value), is_op("relax.negative")(value), wildcard()], unordered=True
    )
    ex, ey, ny = R.exp(X), R.exp(Y), R.negative(Y)
    found = pattern.extract_matched_expr(rx.Tuple([ex, ey, ny]))
    assert found is not None
    assert found[value] is Y
    assert not pattern.match(rx.Tuple([ex, ex, ny]))


def test_sizes_are_compared_by_what_they_are() -> None:
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x = rx.Var("x", R.Tensor([n, m, n + m], F32))
    assert wildcard().has_shape([n, m, m + n]).match(x)
    assert not wildcard().has_shape([m, n, n + m]).match(x)
    assert is_shape([n, n * 2]).match(rx.ShapeExpr([n, n + n]))
    assert not is_shape([n, n * m]).match(rx.ShapeExpr([n, n + m]))
    assert is_shape([32, n])[0] == 32
    with pytest.raises(IndexError):
        is_shape([32])[1]


def test_a_pattern_that_occurs_twice_matches_one_value() -> None:
    same = wildcard()
    double = is_op("relax.add")(same, same)
    assert double.match(R.add(X, X))
    assert not double.match(R.add(X, Y))
    assert double.match(R.add(rx.const(1.0), rx.const(1.0)))
    assert not double.match(R.add(rx.const(1.0), rx.const(2.0)))
    assert is_op("relax.add")(wildcard(), wildcard()).match(R.add(X, Y))


def test_the_operands_of_sums_and_products_match_in_either_order() -> None:
    for name, op in {"relax.add": R.add, "relax.multiply": R.multiply}.items():
        pattern = is_op(name)(is_var("x"), is_const())
        assert pattern.match(op(X, rx.const(1.0)))
        assert pattern.match(op(rx.const(1.0), X))
        assert not pattern.match(op(X, Y))
    ordered = is_op("relax.subtract")(is_var("x"), is_const())
    assert ordered.match(R.subtract(X, rx.const(1.0)))
    assert not ordered.match(R.subtract(rx.const(1.0), X))


def test_the_order_that_one_sum_takes_depends_on_what_the_others_share() -> None:
    a, b = wildcard(), wildcard()
    pattern = is_op("relax.subtract")(
        is_op("relax.add")(a, b), is_op("relax.exp")(is_op("relax.add")(b, b))
    )
    found = pattern.extract_matched_expr(R.subtract(R.add(X, Y), R.exp(R.add(X, X))))
    assert found is not None
    assert (found[a], found[b]) == (Y, X)
    assert not pattern.match(R.subtract(R.add(X, Y), R.exp(R.add(Z, Z))))


def test_alternatives_are_tried_until_all_fits() -> None:
    value = wildcard()
    either = is_op("relax.exp")(value) | is_op("relax.exp")(wildcard())
    pattern = is_op("relax.subtract")(either, value)
    found = pattern.extract_matched_expr(R.subtract(R.exp(X), Y))
    assert found is not None
    assert found[value] is Y
    assert either.right in found
    assert either.left not in found


def test_a_denied_pattern_knows_what_is_matched_around_it() -> None:
    value = wildcard()
    different = is_op("relax.subtract")(value, ~is_op("relax.exp")(value))
    assert not different.match(R.subtract(X, R.exp(X)))
    assert different.match(R.subtract(X, R.exp(Y)))
    assert different.match(R.subtract(X, X))


def test_arguments_may_be_left_open() -> None:
    call = rx.Call(rx.ExternFunc("f"), [X, Y])
    callee = dpl.ExternFuncPattern("f")
    assert callee(wildcard(), wildcard()).match(call)
    assert callee(varg_default_wildcard=True).match(call)
    assert callee(is_var("x"), varg_default_wildcard=True).match(call)
    assert not callee(is_var("y"), varg_default_wildcard=True).match(call)
    assert not callee(wildcard()).match(call)
    assert not callee(*[wildcard()] * 3, varg_default_wildcard=True).match(call)


def test_attributes_of_calls_operators_and_functions() -> None:
    call = R.split(X, 2, axis=1)
    split = is_op("relax.split")(wildcard())
    assert split.has_attr({"axis": 1}).match(call)
    assert split.has_attr({"axis": tir.IntImm("int64", 1), "indices_or_sections": 2}).match(call)
    assert split.has_attr({}).match(call)
    assert not split.has_attr({"axis": 0}).match(call)
    assert not split.has_attr({"axes": 1}).match(call)
    assert not has_attr({"axis": 1}).match(X)
    permuted = R.permute_dims(X, [1, 0])
    assert has_attr({"axes": [1, 0]}).match(permuted)
    assert not has_attr({"axes": [0, 1]}).match(permuted)
    assert has_attr({"dtype": "float16"}).match(R.astype(X, "float16"))
    assert is_op("relax.exp").has_attr({"FPurity": True})(wildcard()).match(R.exp(X))
    assert not is_op("relax.exp").has_attr({"nothing": True})(wildcard()).match(R.exp(X))
    func = MAIN.with_attr({"Codegen": "test"})
    whole = FunctionPattern([wildcard()], wildcard())
    assert whole.has_attr({"Codegen": "test", "global_symbol": "main"}).match(func)
    assert not whole.has_attr({"Codegen": "other"}).match(func)


def test_a_function_matches_by_its_result() -> None:
    a, b = wildcard(), wildcard()
    pattern = FunctionPattern([a, b], is_op("relax.exp")(is_op("relax.subtract")(a, b)))

    @R.function
    def difference(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        lv = R.subtract(x, y)
        gv = R.exp(lv)
        return gv

    @R.function
    def other_way_round(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        lv = R.subtract(y, x)
        gv = R.exp(lv)
        return gv

    assert pattern.match(difference)
    assert not pattern.match(other_way_round)
    assert not FunctionPattern([a], wildcard()).match(difference)
    raw = rx.Function([X, Y], R.exp(R.subtract(X, Y)), ret_struct_info=R.Tensor((4, 4), F32))
    assert pattern.match(raw)


def test_variables_stand_for_their_values_where_these_are_given() -> None:
    values = get_var2val(MAIN)
    chain = is_call_tir("thrice", [is_call_tir("twice")])
    assert is_call_tir("thrice").match(SECOND.value)
    assert not is_call_tir("twice").match(SECOND.value)
    assert not chain.match(SECOND.value)
    assert chain.match(SECOND.value, var2val=values)
    assert chain.match(SECOND.var, values)
    assert not is_call_tir("thrice", [is_call_tir("thrice")]).match(SECOND.value, values)
    assert not is_call_tir("twice", tir_vars=wildcard()).match(FIRST.value)
    again = rx.DataflowVar("again", FIRST.var.struct_info)
    assert is_call_tir("twice").match(again, {**values, again: FIRST.var})


def test_a_variable_is_still_one_where_more_is_asked_of_it() -> None:
    values = get_var2val(MAIN)
    lv = is_var("lv")
    for pattern in (
        lv | is_const(),
        is_const() | lv,
        lv & wildcard(),
        lv.has_shape([4, 4]),
        lv.has_dtype(F32),
        lv.has_struct_info(R.Tensor((4, 4), F32)),
        lv & is_call_tir("twice"),
        is_call_tir("thrice", [lv & is_call_tir("twice")]),
    ):
        expr = FIRST.var if not isinstance(pattern, dpl.CallPattern) else SECOND.value
        found = pattern.extract_matched_expr(expr, values)
        assert found is not None
        assert found[lv] is FIRST.var
        assert not pattern.match(SECOND.var, {**values, SECOND.var: X})
    assert not (~lv).match(FIRST.var, values)
    assert (~lv).match(SECOND.var, values)


def test_a_call_of_a_packed_function_in_destination_passing_style() -> None:
    call = R.call_dps_packed("f", (X, Y), R.Tensor((4, 4), F32))
    assert is_call_dps_packed("f").match(call)
    assert is_call_dps_packed("f", [is_var("x"), is_var("y")]).match(call)
    assert not is_call_dps_packed("f", [is_var("x")]).match(call)
    assert not is_call_dps_packed("g").match(call)


def test_a_struct_info_is_matched_by_all_that_is_more_specific() -> None:
    square = wildcard().has_struct_info(R.Tensor((4, 4)))
    assert square.match(X)
    assert square.match(tensor("i", (4, 4), "int32"))
    assert not square.match(tensor("x", (4,)))
    assert not square.match(rx.Var("x", R.Tensor(ndim=2)))
    assert not square.match(rx.Var("x"))


def test_a_shape_variable_of_a_pattern_is_one_size_everywhere() -> None:
    m, n = tir.Var("m", "int64"), tir.Var("n", "int64")
    same = is_op("relax.add")(
        wildcard().has_struct_info(R.Tensor([m, n])), wildcard().has_struct_info(R.Tensor([m, n]))
    )
    assert same.match(R.add(X, Y))
    assert not same.match(R.add(X, tensor("row", (1, 4))))
    k = tir.Var("k", "int64")
    assert same.match(R.add(tensor("a", (k, 4)), tensor("b", (k, 4))))
    assert not same.match(R.add(tensor("a", (k, 4)), tensor("b", (4, 4))))
    doubled = is_op("relax.concat")(
        is_tuple([wildcard().has_struct_info(R.Tensor([n * 2])), wildcard()])
    )
    assert not doubled.match(R.concat((tensor("a", (4,)), tensor("b", (2,)))))
    told = is_op("relax.concat")(
        is_tuple(
            [
                wildcard().has_struct_info(R.Tensor([n * 2])),
                wildcard().has_struct_info(R.Tensor([n])),
            ]
        )
    )
    assert told.match(R.concat((tensor("a", (4,)), tensor("b", (2,)))))
    assert not told.match(R.concat((tensor("a", (4,)), tensor("b", (3,)))))


def test_what_a_match_says_of_each_pattern() -> None:
    operator = is_op("relax.add") | is_op("relax.multiply")
    left, right = wildcard(), is_const()
    pattern = operator(left, right)
    call = R.multiply(rx.const(2.0), X)
    found = pattern.extract_matched_expr(call)
    assert found is not None
    assert found[pattern] is call
    assert found[operator] is call.op
    assert found[left] is X
    assert found[right] is call.args[0]
    assert pattern.extract_matched_expr(R.add(X, Y)) is None


def test_a_duplicate_is_a_pattern_of_its_own() -> None:
    same = wildcard()
    double = is_op("relax.add")(same, same)
    copy = double.dup()
    found = copy.extract_matched_expr(R.add(X, X))
    assert found is not None
    assert double not in found
    assert found[copy.args[0]] is X
    assert copy.args[0] is copy.args[1]
    assert not copy.match(R.add(X, Y))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: is_op("relax.add")(X), "expected a pattern, found Var"),
        (lambda: is_var("x") | 1, "expected a pattern, found int 1"),
        (lambda: is_var(1), "the name in a pattern is a string, found 1"),
        (lambda: is_tuple(wildcard()), "the fields in a pattern are a list of patterns"),
        (lambda: is_shape(3), "a shape is a list of sizes, found 3"),
        (lambda: is_shape([1.5]), "a dimension is an integer"),
        (lambda: wildcard().has_shape("n"), "a shape is a list of sizes, found 'n'"),
        (lambda: wildcard().has_attr(["axis"]), "attributes are a dict"),
        (lambda: wildcard().has_struct_info(4), "expected a StructInfo, found int 4"),
        (lambda: is_expr(3), "expected an expression, found 3"),
        (lambda: wildcard().match(3), "patterns match expressions, found 3"),
        (lambda: wildcard().match(X, [X]), "var2val is a table"),
        (lambda: is_call_packed("f", wildcard()), "arguments are a list of patterns"),
        (lambda: is_tuple_get_item(wildcard(), "0"), "an index is an integer, found '0'"),
        (lambda: is_tuple_get_item(wildcard(), -2), "fields are numbered from 0, found -2"),
        (lambda: has_dtype(F32, 3), "expected a pattern, found int 3"),
        (lambda: has_attr({"axis": 1}, X), "expected a pattern, found Var"),
        (lambda: is_const().match(X, {X: Y, Y: X}), "is bound to itself by way of others"),
    ],
)
def test_what_is_not_a_pattern_is_refused(make: object, message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        make()  # type: ignore[operator]
    assert message in str(caught.value)


def test_an_unknown_operator_is_refused_with_what_is_meant() -> None:
    with pytest.raises(UnknownNameError) as caught:
        is_op("relax.ad")
    assert "did you mean 'relax.add'" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_patterns_have_the_parameters_and_fields_of_tvm() -> None:
    named = [dpl.VarPattern, dpl.DataflowVarPattern, dpl.GlobalVarPattern]
    assert [(p := kind(name_hint="v")).name + p.name_hint for kind in named] == ["vv"] * 3
    assert dpl.ExternFuncPattern(global_symbol="f").name == "f"
    field = dpl.TupleGetItemPattern(tuple_value=(inner := wildcard()), index=1)
    assert field.tuple is field.tuple_value is inner
    assert dpl.NotPattern(to_reject=inner).reject is inner
    assert dpl.PrimArrPattern(shape=[2, 3]).fields == dpl.PrimArrPattern([2, 3]).shape
