"""Normal form: what hand-built trees become, and that what is normal comes back as it is."""

import re
from dataclasses import replace

import pytest

from relaxpy import errors
from relaxpy.errors import StructInfoError
from relaxpy.ir import Op, assert_structural_equal, ops as op
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function
from tests.counting import calls
from tests.ir.relax.graphs import (
    bind,
    bindings,
    block,
    called,
    cast,
    dataflow,
    function,
    pure,
    seq,
    shape_of,
    size,
    var,
    written,
)
from tests.ir.relax.sinfos import Object, shape, tensor
from tests.rows import by_rule


@pytest.fixture
def x() -> rx.Var:
    return var("x", tensor(2, 3))


def body_of(func: rx.Function) -> rx.SeqExpr:
    assert isinstance(func.body, rx.SeqExpr)
    return func.body


def shown(expr: rx.Expr) -> str:
    """The blocks of a normal expression: `(f x)` of bindings, `{~f x}` of a dataflow block.

    A binding is what it calls and its operands; `~` marks a variable of the dataflow block.
    """
    body = expr.body if isinstance(expr, rx.Function) else expr
    assert isinstance(body, rx.SeqExpr)
    blocks = []
    for part in body.blocks:
        texts = [
            "~" * isinstance(b.var, rx.DataflowVar)
            + ("cast " * isinstance(b, rx.MatchCast))
            + value_of(b.value)
            for b in part.bindings
        ]
        is_flow = isinstance(part, rx.DataflowBlock)
        blocks.append("{" * is_flow + "(" * (not is_flow) + ", ".join(texts) + ")}"[is_flow])
    return "".join(blocks)


def value_of(value: rx.Expr) -> str:
    match value:
        case rx.Call(op=op, args=args):
            name = getattr(op, "global_symbol", None) or getattr(op, "name", None) or value_of(op)
            return " ".join([name.removeprefix("relax."), *map(value_of, args)])
        case rx.Var(name_hint=name):
            return name
        case rx.Tuple(fields=fields):
            return f"<{' '.join(map(value_of, fields))}>"
        case rx.If(cond=cond, true_branch=yes, false_branch=no):
            return f"if {value_of(cond)} {shown(yes)} else {shown(no)}".replace("  ", " ").strip()
        case rx.Function():
            return f"def {shown(value)}".strip()
        case rx.TupleGetItem(tuple_value=pair, index=index):
            return f"{value_of(pair)}[{index}]"
        case rx.ExternFunc(global_symbol=name):
            return f"'{name}'"
        case _:
            return "..."


