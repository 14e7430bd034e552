"""Scopes of variables and sizes wherever an expression can stand (SC, WF-2, WF-3, WF-5, WF-24)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    block,
    cast,
    function,
    pure,
    seq,
    size,
    var,
)
from tests.ir.relax.infos import rank, tensor

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
