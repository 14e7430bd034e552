"""BlockBuilder: TVM's interface, what it refuses, and what it costs."""

from threading import Thread
from typing import Any

import numpy as np
import pytest

from relaxpy import IRModule, compile, te
from relaxpy.errors import BuilderStateError, MisuseError, Source, Span, StructInfoError
from relaxpy.ir import Op, assert_structural_equal, ops as op
from relaxpy.ir.equality import structural
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.derive import normalize_function, normalize_module
from relaxpy.runtime import ShapeTuple
from relaxpy.script import from_source
from tests.counting import calls
from tests.ir.relax import graphs
from tests.ir.relax.sinfos import Object, prim, rank, shape, tensor


@pytest.fixture
def x() -> rx.Var:
    return graphs.var("x", tensor(graphs.size("n"), 4))


def test_calls_without_a_span_get_that_of_the_scope(x: rx.Var) -> None:
    text = Source("model.py", "first\nsecond")
    first, second = (Span(text, line, 1, line, 6) for line in (1, 2))
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.located(first):
            y = bb.emit(op.exp(op.abs(x)))
            with bb.located(second):
                z = bb.emit(op.exp(y))
            own = bb.emit(rx.Call(Op("relax.exp"), (z,), span=second))
            n = bb.match_cast(own, own.struct_info)
        bb.emit_func_output(bb.emit(op.exp(n)))
    found = [binding.value.span or binding.span for binding in graphs.bindings(bb.get()["main"])]
    assert found == [first, first, second, second, first, None]


def test_a_function_is_built_binding_by_binding(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            lv = bb.emit(op.shape_of(x))
            gv = bb.emit_output((lv, x))
        name = bb.emit_func_output(gv)
    mod = bb.get()
    assert name.name_hint == "main"
    a, b = graphs.local("a", lv.struct_info), graphs.var("b", gv.struct_info)
    expected = graphs.function(
        [x],
        graphs.seq(
            graphs.dataflow(graphs.bind(a, op.shape_of(x)), graphs.bind(b, rx.Tuple((a, x)))), b
        ),
    )
    assert_structural_equal(mod["main"], expected.with_attr("global_symbol", "main"))
    assert mod["main"].struct_info == rx.FuncStructInfo(
        (x.struct_info,), rx.TupleStructInfo((lv.struct_info, x.struct_info))
    )


def test_names_are_unique_over_the_builder(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x):
        with bb.dataflow():
            assert bb.current_block_is_dataflow()
            names = [bb.emit(x).name_hint for _ in range(3)]
            out = bb.emit_output(x)
        assert not bb.current_block_is_dataflow()
        outside = bb.emit(x)
        hinted = [bb.emit(x, "my.name").name_hint for _ in range(2)]
        bb.emit_func_output(outside)
    assert names == ["lv", "lv1", "lv2"]
    assert (out.name_hint, outside.name_hint) == ("gv", "gv1")
    assert hinted == ["my_name", "my_name1"]
    assert bb.get_unique_name("lv") == "lv3"


def test_what_is_bound_can_be_looked_up(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x):
        y = bb.emit(graphs.shape_of(x))
        value = bb.lookup_binding(y)
        assert isinstance(value, rx.Call)
        assert value.struct_info == y.struct_info == bb.struct_info_of(y)
        assert bb.lookup_binding(x) is None
        bb.emit_func_output(y)


def test_parameters_may_come_with_the_output(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main"):
        bb.emit_func_output(bb.emit(graphs.shape_of(x)), params=[x])
    assert bb.get()["main"].params == (x,)  # type: ignore[attr-defined]


def test_a_private_function_has_no_symbol(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x, attrs={"a": 1}, private=True, pure=False):
        bb.emit_func_output(x)
    func = bb.get()["main"]
    assert isinstance(func, rx.Function)
    assert dict(func.attrs) == {"a": 1}
    assert not func.is_pure


def test_calls_out_of_turn_are_refused(x: rx.Var) -> None:
    bb = BlockBuilder()
    with pytest.raises(RuntimeError, match="outside a function"):
        bb.emit(x)
    with pytest.raises(RuntimeError, match=r"inside bb\.function"):
        bb.emit_func_output(x)
    with pytest.raises(RuntimeError, match="no scope to end"):
        bb.end_scope()
    assert BlockBuilder.current() is None


def test_an_abandoned_scope_ends_while_others_are_open() -> None:
    abandoned, bb = BlockBuilder(), BlockBuilder()
    scope = abandoned.testing_scope()
    scope.__enter__()
    with bb.testing_scope():
        del scope
        assert BlockBuilder.current() is bb
    assert BlockBuilder.current() is None


def test_an_abandoned_scope_may_end_in_another_thread() -> None:
    scopes = [BlockBuilder().testing_scope()]
    scopes[0].__enter__()
    thread = Thread(target=scopes.clear)
    thread.start()
    thread.join()
    assert BlockBuilder.current() is None


def nothing(bb: BlockBuilder, x: rx.Var) -> None:
    pass


def output_twice(bb: BlockBuilder, x: rx.Var) -> None:
    bb.emit_func_output(x)
    bb.emit_func_output(x)


def dataflow_twice(bb: BlockBuilder, x: rx.Var) -> None:
    bb.begin_dataflow()
    bb.begin_dataflow()


def output_in_scope(bb: BlockBuilder, x: rx.Var) -> None:
    bb.begin_scope()
    bb.emit_func_output(x)


def output_in_dataflow(bb: BlockBuilder, x: rx.Var) -> None:
    with bb.dataflow():
        bb.emit_func_output(x)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (nothing, "ends without emit_func_output"),
        (output_twice, "has its output already"),
        (lambda bb, x: bb.emit_func_output(x, params=[x]), "declared twice"),
        (lambda bb, x: bb.emit_output(x), "inside a dataflow block"),
        (dataflow_twice, "inside another"),
        (lambda bb, x: bb.end_dataflow(), "no dataflow block"),
        (output_in_scope, "still open"),
        (lambda bb, x: bb.end_scope(), "no scope to end"),
        (lambda bb, x: bb.end_scope(x), "no scope to end"),
        (output_in_dataflow, "inside a dataflow block"),
    ],
)
def test_calls_out_of_turn_inside_a_function_are_refused(x, step, message) -> None:
    bb = BlockBuilder()

    def build() -> None:
        with bb.function("f", x):
            step(bb, x)

    with pytest.raises(BuilderStateError, match=message):
        build()
    assert BlockBuilder.current() is None


