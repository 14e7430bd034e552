"""Well-formedness: for each criterion a program that breaks it, and one beside it that does not."""

from collections.abc import Callable

import pytest

from relaxpy.errors import Diagnostic, MisuseError
from relaxpy.ir.module import IRModule
from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx, op
from relaxpy.ir.relax.analysis.well_formed import check_well_formed, well_formed
from relaxpy.ir.relax.nodes.distributed import DeviceMesh, DTensorStructInfo, Placement
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.ir.tir.intrin import if_then_else
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    block,
    cast,
    dataflow,
    function,
    kernel,
    local,
    module,
    pure,
    seq,
    shape_of,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import Object, func, packed, prim, rank, shape, tensor, tuple_of

Program = IRModule | rx.Function
G_OTHER = rx.GlobalVar("other")


def rules(program: Program) -> list[str | None]:
    """The rules that a program breaks, each once; of each criterion it is said what to do."""
    diagnostics = check_well_formed(program)
    assert all(d.hint for d in diagnostics if d.rule is not None and d.rule[:2] in ("WF", "NF"))
    return list(dict.fromkeys(d.rule for d in diagnostics))


def found(program: Program) -> list[Diagnostic]:
    return check_well_formed(program)


@pytest.fixture
def x() -> rx.Var:
    return var("x", tensor(2))


# Scopes of variables


@pytest.mark.rule("WF-1a")
def test_a_dataflow_var_is_bound_in_a_dataflow_block(x: rx.Var) -> None:
    assert rules(function([x], seq(dataflow(bind(local("y"), x)), x))) == []
    assert rules(function([x], seq(block(bind(local("y"), x)), x))) == ["WF-1a"]
    assert rules(function([local("p", Object)], rx.Tuple(()))) == ["WF-1a"]


@pytest.mark.rule("WF-1b", "SC-7", "SC-8")
def test_a_dataflow_var_is_used_in_its_block(x: rx.Var) -> None:
    y, z = local("y"), var("z")
    assert rules(function([x], seq(dataflow(bind(y, x), bind(z, y)), z))) == []
    [only] = found(function([x], seq(dataflow(bind(y, x)), y)))
    assert only.rule == "WF-1b"
    assert "y" in only.message
    assert "R.output" in str(only.hint)
    second = seq(dataflow(bind(y, x)), block(), dataflow(bind(local("w"), y)), x)
    assert rules(function([x], second)) == ["WF-1b"]


@pytest.mark.rule("WF-2a")
def test_a_variable_is_bound_somewhere(x: rx.Var) -> None:
    [only] = found(function([x], pure("f", var("xx", tensor(2)))))
    assert (only.rule, only.message) == ("WF-2a", "variable xx is bound nowhere")


@pytest.mark.rule("WF-2b", "SC-9")
def test_a_variable_is_bound_once(x: rx.Var) -> None:
    y = var("y")
    assert rules(function([x], seq(block(bind(y, x), bind(var("y"), x)), y))) == []
    assert rules(function([x], seq(block(bind(y, x), bind(y, x)), y))) == ["WF-2b"]
    assert rules(function([x, x], x)) == ["WF-2b"]
    assert rules(module(f=function([x], x), g=function([x], x))) == ["WF-2b"]
    assert rules(function([x], seq(block(cast(x, x, rank(1))), x))) == ["WF-2b"]


@pytest.mark.rule("WF-2c")
def test_only_a_function_mentions_its_own_variable(x: rx.Var) -> None:
    f = var("f", func(prim(), ret=prim()))
    p = var("p", prim())
    assert rules(function([], seq(block(bind(f, function([p], f(p), prim()))), f))) == []
    y = var("y", tensor(2))
    assert rules(function([x], seq(block(bind(y, pure("f", y))), y))) == ["WF-2c"]
    assert rules(function([x], seq(block(cast(y, y, rank(1))), y))) == ["WF-2c"]


@pytest.mark.rule("WF-3", "SC-5")
def test_a_variable_is_used_after_its_binding(x: rx.Var) -> None:
    y, z = var("y", tensor(2)), var("z", tensor(2))
    late = seq(block(bind(z, y)), block(bind(y, x)), z)
    assert rules(function([x], late)) == ["WF-3"]
    assert rules(function([x], seq(block(bind(y, x)), block(bind(z, y)), z))) == []
    a, b = local("a", tensor(2)), local("b", tensor(2))
    assert rules(function([x], seq(dataflow(bind(a, b), bind(b, x)), x))) == ["WF-3"]


