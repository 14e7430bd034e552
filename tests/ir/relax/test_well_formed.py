"""Well-formedness: for each criterion a program that breaks it, and one beside it that does not."""

import re

import pytest

from relaxpy.errors import Diagnostic, MisuseError
from relaxpy.ir import IRModule, Op, ops as op
from relaxpy.ir.relax import nodes as rx
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
    show,
    size,
    var,
    written,
)
from tests.ir.relax.sinfos import Object, func, prim, shape, tensor
from tests.rows import by_rule

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


WRONG_RANK = rx.TensorStructInfo((2, 3), "float32", ndim=3)  # type: ignore[arg-type]
WRONG_SHAPE = rx.ShapeStructInfo((2, 3), ndim=-1)  # type: ignore[arg-type]


def on_two(sinfo: rx.TensorStructInfo) -> DTensorStructInfo:
    """The tensor on two devices."""
    return DTensorStructInfo(sinfo, DeviceMesh((2,), (0, 1)), Placement.from_text("S[0]"))


ROWS = """
WF-1a: x=tensor(2); y_=None | seq(dataflow(bind(y_, x)), x) =>
WF-1a: x=tensor(2); y_=None | seq(block(bind(y_, x)), x) => WF-1a
WF-1a: p_=Object | rx.Tuple(()) => WF-1a
WF-1b SC-7 SC-8: x=tensor(2); y_=None, z=None | seq(dataflow(bind(y_, x), bind(z, y_)), z) =>
WF-1b: x=tensor(2); y_=None | seq(dataflow(bind(y_, x)), y_)
    => WF-1b: y .*R.output
WF-1b: x=tensor(2); y_=None, w_=None
    | seq(dataflow(bind(y_, x)), block(), dataflow(bind(w_, y_)), x) => WF-1b
WF-2a: x=tensor(2); xx=tensor(2) | pure("f", xx) => WF-2a: variable xx is bound nowhere
WF-2b SC-9: x=tensor(2); y=None | seq(block(bind(y, x), bind(var("y"), x)), y) =>
WF-2b: x=tensor(2); y=None | seq(block(bind(y, x), bind(y, x)), y) => WF-2b
WF-2b: x=tensor(2) | seq(block(cast(x, x, rank(1))), x) => WF-2b
WF-2c: ; f=func(prim(), ret=prim()), p=prim()
    | seq(block(bind(f, function([p], f(p), prim()))), f) =>
WF-2c: x=tensor(2); y=tensor(2) | seq(block(bind(y, pure("f", y))), y) => WF-2c
WF-2c: x=tensor(2); y=tensor(2) | seq(block(cast(y, y, rank(1))), y) => WF-2c
WF-3 SC-5: x=tensor(2); y=tensor(2), z=tensor(2)
    | seq(block(bind(z, y)), block(bind(y, x)), z) => WF-3
WF-3: x=tensor(2); y=tensor(2), z=tensor(2) | seq(block(bind(y, x)), block(bind(z, y)), z) =>
WF-3: x=tensor(2); a_=tensor(2), b_=tensor(2) | seq(dataflow(bind(a_, b_), bind(b_, x)), x) => WF-3
WF-24 SC-3 SC-6: x=tensor(2), c=BOOL; y=tensor(2) | rx.If(c, seq(block(bind(y, x)), y), seq(x)) =>
WF-24: x=tensor(2), c=BOOL; y=tensor(2), r=None
    | seq(block(bind(r, rx.If(c, seq(block(bind(y, x)), y), seq(x)))), y) => WF-24
WF-24: x=tensor(2); p=tensor(2), f=None | seq(block(bind(f, function([p], p))), p) => WF-24
WF-11 EV-11: x=tensor(2); y_=None, f_=None
    | seq(dataflow(bind(y_, x), bind(f_, function([], y_))), x) => WF-11
WF-11: x=tensor(2); f_=None | seq(dataflow(bind(f_, function([], x))), x) =>
WF-11: x=tensor(2); f_=func(ret=prim())
    | seq(dataflow(bind(f_, function([], f_(), prim()))), x) => WF-11
WF-11: x=tensor(2); f=func(ret=prim()) | seq(dataflow(bind(f, function([], f(), prim()))), x) =>
WF-4 LEG-21: y=tensor(n) | y -> tensor(n) =>
WF-4: y=tensor(n) | y -> tensor(m) => WF-4
WF-4: y=tensor(n) | y -> func(tensor(m), ret=tensor(m)) => DER-45
WF-5a PX-7: u=rank(1); y=tensor(n), z=None
    | seq(block(cast(y, u, tensor(n)), bind(z, rx.ShapeExpr((n,)))), z) =>
WF-5a: u=rank(1); y=tensor(n), z=None
    | seq(block(bind(z, rx.ShapeExpr((n,))), cast(y, u, tensor(n))), z) => WF-5a
WF-5a: u=rank(1) | rx.ShapeExpr((n,)) => WF-5a
WF-5a: w=func(tensor(n), ret=tensor(n)) | w =>
WF-5b PX-8: u=rank(2) | seq(block(cast(None, u, tensor(n, n * 2))), u) =>
WF-5b: u=rank(2) | seq(block(cast(None, u, tensor(n * 2, 4))), u)
    => WF-5b: n \\* 2 in a match_cast does not bind n
WF-5b: u=rank(2) | seq(block(cast(None, u, tensor(n * 2, n))), u) => WF-5b
WF-6a WF-6b: a=tensor(n * m), b=tensor(n), c=tensor(m) | rx.Tuple(()) =>
WF-6a: a=tensor(n * m), b=tensor(n) | rx.Tuple(()) => WF-6a: shape variable m
WF-6a: f=func(tensor(n), ret=prim()), a=tensor(n * 2) | rx.Tuple(()) => WF-6a
SC-15 SC-16 WF-6a: x=tensor(n); y=tensor(n * 2) | function([y], y) =>
WF-24 SC-13: u=rank(1), c=BOOL
    | rx.If(c, seq(block(cast(None, u, tensor(n))), rx.ShapeExpr((n,))), rx.ShapeExpr((1,))) =>
WF-24: u=rank(1), c=BOOL; r=None
    | seq(block(bind(r, rx.If(c, seq(block(cast(None, u, tensor(n))), rx.ShapeExpr((n,))),
    seq(u)))), rx.ShapeExpr((n,))) => WF-24
WF-24: u=rank(1), c=BOOL; r=None
    | seq(block(bind(r, rx.If(c, seq(block(cast(None, u, tensor(n)), cast(None, u, tensor(m))),
    rx.ShapeExpr((n, m))), seq(u)))), rx.ShapeExpr((n,))) => WF-24
SC-14: u=rank(1) | seq(dataflow(cast(None, u, tensor(n))), rx.ShapeExpr((n,))) =>
WF-7a PU-20: x=tensor(2); f=func(prim(), ret=prim()), p=prim(), q=prim(), g=None
    | seq(block(bind(f, function([p], seq(dataflow(bind(g, function([q], f(q), prim()))), p),
    prim()))), x) =>
WF-7a: x=tensor(2); f=func(prim(), ret=prim()), p=prim(), g=None
    | seq(block(bind(f, function([p], seq(dataflow(bind(g, f(p))), p), prim()))), x) => WF-7a
WF-7a: f=func(tensor(2), ret=tensor(2)), x=tensor(2); a=None | seq(dataflow(bind(a, f(x))), x) =>
WF-7c: x=tensor(2), c=BOOL; y=None | seq(dataflow(bind(y, rx.If(c, seq(x), seq(x)))), x)
    => WF-7c: end the dataflow block before it
WF-7c: x=tensor(2), c=BOOL; y=None | seq(block(bind(y, rx.If(c, seq(x), seq(x)))), x) =>
WF-7c PU-20: x=tensor(2), c=BOOL; y=None
    | seq(dataflow(bind(y, function([], rx.If(c, x, x)))), x) =>
WF-7d PU-5: x=tensor(2); y=None | impure: seq(dataflow(bind(y, show(x))), x) => PU-5
WF-8a: ; f=func(prim(), ret=prim()), p=prim() | seq(block(bind(f, function([p], f(p)))), f) => WF-8a
WF-9: x=tensor(2) | pure("f", Op("relax.shape_of"))
    => WF-9: operator relax.shape_of is used as a value
WF-10 WF-14d WF-15b SI-11: a=tensor(2, 3), b=shape(2, 3) | rx.Tuple(()) =>
WF-10 WF-14d: a=WRONG_RANK | rx.Tuple(()) => WF-10 WF-14d: gives a tensor 2 dimensions and ndim 3
WF-10 WF-15b: a=WRONG_SHAPE | rx.Tuple(()) => WF-10 WF-15b: gives a shape 2 dimensions and ndim -1
WF-10 WF-15b: a=tuple_of(func(WRONG_SHAPE, ret=prim())) | rx.Tuple(()) => WF-10 WF-15b
WF-14d: x=tensor(2) | x -> WRONG_RANK => WF-14d
WF-10: s=shape(), y=by_var(s, ndim=1) | s => WF-10 WF-14d
WF-10: s=ranked(-1), y=by_var(s, ndim=1) | s =>
WF-14a LEG-8: a=rx.TensorStructInfo(shape_of(var("x", tensor(2))), "float32", ndim=1)
    | rx.Tuple(()) => WF-14a
WF-14b SC-17: s=shape(2, 3), y=by_var(s) | y =>
WF-14b: y=by_var(var("s", shape(2, 3))) | y => WF-2a WF-14b
WF-17a WF-17b SI-7 SI-8: a=func(prim(), ret=prim()), b=packed() | rx.Tuple(()) =>
WF-17a: a=rx.FuncStructInfo((), prim(), derive_func=rx.DEFAULT_DERIVE) | rx.Tuple(()) => WF-17a
WF-17b: a=rx.FuncStructInfo(None, prim()) | rx.Tuple(()) => WF-17b
WF-18: b=tensor(n) | rx.PrimValue(ops.const(1, "int64")) =>
WF-18: b=tensor(n) | rx.PrimValue(ops.const(1.5, "float64")) =>
WF-18: b=tensor(n) | rx.PrimValue(n + 1) =>
WF-18: a=tensor(2) | rx.PrimValue(n + 1) => WF-5a WF-18
WF-18: a=tensor(2) | rx.PrimValue(tir.StringImm("s"), struct_info=Object) => WF-18
WF-19 DT-2: a=prim(dtype="bool") | rx.Tuple(()) =>
WF-19: a=rx.TensorStructInfo(None, "", ndim=1) | rx.Tuple(()) =>
WF-20 DT-4: a=tensor(2, dtype="bfloat16") | rx.Tuple(()) =>
WF-19: a=prim(dtype="") | rx.Tuple(()) => WF-19
WF-19 WF-20: a=prim(dtype="handle") | rx.Tuple(()) => WF-19 WF-20
WF-20 DT-8: a=tensor(2, dtype="float32x4") | rx.Tuple(()) => WF-20
WF-20: a=tensor(2, dtype="handle") | rx.Tuple(()) => WF-20
WF-20: a=tensor(2, dtype="int7") | rx.Tuple(()) => WF-20
WF-22: a=tensor(n), b=rx.PrimStructInfo("int64", n) | rx.Tuple(()) =>
WF-22: a=tensor(n), b=rx.PrimStructInfo("int32", n) | rx.Tuple(()) => WF-22
WF-6a: a=on_two(tensor(n, 2)) | rx.Tuple(()) =>
WF-6a: a=on_two(tensor(n * 2, 2)) | rx.Tuple(()) => WF-6a
WF-10: a=on_two(WRONG_RANK) | rx.Tuple(()) => WF-10 WF-14d
WF-20: a=on_two(tensor(2, dtype="int7")) | rx.Tuple(()) => WF-20
WF-1a WF-2a WF-5a WF-7c: x=tensor(2); y=tensor(2), a=None, b_=None, c=None, d=None
    | seq(block(bind(a, y), bind(b_, x), bind(c, rx.ShapeExpr((n,)))),
    dataflow(bind(d, rx.If(x, seq(x), seq(x)))), x) => WF-1a WF-2a WF-5a WF-7c: shape variable n
DER-18: x=tensor(2); y=tensor(3) | seq(block(bind(y, x)), x) => DER-18
WF-2a: y=tensor(n); z=tensor(4) | seq(block(bind(z, y)), y) =>
"""


