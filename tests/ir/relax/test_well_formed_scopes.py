"""Scopes of variables and sizes wherever an expression can stand (SC, WF-2, WF-3, WF-5, WF-24)."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from relaxpy.ir.op import Op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed, well_formed
from relaxpy.ir.relax.block_builder.derive import normalize_function
from tests.ir.relax.graphs import (
    BOOL,
    at,
    bind,
    block,
    cast,
    dataflow,
    function,
    module,
    pure,
    seq,
    size,
    var,
)
from tests.ir.relax.sinfos import Object, func, packed, prim, rank, shape, tensor, tuple_of

X, C, U = var("x", tensor(2)), var("c", BOOL), var("u", rank(1))

#: Each position in which a value can stand inside another.
POSITIONS: dict[str, Callable[[rx.Expr], rx.Expr]] = {
    "callee": lambda value: rx.Call(value, (X,)),
    "argument": lambda value: pure("f", X, value),
    "field": lambda value: rx.Tuple((X, value)),
    "tuple of a field": lambda value: rx.TupleGetItem(value, 0),
    "condition": lambda value: rx.If(value, X, X),
    "first branch": lambda value: rx.If(C, value, X),
    "second branch": lambda value: rx.If(C, X, value),
    "function": lambda value: function([], value),
    "sequence": lambda value: seq(block(bind(var("z"), value)), X),
    "result": lambda value: seq(value),
}
at_each_position = pytest.mark.parametrize("put", POSITIONS.values(), ids=POSITIONS)
Put = Callable[[rx.Expr], rx.Expr]


def rules(body: rx.Expr) -> list[str | None]:
    found = check_well_formed(function([X, C, U], body), check_struct_info=False)
    return [d.rule for d in found]


@pytest.mark.rule("WF-24", "WF-2a", "SC-6")
@at_each_position
def test_a_variable_is_gone_where_its_sequence_has_ended(put: Put) -> None:
    y = var("y", tensor(2))
    inner = put(seq(block(bind(y, X)), y))
    assert rules(seq(block(bind(var("a"), inner)), X)) == []
    assert rules(seq(block(bind(var("a"), inner)), y)) == ["WF-24"]
    assert rules(seq(block(bind(var("a"), y), bind(var("b"), inner)), X)) == ["WF-24"]


@pytest.mark.rule("WF-24", "WF-2a", "SC-3")
@at_each_position
def test_a_parameter_is_gone_outside_its_function(put: Put) -> None:
    p = var("p", tensor(2))
    inner = put(function([p], p))
    assert rules(seq(block(bind(var("a"), inner)), p)) == ["WF-24"]


@pytest.mark.rule("WF-24", "WF-5a", "SC-12", "SC-13")
@at_each_position
def test_a_size_is_gone_where_its_sequence_or_function_has_ended(put: Put) -> None:
    n = size("n")
    shown = rx.ShapeExpr((n,))
    casts = put(seq(block(cast(None, U, tensor(n))), shown))
    takes = put(function([var("p", tensor(n))], shown))
    for inner in (casts, takes):
        assert rules(seq(block(bind(var("a"), inner)), X)) == []
        assert rules(seq(block(bind(var("a"), inner)), shown)) == ["WF-24"]
        assert rules(seq(block(bind(var("a"), shown), bind(var("b"), inner)), X)) == ["WF-24"]
    assert rules(seq(block(bind(var("a"), X)), shown)) == ["WF-5a"]


@pytest.mark.rule("WF-3", "WF-2c")
@at_each_position
def test_a_variable_is_used_too_early_or_by_itself_at_each_position(put: Put) -> None:
    y = var("y", tensor(2))
    early = seq(block(bind(var("a"), put(y)), bind(y, X)), X)
    assert rules(early) == ["WF-3"]
    itself = put(y)
    defines_a_function = isinstance(itself, rx.Function)
    assert rules(seq(block(bind(y, itself)), X)) == ([] if defines_a_function else ["WF-2c"])
    inside = seq(block(bind(y, pure("f", put(y)))), X)
    assert rules(inside) == ["WF-2c"]


@pytest.mark.rule("WF-5a")
@at_each_position
def test_a_size_is_used_too_early_at_each_position(put: Put) -> None:
    n = size("n")
    early = seq(block(bind(var("a"), put(rx.ShapeExpr((n,)))), cast(None, U, tensor(n))), X)
    assert rules(early) == ["WF-5a"]


@pytest.mark.rule("WF-4", "WF-5b", "WF-6a", "WF-24")
def test_a_size_that_is_gone_is_reported_once_by_the_criterion_of_its_position() -> None:
    n = size("n")
    ends = rx.If(C, seq(block(cast(None, U, tensor(n))), X), X)
    p = var("p", tensor(n * 2))
    for binding, rule in (
        (bind(var("b"), function([p], p)), "WF-6a"),
        (bind(var("b"), function([], X, tensor(n))), "WF-4"),
        (cast(None, U, tensor(n * 2)), "WF-5b"),
        (bind(var("b"), rx.ShapeExpr((n,))), "WF-24"),
    ):
        assert rules(seq(block(bind(var("a"), ends), binding), X)) == [rule]


@pytest.mark.rule("WF-24", "SC-1")
def test_a_function_that_the_module_has_not_is_reported_once_for_each_position() -> None:
    def missing(line: int | None) -> rx.Call:
        return replace(pure("f", rx.GlobalVar("g")), span=at(line))

    def reports(*lines: int | None) -> list[tuple[str | None, object]]:
        mod = module(main=function([], rx.Tuple(tuple(map(missing, lines)))))
        return [(d.rule, d.span) for d in check_well_formed(mod)]

    assert reports(None, None) == [("WF-24", None)]
    assert reports(1, 2, 1) == [("WF-24", at(1)), ("WF-24", at(2))]


@pytest.mark.rule("WF-2a")
def test_only_the_first_of_many_unknown_names_are_compared_with_those_that_are_known() -> None:
    names = [f"parameter{i}" for i in range(200)]
    body = rx.Tuple(tuple(var(name + "x") for name in names))
    found = check_well_formed(function([var(name, tensor(2)) for name in names], body))
    assert len(found) == 200
    near = ["did you mean" in (d.hint or "") for d in found]
    assert near[0]
    assert not near[-1]
    assert near == sorted(near, reverse=True)


PACKED, PAIR = rx.ExternFunc("g"), tuple_of(Object, Object)
CALLED = rx.Call(Op("relax.call_pure_packed"), (pure("g", sinfo=packed()),), sinfo_args=(Object,))

#: Values that are in normal form only when they stand in a sequence of their own.
NOT_NORMAL: dict[str, tuple[Callable[[], rx.SeqExpr], str]] = {
    "result": (lambda: seq(pure("f", X)), "NF-12"),
    "empty block": (lambda: seq(block(), X), "NF-11"),
    "blocks": (lambda: seq(block(bind(var("a"), X)), block(bind(var("b"), X)), X), "NF-8"),
    "dataflow blocks": (
        lambda: seq(dataflow(bind(var("a"), X)), dataflow(bind(var("b"), X)), X),
        "NF-9",
    ),
    "operand": (lambda: seq(block(bind(var("a"), pure("f", pure("g", X)))), X), "NF-2"),
    "field": (lambda: seq(block(bind(var("a"), rx.Tuple((pure("g", X),)))), X), "NF-2"),
    "callee": (lambda: seq(block(bind(var("a"), rx.Call(pure("f"), ()))), X), "NF-2"),
    "function as callee": (
        lambda: seq(block(bind(var("a"), rx.Call(function([], seq(X)), ()))), X),
        "NF-2",
    ),
    "cast": (lambda: seq(block(cast(None, pure("f", pure("g", X)), tensor(2))), X), "NF-2"),
    "packed function": (lambda: seq(block(bind(var("a"), pure("f", PACKED))), X), "NF-2"),
    "called operand": (lambda: seq(block(bind(var("a"), CALLED)), X), "NF-2"),
    "tuple of a field": (
        lambda: seq(block(bind(var("a"), rx.TupleGetItem(pure("p", sinfo=PAIR), 0))), X),
        "NF-2",
    ),
    "sequence": (lambda: seq(block(bind(var("a"), seq(X))), X), "NF-5"),
    "condition": (
        lambda: seq(block(bind(var("a"), rx.If(pure("f", sinfo=BOOL), X, X))), X),
        "NF-13",
    ),
}


@pytest.mark.rule("NF-2", "NF-5", "NF-8", "NF-9", "NF-11", "NF-12", "NF-13", "WF-23")
@pytest.mark.parametrize("kind", NOT_NORMAL)
def test_what_is_not_in_normal_form_is_found_in_functions_and_branches(kind: str) -> None:
    make, rule = NOT_NORMAL[kind]
    programs = (
        make(),
        seq(block(bind(var("r"), rx.If(C, make(), X))), X),
        seq(block(bind(var("r"), rx.If(C, X, make()))), X),
        seq(block(bind(var("r"), function([], make()))), X),
        seq(dataflow(bind(var("r"), function([], make()))), X),
    )
    for body in programs:
        program = function([X, C], body)
        assert [d.rule for d in check_well_formed(program, False, normal_form=True)] == [rule]
        assert not well_formed(program, False, normal_form=True)
        assert well_formed(program, False)
        if kind != "callee":  # of which nothing is known
            assert check_well_formed(normalize_function(program), normal_form=True) == []


@pytest.mark.rule("NF-10")
def test_blocks_of_two_kinds_may_alternate() -> None:
    parts = [make(bind(var("a"), X)) for make in (block, dataflow, block, dataflow)]
    assert well_formed(function([X], seq(*parts, X)), normal_form=True)


@pytest.mark.rule("WF-5b", "WF-14c", "SC-16", "RES-70")
def test_a_size_that_stands_alone_in_a_function_binds_nothing_for_the_cast_around_it() -> None:
    n, m, u = size("n"), size("m"), var("u", Object)

    def broken(sinfo: rx.StructInfo) -> list[str | None]:
        program = function([u], seq(block(cast(None, u, sinfo)), u))
        return [d.rule for d in check_well_formed(program, check_struct_info=False)]

    assert broken(func(tensor(m), ret=tensor(m * 2))) == []
    assert broken(func(tensor(m), ret=func(prim(m), ret=tensor(m)))) == []
    assert broken(tuple_of(tensor(m), func(ret=tensor(m)))) == []
    for unbound in (
        func(ret=tensor(m)),
        func(func(tensor(m), ret=prim()), ret=shape(m)),
        func(tensor(n), ret=tensor(m)),
        tuple_of(tensor(n), func(ret=tensor(m))),
        tuple_of(func(ret=tensor(m)), tensor(m)),
        tuple_of(func(tensor(m), ret=prim()), tensor(m * 2)),
    ):
        assert broken(unbound) == ["WF-5b"], unbound