@pytest.mark.rule("WF-24", "SC-3", "SC-6")
def test_nothing_is_used_outside_its_scope(x: rx.Var) -> None:
    c, y = var("c", BOOL), var("y", tensor(2))
    chosen = rx.If(c, seq(block(bind(y, x)), y), seq(x))
    assert rules(function([x, c], chosen)) == []
    assert rules(function([x, c], seq(block(bind(var("r"), chosen)), y))) == ["WF-24"]
    p = var("p", tensor(2))
    inner = function([p], p)
    assert rules(function([x], seq(block(bind(var("f"), inner)), p))) == ["WF-24"]
    other = module(f=function([x], x), g=function([p], x))
    assert rules(other) == ["WF-24"]


@pytest.mark.rule("WF-24", "SC-1")
def test_a_global_name_is_one_of_the_module(x: rx.Var) -> None:
    f = rx.GlobalVar("helper")
    y = var("y", tensor(2))
    mod = module(main=function([x], f(x)), helper=function([y], y))
    assert rules(mod) == []
    [only] = found(module(main=function([x], rx.GlobalVar("helpr")(x)), helper=function([y], y)))
    assert only.rule == "WF-24"
    assert only.hint == "did you mean 'helper'?"


@pytest.mark.rule("WF-11", "EV-11")
def test_a_function_in_a_dataflow_block_uses_none_of_its_variables(x: rx.Var) -> None:
    y, f = local("y"), local("f")
    captures = seq(dataflow(bind(y, x), bind(f, function([], y))), x)
    assert rules(function([x], captures)) == ["WF-11"]
    assert rules(function([x], seq(dataflow(bind(f, function([], x))), x))) == []
    recursive = local("f", func(ret=prim()))
    own = seq(dataflow(bind(recursive, function([], recursive(), prim()))), x)
    assert rules(function([x], own)) == ["WF-11"]
    fine = var("f", func(ret=prim()))
    assert rules(function([x], seq(dataflow(bind(fine, function([], fine(), prim()))), x))) == []


# Shape variables


@pytest.mark.rule("WF-4", "LEG-21")
def test_a_return_annotation_uses_sizes_of_the_parameters() -> None:
    n, m = size("n"), size("m")
    y = var("y", tensor(n))
    assert rules(function([y], y, tensor(n))) == []
    broken = function([y], y, tensor(m))
    assert rules(broken) == ["WF-4"]
    assert rules(function([y], y, func(tensor(m), ret=tensor(m)))) == ["DER-45"]


@pytest.mark.rule("WF-5a", "PX-7")
def test_a_size_is_bound_before_it_is_used() -> None:
    n, u = size("n"), var("u", rank(1))
    y, z = var("y", tensor(n)), var("z")
    shown = bind(z, rx.ShapeExpr((n,)))
    assert rules(function([u], seq(block(cast(y, u, tensor(n)), shown), z))) == []
    early = function([u], seq(block(shown, cast(y, u, tensor(n))), z))
    assert rules(early) == ["WF-5a"]
    assert rules(function([u], rx.ShapeExpr((n,)))) == ["WF-5a"]
    annotated = var("w", func(tensor(n), ret=tensor(n)))
    assert rules(function([annotated], annotated)) == []


@pytest.mark.rule("WF-5b", "PX-8")
def test_only_a_lone_size_binds_in_a_cast() -> None:
    n, u = size("n"), var("u", rank(2))

    def program(*dims: object) -> rx.Function:
        return function([u], seq(block(cast(None, u, tensor(*dims))), u))

    assert rules(program(n, n * 2)) == []
    [only] = found(program(n * 2, 4))
    assert (only.rule, only.message) == ("WF-5b", "n * 2 in a match_cast does not bind n")
    assert rules(program(n * 2, n)) == ["WF-5b"]