NORMAL = """
NF-1 NF-2 NF-17: x=tensor(2, 3)
    | pure("f", pure("g", pure("a", x)), x, pure("h", pure("b", x)))
    => (a x, g gv, b x, h gv2, f gv1 x gv3)
NF-17: | rx.Call(pure("callee", sinfo=rx.FuncStructInfo((Object,), Object)), (pure("argument"),),
    attrs={"pure": True}) => (callee, argument, gv gv1)
NF-4: | impure: show(rx.ExternFunc("f")) => ('f', print gv)
NF-4: | rx.Call(Op("relax.invoke_pure_closure"), (rx.ExternFunc("f"), rx.Tuple(())),
    sinfo_args=(Object,)) => ('f', invoke_pure_closure gv <>)
NF-4: | rx.Call(Op("relax.call_pure_packed"), (pure("g", sinfo=packed()),), sinfo_args=(Object,))
    => (g, call_pure_packed gv)
NF-4: x=Object | pure("f", rx.ExternFunc("g")) => ('g', f gv)
NF-4: x=Object | rx.Tuple((rx.ExternFunc("g"), x)) => ('g')
NF-4: x=Object | rx.Call(Op("relax.call_pure_packed"), (rx.ExternFunc("g"), x))
    => (call_pure_packed 'g' x)
NF-3: x=tensor(2) | pure("f", rx.Tuple((rx.Tuple((shape_of(x), x)), x)))
    => (shape_of x, f <<gv x> x>)
NF-4 WF-9: x=tensor(2) | pure("f", Op("relax.shape_of"))
    => StructInfoError relax.shape_of is not a value
NF-5 NF-6: x=tensor(2); y=Object | function([y], x) => (def)
NF-5 NF-7 NF-18: x=tensor(2), c=BOOL | rx.If(c, pure("f", pure("g", x)), x)
    => (if c (g x, f gv) else)
NF-18: x=tensor(2) | function([], pure("f", shape_of(x))) => (def (shape_of x, f gv))
NF-8 NF-9 NF-10 NF-11: x=tensor(2); a=None, b=None, c=None, d=None, e=None, f=None
    | seq(block(), block(bind(a, x)), block(), block(bind(b, a)), dataflow(bind(c, b)), block(),
    dataflow(bind(d, c)), dataflow(), block(bind(e, d)), dataflow(), block(bind(f, e)), x)
    => (x, a){b, c}(d, e)
NF-11: x=tensor(2) | seq(block(), dataflow(), x) =>
NF-12: x=tensor(2); y=None | seq(block(bind(y, x)), shape_of(y)) => (x, shape_of y)
NF-12: x=tensor(2); y=None | seq(dataflow(bind(y, x)), shape_of(y)) => {x}(shape_of y)
NF-13: x=tensor(2) | rx.If(pure("c", sinfo=BOOL), x, x) => (c, if gv else)
NF-13: | rx.TupleGetItem(PAIR, 1) => (p, gv[1])
NF-14: x=tensor(2); a=None, b=None, y=None
    | seq(block(bind(y, seq(block(bind(a, pure("f", x))), block(bind(b, pure("g", a))),
    pure("h", b)))), y) => (f x, g a, h b)
NF-14 NF-17: x=tensor(2); a=None
    | pure("f", pure("first", x), seq(block(bind(a, pure("second", x))), x), pure("third", x))
    => (first x, second x, third x, f gv x gv1)
NF-15: x=tensor(2); a=None, y=None | seq(dataflow(bind(y, seq(block(bind(a, x)), x))), x)
    => WellFormedError NF-15
NF-15 NF-19: x=tensor(2); a_=None, y=None
    | seq(dataflow(bind(y, seq(block(), dataflow(bind(a_, x)), shape_of(pure("same", x,
    sinfo=tensor(2)))))), y) => {~x, ~same x, shape_of lv}
NF-16: x=tensor(2); first=None, a=None, y=None, z=None
    | seq(block(bind(first, x), bind(y, seq(dataflow(bind(a, x)), a)), bind(z, y)), z)
    => (x){x}(a, y)
NF-19 NF-20: x=tensor(2); y=None | seq(dataflow(bind(y, pure("f", shape_of(x)))), y)
    => {~shape_of x, f lv}
DER-3 WF-2c: x=tensor(2, 3); y=tensor(2, 3)
    | seq(block(bind(y, pure("f", y, sinfo=tensor(2, 3)))), x)
    => StructInfoError variable y is not in scope .DER-3
DER-3 WF-2c: x=tensor(2, 3); y=tensor(2, 3) | seq(block(cast(y, pure("f", y), tensor(2, 3))), x)
    => StructInfoError variable y is not in scope .DER-3
DER-3 WF-2c: x=tensor(2, 3); y=tensor(2, 3) | seq(block(bind(y, rx.Tuple((x, y)))), x)
    => StructInfoError variable y is not in scope .DER-3
OPT-4: x=tensor(2) | impure: rx.Tuple((show(x), show(x), x)) => (print x, print x)
OPT-3 OPT-4 NF-17: x=tensor(2); v=None
    | impure: (lambda f, e: rx.Tuple((f, e, f, f, e)))(pure("f", x), show(x))
    => (f x, print x, f x, print x)
OPT-3: x=tensor(2), c=BOOL
    | impure: (lambda f, e: rx.Tuple((f, rx.If(c, e, x), f)))(pure("f", x), show(x))
    => (f x, if c (print x) else, f x)
OPT-3: x=tensor(2); e=None
    | impure: (lambda f, s: rx.Tuple((f, seq(block(bind(e, s)), x), f)))(pure("f", x), show(x))
    => (f x, print x, f x)
OPT-3: x=tensor(2)
    | (lambda f, d: rx.Tuple((f, d, f)))(pure("f", x), function([], show(x), is_pure=False))
    => (f x, def (print x))
NF-18 NF-20: x=tensor(2), c=BOOL | (lambda f: rx.Tuple((rx.If(c, f, x), f)))(pure("f", x))
    => (if c (f x) else, f x)
"""
PAIR = pure("p", sinfo=rx.TupleStructInfo((Object, Object)))


@pytest.mark.rule("NF-1", "NF-2", "NF-3", "NF-4", "NF-5", "NF-6", "NF-7", "NF-8", "NF-9", "NF-10")
@pytest.mark.rule("NF-11", "NF-12", "NF-13", "NF-14", "NF-15", "NF-16", "NF-17", "NF-18", "NF-19")
@pytest.mark.rule("NF-20", "OPT-3", "OPT-4", "DER-3", "WF-2c", "WF-9")
@pytest.mark.parametrize("case", by_rule(NORMAL))
def test_normal_form(case: str) -> None:
    """What becomes of a program is normal, and stays as it is."""
    program, outcome, _ = written(case, globals())
    if re.match(r"\w+Error ", outcome):
        kind, _, message = outcome.partition(" ")
        with pytest.raises(getattr(errors, kind), match=message):
            normalize_function(program)
        return
    found = normalize_function(program)
    assert shown(found) == outcome
    assert check_well_formed(found, check_struct_info=False, normal_form=True) == []
    assert normalize_function(found) is found


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


def test_a_nested_shape_of_unknown_sizes_is_the_shape_of_the_result() -> None:
    x = var("x", tensor(2, dtype="int64"))
    value = op.zeros(op.tensor_to_shape(x), "float32")
    sizes, zeros = bindings(normalize_function(function([x], value)))
    assert zeros.value.struct_info == rx.TensorStructInfo(sizes.var, "float32")