def test_parameters_are_checked(x: rx.Var) -> None:
    bb = BlockBuilder()
    with pytest.raises(MisuseError, match="parameters are a Var"), bb.function("f", 3):  # type: ignore[arg-type]
        pass
    with pytest.raises(MisuseError, match="has no struct info"), bb.function("f", graphs.var("y")):
        pass
    with (
        pytest.raises(BuilderStateError, match=r"nowhere[^$]*hint: declare them once"),
        bb.function("f"),
    ):
        bb.emit_func_output(x)


def test_a_function_with_wrong_parameters_leaves_nothing_open(x: rx.Var) -> None:
    bb = BlockBuilder()
    for wrong in ([3], [graphs.var("y")]):
        with pytest.raises(MisuseError), bb.function("f", wrong):  # type: ignore[arg-type]
            pass
        with pytest.raises(BuilderStateError, match="outside a function"):
            bb.emit(x)
    with bb.function("f", [x]):
        bb.emit_func_output(x)
    assert [v.name_hint for v in bb.finalize()] == ["f"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda bb: BlockBuilder(3), "starts from an IRModule"),
        (lambda bb: bb.emit_normalized(3), "expected a binding"),
        (lambda bb: bb.call_te(3), "expected a function of tensors"),
        (lambda bb: bb.emit(object()), "expected a Relax expression"),
        (lambda bb: bb.match_cast(rx.const(1), 3), "expected a StructInfo"),
        (lambda bb: bb.add_func(3, "f"), "a module contains functions"),
        (lambda bb: bb.add_func(graphs.kernel((4,)), 3), "name of a function is a string"),
        (lambda bb: bb.function(3, []).__enter__(), "name of a function is a string"),
        (lambda bb: bb.get_unique_name(3), "name of a variable is a string"),
        (lambda bb: bb.update_func("f", graphs.kernel((4,))), "known by its GlobalVar"),
        (lambda bb: bb.declare_global("f", Object), "known by its GlobalVar"),
        (lambda bb: bb.begin_scope(3), "parameters are a Var"),
        (lambda bb: bb.normalize(None), "expected a Relax expression"),
        (lambda bb: bb.call_te(lambda a: (), rx.const(1)), "does not return a tensor"),
    ],
)
def test_arguments_of_another_kind_are_refused(step, message) -> None:
    with pytest.raises(MisuseError, match=message):
        step(BlockBuilder())