@pytest.mark.rule("WF-6a", "WF-6b")
def test_each_size_of_a_signature_stands_alone_somewhere() -> None:
    n, m = size("n"), size("m")
    both = [var("a", tensor(n * m)), var("b", tensor(n)), var("c", tensor(m))]
    assert rules(function(both, rx.Tuple(()))) == []
    [only] = found(function(both[:2], rx.Tuple(())))
    assert only.rule == "WF-6a"
    assert "shape variable m" in only.message
    inside = [var("f", func(tensor(n), ret=prim())), var("a", tensor(n * 2))]
    assert rules(function(inside, rx.Tuple(()))) == ["WF-6a"]


@pytest.mark.rule("SC-15", "SC-16", "WF-6a")
def test_a_nested_function_may_use_sizes_around_it() -> None:
    n = size("n")
    x, y = var("x", tensor(n)), var("y", tensor(n * 2))
    inner = function([y], y)
    assert rules(function([x], inner)) == []


@pytest.mark.rule("WF-24", "SC-13")
def test_a_size_ends_with_its_sequence() -> None:
    n, u, c = size("n"), var("u", rank(1)), var("c", BOOL)
    yes = seq(block(cast(None, u, tensor(n))), rx.ShapeExpr((n,)))
    assert rules(function([u, c], rx.If(c, yes, rx.ShapeExpr((1,))))) == []  # type: ignore[arg-type]
    body = seq(block(bind(var("r"), rx.If(c, yes, seq(u)))), rx.ShapeExpr((n,)))
    assert rules(function([u, c], body)) == ["WF-24"]


@pytest.mark.rule("SC-14")
def test_a_size_outlives_its_dataflow_block() -> None:
    n, u = size("n"), var("u", rank(1))
    body = seq(dataflow(cast(None, u, tensor(n))), rx.ShapeExpr((n,)))
    assert rules(function([u], body)) == []


# Dataflow blocks and recursion


def annotated(body: rx.Expr, ret: rx.StructInfo | None) -> rx.Function:
    return function([var("p", prim())], body, ret)


@pytest.mark.rule("WF-7a")
def test_a_dataflow_block_does_not_call_its_own_function() -> None:
    main, p = rx.GlobalVar("main"), var("p", prim())
    inside = seq(dataflow(bind(var("y"), main(p))), p)
    assert rules(module(main=function([p], inside, prim()))) == ["WF-7a"]
    outside = seq(block(bind(var("y"), main(p))), p)
    assert rules(module(main=function([p], outside, prim()))) == []


@pytest.mark.rule("WF-7a")
def test_a_call_of_another_function_is_not_a_call_of_its_own(x: rx.Var) -> None:
    f, y = var("f", func(tensor(2), ret=tensor(2))), var("y", tensor(2))
    applies = seq(dataflow(bind(var("a"), f(x))), x)
    assert rules(function([f, x], applies)) == []
    inner = function([p := var("p", tensor(2))], seq(dataflow(bind(local("b"), G_OTHER(p))), p))
    outer = function([x], seq(block(bind(var("other"), inner)), x))
    assert rules(module(main=outer, other=function([y], y))) == []


@pytest.mark.rule("WF-7a", "PU-20")
def test_the_ban_does_not_reach_into_functions_defined_inside(x: rx.Var) -> None:
    f = var("f", func(prim(), ret=prim()))
    p, q = var("p", prim()), var("q", prim())
    inner = function([q], f(q), prim())
    literal = function([p], seq(dataflow(bind(var("g"), inner)), p), prim())
    assert rules(function([x], seq(block(bind(f, literal)), x))) == []
    direct = function([p], seq(dataflow(bind(var("g"), f(p))), p), prim())
    assert rules(function([x], seq(block(bind(f, direct)), x))) == ["WF-7a"]


@pytest.mark.rule("WF-7b", "WF-25")
def test_a_dataflow_block_calls_no_function_that_calls_back() -> None:
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    p, q, r = var("p", prim()), var("q", prim()), var("r", prim())
    calls_g = function([p], seq(dataflow(bind(var("y"), g(p))), p), prim())
    hidden = seq(block(bind(var("h"), function([r], f(r), prim()))), q)
    assert rules(module(f=calls_g, g=function([q], f(q), prim()))) == ["WF-7b"]
    assert rules(module(f=calls_g, g=function([q], hidden, prim()))) == ["WF-7b"]
    assert rules(module(f=calls_g, g=function([q], q))) == []


