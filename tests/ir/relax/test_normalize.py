"""Normal form: what hand-built trees become, and that what is normal comes back as it is."""

from dataclasses import replace

import pytest

from relaxpy.errors import MisuseError, StructInfoError, WellFormedError
from relaxpy.ir.equality.structural import assert_structural_equal
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from tests.counting import calls
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    bindings,
    block,
    called,
    cast,
    dataflow,
    function,
    local,
    pure,
    seq,
    shape_of,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import Object, packed, shape, tensor


@pytest.fixture
def x() -> rx.Var:
    return var("x", tensor(2, 3))


def body_of(func: rx.Function) -> rx.SeqExpr:
    assert isinstance(func.body, rx.SeqExpr)
    return func.body


@pytest.mark.rule("NF-1", "NF-2", "NF-17")
def test_nested_calls_are_bound_inner_first_and_left_to_right(x: rx.Var) -> None:
    value = pure("f", pure("g", pure("a", x)), x, pure("h", pure("b", x)))
    found = normalize_function(function([x], value))
    assert called(found) == ["a", "g", "b", "h", "f"]
    f = bindings(found)[-1].value
    assert isinstance(f, rx.Call)
    assert [type(arg) for arg in f.args] == [rx.Var, rx.Var, rx.Var]


@pytest.mark.rule("NF-17")
def test_a_callee_is_evaluated_before_the_arguments(x: rx.Var) -> None:
    sinfo = rx.FuncStructInfo((Object,), Object)
    value = rx.Call(pure("callee", sinfo=sinfo), (pure("argument"),))
    found = normalize_function(function([], value))
    assert called(found)[:2] == ["callee", "argument"]


@pytest.mark.rule("NF-1", "NF-2")
@pytest.mark.parametrize(
    "leaf",
    [
        rx.const(1.0),
        rx.ShapeExpr((2, 3)),  # type: ignore[arg-type]
        rx.PrimValue(3),  # type: ignore[arg-type]
        rx.StringImm("text"),
        rx.DataTypeImm("int8"),  # type: ignore[arg-type]
        rx.Tuple((rx.Tuple(()), rx.const(1))),
    ],
)
def test_leaves_stay_where_they_are(leaf: rx.Expr) -> None:
    found = normalize_function(function([], pure("f", leaf)))
    [call] = bindings(found)
    assert isinstance(call.value, rx.Call)
    assert call.value.args == (leaf,)


@pytest.mark.rule("NF-4")
@pytest.mark.parametrize(
    ("name", "stays"), [("relax.call_pure_packed", True), ("test.unregistered", False)]
)
def test_a_packed_function_stays_where_an_operator_calls_it(name: str, stays: bool) -> None:
    extern = rx.ExternFunc("f")
    value = rx.Call(Op(name), (extern, extern), sinfo_args=(Object,))
    op = Op("test.unregistered")
    op.set_attr("FPurity", True)
    try:
        found = normalize_function(function([], value))
    finally:
        op.reset_attr("FPurity")
    call = bindings(found)[-1].value
    assert isinstance(call, rx.Call)
    assert [isinstance(arg, rx.Var) for arg in call.args] == [not stays, True]
    assert len(bindings(found)) == (2 if stays else 3)
    assert check_well_formed(found, check_struct_info=False, normal_form=True) == []


@pytest.mark.rule("NF-4")
@pytest.mark.parametrize(
    "value",
    [
        show(rx.ExternFunc("f")),
        rx.Call(
            Op("relax.invoke_pure_closure"),
            (rx.ExternFunc("f"), rx.Tuple(())),
            sinfo_args=(Object,),
        ),
    ],
    ids=["print", "closure"],
)
def test_a_packed_function_is_bound_where_an_operator_takes_a_value(value: rx.Call) -> None:
    found = normalize_function(function([], value, is_pure=False))
    first, second = (b.value for b in bindings(found))
    assert isinstance(first, rx.ExternFunc)
    assert isinstance(second, rx.Call)
    assert isinstance(second.args[0], rx.Var)


