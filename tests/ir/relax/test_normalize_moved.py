"""What moves when an inner sequence is flattened keeps its meaning, wherever it is mentioned."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from relaxpy.errors import StructInfoError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from relaxpy.ir.tir import expr as tir
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    bindings,
    block,
    called,
    cast,
    function,
    pure,
    seq,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import func, prim, rank, shape, tensor, tuple_of

U = var("u", rank(1))
C = var("c", BOOL)

#: Bindings that mention a size, one for each kind of node that can.
MENTIONS: dict[str, Callable[[tir.Var], list[rx.Binding]]] = {
    "shape": lambda n: [bind(var("y"), rx.ShapeExpr((n, n * 2)))],
    "scalar": lambda n: [bind(var("y"), rx.PrimValue(n + 1))],
    "argument": lambda n: [bind(var("y"), pure("f", rx.ShapeExpr((n,))))],
    "argument next to literals": lambda n: [
        bind(var("y"), pure("f", rx.const(1), rx.StringImm("s"), rx.PrimValue(n)))
    ],
    "sinfo_args": lambda n: [bind(var("y"), pure("f", U, sinfo=tensor(n)))],
    "one of several sinfo_args": lambda n: [
        bind(var("y"), replace(pure("f", U), sinfo_args=(prim(), tensor(n), prim())))
    ],
    "sinfo_args of a call of a call": lambda n: [
        bind(var("y"), pure("f", pure("g", U), sinfo=tuple_of(tensor(n), prim(n))))
    ],
    "annotation": lambda n: [cast(z := var("z"), U, tensor(n)), bind(var("y", tensor(n)), z)],
    "annotation of a cast": lambda n: [cast(var("y", tensor(n)), U, tensor(n))],
    "second cast": lambda n: [cast(None, U, tensor(n))],
    "signature": lambda n: [bind(var("y"), function([p := var("p", tensor(n))], p, tensor(n)))],
    "parameter as shape": lambda n: [
        bind(
            var("y"),
            function(
                [p := var("p", rx.TensorStructInfo(s := var("s", shape(n)), "float32")), s], p
            ),
        )
    ],
    "body of a function": lambda n: [bind(var("y"), function([], rx.ShapeExpr((n,))))],
    "branch": lambda n: [bind(var("y"), rx.If(C, rx.ShapeExpr((n,)), rx.PrimValue(n)))],
    "function that mentions itself": lambda n: [
        bind(f := var("f"), function([p := var("p", tensor(n))], rx.Call(f, (p,)), tensor(n)))
    ],
    "cast function that mentions itself": lambda n: [
        cast(
            f := var("f"),
            function([p := var("p", tensor(n))], rx.Call(f, (p,)), tensor(n)),
            func(tensor(n), ret=tensor(n)),
        )
    ],
    "variable as shape": lambda n: [
        bind(s := var("s", shape(n)), rx.ShapeExpr((n,))),
        cast(var("y"), U, rx.TensorStructInfo(s, "float32")),
    ],
}


@pytest.mark.rule("NF-14", "NF-23", "NF-20")
@pytest.mark.parametrize("where", MENTIONS)
def test_each_mention_of_a_size_follows_the_cast_that_binds_it(where: str) -> None:
    n = size("n")

    def part() -> rx.SeqExpr:
        mentions = MENTIONS[where](n)
        result = mentions[-1].var
        return seq(block(cast(None, U, tensor(n)), *mentions), result or U)

    before = function([U, C], rx.Tuple((part(), part())))
    assert check_well_formed(before) == []
    found = normalize_function(before)
    assert check_well_formed(found, normal_form=True) == []
    casts = [b.struct_info for b in bindings(found) if isinstance(b, rx.MatchCast) and not b.var]
    sizes = {sinfo.get_shape()[0] for sinfo in casts}  # type: ignore[union-attr,index]
    assert len(sizes) == 2
    assert n not in sizes


@pytest.mark.rule("DER-3")
def test_an_argument_that_is_not_in_scope_is_an_error_even_if_the_callee_asks_nothing_of_it():
    y = var("y", tensor(2))
    values = (
        pure("f", y),
        pure("f", U, y),
        pure("f", rx.Tuple((U, y))),
        pure("f", pure("g"), y),
        rx.Call(U, (y,)),
        rx.Tuple((y,)),
        rx.Tuple((pure("f"), y)),
        y,
    )
    for value in values:
        for program in (value, seq(block(bind(var("z"), value)), U)):
            with pytest.raises(StructInfoError, match=r"variable y is not in scope \[DER-3\]"):
                normalize_function(function([U], program))


@pytest.mark.rule("RES-68")
def test_an_operand_that_is_evaluated_again_is_bound_once() -> None:
    x = var("x", tensor(2))
    bb = BlockBuilder()
    shared = pure("g", pure("h", x))
    with bb.function("main", [x]):
        first = bb.evaluate(pure("f", shared))
        second = bb.evaluate(pure("k", shared))
        bb.emit_func_output(rx.Tuple((first, second)))
    assert called(bb.finalize()["main"]) == ["h", "g", "f", "k"]


@pytest.mark.rule("SI-1", "SI-3", "WF-14b")
def test_a_shape_follows_the_variable_that_is_given_its_struct_info() -> None:
    s, y = var("s"), var("y")
    by_s = rx.TensorStructInfo(s, "float32")
    value = pure("f", U, sinfo=by_s)
    for binding in (cast(y, U, by_s), bind(var("y", by_s), value), bind(y, value)):
        body = seq(block(bind(s, rx.ShapeExpr((3,))), binding), rx.Tuple(()))  # type: ignore[arg-type]
        found = normalize_function(function([U], body))
        assert check_well_formed(found, normal_form=True) == []
        first, second = (b.var for b in bindings(found))
        assert first is not None
        assert second is not None
        assert first.struct_info == shape(3)
        assert second.struct_info.shape is first  # type: ignore[union-attr]


@pytest.mark.rule("SI-1", "NF-20")
def test_arguments_of_a_builder_follow_the_variables_that_are_built_anew() -> None:
    s = var("s")
    y = var("y", rx.TensorStructInfo(s, "float32", ndim=1))
    binding = cast(y, U, rx.TensorStructInfo(s, "float32", ndim=1))
    for args in ((y,), (U, y), (rx.Tuple((U, y)),), (U, rx.Tuple((rx.Tuple((y,)),)))):
        body = seq(block(bind(s, rx.ShapeExpr((3,))), binding, bind(var("z"), pure("f", *args))), U)  # type: ignore[arg-type]
        bb = BlockBuilder()
        with bb.function("main", [U]):
            found = bb.normalize(body)
            bb.emit_func_output(U)
        *_, known, call = bindings(found)
        assert known.var is not y
        mentioned = [node for node in walk(call.value) if isinstance(node, rx.Var)]
        assert known.var in mentioned
        assert y not in mentioned


@pytest.mark.rule("RES-68", "OPT-4")
def test_an_effect_that_was_evaluated_is_not_repeated_where_its_result_is_named() -> None:
    x = var("x", tensor(2))
    bb = BlockBuilder()
    with bb.function("main", [x], pure=False):
        first = bb.evaluate(show(x))
        bb.evaluate(show(x))
        bb.emit_func_output(bb.emit(first, "named"))
    assert called(bb.finalize()["main"]) == ["relax.print", "relax.print"]


def test_an_operand_may_be_named_after_it_was_bound() -> None:
    x = var("x", tensor(2))
    bb = BlockBuilder()
    shared = pure("g", pure("h", x))
    with bb.function("main", [x]):
        value = bb.evaluate(pure("f", shared))
        named = bb.name_evaluated(shared, "named", rx.Var)
        assert named is not None
        bb.emit_func_output(value)
    assert [b.var.name_hint for b in bindings(bb.finalize()["main"]) if b.var][1] == "named"