@pytest.mark.rule("WF-1a", "WF-1b", "WF-2a", "WF-2b", "WF-2c", "WF-3", "WF-4", "WF-5a", "WF-5b")
@pytest.mark.rule("WF-6a", "WF-6b", "WF-7a", "WF-7c", "WF-7d", "WF-8a", "WF-9", "WF-10", "WF-11")
@pytest.mark.rule("WF-14a", "WF-14b", "WF-14d", "WF-15b", "WF-17a", "WF-17b", "WF-18", "WF-19")
@pytest.mark.rule("WF-20", "WF-22", "WF-24", "DT-2", "DT-4", "DT-8", "EV-11", "LEG-8", "LEG-21")
@pytest.mark.rule("PU-5", "PU-20", "PX-7", "PX-8", "SC-3", "SC-5", "SC-6", "SC-7", "SC-8", "SC-9")
@pytest.mark.rule("SC-13", "SC-14", "SC-15", "SC-16", "SC-17", "SI-7", "SI-8", "SI-11")
@pytest.mark.parametrize("case", by_rule(ROWS))
def test_criteria(case: str) -> None:
    program, outcome, _ = written(case, globals())
    expected, _, text = outcome.partition(": ")
    assert rules(program) == expected.split()
    shown = "\\n".join(f"{d.message} ({d.hint})" for d in found(program))
    assert re.search(text, shown, re.DOTALL), shown