def test_the_innermost_builder_is_the_current_one(x: rx.Var) -> None:
    outer, inner = BlockBuilder(), BlockBuilder()
    with outer.function("f", x):
        assert BlockBuilder.current() is outer
        with inner.testing_scope([graphs.size("m")]):
            assert BlockBuilder.current() is inner
        assert BlockBuilder.current() is outer
        outer.emit_func_output(x)


def test_functions_of_the_module_may_be_built_inside_each_other(x: rx.Var) -> None:
    bb = BlockBuilder()
    y = graphs.var("y", tensor(2))
    with bb.function("outer", x):
        with bb.function("inner", y):
            helper = bb.emit_func_output(y)
        bb.emit_func_output(bb.emit(helper(graphs.var("z", tensor(2)))))
    assert {v.name_hint for v in bb.get()} == {"outer", "inner"}


def test_a_function_that_is_there_already_is_used_again() -> None:
    bb = BlockBuilder()
    first = bb.add_func(graphs.kernel((4,), (4,)), "k")
    assert bb.add_func(graphs.kernel((4,), (4,)), "other") is first
    second = bb.add_func(graphs.kernel((5,), (5,)), "k")
    assert second.name_hint == "k1"
    f = bb.add_func(graphs.function([graphs.var("a", tensor(2))], graphs.pure("f")), "f")
    g = bb.add_func(graphs.function([graphs.var("b", tensor(2))], graphs.pure("f")), "g")
    assert f is g
    bb.update_func(second, graphs.kernel((6,), (6,)))
    assert bb.struct_info_of(second).params[0] == tensor(6)  # type: ignore[attr-defined]


def test_public_functions_of_one_name_get_different_symbols() -> None:
    bb = BlockBuilder()
    for rows in (4, 5):
        bb.add_func(graphs.kernel((rows,)).with_attr("global_symbol", "k"), "k")
    assert [func.attrs["global_symbol"] for func in bb.get().functions.values()] == ["k", "k1"]


@pytest.mark.rule("DER-2")
def test_a_public_function_that_is_an_operand_is_entered_and_a_local_one_is_bound(x) -> None:
    p = graphs.var("p", tensor(2))
    local_function = graphs.function([p], p)
    public = local_function.with_attr("global_symbol", "f")
    named = rx.ExternFunc("g").with_attr("global_symbol", "g")
    bb = BlockBuilder()
    with bb.function("main", [x]):
        bb.emit(graphs.pure("h", public))
        bb.emit(graphs.pure("h", local_function))
        bb.emit(graphs.pure("h", named))
        bb.emit_func_output(x)
    mod = bb.finalize()
    assert {v.name_hint for v in mod} == {"main", "f"}
    entered, first, second, third, fourth = (b.value for b in graphs.bindings(mod["main"]))
    assert isinstance(entered, rx.Call)
    assert isinstance(entered.args[0], rx.GlobalVar)
    assert isinstance(first, rx.Function)
    assert isinstance(third, rx.ExternFunc)
    for call in (second, fourth):
        assert isinstance(call, rx.Call)
        assert isinstance(call.args[0], rx.Var)


@pytest.mark.rule("NF-2")
def test_a_public_function_is_bound_where_there_is_no_module_to_enter(x: rx.Var) -> None:
    p = graphs.var("p", tensor(2))
    public = graphs.function([p], p, global_symbol="f")
    first, second = graphs.bindings(
        normalize_function(graphs.function([x], graphs.pure("h", public)))
    )
    assert isinstance(first.value, rx.Function)
    assert isinstance(second.value, rx.Call)
    assert second.value.args == (first.var,)


def test_a_builder_leaves_the_module_it_was_given_alone(x: rx.Var) -> None:
    mod = IRModule({"k": graphs.kernel((4,), (4,))})
    bb = BlockBuilder(mod)
    with bb.function("main", x):
        bb.emit_func_output(x)
    assert len(mod) == 1
    assert len(bb.finalize()) == 2


@pytest.mark.rule("DER-18", "DER-19", "SI-15")
def test_an_annotation_is_checked_and_kept(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x):
        y = bb.emit(x, annotation=rank(2))
        assert y.struct_info == rank(2)
        with pytest.raises(StructInfoError, match=r"rank 2 is not rank 3"):
            bb.emit(x, annotation=rank(3))
        with pytest.raises(StructInfoError, match=r"hint: .*match_cast"):
            bb.emit(rx.Var("o", Object), annotation=rank(3))
        bb.emit_func_output(y)


