"""LegalizeOps: what becomes a kernel, what stays, and what kernels are shared."""

import functools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxpy.errors import (
    MisuseError,
    RelaxpyWarning,
    RuntimeCheckError,
    Source,
    Span,
    StructInfoError,
    UnknownNameError,
)
from relaxpy.exec.api.compile import compile
from relaxpy.ir import IRModule, Op, assert_structural_equal, ops as op
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.ops.elementwise import UNARY
from relaxpy.ir.passes import legalize
from relaxpy.ir.passes.legalize import LegalizeOps
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.ir.relax.block_builder.builder import BlockBuilder
from relaxpy.ir.relax.block_builder.te_call import call_te
from relaxpy.ir.te import topi
from relaxpy.ir.te.tensor import Tensor, compute
from relaxpy.ir.tir import expr as tir
from relaxpy.ir.tir.prim_func import PrimFunc
from relaxpy.ir.transform import get_pipeline
from relaxpy.script import from_source
from tests.counting import calls_of
from tests.ir.relax.graphs import built, returning
from tests.ir.relax.sinfos import Object, prim, rank, shape, tensor, tuple_of

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")
exp, add = UNARY["exp"], op.add


def ops_of(mod: IRModule) -> list[str]:
    calls = [node for node in walk(mod["main"]) if isinstance(node, rx.Call)]
    return [call.op.name for call in calls if isinstance(call.op, Op)]


def kernels(mod: IRModule) -> list[str]:
    return sorted(v.name_hint for v, f in mod.items() if isinstance(f, PrimFunc))


@pytest.mark.parametrize("dataflow", [True, False])
def test_operators_become_kernels_and_struct_infos_stay(dataflow: bool) -> None:
    before = returning(lambda x: op.nn.softmax(exp(x) + x), tensor(N, 4), dataflow=dataflow)
    after = LegalizeOps()(before)
    assert ops_of(before) == ["relax.exp", "relax.add", "relax.nn.softmax"]
    assert ops_of(after) == ["relax.call_tir"] * 3
    assert kernels(after) == ["add", "softmax", "tir_exp"]
    assert after["main"].struct_info == before["main"].struct_info
    assert not check_well_formed(after)
    assert [v.name_hint for v in before] == ["main"]


def test_a_module_without_operators_comes_back_itself() -> None:
    done = LegalizeOps()(returning(exp, tensor(2)))
    assert LegalizeOps()(done) is done


def test_calls_of_one_kind_share_a_kernel_whatever_their_sizes_are_called() -> None:
    def body(x: rx.Var, y: rx.Var, z: rx.Var) -> rx.Tuple:
        return rx.Tuple((exp(x), exp(y), exp(z)))

    same = LegalizeOps()(returning(body, tensor(N, 4), tensor(M, 4), tensor(M, 4)))
    assert kernels(same) == ["tir_exp"]
    other = LegalizeOps()(
        returning(body, tensor(N, 4), tensor(N, 5), tensor(N, 4, dtype="float64"))
    )
    assert kernels(other) == ["tir_exp", "tir_exp1", "tir_exp2"]


def test_repeated_sizes_make_another_kernel() -> None:
    mod = returning(lambda x, y: rx.Tuple((exp(x), exp(y))), tensor(N, M), tensor(N, N))
    after = LegalizeOps()(mod)
    assert kernels(after) == ["tir_exp", "tir_exp1"]
    x, y = np.ones((2, 3), "float32"), np.ones((2, 2), "float32")
    found = compile(after)["main"](x, y)
    np.testing.assert_allclose(found[1], np.exp(y), rtol=1e-6)


def test_literals_stand_in_the_kernel() -> None:
    after = LegalizeOps()(returning(lambda x: (x * 2 + 1) * 2, tensor(3)))
    assert kernels(after) == ["add", "multiply"]
    [first, *_] = (n for n in walk(after["main"]) if isinstance(n, rx.Call))
    operands = first.args[1]
    assert isinstance(operands, rx.Tuple)
    assert len(operands) == 1


def test_operators_may_be_skipped() -> None:
    mod = returning(lambda x: exp(add(x, x)), tensor(3))
    after = LegalizeOps(skip_ops=["relax.exp"])(mod)
    assert kernels(after) == ["add"]
    assert "R.exp(" in after.script()


