"""The struct info that a node declares is derived anew wherever the node enters a program."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st

import relaxpy
from relaxpy.errors import MisuseError, StructInfoError, WellFormedError
from relaxpy.ir import IRModule, Op, structural_equal
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import rebuild, walk
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed, well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.relax.relations import is_base_of
from tests.fuzz.sized_programs import programs
from tests.ir.relax.graphs import BOOL, bind, block, function, module, pure, seq, var
from tests.ir.relax.sinfos import Object, func, prim, rank, sinfos, tensor, tuple_of
from tests.ir.relax.test_sized_programs import normalized

RULES = {
    rx.Call: ("DER-35", "DER-42"),
    rx.If: ("DER-10",),
    rx.TupleGetItem: ("DER-33",),
    rx.SeqExpr: ("DER-13",),
    rx.Function: ("DER-43",),
}
MATRIX = tensor(2, 3)


def rules(program: rx.Function) -> set[str | None]:
    return {found.rule for found in check_well_formed(program)}


def declared(call: rx.Call, sinfo: rx.StructInfo) -> rx.Call:
    return replace(call, struct_info=sinfo)


def returning(value: rx.Expr, *params: rx.Var) -> rx.Function:
    """A function that binds `value` to a variable without annotation and returns it."""
    result = var("result")
    return function([*params], seq(block(bind(result, value)), result), global_symbol="main")


X = var("x", MATRIX)
Y = var("y", rank(2))
C = var("c", BOOL)
NDIM = rx.Call(Op("relax.inspect.tensor_ndim"), (X,))
P = var("p", MATRIX)
PAIR = var("pair", tuple_of(MATRIX, BOOL))
FALSE = {
    "operator": (declared(NDIM, prim(7, "int32")), "DER-35"),
    "operator on an unknown shape": (declared(rx.Call(Op("relax.exp"), (Y,)), MATRIX), "DER-35"),
    "packed": (declared(pure("f", X), MATRIX), "DER-42"),
    "field": (rx.TupleGetItem(PAIR, 1, struct_info=MATRIX), "DER-33"),
    "branches": (rx.If(C, X, X, struct_info=BOOL), "DER-10"),
    "function": (replace(function([P], P), struct_info=func(MATRIX, ret=BOOL)), "DER-43"),
    "sequence": (rx.If(C, rx.SeqExpr((), X, struct_info=BOOL), X), "DER-13"),
    "tuple": (rx.Tuple((rx.GlobalVar("main"),), struct_info=tuple_of(BOOL)), "DER-5"),
}


@pytest.mark.rule("DER-35", "DER-42", "DER-33", "DER-10", "DER-43", "DER-13", "DER-5")
@pytest.mark.parametrize("kind", FALSE)
def test_a_false_claim_is_ill_formed_and_names_both_struct_infos(kind: str) -> None:
    value, rule = FALSE[kind]
    params = [p for p in (X, Y, C, PAIR) if p in set(walk(value))]
    program = returning(value, *params)
    mod = IRModule({"main": replace(program, ret_struct_info=Object)})
    (found,) = check_well_formed(mod)
    assert found.rule == rule
    assert "declares the struct info" in str(found)
    assert "derivation gives" in str(found)


def claims(program: rx.Function | IRModule) -> list[str | None]:
    return [found.rule for found in check_well_formed(program) if "declares" in str(found)]


@pytest.mark.parametrize("kind", [kind for kind in FALSE if kind not in ("sequence", "tuple")])
def test_what_only_repeats_the_false_claim_of_an_operand_is_not_reported(kind: str) -> None:
    value, rule = FALSE[kind]
    params = [p for p in (X, Y, C, PAIR) if p in set(walk(value))]
    body = rx.Function(tuple(params), value, attrs={"global_symbol": "main"})
    assert body.body.struct_info is value.struct_info
    assert claims(body) == [rule]
    field = rx.Tuple((value,))
    assert field.struct_info is not None
    assert claims(returning(field, *params)) == [rule]
    assert claims(returning(rx.TupleGetItem(field, 0), *params)) == [rule]
    choice = rx.If(C, value, X, struct_info=value.struct_info)
    assert claims(returning(choice, *dict.fromkeys((*params, C, X)))) == [rule]


def test_a_false_claim_is_reported_once_however_often_its_node_is_used() -> None:
    call = declared(NDIM, prim(7, "int32"))
    nested = declared(rx.Call(Op("relax.exp"), (rx.Call(Op("relax.exp"), (Y,)),)), MATRIX)
    a, b = var("a"), var("b")
    for value in (call, nested):
        body = seq(block(bind(a, value), bind(b, value)), b)
        assert claims(function([X, Y], body, global_symbol="main")) == ["DER-35"]


def test_another_claim_than_that_of_an_operand_is_reported_beside_it() -> None:
    value = declared(NDIM, prim(7, "int32"))
    inner = rx.SeqExpr((), value, struct_info=BOOL)
    assert claims(returning(rx.If(C, inner, X), X, C)) == ["DER-35", "DER-13"]
    assert claims(returning(rx.If(C, value, X, struct_info=BOOL), X, C)) == ["DER-35", "DER-10"]


def test_a_claim_that_says_less_than_is_known_is_well_formed() -> None:
    assert well_formed(returning(declared(rx.Call(Op("relax.exp"), (X,)), rank(2)), X))


@pytest.mark.rule("DER-35")
def test_the_number_of_dimensions_is_that_of_the_tensor_whatever_a_call_declares() -> None:
    program = returning(declared(NDIM, prim(7, "int32")), X)
    matrix = np.ones((2, 3), "float32")
    assert relaxpy.compile(program)["main"](matrix) == 2
    assert not well_formed(program)


@pytest.mark.rule("DER-35")
def test_arguments_are_not_replaced_under_a_derived_struct_info() -> None:
    y = var("y", tensor(4))
    exp = BlockBuilder().normalize(rx.Call(Op("relax.exp"), (X,)))
    assert isinstance(exp, rx.Call)
    found = normalize_function(returning(replace(exp, args=(y,)), y))
    assert found.struct_info == func(tensor(4), ret=tensor(4))
    legalised = LegalizeOps()(module(main=returning(replace(exp, args=(y,)), y)))
    assert legalised["main"].struct_info == func(tensor(4), ret=tensor(4))


@pytest.mark.rule("DER-43")
def test_a_builder_does_not_believe_the_old_signature_of_a_new_body() -> None:
    old = normalize_function(function([X], X, global_symbol="f"))
    new = replace(old, body=seq(pure("g", X, sinfo=tensor(4))))
    builder = BlockBuilder(IRModule({"f": new}))
    with builder.function("main", [X]):
        result = builder.emit(rx.Call(rx.GlobalVar("f"), (X,)))
        builder.emit_func_output(result)
    assert result.struct_info == Object


@pytest.mark.rule("DER-43")
def test_a_pass_whose_result_declares_what_is_false_is_refused() -> None:
    program = normalize_function(returning(rx.Call(Op("relax.exp"), (X,)), X))

    def careless(mod: IRModule) -> IRModule:
        y = var("y", tensor(4))
        return IRModule({"main": replace(program, params=(y,), body=seq(y))})

    with pytest.raises(WellFormedError) as caught:
        relaxpy.compile(program, relax_pipeline=careless)
    assert [d.rule for d in caught.value.diagnostics] == ["DER-43"]


@pytest.mark.parametrize(
    "build",
    [
        lambda wrong: rx.Call(rx.ExternFunc("f"), (X,), struct_info=wrong),
        lambda wrong: rx.Tuple((X,), struct_info=wrong),
        lambda wrong: rx.TupleGetItem(PAIR, 0, struct_info=wrong),
        lambda wrong: rx.If(C, X, X, struct_info=wrong),
        lambda wrong: rx.SeqExpr((), X, struct_info=wrong),
        lambda wrong: rx.Function((X,), X, struct_info=wrong),
        lambda wrong: rx.Function((X,), X, wrong),
        lambda wrong: rx.GlobalVar("f", struct_info=wrong),
        lambda wrong: rx.Var("x", wrong),
        lambda wrong: rx.Constant(np.ones(2), wrong),
        lambda wrong: rx.ExternFunc("f", wrong),
        lambda wrong: NDIM.with_struct_info(wrong),
    ],
)
@pytest.mark.parametrize("wrong", ["float32", 3, X], ids=["str", "int", "var"])
def test_only_struct_infos_can_be_declared(build: object, wrong: object) -> None:
    with pytest.raises(MisuseError, match="StructInfo"):
        build(wrong)  # type: ignore[operator]


@pytest.mark.rule("DER-34")
def test_an_extern_func_is_declared_as_something_that_can_be_called() -> None:
    with pytest.raises(MisuseError, match="DER-34"):
        rx.ExternFunc("f", MATRIX)


def holders(program: rx.Function) -> Iterator[rx.Expr]:
    """The nodes of a program that declare a struct info which no constructor decides."""
    for node in walk(program):
        if type(node) in RULES and node.struct_info is not None:  # type: ignore[attr-defined]
            yield node  # type: ignore[misc]


def corrupted(node: Node, target: Node, claim: rx.StructInfo) -> Node:
    """`node` with another struct info on `target`; all others stay as they were declared."""
    if node is target:
        return replace(node, struct_info=claim)  # type: ignore[type-var]
    changes = {}
    for name in node._fields:
        old = getattr(node, name)
        if isinstance(old, Node) and not isinstance(old, (rx.Var, Op, rx.StructInfo)):
            new: object = corrupted(old, target, claim)
        elif type(old) is tuple and name != "params":
            new = tuple(
                corrupted(v, target, claim)
                if isinstance(v, Node) and not isinstance(v, (rx.Var, rx.StructInfo))
                else v
                for v in old
            )
            new = old if all(a is b for a, b in zip(new, old, strict=True)) else new
        else:
            continue
        if new is not old:
            changes[name] = new
    return replace(node, **changes) if changes else node  # type: ignore[type-var]


@pytest.mark.rule("DER-35", "DER-42", "DER-33", "DER-10", "DER-43", "DER-13")
@given(programs(), sinfos(), st.data())
def test_whatever_one_node_declares_is_checked_and_derived_anew(
    program: rx.Function, claim: rx.StructInfo, data: st.DataObject
) -> None:
    before = normalized(program)
    assume(not isinstance(before, StructInfoError))
    assert isinstance(before, rx.Function)
    target = data.draw(st.sampled_from(list(holders(before))))
    after = corrupted(before, target, claim)
    assert isinstance(after, rx.Function)
    assume(after is not before)
    again = normalized(after)
    assert isinstance(again, rx.Function)
    assert structural_equal(again, before)
    assert again.struct_info == before.struct_info
    assert target.struct_info is not None
    found = rules(after)
    assert found <= set(RULES[type(target)])
    assert found or is_base_of(claim, target.struct_info)


def operands_changed() -> Iterator[tuple[rx.Expr, dict[str, object]]]:
    """Expressions of a program, each with another operand that changes its struct info."""
    main = normalize_function(
        function(
            [X, Y, C],
            seq(
                block(
                    bind(var("a"), rx.If(C, seq(X), seq(X))),
                    bind(var("b"), rx.Call(Op("relax.exp"), (X,))),
                    bind(var("d"), rx.TupleGetItem(rx.Tuple((X, Y)), 0)),
                ),
                X,
            ),
            global_symbol="main",
        )
    )
    choice, call, item = (b.value for b in main.body.blocks[0].bindings)
    wider = normalize_function(function([Y], seq(Y))).body
    assert isinstance(item, rx.TupleGetItem)
    yield choice, {"true_branch": wider}
    yield call, {"args": (Y,)}
    yield item, {"tuple_value": rx.Tuple((Y, X))}
    yield item, {"index": 1}
    yield main.body, {"body": Y}
    yield main, {"body": wider}


@pytest.mark.parametrize(("expr", "changes"), [*operands_changed()])
def test_rebuilding_drops_struct_info_where_replacing_leaves_a_false_one(expr, changes) -> None:
    def program(value: rx.Expr) -> rx.Function:
        if isinstance(value, rx.Function):
            return value
        if isinstance(value, rx.SeqExpr):
            return function([X, Y, C], value, global_symbol="main")
        return returning(value, X, Y, C)

    twin = program(replace(expr, **changes))  # type: ignore[type-var]
    assert rules(twin) & {*RULES[type(expr)]}
    rebuilt = rebuild(expr, **changes)
    assert rebuilt.struct_info != expr.struct_info
    assert rules(program(rebuilt)) == set()


def test_rebuilding_keeps_struct_info_that_follows_from_the_same() -> None:
    main = normalize_function(
        function([X, C], seq(block(bind(var("a"), rx.If(C, seq(X), seq(X)))), X))
    )
    [block_] = main.body.blocks
    choice = block_.bindings[0].value
    assert isinstance(choice, rx.If)
    longer = rebuild(choice.true_branch, blocks=(block(bind(var("e", MATRIX), X)),))
    changed = rebuild(choice, true_branch=longer)
    assert longer.struct_info is choice.true_branch.struct_info
    assert changed.struct_info is choice.struct_info
    assert rebuild(main, body=rebuild(main.body, blocks=())).struct_info is main.struct_info
    assert rebuild(main, is_pure=False).struct_info is None
