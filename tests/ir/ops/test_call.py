"""The call family and its neighbours: what they accept, and what their results are known to be."""

from collections.abc import Callable

import pytest

from relaxpy import IRModule, relax
from relaxpy.errors import MisuseError, RelaxpyError, StructInfoError, StructInfoTypeError
from relaxpy.ir import Op, ops as op, structural_equal
from relaxpy.ir.ops.call import call_packed
from relaxpy.ir.ops.definition.registry import registered_ops
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function, normalize_module
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.buffer import decl_buffer
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.tir.stmt import Evaluate
from tests.ir.relax.graphs import (
    UNIT,
    bind,
    dataflow as dataflow_block,
    function,
    kernel,
    local,
    seq,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import Object, packed, prim, rank, shape, tensor, tuple_of

N = size("n")
X = var("x", tensor(N, 4))


@pytest.fixture
def bb() -> BlockBuilder:
    """A builder whose module has kernels: one output, two outputs, a trailing scalar."""
    n, m = size("n"), size("m")
    scalar = tir.Var("m", "int64")
    a, b = (decl_buffer((n,), "float32", name) for name in "ab")
    mod = IRModule(
        {
            "one": kernel((n, 4), (n, 4)),
            "two": kernel((n, 4), (n,), (m, 8)),
            "scaled": PrimFunc((a, b, scalar), Evaluate(0)),  # type: ignore[arg-type]
            "relax": function([p := var("p", tensor(2))], p),
        }
    )
    return BlockBuilder(mod)


def sinfo_of(bb: BlockBuilder, call: rx.Call) -> rx.StructInfo:
    with bb.testing_scope():
        sinfo = bb.emit(call).struct_info
    assert sinfo is not None
    return sinfo


ONE, TWO, SCALED = (rx.GlobalVar(name) for name in ("one", "two", "scaled"))


@pytest.mark.rule("OP-3", "OP-4", "OP-6", "OP-7")
def test_call_tir_gives_what_its_outputs_are(bb: BlockBuilder) -> None:
    assert sinfo_of(bb, op.call_tir(ONE, X, tensor(N, 4))) == tensor(N, 4)
    outputs = [tensor(N), tensor(3, 8)]
    assert sinfo_of(bb, op.call_tir(TWO, [X], outputs)) == tuple_of(*outputs)
    assert op.call_tir.pure


def test_operands_become_a_tuple_in_the_call() -> None:
    pair = var("t", tuple_of(tensor(2), prim()))
    assert len(op.call_tir(ONE, X, tensor(2)).args[1].fields) == 1  # type: ignore[attr-defined]
    [a, b] = op.call_tir(ONE, pair, tensor(2)).args[1].fields  # type: ignore[attr-defined]
    assert (type(a), b.index) == (rx.TupleGetItem, 1)
    written = rx.Tuple((X, rx.const(1)))
    assert op.call_tir(ONE, written, tensor(2)).args[1] is written


@pytest.mark.rule("OP-1")
def test_call_tir_calls_a_kernel_of_the_module(bb: BlockBuilder) -> None:
    with pytest.raises(StructInfoTypeError, match=r"(?s)relax is a Relax function.*hint.*relax\("):
        sinfo_of(bb, op.call_tir(rx.GlobalVar("relax"), X, tensor(2)))
    with pytest.raises(StructInfoTypeError, match="call_dps_packed"):
        sinfo_of(bb, op.call_tir(rx.ExternFunc("f"), X, tensor(2)))
    with pytest.raises(StructInfoTypeError, match="OP-1"):
        sinfo_of(bb, op.call_tir(X, X, tensor(2)))
    with pytest.raises(MisuseError, match="expected a PrimFunc"):
        op.call_tir("f", X, tensor(2))
    missing = op.call_tir(rx.GlobalVar("nowhere"), X, tensor(2))
    mod = IRModule({"main": function([X], missing)})
    with pytest.raises(StructInfoError, match="no function nowhere"):
        normalize_module(mod)


@pytest.mark.rule("OP-2", "OP-3")
@pytest.mark.parametrize(
    ("outputs", "rule"),
    [
        (rank(2), "OP-2"),
        (tensor(2, dtype=""), "OP-3"),
        (prim(), "OP-3"),
        ([tensor(2), shape(2)], "OP-3"),
        ([tensor(2), rank(1)], "OP-2"),
    ],
)
def test_outputs_say_datatype_and_shape(bb, outputs, rule) -> None:
    with pytest.raises(StructInfoTypeError, match=rf"relax\.call_tir: .*{rule}"):
        sinfo_of(bb, op.call_tir(ONE, X, outputs))


@pytest.mark.rule("OP-3")
def test_a_list_of_one_output_is_this_output() -> None:
    for out in ([tensor(N, 4)], (tensor(N, 4),)):
        calls = [
            op.call_tir(rx.GlobalVar("one"), [X], out),
            op.call_tir_inplace(rx.GlobalVar("one"), [X], 0, out),
            op.call_dps_packed("f", [X], out),
        ]
        assert [call.sinfo_args for call in calls] == [(tensor(N, 4),)] * 3
    pair = op.call_tir(rx.GlobalVar("one"), [X], tuple_of(tensor(N, 4)))
    assert pair.sinfo_args == (tuple_of(tensor(N, 4)),)
    assert pair.script().endswith(
        'R.call_tir(one, (x,), out_sinfo=R.Tuple(R.Tensor((n, 4), dtype="float32")))'
    )


def test_there_is_one_struct_info_of_the_outputs(bb: BlockBuilder) -> None:
    call = rx.Call(Op("relax.call_tir"), (ONE, rx.Tuple((X,))))
    with pytest.raises(StructInfoError, match="takes the struct info of one output, found 0"):
        sinfo_of(bb, call)


@pytest.mark.rule("OP-2", "OP-3", "OP-4", "OP-9", "RES-50")
@pytest.mark.parametrize(
    ("call", "one", "two"),
    [(op.call_tir, ONE, TWO), (op.call_dps_packed, rx.ExternFunc("f"), rx.ExternFunc("f"))],
)
def test_sizes_come_from_the_shape_and_the_datatype_from_the_struct_info(call, one, two) -> None:
    s = var("s", shape(N, 4))
    for sizes, sinfo, expected in [
        ((N, 4), rank(2), tensor(N, 4)),
        (rx.ShapeExpr((N, 4)), rank(-1), tensor(N, 4)),
        ([N, 4], tensor(N, 4), tensor(N, 4)),
        (s, rank(2), rx.TensorStructInfo(s, "float32")),
    ]:
        for named in ({"sinfo_args": [sinfo]}, {"sinfo_args": sinfo}, {"out_sinfo": sinfo}):
            made = call(one, X, shape=sizes, **named)
            plain = call(one, X, expected)
            assert made.sinfo_args == plain.sinfo_args == (expected,)
            assert structural_equal(made, plain)
    both = call(two, X, shape=[(N,), (3, 8)], sinfo_args=[tuple_of(rank(1), rank(-1))])
    assert structural_equal(both, call(two, X, [tensor(N), tensor(3, 8)]))


@pytest.mark.parametrize(
    ("sizes", "sinfo", "rule", "message"),
    [
        pytest.param(sizes, sinfo, rule, message, marks=pytest.mark.rule(rule))
        for sizes, sinfo, rule, message in (
            (X, [rank(2)], "OP-2", "shape is a shape, found R.Tensor"),
            (var("o", Object), [rank(2)], "OP-2", "found R.Object"),
            (4, [rank(2)], "OP-2", "a list of sizes or a shape value, found 4"),
            (op.shape_of(X), [rank(2)], "OP-2", "bind the shape to a variable first"),
            ((N, 4), [], "OP-3", "the struct info of one output, found 0"),
            ((N, 4), [rank(2), rank(2)], "OP-3", "the struct info of one output, found 2"),
            ((N, 4), None, "OP-3", "'out_sinfo' is missing"),
            ((N, 4), [shape(N, 4)], "OP-3", "outputs are tensors"),
            (((N, 4),), [tuple_of(rank(2), rank(2))], "OP-3", "2 outputs, found 1 shape"),
            (var("s", shape()), [tuple_of(rank(2))], "OP-3", "1 outputs, found s"),
            ((N, 4), [rank(2, "")], "OP-3", "has no datatype"),
            ((N, 4), [rank(3)], "OP-8", "rank 2 is not rank 3"),
            ((N, 4), [tensor(N, 5)], "OP-8", "dimension 1: 4 is not 5"),
            ((N, 4), [tensor(3, 4)], "OP-8", "dimension 0: n may not be 3"),
        )
    ],
)
def test_a_shape_that_does_not_fit_the_outputs(bb, sizes, sinfo, rule, message) -> None:
    with pytest.raises(RelaxpyError, match=rf"(?s){message}") as caught:
        sinfo_of(bb, op.call_tir(ONE, X, shape=sizes, sinfo_args=sinfo))
    assert [d.rule for d in caught.value.diagnostics] == [rule]
    with pytest.raises(
        MisuseError, match=r"pass either out_sinfo or sinfo_args, found both.*OP-11"
    ):
        op.call_dps_packed("f", X, tensor(2), sinfo_args=[tensor(2)])


@pytest.mark.rule("OP-8", "MAP-9")
def test_a_kernel_owns_its_sizes_also_where_its_caller_mentions_the_same_variable() -> None:
    bb = BlockBuilder(IRModule({"double": kernel((N,), (N * 2,))}))
    x = var("x", tensor(N + 1))
    with bb.testing_scope(), pytest.raises(StructInfoTypeError, match="OP-8"):
        bb.emit(op.call_tir(rx.GlobalVar("double"), [x], tensor(N * 2)))


@pytest.mark.rule("OP-1", "OP-9")
def test_operands_and_shape_are_read_one_after_the_other(bb: BlockBuilder) -> None:
    known, open_ = tensor(N, 4), rank(2)
    sizes = rx.ShapeExpr([N, 4])
    usual = op.call_tir(ONE, X, known)
    for given in ((X, sizes), ([X], sizes), (X, [N, 4]), ((X,), [N, 4])):
        for said in (open_, [open_], [known]):
            assert structural_equal(op.call_tir(ONE, *given, sinfo_args=said), usual, True)
    for given in ((X, X, sizes), ([X, X], sizes), (rx.Tuple([X, X]), sizes)):
        call = op.call_dps_packed("f", *given, sinfo_args=[open_])
        assert structural_equal(call, op.call_dps_packed("f", [X, X], known), True)
    nothing = op.call_dps_packed("f", rx.ShapeExpr([N, 4]), sinfo_args=[open_])
    assert structural_equal(nothing, op.call_dps_packed("f", [], known), True)
    two = op.call_tir(TWO, X, (sizes, rx.ShapeExpr([N])), sinfo_args=[tuple_of(open_, rank(1))])
    assert structural_equal(two, op.call_tir(TWO, X, [known, tensor(N)]), True)


@pytest.mark.rule("OP-1", "OP-2", "OP-9")
def test_more_operands_than_the_form_has_are_refused() -> None:
    with pytest.raises(MisuseError, match="takes at most 4 positional arguments"):
        op.call_tir(ONE, X, tensor(2), None, X)
    with pytest.raises(MisuseError, match="takes at most 3 positional arguments"):
        op.call_dps_packed("f", X, tensor(2), X)
    with pytest.raises(StructInfoTypeError, match="shape is a shape"):
        op.call_tir(ONE, X, X, X, sinfo_args=[rank(2)])


@pytest.mark.rule("OP-2")
def test_an_output_may_have_a_shape_that_a_variable_holds(bb: BlockBuilder) -> None:
    s = var("s", shape(N, 4))
    out = rx.TensorStructInfo(s, "float32")
    assert sinfo_of(bb, op.call_tir(ONE, X, out)) == out


@pytest.mark.rule("OP-8")
@pytest.mark.parametrize(
    ("args", "outputs", "message"),
    [
        ([X], tensor(N, 5), r"output 1 of one is .*dimension 1: 5 is not 4"),
        ([X], tensor(N, 4, dtype="int8"), "dtype int8 is not float32"),
        ([X], tensor(N), "rank 1 is not rank 2"),
        ([var("y", tensor(N, 5))], tensor(N, 4), "operand 1 of one is .*dimension 1: 5 is not 4"),
        ([var("y", tensor(3, 4))], tensor(2, 4), "dimension 0: 2 is not 3"),
        ([X, X], tensor(N, 4), "one takes 2 arguments, found 2 operands and 1 output"),
        ([var("s", shape(2))], tensor(N, 4), "a shape is not a tensor"),
    ],
)
def test_what_provably_disagrees_with_the_kernel_is_an_error(bb, args, outputs, message) -> None:
    with pytest.raises(StructInfoTypeError, match=message):
        sinfo_of(bb, op.call_tir(ONE, args, outputs))


@pytest.mark.rule("OP-8")
def test_the_operand_at_fault_is_known(bb: BlockBuilder) -> None:
    y = var("y", tensor(N, 5))
    with pytest.raises(StructInfoTypeError) as caught:
        sinfo_of(bb, op.call_tir(ONE, [y], tensor(N, 4)))
    assert caught.value.about is y


@pytest.mark.rule("OP-8", "SI-14")
@pytest.mark.parametrize("known", [rank(2), rx.TensorStructInfo(None, ""), tensor(size("m"), 4)])
def test_what_is_not_known_is_left_to_run_time(bb: BlockBuilder, known: rx.StructInfo) -> None:
    assert sinfo_of(bb, op.call_tir(ONE, [var("y", known)], tensor(N, 4))) == tensor(N, 4)


def test_scalars_at_the_end_are_tir_vars(bb: BlockBuilder) -> None:
    y = var("y", tensor(N))
    call = op.call_tir(SCALED, [y], tensor(N), tir_vars=[N])
    assert isinstance(call.args[2], rx.ShapeExpr)
    assert sinfo_of(bb, call) == tensor(N)
    with pytest.raises(StructInfoTypeError, match="1 operand, 1 output and 2 scalars"):
        sinfo_of(bb, op.call_tir(SCALED, [y], tensor(N), tir_vars=[N, N]))
    with pytest.raises(MisuseError, match="tir_vars is a shape"):
        op.call_tir(SCALED, [y], tensor(N), tir_vars="n")
    with pytest.raises(StructInfoTypeError, match="tir_vars is a shape with known members"):
        sinfo_of(bb, op.call_tir(SCALED, [y], tensor(N), tir_vars=y))


def test_call_tir_inplace_reuses_operands(bb: BlockBuilder) -> None:
    bb.add_func(kernel((N, 4)), "bump")
    bump = rx.GlobalVar("bump")
    call = op.call_tir_inplace(bump, X, 0, tensor(N, 4))
    assert call.attrs["inplace_indices"] == (0,)
    assert sinfo_of(bb, call) == tensor(N, 4)
    fresh = op.call_tir_inplace(ONE, X, [0, -1], [tensor(N, 4), tensor(N, 4)])
    assert sinfo_of(bb, fresh) == tuple_of(tensor(N, 4), tensor(N, 4))


@pytest.mark.parametrize(
    ("indices", "outputs", "message"),
    [
        ([0, 0], [tensor(N, 4), tensor(N, 4)], "names different operands"),
        ([-1], [tensor(N, 4)], "names different operands"),
        ([1], [tensor(N, 4)], "inplace index 1 names none of 1 operand \\["),
        ([0, -1], [tensor(N, 4)], "one entry for each of 1 output,"),
        ([0], [tensor(N, 4, dtype="int8")], "cannot hold the output"),
        ([0], [tensor(size("m"), 4)], "cannot hold the output"),
    ],
)
def test_call_tir_inplace_checks_what_it_reuses(bb, indices, outputs, message) -> None:
    with pytest.raises(StructInfoTypeError, match=message):
        sinfo_of(bb, op.call_tir_inplace(ONE, X, indices, outputs))


@pytest.mark.rule("OP-9", "OP-10", "OP-11")
def test_call_dps_packed_is_an_impure_call_tir_of_a_packed_function(bb: BlockBuilder) -> None:
    call = op.call_dps_packed("f", [X], tensor(N, 4))
    assert isinstance(call.args[0], rx.ExternFunc)
    assert not op.call_dps_packed.pure
    bb.begin_scope([X])
    assert bb.emit(call).struct_info == tensor(N, 4)
    with pytest.raises(StructInfoError, match="OP-11"):
        bb.emit(rx.Call(Op("relax.call_dps_packed"), call.args))
    with pytest.raises(StructInfoTypeError, match="OP-2"):
        bb.emit(op.call_dps_packed("f", [X], rank(2)))
    with pytest.raises(StructInfoTypeError, match="expected a packed function"):
        bb.emit(op.call_dps_packed(X, [X], tensor(2)))
    with pytest.raises(MisuseError, match="or its name"):
        op.call_dps_packed(3, [X], tensor(2))
    bb.end_scope()


def test_call_pure_packed_is_pure_and_gives_what_the_packed_function_gives(bb) -> None:
    assert sinfo_of(bb, op.call_pure_packed("f", X, 1)) == Object
    assert sinfo_of(bb, op.call_pure_packed("f", X, sinfo_args=prim())) == prim()
    both = op.call_pure_packed("f", sinfo_args=[prim(), tensor(2)], scale=2)
    assert sinfo_of(bb, both) == tuple_of(prim(), tensor(2))
    assert both.attrs["scale"] == 2
    derive = rx.EnvFunc("count", lambda call, ctx: prim(len(call.args)))
    f = var("f", packed(derive))
    assert sinfo_of(bb, op.call_pure_packed(f, X, X)) == prim(2)
    with pytest.raises(StructInfoTypeError, match="expected a packed function"):
        sinfo_of(bb, op.call_pure_packed(X))


@pytest.mark.rule("DER-30", "PU-13")
def test_call_packed_is_a_plain_call() -> None:
    call = op.call_packed("f", X, 1, sinfo_args=[prim()], scale=2)
    assert isinstance(call.op, rx.ExternFunc)
    assert isinstance(call.args[1], rx.PrimValue)
    assert call.sinfo_args == (prim(),)
    assert dict(call.attrs) == {"scale": 2}


@pytest.mark.rule("OP-12", "OP-13")
def test_shape_of_knows_what_is_known_of_the_tensor() -> None:
    assert op.shape_of(X).struct_info == shape(N, 4)
    assert op.shape_of(var("u", rank(3))).struct_info == rx.ShapeStructInfo(ndim=3)
    unknown = rx.TensorStructInfo(None, "float32")
    assert op.shape_of(var("u", unknown)).struct_info == rx.ShapeStructInfo()
    s = var("s", rx.ShapeStructInfo(ndim=2))
    assert op.shape_of(var("u", rx.TensorStructInfo(s))).struct_info == rx.ShapeStructInfo(ndim=2)
    assert op.shape_of.pure


@pytest.mark.rule("OP-14")
def test_null_value_is_an_object() -> None:
    assert op.null_value().struct_info == Object
    assert op.null_value.pure


@pytest.mark.rule("OP-15")
def test_print_gives_unit_and_is_impure() -> None:
    call = op.print(X, 1, "text", format="{} {} {}")
    assert call.struct_info == UNIT
    assert dict(call.attrs) == {"format": "{} {} {}"}
    assert not op.print.pure
    assert op.print.arguments(call) == (list(call.args), {"format": "{} {} {}"})


@pytest.mark.rule("PU-4", "PU-18")
def test_assertions_are_not_pure() -> None:
    c = var("c", tensor(dtype="bool"))
    assert op.assert_op(c).struct_info == UNIT
    assert op.assert_op(True).struct_info == UNIT
    assert not op.assert_op.pure
    call = op.assert_op(c, [X, 1], format="{} {}")
    assert len(call.args) == 3
    written = {"format_args": list(call.args[1:]), "format": "{} {}"}
    assert op.assert_op.arguments(call) == ([c], written)
    assert len(op.assert_op(c, X).args) == 2


@pytest.mark.parametrize("sinfo", [tensor(2, dtype="bool"), tensor(), prim(), shape(2), Object])
def test_an_assertion_is_about_a_truth_value(sinfo: rx.StructInfo) -> None:
    with pytest.raises(StructInfoTypeError, match=r"relax\.assert_op: the condition"):
        op.assert_op(var("c", sinfo))


def test_every_call_can_be_written_again(bb: BlockBuilder) -> None:
    calls = [
        op.call_tir(ONE, [X], tensor(N, 4)),
        op.call_tir(TWO, [X], [tensor(N), tensor(3, 8)]),
        op.call_tir(SCALED, [X], tensor(N), tir_vars=[N]),
        op.call_tir_inplace(ONE, [X], [0], tensor(N, 4)),
        op.call_dps_packed("f", [X], tensor(N, 4)),
        op.call_pure_packed("f", X, sinfo_args=[prim()], scale=2),
        op.shape_of(X),
        op.null_value(),
        op.print(X, format="{}"),
        op.assert_op(True, X),
    ]
    for call in calls:
        record = registered_ops()[call.op.name]  # type: ignore[union-attr]
        positional, named = record.arguments(call)
        assert structural_equal(record(*positional, **named), call)


def test_printing_in_a_dataflow_block_is_refused() -> None:
    body = seq(dataflow_block(bind(local("y"), show(X))), X)
    with pytest.raises(StructInfoError, match="PU-5"):
        normalize_function(function([X], body, is_pure=False))


@pytest.mark.parametrize("indices", [None, 1.5, "0", [None], True, object()])
def test_indices_are_integers(indices: object) -> None:
    message = "inplace_indices is int or a list of them, found"
    with pytest.raises(MisuseError, match=message):
        op.call_tir_inplace(ONE, X, indices, tensor(2))
    with pytest.raises(MisuseError, match=message):
        op.call_inplace_packed("f", X, inplace_indices=indices, sinfo_args=tensor(2))


PACKED_CALLS: list[Callable[[rx.Expr], rx.Call]] = [
    lambda f: op.call_pure_packed(f, X, sinfo_args=tensor(N, 4)),
    lambda f: op.call_dps_packed(f, [X], tensor(N, 4)),
    lambda f: op.call_inplace_packed(f, X, inplace_indices=[0], sinfo_args=tensor(N, 4)),
]


@pytest.mark.rule("OP-9")
@pytest.mark.parametrize("call", PACKED_CALLS)
def test_only_a_packed_function_of_the_module_is_called_as_one(call) -> None:
    p = var("p", tensor(2))
    mod = IRModule({"k": kernel((2,), (2,)), "g": function([p], p), "e": rx.ExternFunc("my.f")})
    bb = BlockBuilder(mod)
    bb.begin_scope([X])
    assert bb.emit(call(rx.GlobalVar("e"))).struct_info == tensor(N, 4)
    for name, found, hint in (
        ("k", "the PrimFunc k", "R.call_tir(k, (...), out_sinfo=...) allocates its outputs"),
        ("g", "the Relax function g", "call it directly: g(...)"),
    ):
        with pytest.raises(StructInfoTypeError, match=f"a packed function, found {found}") as error:
            bb.emit(call(rx.GlobalVar(name)))
        assert error.value.diagnostic.hint == hint
    bb.end_scope()


def test_keywords_of_newer_versions_name_results() -> None:
    x, kernel_var = var("x", tensor(2)), rx.GlobalVar("kernel")
    pairs = [
        (
            relax.call_tir(kernel_var, (x,), out_ty=tensor(2)),
            op.call_tir(kernel_var, (x,), tensor(2)),
        ),
        (
            relax.call_dps_packed("f", (x,), out_ty=tensor(2)),
            op.call_dps_packed("f", (x,), tensor(2)),
        ),
        (
            relax.call_pure_packed("f", x, ty_args=relax.ObjectType()),
            op.call_pure_packed("f", x, sinfo_args=Object),
        ),
        (
            call_packed("f", x, ty_args=relax.TensorType([2], "float32")),
            call_packed("f", x, sinfo_args=tensor(2)),
        ),
    ]
    for newer, older in pairs:
        assert newer.attrs.keys() == older.attrs.keys()
        assert structural_equal(newer, older, map_free_vars=False)
    with pytest.raises(MisuseError, match="expected a StructInfo, found int 3"):
        relax.call_pure_packed("f", x, ty_args=3)