@pytest.mark.rule("WF-7c", "PU-20")
def test_a_dataflow_block_has_no_if(x: rx.Var) -> None:
    c = var("c", BOOL)
    value = rx.If(c, seq(x), seq(x))
    [only] = found(function([x, c], seq(dataflow(bind(var("y"), value)), x)))
    assert (only.rule, only.hint) == ("WF-7c", "end the dataflow block before it")
    assert rules(function([x, c], seq(block(bind(var("y"), value)), x))) == []
    nested = seq(block(bind(z := var("z"), value)), z)
    program = function([x, c], seq(dataflow(bind(var("y"), nested)), x))
    [only] = check_well_formed(program, check_struct_info=False)
    assert only.rule == "WF-7c"
    inner = function([], rx.If(c, x, x))
    assert rules(function([x, c], seq(dataflow(bind(var("y"), inner)), x))) == []


@pytest.mark.rule("WF-7d", "PU-5")
def test_impure_calls_in_dataflow_blocks_are_found_by_derivation(x: rx.Var) -> None:
    program = function([x], seq(dataflow(bind(var("y"), show(x))), x), is_pure=False)
    assert rules(program) == ["PU-5"]
    assert check_well_formed(program, check_struct_info=False) == []


@pytest.mark.rule("WF-8a", "WF-25")
def test_a_function_that_calls_itself_says_what_it_returns() -> None:
    main, p = rx.GlobalVar("main"), var("p", prim())
    assert rules(module(main=function([p], main(p)))) == ["WF-8a"]
    assert rules(module(main=function([p], main(p), prim()))) == []
    q = var("q", prim())
    nested = seq(block(bind(var("f"), function([q], main(q)))), p)
    assert rules(module(main=function([p], nested))) == ["WF-8a"]
    f = var("f", func(prim(), ret=prim()))
    assert rules(function([], seq(block(bind(f, function([p], f(p)))), f))) == ["WF-8a"]


@pytest.mark.rule("WF-8b")
def test_functions_in_a_cycle_say_what_they_return() -> None:
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    p, q = var("p", prim()), var("q", prim())
    faults = found(module(f=function([p], g(p)), g=function([q], f(q))))
    assert [d.rule for d in faults] == ["WF-8b", "WF-8b"]
    assert rules(module(f=function([p], g(p), prim()), g=function([q], f(q), prim()))) == []


@pytest.mark.rule("WF-9")
def test_an_operator_stands_only_where_it_is_called(x: rx.Var) -> None:
    value = pure("f", Op("relax.shape_of"))  # type: ignore[arg-type]
    [only] = found(function([x], value))
    assert (only.rule, only.message) == ("WF-9", "operator relax.shape_of is used as a value")
    add = Op("relax.add")
    for value in (
        rx.Tuple([x, add]),  # type: ignore[list-item]
        rx.Tuple([rx.Tuple([add])]),  # type: ignore[list-item]
        rx.TupleGetItem(rx.Tuple([add]), 0),  # type: ignore[list-item]
        rx.If(add, x, x),  # type: ignore[arg-type]
        rx.If(x, x, add),  # type: ignore[arg-type]
        seq(block(bind(var("v"), add)), x),  # type: ignore[arg-type]
        add,
    ):
        assert "WF-9" in rules(function([x], value))  # type: ignore[arg-type]


# Annotations


def params(*sinfos: rx.StructInfo) -> rx.Function:
    return function([var(f"p{i}", sinfo) for i, sinfo in enumerate(sinfos)], rx.Tuple(()))


WRONG_RANK = rx.TensorStructInfo((2, 3), "float32", ndim=3)  # type: ignore[arg-type]
WRONG_SHAPE = rx.ShapeStructInfo((2, 3), ndim=-1)  # type: ignore[arg-type]


@pytest.mark.rule("WF-10", "WF-14d", "WF-15b", "SI-11")
def test_the_rank_is_the_number_of_dimensions(x: rx.Var) -> None:
    assert rules(params(tensor(2, 3), shape(2, 3))) == []
    assert rules(params(WRONG_RANK)) == ["WF-10", "WF-14d"]
    for wrong, text in (
        (WRONG_RANK, "gives a tensor 2 dimensions and ndim 3"),
        (WRONG_SHAPE, "gives a shape 2 dimensions and ndim -1"),
    ):
        assert all(text in d.message for d in found(params(wrong)))
    assert rules(params(tuple_of(func(WRONG_SHAPE, ret=prim())))) == ["WF-10", "WF-15b"]
    given_back = function([x], x, WRONG_RANK)
    assert rules(given_back) == ["WF-14d"]