@pytest.mark.rule("NF-4")
def test_what_an_operator_calls_is_bound_if_it_is_not_a_packed_function() -> None:
    value = pure("g", sinfo=packed())
    found = normalize_function(
        function([], rx.Call(Op("relax.call_pure_packed"), (value,), sinfo_args=(Object,)))
    )
    assert called(found) == ["g", "relax.call_pure_packed"]
    call = bindings(found)[-1].value
    assert isinstance(call, rx.Call)
    assert isinstance(call.args[0], rx.Var)


@pytest.mark.rule("NF-3")
def test_fields_of_a_tuple_that_are_not_leaves_are_bound(x: rx.Var) -> None:
    inner = rx.Tuple((shape_of(x), x))
    found = normalize_function(function([x], pure("f", rx.Tuple((inner, x)))))
    assert called(found) == ["relax.shape_of", "f"]
    call = bindings(found)[-1].value
    assert isinstance(call, rx.Call)
    [outer] = call.args
    assert isinstance(outer, rx.Tuple)
    assert isinstance(outer.fields[0], rx.Tuple)
    assert outer.fields[0].fields[0] is bindings(found)[0].var


@pytest.mark.rule("NF-4")
def test_a_packed_function_is_bound_unless_it_is_called(x: rx.Var) -> None:
    found = normalize_function(function([x], pure("f", rx.ExternFunc("g"))))
    first, second = bindings(found)
    assert isinstance(first.value, rx.ExternFunc)
    assert isinstance(second.value, rx.Call)
    assert isinstance(second.value.op, rx.ExternFunc)
    [only] = bindings(normalize_function(function([x], rx.Tuple((rx.ExternFunc("g"), x)))))
    assert isinstance(only.value, rx.ExternFunc)


@pytest.mark.rule("NF-4")
def test_the_callee_of_call_pure_packed_is_a_callee(x: rx.Var) -> None:
    call = rx.Call(Op("relax.call_pure_packed"), (rx.ExternFunc("g"), x))
    found = normalize_function(function([x], call))
    [only] = bindings(found)
    assert isinstance(only.value, rx.Call)
    assert isinstance(only.value.args[0], rx.ExternFunc)


@pytest.mark.rule("NF-4", "WF-9")
def test_an_operator_cannot_be_bound(x: rx.Var) -> None:
    with pytest.raises(StructInfoError, match=r"relax\.shape_of is not a value"):
        normalize_function(function([x], pure("f", Op("relax.shape_of"))))  # type: ignore[arg-type]


@pytest.mark.rule("NF-5", "NF-6")
def test_bodies_become_sequences_in_nested_functions_too(x: rx.Var) -> None:
    inner = function([var("y", Object)], x)
    found = normalize_function(function([x], inner))
    [binding] = bindings(found)
    assert isinstance(binding.value, rx.Function)
    assert isinstance(binding.value.body, rx.SeqExpr)


@pytest.mark.rule("NF-5", "NF-7", "NF-18")
def test_branches_become_sequences_that_keep_their_bindings(x: rx.Var) -> None:
    c = var("c", BOOL)
    found = normalize_function(function([x, c], rx.If(c, pure("f", pure("g", x)), x)))
    [binding] = bindings(found)
    value = binding.value
    assert isinstance(value, rx.If)
    assert called(value.true_branch) == ["g", "f"]
    assert bindings(value.false_branch) == []


@pytest.mark.rule("NF-18")
def test_what_a_nested_function_needs_stays_inside(x: rx.Var) -> None:
    found = normalize_function(function([x], function([], pure("f", shape_of(x)))))
    [binding] = bindings(found)
    assert called(binding.value) == ["relax.shape_of", "f"]


@pytest.mark.rule("NF-8", "NF-9", "NF-10", "NF-11")
def test_neighbours_of_one_kind_are_merged_and_empty_blocks_dropped(x: rx.Var) -> None:
    v = [var(f"v{i}") for i in range(6)]
    body = seq(
        block(),
        block(bind(v[0], x)),
        block(),
        block(bind(v[1], x)),
        dataflow(bind(v[2], x)),
        block(),
        dataflow(bind(v[3], x)),
        dataflow(),
        block(bind(v[4], x)),
        dataflow(),
        block(bind(v[5], x)),
        x,
    )
    found = body_of(normalize_function(function([x], body)))
    assert [type(b) for b in found.blocks] == [rx.BindingBlock, rx.DataflowBlock, rx.BindingBlock]
    assert [len(b.bindings) for b in found.blocks] == [2, 2, 2]
    assert [b.var.name_hint for b in bindings(found) if b.var] == [u.name_hint for u in v]