# Scopes of variables


@pytest.mark.rule("WF-2b", "SC-9")
def test_a_variable_is_bound_once(x: rx.Var) -> None:
    assert rules(function([x, x], x)) == ["WF-2b"]
    assert rules(module(f=function([x], x), g=function([x], x))) == ["WF-2b"]


@pytest.mark.rule("WF-24", "SC-3", "SC-6")
def test_nothing_is_used_outside_its_scope(x: rx.Var) -> None:
    other = module(f=function([x], x), g=function([var("p", tensor(2))], x))
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


# Shape variables


# Dataflow blocks and recursion


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
    nested = seq(block(bind(z := var("z"), rx.If(c, seq(x), seq(x)))), z)
    program = function([x, c], seq(dataflow(bind(var("y"), nested)), x))
    [only] = check_well_formed(program, check_struct_info=False)
    assert only.rule == "WF-7c"


@pytest.mark.rule("WF-7d", "PU-5")
def test_impure_calls_in_dataflow_blocks_are_found_by_derivation(x: rx.Var) -> None:
    program = function([x], seq(dataflow(bind(var("y"), show(x))), x), is_pure=False)
    assert check_well_formed(program, check_struct_info=False) == []


@pytest.mark.rule("WF-8a", "WF-25")
def test_a_function_that_calls_itself_says_what_it_returns() -> None:
    main, p = rx.GlobalVar("main"), var("p", prim())
    assert rules(module(main=function([p], main(p)))) == ["WF-8a"]
    assert rules(module(main=function([p], main(p), prim()))) == []
    q = var("q", prim())
    nested = seq(block(bind(var("f"), function([q], main(q)))), p)
    assert rules(module(main=function([p], nested))) == ["WF-8a"]