@pytest.mark.rule("WF-10")
def test_the_rank_is_that_of_a_shape_variable() -> None:
    s = var("s", shape(2, 3))
    wrong = rx.TensorStructInfo(s, "float32", ndim=3)
    assert "WF-10" in rules(function([s, var("y", wrong)], s))
    scalar, unknown = var("s", shape()), var("s", rx.ShapeStructInfo(None, -1))
    for s, broken in ((scalar, ["WF-10", "WF-14d"]), (unknown, [])):
        ranked = rx.TensorStructInfo(s, "float32", ndim=1)
        assert rules(function([s, var("y", ranked)], s)) == broken


@pytest.mark.rule("WF-14a", "LEG-8")
def test_a_shape_is_a_variable_or_written_out(x: rx.Var) -> None:
    computed = rx.TensorStructInfo(shape_of(x), "float32", ndim=1)
    assert rules(params(computed)) == ["WF-14a"]


@pytest.mark.rule("WF-14b", "SC-17")
def test_a_shape_variable_is_in_scope() -> None:
    s = var("s", shape(2, 3))
    y = var("y", rx.TensorStructInfo(s, "float32"))
    assert rules(function([y, s], y)) == []
    assert rules(function([y], y)) == ["WF-2a", "WF-14b"]


@pytest.mark.rule("WF-14c", "WF-15a", "WF-16")
@pytest.mark.parametrize(("rule", "make"), [("WF-14c", tensor), ("WF-15a", shape), ("WF-16", prim)])
def test_sizes_in_annotations_are_in_scope(
    rule: str, make: Callable[[tir.PrimExpr], rx.StructInfo]
) -> None:
    n = size("n")
    y = var("y", make(n))
    value = pure("f", sinfo=make(n))
    assert rule in rules(function([], seq(block(bind(y, value)), y)))
    a = var("a", tensor(n))
    assert rules(function([a], seq(block(bind(y, value)), y))) == []
    u = var("u", Object)
    assert rules(function([u], seq(block(cast(var("w"), u, make(n))), u))) == []
    owned = var("g", func(make(n), ret=make(n)))
    assert rules(function([owned], owned)) == []


@pytest.mark.rule("WF-17a", "WF-17b", "SI-7", "SI-8")
def test_a_function_struct_info_has_one_form() -> None:
    derive = rx.DEFAULT_DERIVE
    assert rules(params(func(ret=prim()), packed())) == []
    assert rules(params(rx.FuncStructInfo((), prim(), derive_func=derive))) == ["WF-17a"]
    assert rules(params(rx.FuncStructInfo(None, prim()))) == ["WF-17b"]


@pytest.mark.rule("WF-18")
def test_a_prim_value_is_a_number_or_arithmetic_over_sizes() -> None:
    n, a = size("n"), var("a", tensor(2))
    b = var("b", tensor(n))
    for value in (ops.const(1, "int64"), ops.const(1.5, "float64"), n + 1):
        assert rules(function([b], rx.PrimValue(value))) == []
    assert rules(function([a], rx.PrimValue(n + 1))) == ["WF-5a", "WF-18"]
    vector = tir.Broadcast(ops.const(1, "int64"), 4)
    assert "WF-18" in rules(function([a], rx.PrimValue(vector)))
    text = rx.PrimValue(tir.StringImm("s"), struct_info=Object)
    assert rules(function([a], text)) == ["WF-18"]


@pytest.mark.rule("WF-19", "WF-20", "DT-2", "DT-4", "DT-8")
@pytest.mark.parametrize(
    ("expected", "sinfo"),
    [
        ([], prim(dtype="bool")),
        ([], rx.TensorStructInfo(None, "", ndim=1)),
        ([], tensor(2, dtype="bfloat16")),
        (["WF-19"], prim(dtype="")),
        (["WF-19", "WF-20"], prim(dtype="handle")),
        (["WF-20"], tensor(2, dtype="float32x4")),
        (["WF-20"], tensor(2, dtype="handle")),
        (["WF-20"], tensor(2, dtype="int7")),
    ],
)
def test_datatypes_of_annotations(expected: list[str], sinfo: rx.StructInfo) -> None:
    assert rules(params(sinfo)) == expected