@pytest.mark.rule("NF-11")
def test_a_sequence_of_empty_blocks_has_none(x: rx.Var) -> None:
    assert body_of(normalize_function(function([x], seq(block(), dataflow(), x)))).blocks == ()


@pytest.mark.rule("NF-12")
def test_a_result_is_bound_at_the_end_of_a_last_ordinary_block(x: rx.Var) -> None:
    y = var("y")
    found = body_of(normalize_function(function([x], seq(block(bind(y, x)), shape_of(y)))))
    [only] = found.blocks
    assert len(only.bindings) == 2
    assert found.body is only.bindings[-1].var


@pytest.mark.rule("NF-12")
def test_a_result_after_a_dataflow_block_gets_a_block_of_its_own(x: rx.Var) -> None:
    y = var("y")
    found = body_of(normalize_function(function([x], seq(dataflow(bind(y, x)), shape_of(y)))))
    assert [type(b) for b in found.blocks] == [rx.DataflowBlock, rx.BindingBlock]
    assert type(found.body) is rx.Var


@pytest.mark.rule("NF-13")
def test_conditions_and_projected_tuples_become_leaves(x: rx.Var) -> None:
    condition = pure("c", sinfo=BOOL)
    found = normalize_function(function([x], rx.If(condition, x, x)))
    assert isinstance(bindings(found)[-1].value.cond, rx.Var)  # type: ignore[union-attr]
    pair = pure("p", sinfo=rx.TupleStructInfo((Object, Object)))
    found = normalize_function(function([x], rx.TupleGetItem(pair, 1)))
    assert isinstance(bindings(found)[-1].value.tuple_value, rx.Var)  # type: ignore[union-attr]
    assert check_well_formed(found, normal_form=True) == []


@pytest.mark.rule("NF-14")
def test_a_sequence_as_value_moves_in_front_of_its_binding(x: rx.Var) -> None:
    a, b, y = var("a"), var("b"), var("y")
    inner = seq(block(bind(a, pure("f", x))), block(bind(b, pure("g", a))), pure("h", b))
    found = normalize_function(function([x], seq(block(bind(y, inner)), y)))
    assert called(found) == ["f", "g", "h"]
    assert [b.var.name_hint for b in bindings(found) if b.var] == ["a", "b", "y"]


@pytest.mark.rule("NF-14", "NF-17")
def test_a_sequence_as_argument_is_evaluated_in_its_turn(x: rx.Var) -> None:
    inner = seq(block(bind(var("a"), pure("second", x))), x)
    value = pure("f", pure("first", x), inner, pure("third", x))
    found = normalize_function(function([x], value))
    assert called(found) == ["first", "second", "third", "f"]


@pytest.mark.rule("NF-15")
def test_an_ordinary_block_inside_a_dataflow_block_is_malformed(x: rx.Var) -> None:
    inner = seq(block(bind(var("a"), x)), x)
    with pytest.raises(WellFormedError, match="NF-15"):
        normalize_function(function([x], seq(dataflow(bind(var("y"), inner)), x)))


@pytest.mark.rule("NF-15", "NF-19")
def test_dataflow_and_empty_blocks_inside_a_dataflow_block_are_taken_over(x: rx.Var) -> None:
    y = var("y")
    inner = seq(block(), dataflow(bind(local("a"), x)), shape_of(shape_of_arg(x)))
    found = body_of(normalize_function(function([x], seq(dataflow(bind(y, inner)), y))))
    [only] = found.blocks
    kinds = [type(b.var) for b in only.bindings]
    assert kinds == [rx.DataflowVar, rx.DataflowVar, rx.Var]