@pytest.mark.rule("WF-8b")
def test_functions_in_a_cycle_say_what_they_return() -> None:
    f, g = rx.GlobalVar("f"), rx.GlobalVar("g")
    p, q = var("p", prim()), var("q", prim())
    faults = found(module(f=function([p], g(p)), g=function([q], f(q))))
    assert [d.rule for d in faults] == ["WF-8b", "WF-8b"]
    assert rules(module(f=function([p], g(p), prim()), g=function([q], f(q), prim()))) == []


@pytest.mark.rule("WF-9")
def test_an_operator_stands_only_where_it_is_called(x: rx.Var) -> None:
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


@pytest.mark.rule("WF-14c", "WF-15a", "WF-16")
@pytest.mark.parametrize(("rule", "make"), [("WF-14c", tensor), ("WF-15a", shape), ("WF-16", prim)])
def test_sizes_in_annotations_are_in_scope(rule, make) -> None:
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


@pytest.mark.rule("WF-18")
def test_a_prim_value_is_a_number_or_arithmetic_over_sizes() -> None:
    a = var("a", tensor(2))
    vector = tir.Broadcast(ops.const(1, "int64"), 4)
    assert "WF-18" in rules(function([a], rx.PrimValue(vector)))


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
    for surely in (zero + zero, zero + (n + n), (n + n) + zero, zero + (n // 2) + n // 2):
        assert rules(function([var("x", shape(n))], rx.PrimValue(surely))) == ["PX-3"]
    for asked in (
        tir.Select(zero > 0, n, n),
        tir.And(zero > 0, n > 0),
        tir.Or(zero > 0, n > 0),
        if_then_else(zero > 0, n, n),
    ):
        assert rules(function([var("x", shape(n))], rx.PrimValue(asked))) == ["PX-3"]