@pytest.mark.rule("WF-22")
def test_a_scalar_has_the_datatype_of_its_value() -> None:
    n = size("n")
    fine = rx.PrimStructInfo("int64", n)  # type: ignore[arg-type]
    wrong = rx.PrimStructInfo("int32", n)  # type: ignore[arg-type]
    assert rules(params(tensor(n), fine)) == []
    assert rules(params(tensor(n), wrong)) == ["WF-22"]


# Modules and functions


@pytest.mark.rule("WF-12", "WF-13", "TOP-4")
def test_a_module_has_a_public_function_under_its_own_name(x: rx.Var) -> None:
    private = function([x], x)
    assert rules(IRModule({"f": private})) == ["WF-12"]
    assert rules(IRModule({"f": private.with_attr("global_symbol", "g")})) == ["WF-13"]
    assert rules(IRModule({"f": private.with_attr("global_symbol", "f")})) == []
    public = kernel((2,)).with_attr("global_symbol", "k")
    assert rules(IRModule({"f": private, "k": public})) == []


@pytest.mark.rule("WF-21", "PU-6")
def test_force_pure_stands_on_pure_functions(x: rx.Var) -> None:
    forced = function([x], x).with_attr("relax.force_pure", True)
    assert rules(forced) == []
    impure = function([x], x, is_pure=False).with_attr("relax.force_pure", True)
    assert rules(impure) == ["WF-21"]


def test_all_that_is_wrong_is_said_at_once(x: rx.Var) -> None:
    y, n = var("y", tensor(2)), size("n")
    body = seq(
        block(bind(var("a"), y), bind(local("b"), x), bind(var("c"), rx.ShapeExpr((n,)))),
        dataflow(bind(var("d"), rx.If(x, seq(x), seq(x)))),
        x,
    )
    diagnostics = found(function([x], body))
    assert [d.rule for d in diagnostics] == ["WF-1a", "WF-2a", "WF-5a", "WF-7c"]
    assert "shape variable n" in diagnostics[2].message


@pytest.mark.rule("WF-7d", "PU-5", "PU-8")
def test_what_derivation_finds_in_sound_functions_is_said_too(x: rx.Var) -> None:
    y, z, w = (var(name, tensor(2)) for name in "yzw")
    mod = module(
        broken=function([x], var("nowhere")),
        calls=function([y], seq(block(bind(var("a", tensor(3)), rx.GlobalVar("broken")(y))), y)),
        prints=function([z], seq(dataflow(bind(var("b"), show(z))), z)),
        hides=function([w], seq(block(bind(var("c"), show(w))), w)),
    )
    assert rules(mod) == ["WF-2a", "PU-5", "PU-8"]
    u, v = var("u", tensor(2)), var("v", tensor(2))
    mod["helper"] = function([u], u, global_symbol="helper")
    mod["uses"] = function([v], rx.GlobalVar("helper")(v), tensor(3), global_symbol="uses")
    assert rules(mod) == ["WF-2a", "PU-5", "PU-8", "DER-45"]


def test_what_follows_from_a_failed_function_is_not_said(x: rx.Var) -> None:
    f, y = rx.GlobalVar("f"), var("y", tensor(2))
    fails = seq(block(bind(var("a", tensor(3)), x)), x)
    uses = op.add(f(y), y)
    assert rules(module(f=function([x], fails), g=function([y], uses))) == ["DER-18"]
    through = module(
        f=function([x], fails),
        g=function([y], f(y)),
        h=function([z := var("z", tensor(2))], op.add(rx.GlobalVar("g")(z), z)),
    )
    assert rules(through) == ["DER-18"]
    typed = function([x], fails, tensor(4))
    assert len(found(module(f=typed, g=function([y], op.add(f(y), y))))) == 2