OPEN: list[tuple[Callable[..., Any], tuple[rx.StructInfo, ...]]] = [
    (exp, (rank(2),)),
    (exp, (rx.TensorStructInfo(None, "float32"),)),
    (exp, (rx.TensorStructInfo((2,), ""),)),  # type: ignore[arg-type]
    (add, (tensor(N), tensor(M))),
    (lambda x: op.squeeze(x), (tensor(N, 1),)),
    (lambda *x: op.concat(x), (tensor(2), rank(1))),
    (lambda s: op.zeros(s, "float32"), (rx.ShapeStructInfo(None, 2),)),
]


@pytest.mark.parametrize(("body", "sinfos"), OPEN)
def test_what_is_open_stays(body: Callable[..., Any], sinfos: tuple[rx.StructInfo, ...]) -> None:
    mod = returning(body, *sinfos)
    assert LegalizeOps()(mod) is mod
    with pytest.warns(RelaxpyWarning, match="has open operands, so it is not lowered yet"):
        LegalizeOps(enable_warning=True)(mod)


UNDECIDED: list[tuple[Callable[..., Any], tuple[tuple[Any, ...], ...], Any, Any, str]] = [
    (op.matmul, ((2, N), (M, 3)), ((2, 4), (4, 3)), ((2, 4), (5, 3)), "the last dimension of x1"),
    (op.matmul, ((N,), (M,)), ((0,), (0,)), ((0,), (1,)), "the last dimension of x1 is 0"),
    (lambda x: op.squeeze(x, 1), ((3, N),), ((3, 1),), ((3, 2),), "axis 1 of x has size 2, not 1"),
    (lambda x: op.reshape(x, (-1, 2)), ((N,),), ((6,),), ((5,),), "x has 5 elements"),
    (lambda x: op.broadcast_to(x, (4, 3)), ((N,),), ((1,),), ((2,),), "which does not broadcast"),
]


@pytest.mark.rule("DER-36")
@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize(("body", "shapes", "good", "bad", "message"), UNDECIDED)
def test_sizes_that_may_be_equal_are_compared_when_they_arrive(
    body: Callable[..., Any],
    shapes: tuple[tuple[Any, ...], ...],
    good: Any,
    bad: Any,
    message: str,
    target: str,
) -> None:
    main = compile(returning(body, *(tensor(*s) for s in shapes)), target)["main"]
    arrays = [np.arange(np.prod(s), dtype="float32").reshape(s) for s in good]
    static = compile(returning(body, *(tensor(*s) for s in good)), target)["main"]
    np.testing.assert_array_equal(main(*arrays), static(*arrays))
    with pytest.raises(RuntimeCheckError) as caught:
        main(*(np.zeros(s, "float32") for s in bad))
    assert message in str(caught.value)


@pytest.mark.parametrize("target", ["numpy", "reference"])
@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda n: op.arange(10, 0, rx.PrimValue(n * -1)), lambda n: np.arange(10, 0, -n)),
        (lambda n: op.arange(0, 10, rx.PrimValue(n)), lambda n: np.arange(0, 10, n)),
        (lambda n: op.arange(0, rx.PrimValue(n), 0.5), lambda n: np.arange(0, n, 0.5)),
    ],
)
def test_ranges_may_have_sizes_for_bounds_and_steps(make, expected, target) -> None:
    main = compile(returning(lambda x: make(N), tensor(N)), target)["main"]
    for n in (1, 3, 4):
        np.testing.assert_array_equal(main(np.zeros(n, "float32")), expected(n))