def test_a_cast_binds_its_shape_variables(x: rx.Var) -> None:
    bb = BlockBuilder()
    m = graphs.size("m")
    u = graphs.var("u", rank(1))
    with bb.function("main", u):
        y = bb.match_cast(u, tensor(m))
        assert bb.match_cast(u, tensor(m), bind=False) is None
        z = bb.emit(rx.ShapeExpr((m,)))
        assert y is not None
        bb.emit_func_output((y, z))
    func = bb.get()["main"]
    assert func.struct_info == rx.FuncStructInfo(
        (rank(1),), rx.TupleStructInfo((rank(1), rx.ShapeStructInfo(ndim=1)))
    )


def test_branches_and_local_functions_have_scopes_of_their_own(x: rx.Var) -> None:
    bb = BlockBuilder()
    c = graphs.var("c", graphs.BOOL)
    with bb.function("main", [x, c]):
        bb.begin_scope()
        yes = bb.end_scope(bb.emit(graphs.shape_of(x)))
        bb.begin_scope()
        no = bb.end_scope(rx.ShapeExpr((1, 4)))  # type: ignore[arg-type]
        r = bb.emit(rx.If(c, yes, no))
        assert r.struct_info == rx.ShapeStructInfo(ndim=2)
        p = graphs.var("p", prim())
        f = graphs.var("f", rx.FuncStructInfo((prim(),), prim()))
        bb.declare(f)
        bb.begin_scope([p])
        body = bb.end_scope(bb.emit(f(p)))
        bound = bb.emit(rx.Function((p,), body, prim()), var=f)
        assert bound is f
        bb.emit_func_output(r)
    mod = bb.get()
    assert normalize_module(mod) is mod


def test_a_dropped_scope_leaves_nothing_behind(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x):
        bb.begin_scope()
        bb.emit(graphs.shape_of(x))
        assert bb.end_scope() is None
        bb.emit_func_output(x)
    assert graphs.bindings(bb.get()["main"]) == []


def test_normal_bindings_are_taken_as_they_are(x: rx.Var) -> None:
    bb = BlockBuilder()
    y = graphs.var("y", shape(2, 4))
    with bb.function("main", graphs.var("x", tensor(2, 4))):
        first = graphs.bind(y, op.shape_of(graphs.var("t", tensor(2, 4))))
        second = graphs.cast(None, y, shape(2, 4))
        assert bb.emit_normalized(first) is y
        assert bb.emit_normalized(second) is None
        bb.emit_func_output(y)
    assert graphs.bindings(bb.get()["main"]) == [first, second]


def test_an_expression_is_normalised_in_the_open_block(x: rx.Var) -> None:
    bb = BlockBuilder()
    assert bb.normalize(graphs.shape_of(x)).struct_info == op.shape_of(x).struct_info
    with pytest.raises(BuilderStateError):
        bb.normalize(graphs.pure("f", graphs.shape_of(x)))
    with bb.testing_scope(), bb.testing_scope():
        found = bb.normalize(graphs.pure("f", graphs.shape_of(x)))
        assert isinstance(found, rx.Call)
        assert isinstance(found.args[0], rx.DataflowVar)


def test_an_unnormalised_sequence_comes_back_normal(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x):
        found = bb.normalize(
            graphs.seq(graphs.block(graphs.bind(graphs.var("y"), x)), graphs.shape_of(x))
        )
        assert isinstance(found, rx.SeqExpr)
        assert len(graphs.bindings(found)) == 2
        bb.emit_func_output(x)


@pytest.mark.rule("SC-1", "DER-3")
def test_a_function_of_the_module_must_be_known_to_be_called(x: rx.Var) -> None:
    bb = BlockBuilder()
    f = rx.GlobalVar("f")
    with bb.function("main", x):
        with pytest.raises(StructInfoError, match="no function f"):
            bb.emit(f(x))
        passed_on = bb.emit(rx.Tuple((f, x))).struct_info
        assert passed_on == rx.TupleStructInfo((rx.ObjectStructInfo(), x.struct_info))
        bb.declare_global(f, rx.FuncStructInfo((rank(2),), prim()))
        assert bb.emit(f(x)).struct_info == prim()
        bb.emit_func_output(x)


def test_a_binding_costs_the_same_after_many_others(x: rx.Var) -> None:
    bb = BlockBuilder()

    def emit() -> None:
        for _ in range(100):
            bb.emit(graphs.shape_of(x))

    with bb.function("main", x):
        with bb.dataflow():
            emit()
            first = calls(emit)
            for _ in range(20):
                emit()
            assert calls(emit) < 1.1 * first
            out = bb.emit_output(x)
        bb.emit_func_output(out)