@pytest.mark.rule("WF-6a", "WF-10", "WF-20")
@pytest.mark.parametrize(
    ("sinfo", "broken"),
    [
        (tensor(size("n"), 2), []),
        (tensor(size("n") * 2, 2), ["WF-6a"]),
        (WRONG_RANK, ["WF-10", "WF-14d"]),
        (tensor(2, dtype="int7"), ["WF-20"]),
    ],
)
def test_the_tensor_on_many_devices_is_looked_at(
    sinfo: rx.TensorStructInfo, broken: list[str]
) -> None:
    spread = DTensorStructInfo(sinfo, DeviceMesh((2,), (0, 1)), Placement.from_text("S[0]"))
    assert rules(params(spread)) == broken


def test_derivation_is_tried_only_on_what_is_well_formed(x: rx.Var) -> None:
    mismatched = seq(block(bind(var("y", tensor(3)), x)), x)
    program = function([x], mismatched)
    assert rules(program) == ["DER-18"]
    assert not well_formed(program)
    assert well_formed(program, check_struct_info=False)


def test_only_programs_are_checked() -> None:
    with pytest.raises(MisuseError, match="expected a module or a function") as caught:
        check_well_formed(3)  # type: ignore[arg-type]
    assert caught.value.about == 3


def test_kernels_are_none_of_its_business() -> None:
    assert check_well_formed(kernel((2,))) == []


def test_checking_warns_of_nothing(x: rx.Var) -> None:
    y = var("y", tensor(size("n")))
    assert rules(function([y], seq(block(bind(var("z", tensor(4)), y)), y))) == []


@pytest.mark.rule("WF-2a", "WF-3")
def test_a_call_that_stands_in_many_places_is_looked_at_once() -> None:
    """Sixty layers of x + x, never bound, are 2**60 places and sixty calls."""
    x = var("x", tensor(2))
    value: rx.Expr = x
    for _ in range(60):
        value = rx.Tuple((pure("f", value, value), value))
    assert well_formed(function([x], value), check_struct_info=False)
    assert rules(function([var("y", tensor(2))], value)) == ["WF-2a"]


@pytest.mark.rule("WF-24")
def test_what_stands_inside_and_outside_a_branch_is_looked_at_in_both() -> None:
    x, c, v = var("x", tensor(2)), var("c", BOOL), var("v")
    shared = pure("f", v)
    branch = seq(block(bind(v, x)), shared)
    assert well_formed(function([x, c], rx.If(c, branch, x)))
    assert rules(function([x, c], rx.Tuple((rx.If(c, branch, x), shared)))) == ["WF-24"]


@pytest.mark.rule("PX-3")
def test_a_division_that_is_surely_by_zero_is_found_before_it_is_made() -> None:
    n, m = size("n"), size("m")
    x = var("x", shape(n, m))
    seven = tir.IntImm("int64", 7)
    for node in (tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod):
        for zero in (tir.IntImm("int64", 0), n - n, (n + m) * 2 - n * 2 - m * 2):
            for value in (rx.ShapeExpr([node(seven, zero)]), rx.PrimValue(node(seven, zero) + 1)):
                assert rules(function([x], value)) == ["PX-3"]
        assert rules(function([x], rx.ShapeExpr([node(seven, n - m)]))) == []
    [only] = found(function([x, var("y", tensor(seven // (n - n)))], x))
    assert only.message == "7 // (n - n) always divides by zero"


@pytest.mark.rule("PX-3", "PX-5")
def test_a_division_that_need_not_be_made_is_left_to_the_run() -> None:
    n = size("n")
    zero = tir.IntImm("int64", 7) // (n - n)
    for value in (
        tir.Select(n > 0, zero, n),
        tir.And(n > 0, zero > 0),
        tir.Or(n > 0, zero > 0),
        if_then_else(n > 0, n, zero),
    ):
        assert rules(function([var("x", shape(n))], rx.PrimValue(value))) == []
    real = tir.FloatImm("float64", 0.0)
    assert rules(function([], rx.PrimValue(tir.Div(real, real)))) == []
    for surely in (zero + zero, zero + (n + n), (n + n) + zero):
        assert rules(function([var("x", shape(n))], rx.PrimValue(surely))) == ["PX-3"]
    for asked in (
        tir.Select(zero > 0, n, n),
        tir.And(zero > 0, n > 0),
        tir.Or(zero > 0, n > 0),
        if_then_else(zero > 0, n, n),
    ):
        assert rules(function([var("x", shape(n))], rx.PrimValue(asked))) == ["PX-3"]
