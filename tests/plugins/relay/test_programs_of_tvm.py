"""Programs as TVM's own tests of Relay build them, under its names, in the order of its files."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relay
from relaxpy.errors import RelaxpyError
from relaxpy.relay import transform
from relaxpy.relay.backend.interpreter import ConstructorValue, RefValue
from relaxpy.relay.testing import run_infer_type, run_opt_pass

tvm = SimpleNamespace(IRModule=relay.IRModule, ir=relaxpy.ir)
RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def run(expr: Any, *args: Any, mod: Any = None, kind: str = "debug") -> Any:
    return relay.create_executor(kind, mod=mod).evaluate(expr)(*args)


def equal(one: Any, other: Any) -> bool:
    return bool(tvm.ir.structural_equal(one, other))


def tensor(*shape: Any, dtype: str = "float32") -> relay.TensorType:
    return relay.TensorType(shape, dtype)


# test_type_infer


def box(mod: relay.IRModule) -> tuple[relay.GlobalTypeVar, relay.Constructor]:
    name, var = relay.GlobalTypeVar("box"), relay.TypeVar("tv")
    constructor = relay.Constructor("constructor", [var], name)
    mod[name] = relay.TypeData(name, [var], [constructor])
    return name, constructor


def test_types_of_operators_lets_and_cells() -> None:
    sb = relay.ScopeBuilder()
    x = sb.let("x", relay.const(1.0, "float64"))
    sb.ret(x)
    assert run_infer_type(sb.get()).checked_type == relay.scalar_type("float64")
    x, y = relay.var("x", shape=(10, 4)), relay.var("y", shape=(5, 10, 1))
    function = run_infer_type(relay.Function([x, y], x + y))
    expected = relay.FuncType([tensor(10, 4), tensor(5, 10, 1)], tensor(5, 10, 4))
    assert function.checked_type == expected
    x = relay.var("x", "float32")
    cell = relay.RefCreate(x)
    assert run_infer_type(cell).checked_type == relay.RefType(relay.scalar_type("float32"))
    assert run_infer_type(relay.RefWrite(cell, x)).checked_type == relay.TupleType([])


def test_types_of_recursion_and_incomplete_calls() -> None:
    f, n, data = relay.GlobalVar("f"), relay.var("n", "int32"), relay.var("data", "float32")
    sb = relay.ScopeBuilder()
    with sb.if_scope(relay.equal(n, relay.const(0, "int32"))):
        sb.ret(data)
    with sb.else_scope():
        sb.ret(f(relay.subtract(n, relay.const(1, "int32")), relay.log(data)))
    mod = tvm.IRModule()
    mod[f] = relay.Function([n, data], sb.get())
    mod = transform.InferType()(mod)
    assert "@f(%1, %2)" in mod.astext()
    scalars = relay.scalar_type("int32"), relay.scalar_type("float32")
    assert mod[f].checked_type == relay.FuncType(scalars, scalars[1])
    x, g = relay.var("x", scalars[0]), relay.var("f")
    function = run_infer_type(relay.Function([x, g], relay.Call(g, [x]), scalars[0]))
    inner = relay.FuncType([scalars[0]], scalars[0])
    assert function.checked_type == relay.FuncType([scalars[0], inner], scalars[0])


def test_types_of_constructors_and_matches() -> None:
    mod = tvm.IRModule()
    name, constructor = box(mod)
    value = relay.Var("mv", tensor(2, 2))
    x = relay.Var("x")
    pattern = relay.PatternConstructor(constructor, [relay.PatternVar(value)])
    match = relay.Match(constructor(x), [relay.Clause(pattern, relay.Tuple([]))])
    mod["main"] = relay.Function([x], match)
    mod = transform.InferType()(mod)
    expected = relay.FuncType([tensor(2, 2)], relay.TupleType([]))
    assert mod["main"].checked_type == expected
    mod["main"] = relay.Function([], constructor(relay.const(0, "float32")))
    assert transform.InferType()(mod)["main"].body.checked_type == name(tensor())


# test_backend_interpreter


def test_the_interpreter_runs_functions_of_a_module() -> None:
    mod = tvm.IRModule({})
    total, i = relay.GlobalVar("sum_up"), relay.var("i", shape=[], dtype="int32")
    sb = relay.ScopeBuilder()
    with sb.if_scope(relay.equal(i, relay.const(0, dtype="int32"))):
        sb.ret(i)
    with sb.else_scope():
        less = relay.subtract(i, relay.const(1, dtype="int32"))
        sb.ret(relay.add(relay.Call(total, [less]), i))
    mod[total] = relay.Function([i], sb.get(), ret_type=relay.TensorType([], "int32"))
    assert run(total, np.array(10, "int32"), mod=mod) == 55
    assert run(total, relay.const(10, "int32"), mod=mod) == 55


def test_the_interpreter_binds_variables_and_keywords() -> None:
    x, y, z = (relay.var(name, shape=(1, 10)) for name in "xyz")
    one = np.ones((1, 10), "float32")
    executor = relay.create_executor("debug")
    assert (executor.evaluate(x + x, binds={x: one}) == 2).all()
    assert (executor.evaluate(x + x, {x: relay.const(one)}) == 2).all()
    function = relay.Function([x, y, z], x + y + z)
    assert (executor.evaluate(function)(one, y=one, z=one) == 3).all()


def test_the_interpreter_takes_instances_cells_and_tuples() -> None:
    prelude = relay.Prelude(tvm.IRModule())
    _, cons, nil = prelude.mod.get_type("List")
    empty = ConstructorValue(nil.tag, [], nil)
    full = ConstructorValue(cons.tag, [np.ones(3, "float32"), empty], cons)
    same = relay.create_executor("debug", prelude.mod).evaluate(prelude.mod.get_global_var("id"))
    assert same(empty).tag == nil.tag
    assert (same(full).fields[0] == 1).all()
    assert same(RefValue(np.array(3.0, "float32"))).value == 3
    assert same((np.array(1), np.array(2)))[1] == 2


# test_ir_nodes, test_ir_op, test_const, test_ir_bind


def test_nodes_have_their_fields() -> None:
    x, y = relay.Var("x"), relay.Var("y")
    call = relay.Call(relay.Var("f"), [x, y], None, None)
    assert list(call.args) == [x, y]
    assert call.span is None
    branch = relay.If(x, y, x)
    assert (branch.cond, branch.true_branch, branch.false_branch) == (x, y, x)
    assert relay.TupleGetItem(relay.Tuple([x, y]), 1).index == 1
    assert relay.Function([x], x).with_attr("Inline", 1).attrs["Inline"] == 1
    assert relay.TypeVar("t", relay.TypeKind.Shape).kind == relay.TypeKind.Shape


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(1, "int32"), (1.0, "float32"), (True, "bool"), ([1, 2], "int32"),
     (np.float64(1), "float64"), (np.zeros(2, "int8"), "int8")],
)  # fmt: skip
def test_constants_have_the_narrow_datatypes(value: Any, dtype: str) -> None:
    assert str(relay.const(value).data.dtype) == dtype


def assert_close(found: Any, expected: Any) -> None:
    if isinstance(found, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)


def test_shapes_that_do_not_fit_are_refused() -> None:
    x = relay.var("x", relay.TensorType([2, 3], "float32"))
    for call in (relay.reshape(x, [7]), relay.squeeze(x, axis=(1,)), relay.split(x, 2, 1)):
        with pytest.raises(RelaxpyError):
            run_infer_type(call)


# test_prng, test_param_dict


def test_parameters_are_saved_as_bytes() -> None:
    saved = relay.save_param_dict({"x": np.ones((10, 2), "float32"), "y": np.arange(3)})
    loaded = relay.load_param_dict(saved)
    assert (loaded["x"].numpy() == 1).all()
    assert loaded["y"].numpy().tolist() == [0, 1, 2]


# test_pass_*


def test_passes_on_expressions() -> None:
    x = relay.var("x", shape=(1, 2))
    folded = run_opt_pass(x + relay.const(1.0) * relay.const(2.0), transform.FoldConstant())
    expected = run_infer_type(x + relay.const(2.0))
    assert tvm.ir.structural_equal(folded, expected, map_free_vars=True)
    shared = run_opt_pass(relay.Function([x], relay.exp(x) + relay.exp(x)),
                          transform.EliminateCommonSubexpr())  # fmt: skip
    assert shared.body.args[0] is shared.body.args[1]
    y = relay.var("y")
    dead = relay.Let(y, relay.exp(x), x)
    assert equal(run_opt_pass(relay.Function([x], dead), transform.DeadCodeElimination()),
                 run_infer_type(relay.Function([x], x)))  # fmt: skip
    plain = run_opt_pass(relay.nn.batch_norm(x, *[relay.var(n, shape=(2,)) for n in "gbmv"])[0],
                         transform.SimplifyInference())  # fmt: skip
    assert "nn.batch_norm" not in plain.astext()


def test_a_pass_of_a_function_and_a_sequence() -> None:
    @transform.function_pass(opt_level=1, name="log_again")
    def again(function: relay.Function, mod: relay.IRModule, ctx: Any) -> relay.Function:
        return relay.Function(function.params, relay.log(function.body))

    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    passes = relaxpy.transform.Sequential([again, transform.ToANormalForm()])
    assert_close(run(passes(mod)["main"], np.ones(2, "float32")), [1, 1])


# test_analysis_*, test_call_graph, test_pass_mac_count, test_pass_unmatched_cases


def test_analyses_of_expressions() -> None:
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(4, 3))
    net = relay.nn.relu(relay.nn.dense(x, y))
    assert relay.analysis.free_vars(net) == [x, y]
    shared = relay.exp(x)
    branches = relay.If(relay.const(True), shared, shared + shared)
    form = run_opt_pass(relay.Function([x], branches), transform.ToBasicBlockNormalForm())
    assert relay.analysis.well_formed(form)


def test_cases_that_no_clause_fits() -> None:
    mod = relay.Prelude(tvm.IRModule()).mod
    _, cons, nil = mod.get_type("List")
    v = relay.Var("v")
    only = relay.Clause(relay.PatternConstructor(nil, []), v)
    assert len(relay.analysis.unmatched_cases(relay.Match(v, [only]), mod)) == 1
    other = relay.Clause(
        relay.PatternConstructor(cons, [relay.PatternWildcard(), relay.PatternWildcard()]), v
    )
    assert not relay.analysis.unmatched_cases(relay.Match(v, [only, other]), mod)


# test_adt, test_pass_to_a_normal_form (nat), test_vm, test_any


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_dimensions_that_are_not_known(kind: str) -> None:
    x, y = (relay.var(n, shape=(relay.Any(), 2)) for n in "xy")
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.concatenate([x, y], axis=0)))
    assert mod["main"].params[0].type_annotation.shape[0] == relay.Any()
    result = relay.create_executor(kind, mod=mod).evaluate()(random(3, 2), random(1, 2))
    assert result.shape == (4, 2)