@pytest.mark.parametrize(
    "body",
    [
        lambda x: op.call_pure_packed("f", x, sinfo_args=tensor(2)),
        lambda x: op.invoke_pure_closure(rx.ExternFunc("f"), (x,), sinfo_args=tensor(2)),
    ],
)
def test_nothing_is_said_of_calls_that_are_lowered_already(body: Callable[..., Any]) -> None:
    mod = returning(body, tensor(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LegalizeOps(enable_warning=True)(mod) is mod


def test_branches_and_local_functions_are_reached() -> None:
    def body(builder: BlockBuilder, x: rx.Var, c: rx.Var) -> rx.Expr:
        y = rx.Var("y", tensor(2))
        local = builder.emit(rx.Function((y,), exp(y), tensor(2)))
        return rx.If(c, rx.Call(local, (x,)), x * 3)

    after = LegalizeOps()(built(body, tensor(2), tensor(dtype="bool"), dataflow=False))
    assert kernels(after) == ["multiply", "tir_exp"]
    assert set(ops_of(after)) == {"relax.call_tir"}
    run = compile(after)["main"]
    data = np.array([1, 2], "float32")
    np.testing.assert_allclose(run(data, np.array(True)), np.exp(data), rtol=1e-6)
    np.testing.assert_allclose(run(data, np.array(False)), data * 3)


def test_a_custom_legalisation_comes_first() -> None:
    def swapped(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        return builder.call_te(topi.subtract, call.args[1], call.args[0])

    mod = returning(lambda x, y: x - y, tensor(2), tensor(2))
    after = LegalizeOps({"relax.subtract": swapped})(mod)
    a, b = np.array([1, 2], "float32"), np.array([5, 9], "float32")
    np.testing.assert_array_equal(compile(after)["main"](a, b), b - a)


@pytest.mark.parametrize("dataflow", [True, False])
def test_a_legalisation_may_emit_bindings_and_use_operators(dataflow: bool) -> None:
    def by_parts(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        half = builder.emit(call.args[0] * 0.5, "half")
        return builder.emit(exp(half)) * 2

    mod = returning(lambda x: op.nn.gelu(x), tensor(N), dataflow=dataflow)
    after = LegalizeOps({"relax.nn.gelu": by_parts})(mod)
    assert set(ops_of(after)) == {"relax.call_tir"}
    assert not check_well_formed(after)
    x = np.array([1, 2], "float32")
    np.testing.assert_allclose(compile(after)["main"](x), np.exp(x / 2) * 2, rtol=1e-6)


def test_a_legalisation_may_leave_a_call_or_give_the_operator_again() -> None:
    mod = returning(exp, tensor(2))
    assert LegalizeOps({"relax.exp": lambda builder, call: call})(mod) is mod
    doubled = LegalizeOps({"relax.exp": lambda builder, call: exp(call.args[0])})(mod)
    assert ops_of(doubled) == ["relax.exp"]


def test_a_map_that_means_nothing_is_refused() -> None:
    mod = returning(exp, tensor(2))
    with pytest.raises(UnknownNameError, match=r"no operator is registered as 'relax\.exq'"):
        LegalizeOps({"relax.exq": lambda builder, call: call})(mod)
    with pytest.raises(MisuseError, match=r"legalisation of relax\.exp returns an expression"):
        LegalizeOps({"relax.exp": lambda builder, call: 3})(mod)


def test_legalisations_that_lead_back_are_named() -> None:
    def other(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        name = "sin" if call.op is Op("relax.cos") else "cos"
        return builder.emit(UNARY[name](call.args[0])) * 2

    mod = returning(UNARY["cos"], tensor(2))
    with pytest.raises(MisuseError, match=r"does not end: relax\.cos becomes .* relax\.sin again"):
        LegalizeOps({"relax.cos": other, "relax.sin": other})(mod)


def test_bits_of_floats_are_refused_when_they_are_asked_for() -> None:
    mod = returning(op.bitwise_and, tensor(2), tensor(2))
    with pytest.raises(StructInfoError, match=r"relax\.bitwise_and: only integers have bits"):
        LegalizeOps()(mod)


def test_programs_of_operators_compile() -> None:
    mod = returning(
        lambda x, w, b: op.nn.relu(op.linear(x, w, b)).astype("float64"),
        *(tensor(N, 3), tensor(4, 3), tensor(4)),
    )
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype("float32") for s in ((2, 3), (4, 3), (4,)))
    for target in ("numpy", "reference"):
        found = compile(mod, target)["main"](x, w, b)
        np.testing.assert_allclose(found, np.maximum(x @ w.T + b, 0), rtol=1e-5, atol=1e-6)
    assert get_pipeline("default")(mod)["main"].struct_info == mod["main"].struct_info


# --- call_te and emit_te


def plus(x: Tensor, amount: Any) -> Tensor:
    return topi.add(x, amount)  # type: ignore[no-any-return]


def build(body: Callable[[BlockBuilder], rx.Expr], *params: rx.Var) -> IRModule:
    builder = BlockBuilder()
    with builder.function("main", list(params)):
        builder.emit_func_output(body(builder))
    return builder.get()


def test_a_tensor_expression_is_called_on_expressions() -> None:
    x, k = rx.Var("x", tensor(N, 2)), rx.Var("k", prim(dtype="float32"))
    mod = build(lambda b: b.emit_te(plus, x, k), x, k)
    kernel = mod["plus"]
    assert isinstance(kernel, PrimFunc)
    assert [p.name for p in kernel.params] == ["var_x", "k", "var_T_add"]
    assert "global_symbol" not in kernel.attrs
    data = np.array([[1, 2]], "float32")
    for target in ("reference", "numpy"):
        np.testing.assert_array_equal(compile(mod, target)["main"](data, 2.5), data + 2.5)


def test_sizes_that_no_buffer_binds_are_passed() -> None:
    x, s = rx.Var("x", tensor(N * 2)), rx.Var("s", shape(M))
    n = rx.Var("y", tensor(N))

    def shifted(t: Tensor, by: list[tir.PrimExpr]) -> Any:
        return compute(t.shape, lambda i: t[i] + by[0].astype("float32"), name="shifted")

    mod = build(lambda b: b.emit_te(shifted, x, s), x, s, n)
    [call] = [node for node in walk(mod["main"]) if isinstance(node, rx.Call)]
    assert call.args[2].struct_info == shape(N, M)
    kernel = mod["shifted"]
    assert isinstance(kernel, PrimFunc)
    assert all(v not in kernel.params for v in (N, M))
    assert not check_well_formed(mod)


def test_names_attributes_and_several_results() -> None:
    x = rx.Var("x", tensor(2, 2))

    def both(t: Tensor, *, factor: float) -> list[Tensor]:
        return [topi.multiply(t, factor), topi.negative(t)]

    def body(b: BlockBuilder) -> rx.Expr:
        found = b.call_te(
            both, x, factor=2.0, primfunc_name_hint="pair", primfunc_attrs={"mark": 1}
        )
        assert found.struct_info == tuple_of(tensor(2, 2), tensor(2, 2))
        nameless = b.emit_te(lambda t: topi.exp(t), x)
        return b.emit(rx.Tuple((found, nameless)))

    mod = build(body, x)
    assert kernels(mod) == ["pair", "te_func"]
    assert mod["pair"].attrs["mark"] == 1


def test_equal_kernels_are_shared_and_others_numbered() -> None:
    x, y = rx.Var("x", tensor(2)), rx.Var("y", tensor(3))
    mod = build(lambda b: b.emit(rx.Tuple(tuple(b.call_te(topi.exp, v) for v in (x, y, x)))), x, y)
    assert kernels(mod) == ["exp", "exp1"]


def test_a_function_is_called_anew_every_time() -> None:
    x = rx.Var("x", tensor(2))
    amounts = iter((1.0, 2.0))

    def growing(t: Tensor) -> Any:
        return topi.add(t, next(amounts))

    mod = build(lambda b: b.emit(rx.Tuple((b.call_te(growing, x), b.call_te(growing, x)))), x)
    assert kernels(mod) == ["growing", "growing1"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((rx.Var("x", rank(2)),), "needs the shape and datatype of its operands, found R.Tensor"),
        ((rx.Var("x", Object),), "takes no value of R.Object"),
        ((object(),), "takes no object"),
        ((rx.Var("s", rx.ShapeStructInfo(None, 2)),), "takes no value of R.Shape"),
    ],
)
def test_arguments_that_nothing_stands_for(args: tuple[Any, ...], message: str) -> None:
    with pytest.raises(MisuseError) as caught:
        BlockBuilder().call_te(topi.exp, *args)
    assert message in str(caught.value)


def test_results_that_are_not_tensors() -> None:
    x = rx.Var("x", tensor(2))
    with pytest.raises(MisuseError, match="returns tensors, found int 3"):
        BlockBuilder().call_te(lambda t: 3, x)


def test_results_that_are_operands_or_the_same_are_copies() -> None:
    mod = built(lambda b, x: b.emit_te(lambda t: (e := topi.exp(t), t, e), x), tensor(2))
    argument = np.arange(2, dtype="float32")
    first, second, third = compile(mod)["main"](argument)
    np.testing.assert_allclose(first, np.exp(argument), rtol=1e-6)
    np.testing.assert_array_equal(second, argument)
    np.testing.assert_array_equal(third, first)
    for one, other in ((second, argument), (first, third)):
        assert not np.shares_memory(one, other)


LAYERS = """
@R.function
def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32"),
         s: R.Tensor(("n", 3), "float32"), t: R.Tensor(("m", 3), "float32")):
    with R.dataflow():
        a = R.nn.relu(R.add(x, y))
        b = R.nn.relu(R.add(a, a))
        c = R.nn.relu(R.add(b, x))
        d = R.multiply(R.multiply(c, R.const(2.0)), R.const(3.0))
        e = R.multiply(R.multiply(d, R.const(2.0)), R.const([2.0], "float32"))
        f = R.concat([R.sum(e, axis=0), R.sum(e, axis=1), R.sum(d, axis=0)], axis=0)
        g = R.sum(R.reshape(R.concat([R.concat([e, d], axis=1), c], axis=1), (2, 9)), keepdims=True)
        h = R.reshape(R.concat([R.concat([d, e, c], axis=1), e], axis=1), (6, 4))
        u = R.concat([R.exp(s), R.exp(s), R.exp(t)])
        out = (f, g, h, u)
        R.output(out)
    return out
"""


def test_equal_calls_are_legalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mod = IRModule.from_expr(from_source(LAYERS))
    shared = LegalizeOps()(mod)
    fewer = calls_of(call_te, lambda: LegalizeOps()(mod))
    monkeypatch.setattr(legalize, "_key", lambda *_: None)
    each = LegalizeOps()(mod)
    # Two relus, the second product with 2.0 and the second sum over rows are known.
    assert fewer == calls_of(call_te, lambda: LegalizeOps()(mod)) - 4
    assert shared.script() == each.script()
    found, expected = (
        [(n.span, n.struct_info) for n in walk(result["main"]) if isinstance(n, rx.Call)]
        for result in (shared, each)
    )
    assert found == expected


def test_a_fault_of_a_legalisation_stands_where_the_call_does() -> None:
    place = Span(Source("model.py", "y = R.negative(x)"), 1, 5, 1, 18)
    mod = returning(lambda x: UNARY["negative"].make(x, span=place), tensor(2))

    def refuse(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        raise MisuseError("no kernel for this")

    with pytest.raises(MisuseError, match=r"^model\.py:1:5: no kernel for this"):
        LegalizeOps({"relax.negative": refuse})(mod)


def test_tensors_like_others_are_filled_by_the_kernels_of_any() -> None:
    def body(x: rx.Var) -> rx.Expr:
        alike = [op.ones_like(x), op.zeros_like(x), op.full_like(x, rx.const(2, "float32"))]
        return rx.Tuple([*alike, op.ones((2, 3), "float32"), op.zeros((2, 3), "float32")])

    mod = LegalizeOps()(returning(body, tensor(2, 3)))
    assert kernels(mod) == ["full", "ones", "zeros"]


@pytest.mark.parametrize(
    ("made", "constant"),
    [
        (lambda: op.arange(1, 10, 2), rx.const([1, 3, 5, 7, 9], "int64")),
        (lambda: op.arange(3, 0, -1, "int8"), rx.const([3, 2, 1], "int8")),
        (lambda: op.astype(rx.const(1.5, "float32"), "int32"), rx.const(1, "int32")),
        (lambda: op.astype(rx.const(-3, "int32"), "int8"), rx.const(-3, "int8")),
        (lambda: op.astype(rx.const(0.5, "float32"), "bool"), rx.const(True, "bool")),
        (lambda: op.astype(rx.const(0.0, "float32"), "bool"), rx.const(False, "bool")),
    ],
)
def test_what_is_known_ahead_becomes_a_constant(made, constant) -> None:
    mod = LegalizeOps()(returning(made))
    assert not kernels(mod)
    (found,) = [node for node in walk(mod["main"]) if isinstance(node, rx.Constant)]
    assert_structural_equal(found, constant)


@pytest.mark.parametrize(
    "made",
    [
        lambda: op.arange(10**6),
        lambda: op.arange(0, 1, 0.5),
        lambda: op.astype(rx.const(300.0, "float32"), "int8"),
        lambda: op.astype(rx.const(float("nan"), "float32"), "int32"),
    ],
)
def test_what_is_long_or_does_not_fit_is_computed(made: Callable[[], rx.Call]) -> None:
    assert len(kernels(LegalizeOps()(returning(made)))) == 1


@pytest.mark.parametrize("count", [1, 2, 40])
def test_tensors_are_stacked_by_one_block(count: int) -> None:
    mod = returning(lambda *xs: op.stack(xs, 1), *[tensor(2, 3)] * count)
    (kernel,) = [f for f in LegalizeOps()(mod).functions.values() if isinstance(f, PrimFunc)]
    assert kernel.script().count("T.block(") == 2  # that of the root in a comment
    inputs = [np.full((2, 3), k, "float32") for k in range(count)]
    for target in ("numpy", "reference"):
        np.testing.assert_array_equal(compile(mod, target)["main"](*inputs), np.stack(inputs, 1))


def test_a_rule_that_wraps_one_of_relaxpy_sees_each_call() -> None:
    rule = Op("relax.nn.relu").get_attr("FLegalize")
    seen: list[rx.Call] = []

    @functools.wraps(rule)
    def wrapped(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        seen.append(call)
        result: rx.Expr = rule(builder, call)
        return result

    mod = IRModule.from_expr(from_source(LAYERS))
    LegalizeOps({"relax.nn.relu": wrapped})(mod)
    assert len(seen) == 3