def scaled(a: Any, factor: Any) -> Any:
    return te.compute(a.shape, lambda i, j: a[i, j] * factor, "scaled")


@pytest.mark.rule("OP-5", "OP-7")
def test_a_kernel_may_come_with_a_gradient(x: rx.Var) -> None:
    bb = BlockBuilder()
    with bb.function("main", x):
        with bb.dataflow():
            y = bb.emit_te_with_grad(
                scaled,
                x,
                2.0,
                te_grad_name="scaled_grad",
                te_grad_kwargs={"factor": 2.0},
                name_hint="y",
                primfunc_name_hint="kernel",
            )
            z = bb.emit_output(bb.call_te_with_grad(scaled, y, 2.0, te_grad_name="scaled_grad"))
        bb.emit_func_output(z)
    mod = bb.finalize()
    assert {v.name_hint for v in mod} == {"main", "kernel"}
    first, second = (b.value for b in graphs.bindings(mod["main"]))
    assert isinstance(first, rx.Call)
    assert isinstance(second, rx.Call)
    assert first.op is second.op is Op("relax.call_tir_with_grad")
    assert first.attrs == {"te_grad_name": "scaled_grad", "te_grad_kwargs": {"factor": 2.0}}
    assert second.attrs == {"te_grad_name": "scaled_grad"}
    assert y.struct_info == z.struct_info == x.struct_info
    assert_structural_equal(from_source(mod.script()), mod)
    data = np.ones((3, 4), "float32")
    for target in ("reference", "numpy"):
        assert (compile(mod, target)["main"](data) == 4).all()


def test_sizes_that_no_buffer_tells_are_passed_with_a_gradient_too() -> None:
    bb, n = BlockBuilder(), graphs.size("n")
    y, s = graphs.var("y", tensor(4, dtype="int64")), graphs.var("s", shape(n))

    def times(a: Any, k: Any) -> Any:
        return te.compute((4,), lambda i: a[i] * k, "times")

    with bb.function("main", [y, s]):
        call = bb.call_te_with_grad(times, y, n, te_grad_name="times_grad")
        bb.emit_func_output(bb.emit(call))
    assert list(call.args[2]) == [n]
    assert (compile(bb.finalize())["main"](np.arange(4), ShapeTuple((3,))) == [0, 3, 6, 9]).all()


@pytest.mark.parametrize(
    ("gradient", "message"),
    [
        ({"te_grad_name": 3}, "te_grad_name names a gradient"),
        ({"te_grad_name": ""}, "te_grad_name names a gradient"),
        ({"te_grad_name": "g", "te_grad_kwargs": 3}, "te_grad_kwargs is a table"),
        ({"te_grad_name": "g", "te_grad_kwargs": np.zeros(2)}, "te_grad_kwargs is a table"),
    ],
)
def test_a_gradient_has_a_name_and_arguments_by_name(x, gradient, message) -> None:
    with pytest.raises(TypeError, match=message):
        BlockBuilder().call_te_with_grad(scaled, x, 2.0, **gradient)


@pytest.mark.rule("DER-36")
def test_what_is_wrong_with_a_kernel_is_so_with_a_gradient_too(x: rx.Var) -> None:
    kernel_var = rx.GlobalVar("k")
    bb = BlockBuilder(IRModule({"k": graphs.kernel((4,), (4,))}))
    with bb.testing_scope(), pytest.raises(StructInfoError, match="OP-8"):
        bb.emit(op.call_tir_with_grad(kernel_var, x, tensor(4), "g"))


def test_a_builder_over_a_module_does_little_for_each_function() -> None:
    functions = "".join(
        f"""
    @R.function
    def f{k}(x: R.Tensor(("n", "m"), "float32"), f: R.Callable((R.Shape(["k"]),), R.Object)):
        return x
"""
        for k in range(50)
    )
    module = from_source(f"@I.ir_module\nclass Module:{functions}")
    assert calls(lambda: BlockBuilder(module)) < 50 * 50


@pytest.mark.parametrize("stored", [2, 1 << 12])
def test_a_function_with_a_value_without_a_hash_is_refused(stored, monkeypatch) -> None:
    monkeypatch.setattr(structural, "_MAX_KEY_TOKENS", stored)  # as for a large function
    func = graphs.function([graphs.var("x", tensor(2))], graphs.pure("f")).with_attr(
        "a", bytearray()
    )
    bb = BlockBuilder()
    bb.add_func(func, "f")
    with pytest.raises(MisuseError, match="have a hash"):
        bb.add_func(func, "f")