def shape_of_arg(x: rx.Var) -> rx.Call:
    return pure("same", x, sinfo=tensor(2, 3))


@pytest.mark.rule("NF-16")
def test_a_dataflow_block_inside_an_ordinary_block_splits_it(x: rx.Var) -> None:
    a, y, z = var("a"), var("y"), var("z")
    inner = seq(dataflow(bind(a, x)), a)
    body = seq(block(bind(var("first"), x), bind(y, inner), bind(z, y)), z)
    found = body_of(normalize_function(function([x], body)))
    assert [type(b) for b in found.blocks] == [rx.BindingBlock, rx.DataflowBlock, rx.BindingBlock]
    assert [len(b.bindings) for b in found.blocks] == [1, 1, 2]


@pytest.mark.rule("NF-19", "NF-20")
def test_variables_made_on_the_way_are_local_to_a_dataflow_block(x: rx.Var) -> None:
    y = var("y")
    found = body_of(
        normalize_function(function([x], seq(dataflow(bind(y, pure("f", shape_of(x)))), y)))
    )
    assert [type(b.var) for b in bindings(found)] == [rx.DataflowVar, rx.Var]
    assert len({b.var for b in bindings(found)}) == 2


@pytest.mark.rule("NF-21", "SI-1")
def test_everything_has_a_struct_info_afterwards(x: rx.Var) -> None:
    found = normalize_function(function([x, var("y")], rx.Tuple((shape_of(x), x))))
    assert all(p.struct_info is not None for p in found.params)
    assert all(b.var and b.var.struct_info and b.value.struct_info for b in bindings(found))
    assert body_of(found).struct_info == rx.TupleStructInfo((shape(2, 3), tensor(2, 3)))


@pytest.mark.rule("DER-15", "SI-1")
def test_a_parameter_that_nothing_mentions_is_an_object_all_the_same(x: rx.Var) -> None:
    once = normalize_function(function([x], x))
    found = normalize_function(replace(once, params=(x, var("y")), struct_info=None))
    assert [p.struct_info for p in found.params] == [tensor(2, 3), Object]


@pytest.mark.rule("AST-19")
def test_a_function_may_be_cast_without_being_named(x: rx.Var) -> None:
    inner = function([], x)
    found = normalize_function(function([x], seq(block(cast(None, inner, Object)), x)))
    [only] = bindings(found)
    assert only.var is None
    assert only.value.struct_info == rx.FuncStructInfo((), tensor(2, 3))


@pytest.mark.rule("DER-3", "WF-2c")
def test_an_annotated_variable_is_not_in_scope_in_its_own_value(x: rx.Var) -> None:
    y, z = var("y", tensor(2, 3)), var("z", tensor(2, 3))
    for binding in (
        bind(y, pure("f", y, sinfo=tensor(2, 3))),
        cast(y, pure("f", y), tensor(2, 3)),
        bind(y, rx.Tuple((x, y))),
    ):
        with pytest.raises(StructInfoError, match=r"variable y is not in scope \[DER-3\]"):
            normalize_function(function([x, z], seq(block(binding), x)))


@pytest.mark.rule("NF-23")
def test_shape_variables_of_moved_casts_stay_apart(x: rx.Var) -> None:
    n = size("n")
    a, b = var("a"), var("b")
    unknown = var("u", rx.TensorStructInfo(None, "float32", ndim=1))

    def part(target: rx.Var) -> rx.SeqExpr:
        return seq(block(cast(target, unknown, tensor(n))), pure("f", rx.ShapeExpr((n,))))

    value = rx.Tuple((part(a), part(b)))
    found = normalize_function(function([unknown], value))
    casts = [m for m in bindings(found) if isinstance(m, rx.MatchCast)]
    sizes = [m.struct_info.get_shape()[0] for m in casts]  # type: ignore[union-attr,index]
    assert len(set(sizes)) == 2
    calls = [b.value for b in bindings(found) if isinstance(b.value, rx.Call)]
    assert [c.args[0].values[0] for c in calls] == sizes  # type: ignore[union-attr]
    assert check_well_formed(found, normal_form=True) == []


@pytest.mark.rule("NF-23")
def test_a_cast_that_moves_next_to_a_later_one_keeps_its_own_variable() -> None:
    n = size("n")
    u = var("u", rx.TensorStructInfo(None, "float32", ndim=1))
    w = var("w", rx.TensorStructInfo(None, "float32", ndim=1))
    inner = seq(block(cast(None, u, tensor(n))), rx.ShapeExpr((n,)))
    y = var("y")
    body = seq(block(bind(y, inner), cast(None, w, tensor(n))), rx.Tuple((y, rx.ShapeExpr((n,)))))
    found = normalize_function(function([u, w], body))
    first, second = (m.struct_info for m in bindings(found) if isinstance(m, rx.MatchCast))
    assert first.get_shape() != second.get_shape()  # type: ignore[union-attr]
    assert check_well_formed(found) == []


def test_a_very_deep_expression_is_no_trouble(x: rx.Var) -> None:
    value: rx.Expr = x
    for _ in range(5000):
        value = pure("f", value)
    assert len(bindings(normalize_function(function([x], value)))) == 5000


@pytest.mark.rule("NF-22")
def test_a_normal_form_without_struct_infos_stays_structurally_equal(x: rx.Var) -> None:
    y, z = var("y", shape(2, 3)), var("z", shape(2, 3))
    body = seq(block(bind(y, shape_of(x)), bind(z, y)), z)
    func = function([x], body)
    assert_structural_equal(normalize_function(func), func)


PAIR = pure("p", sinfo=rx.TupleStructInfo((Object, Object)))


def packed_call(callee: rx.Expr) -> rx.Call:
    """A call through the operator that calls its first operand."""
    return rx.Call(Op("relax.call_pure_packed"), (callee,), sinfo_args=(Object,))


@pytest.mark.rule("WF-23", "NF-2", "NF-5", "NF-8", "NF-9", "NF-11", "NF-12", "NF-13")
@pytest.mark.parametrize(
    ("rule", "make"),
    [
        ("NF-2", lambda x, c: seq(block(bind(var("y"), pure("f", pure("g", x)))), x)),
        ("NF-2", lambda x, c: seq(block(bind(var("y"), pure("f", rx.ExternFunc("g")))), x)),
        (
            "NF-2",
            lambda x, c: seq(block(bind(var("y"), packed_call(pure("g", sinfo=packed())))), x),
        ),
        ("NF-2", lambda x, c: seq(block(bind(var("y"), rx.TupleGetItem(PAIR, 0))), x)),
        ("NF-5", lambda x, c: seq(block(bind(var("y"), seq(x))), x)),
        ("NF-8", lambda x, c: seq(block(bind(var("y"), x)), block(bind(var("z"), x)), x)),
        ("NF-9", lambda x, c: seq(dataflow(bind(var("y"), x)), dataflow(bind(var("z"), x)), x)),
        ("NF-11", lambda x, c: seq(block(), x)),
        ("NF-12", lambda x, c: seq(pure("f", x))),
        (
            "NF-13",
            lambda x, c: seq(
                block(bind(var("y"), rx.If(pure("c", sinfo=BOOL), seq(x), seq(x)))), x
            ),
        ),
    ],
)
def test_what_is_not_normal_is_named(rule: str, make: object) -> None:
    x, c = var("x", tensor(2)), var("c", BOOL)
    func = function([x, c], make(x, c))  # type: ignore[operator]
    assert [d.rule for d in check_well_formed(func, normal_form=True)] == [rule]
    again = normalize_function(func)
    assert check_well_formed(again, normal_form=True) == []


def test_impure_calls_keep_their_order_and_number(x: rx.Var) -> None:
    value = rx.Tuple((show(x), show(x), x))
    found = normalize_function(function([x], value, is_pure=False))
    assert called(found) == ["relax.print", "relax.print"]


@pytest.mark.rule("OPT-3")
def test_a_pure_call_that_stands_in_many_places_is_bound_once(x: rx.Var) -> None:
    shared = pure("f", x)
    found = normalize_function(function([x], rx.Tuple((shared, pure("g", shared), shared))))
    assert called(found) == ["f", "g"]
    value = shared
    for _ in range(60):
        value = pure("h", value, value)
    assert len(bindings(normalize_function(function([x], value)))) == 61
    for _ in range(260):
        value = pure("h", value, value, *[x] * 62)
    assert len(bindings(normalize_function(function([x], value)))) == 321


@pytest.mark.rule("EV-17")
def test_an_impure_call_that_stands_in_too_many_places_is_refused(x: rx.Var) -> None:
    value = show(x)
    for _ in range(13):
        value = show(value, value, *[x] * 62)
    with pytest.raises(MisuseError, match="too many to visit"):
        normalize_function(function([x], value, is_pure=False))


@pytest.mark.rule("OPT-3", "OPT-4", "NF-17")
def test_a_call_is_made_again_after_an_impure_one_and_an_impure_one_each_time(x: rx.Var) -> None:
    value, effect = pure("f", x), show(x)
    body = rx.Tuple((value, effect, value, value, effect))
    found = normalize_function(function([x], body, is_pure=False))
    assert called(found) == ["f", "relax.print", "f", "relax.print"]
    c = var("c", BOOL)
    body = rx.Tuple((value, rx.If(c, effect, x), value))
    found = normalize_function(function([x, c], body, is_pure=False))
    assert called(found) == ["f", "f"]
    hidden = seq(block(bind(var("e"), effect)), x)
    body = rx.Tuple((value, hidden, value))
    found = normalize_function(function([x], body, is_pure=False))
    assert called(found) == ["f", "relax.print", "f"]


@pytest.mark.rule("OPT-3")
def test_a_function_that_is_only_defined_between_two_uses_of_a_call_has_no_effect(
    x: rx.Var,
) -> None:
    value, inner = pure("f", x), function([], show(x), is_pure=False)
    found = normalize_function(function([x], rx.Tuple((value, inner, value))))
    assert called(found) == ["f"]


@pytest.mark.rule("NF-18", "NF-20")
def test_what_a_branch_binds_is_not_used_outside_it(x: rx.Var) -> None:
    value, c = pure("f", x), var("c", BOOL)
    found = normalize_function(function([x, c], rx.Tuple((rx.If(c, value, x), value))))
    assert check_well_formed(found, normal_form=True) == []
    assert called(found) == ["f"]
    [branch, _] = bindings(found)
    assert called(branch.value.true_branch) == ["f"]  # type: ignore[attr-defined]


def test_deep_tuples_are_looked_at_once(x: rx.Var) -> None:
    def nested(depth: int) -> rx.Function:
        value: rx.Expr = pure("f", x, sinfo=tensor(2))
        for _ in range(depth):
            value = rx.Tuple((value, x))
        return function([x], rx.Tuple((value,)))

    def work(depth: int) -> int:
        func = nested(depth)
        return calls(lambda: normalize_function(func))

    assert work(100) < 2.5 * work(50)


@pytest.mark.rule("NF-15")
def test_a_builder_goes_on_after_a_malformed_sequence(x: rx.Var) -> None:
    bb = BlockBuilder()
    n = size("n")
    u = var("u", rx.TensorStructInfo(None, "float32", ndim=1))
    bad = seq(dataflow(cast(None, u, tensor(n)), bind(var("a"), x(x))), x)
    with bb.function("main", [x, u]):
        with pytest.raises(StructInfoError, match="cannot be called"):
            bb.emit(bad)
        assert not bb.current_block_is_dataflow()
        bb.match_cast(u, tensor(n))
        shape_value = bb.emit(rx.ShapeExpr((n,)))
        assert shape_value.struct_info == shape(n)
        bb.emit_func_output(x)


def test_a_call_that_is_built_by_hand_gets_all_attributes(x: rx.Var) -> None:
    call = rx.Call(Op.get("relax.permute_dims"), (x,))
    func = normalize_function(rx.Function([x], rx.SeqExpr([], call)))
    [binding] = func.body.blocks[0].bindings
    assert isinstance(binding.value, rx.Call)
    assert dict(binding.value.attrs) == {"axes": None}
    assert dict(call.attrs) == {}
