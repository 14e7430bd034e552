"""Small questions about programs: variables, calls, purity."""

import inspect

import pytest

from relaxpy.errors import MisuseError
from relaxpy.ir import IRModule, Op, ops as op
from relaxpy.ir.core.node import Node
from relaxpy.ir.core.traverse import strongly_connected
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.analysis import variables
from relaxpy.ir.relax.analysis.effects import (
    Dependencies,
    calls_made,
    contains_impure_call,
    may_fail,
)
from relaxpy.ir.relax.call_graph import call_graph, detect_recursion
from relaxpy.relax import analysis
from tests.ir.relax.graphs import (
    BOOL,
    bind,
    block,
    cast,
    dataflow,
    function,
    local,
    module,
    pure,
    seq,
    shape_of,
    show,
    size,
    var,
)
from tests.ir.relax.sinfos import func, prim, rank, shape, tensor
from tests.ir.relax.texts import graph


def test_variables_are_bound_or_free() -> None:
    x, y, z, p = var("x", tensor(2)), var("y"), var("z", tensor(2)), var("p", prim())
    inner = function([p], z)
    f = var("f")
    main = function([x], seq(block(bind(y, x), bind(f, inner)), y))
    assert set(variables.bound_vars(main)) == {x, y, p, f}
    assert variables.bound_vars(main)[: len(main.params)] == list(main.params)
    assert variables.free_vars(main) == [z]
    assert set(variables.all_vars(main)) == {x, y, z, p, f}


def test_a_shape_in_an_annotation_is_an_occurrence() -> None:
    s = var("s", shape(2))
    x = var("x", rx.TensorStructInfo(s, "float32"))
    assert variables.free_vars(function([x], x)) == [s]
    assert variables.free_vars(function([x, s], x)) == []


def test_values_of_variables() -> None:
    x, y, z = var("x", tensor(2)), var("y"), var("y")
    first = cast(y, x, rank(1))
    second = bind(z, x)
    main = function([x], seq(block(first, second, cast(None, x, rank(1))), y))
    assert variables.get_var2val(main) == {y: x, z: x}
    assert variables.name_to_binding(main) == {"y": [first, second]}


def test_definitions_and_uses_in_a_block() -> None:
    x, a, b, c = var("x", tensor(2)), local("a"), local("b"), var("c")
    found = dataflow(bind(a, x), bind(b, pure("f", a, x)), bind(c, a), cast(None, c, rank(1)))
    assert variables.udchain(found) == {a: [b, c], x: [a, b], b: [], c: []}


def test_a_definition_is_not_a_use() -> None:
    size = rx.Var("s", rx.ShapeStructInfo(None, 1))
    x, y, unused = rx.Var("x", tensor(2)), rx.Var("y", tensor(2)), rx.Var("u", tensor(2))
    z = rx.Var("z", rx.TensorStructInfo(size, "float32"))
    assert variables.used_vars(x) == [x]
    assert variables.used_vars(rx.Tuple([op.add(x, x), z])) == [x, z, size]
    block = rx.BindingBlock([rx.VarBinding(y, op.add(x, x)), rx.VarBinding(unused, y)])
    body = rx.SeqExpr([block], y)
    assert variables.used_vars(body) == [x, y]
    assert variables.used_vars(rx.Function([x, unused], y)) == [y]


def test_variables_live_from_their_binding_to_their_last_use() -> None:
    x, a, b, c, d = var("x", tensor(2)), local("a"), local("b"), var("c"), local("d")
    inner = function([], a)
    found = dataflow(
        bind(a, x), bind(b, pure("f", a, x)), bind(d, inner), bind(c, a), cast(None, x, rank(1))
    )
    assert variables.dataflow_liveness_analysis(found) == {
        x: (-1, 5),
        a: (0, 3),
        b: (1, 1),
        d: (2, 2),
        c: (3, 5),
    }


def test_every_node_is_visited_once_operands_first() -> None:
    x = var("x", tensor(2))
    inner = shape_of(x)
    outer = pure("f", inner, inner)
    seen: list[Node] = []
    variables.post_order_visit(outer, seen.append)
    assert all(isinstance(node, (rx.Expr, Op)) for node in seen)
    assert seen.count(inner) == 1
    assert seen.index(x) < seen.index(inner) < seen.index(outer)


@pytest.mark.rule("SC-2", "WF-25")
def test_recursion_is_found_through_nested_functions() -> None:
    f, g, h = (rx.GlobalVar(n) for n in "fgh")
    p = [var("p", prim()) for _ in range(5)]
    mod = module(
        f=function([p[0]], g(p[0]), prim()),
        g=function([p[1]], function([p[4]], f(p[4]), prim())),
        h=function([p[2]], h(p[2]), prim()),
        k=function([p[3]], f(p[3])),
    )
    groups = [{v.name_hint for v in group} for group in detect_recursion(mod)]
    assert sorted(map(sorted, groups)) == [["f", "g"], ["h"]]
    assert call_graph(mod)["g"] == ("f",)
    assert [v.name_hint for v in variables.all_global_vars(mod["k"])] == ["f"]
    assert detect_recursion(IRModule()) == []


def test_groups_come_after_what_they_point_to() -> None:
    graph = {"a": ["b"], "b": ["c", "d"], "c": ["b"], "d": [], "e": ["a", "missing"]}
    groups = [set(group) for group in strongly_connected(graph)]
    assert groups == [{"d"}, {"b", "c"}, {"a"}, {"e"}]
    deep = {i: [i + 1] for i in range(5000)} | {5000: []}
    assert len(strongly_connected(deep)) == 5001


@pytest.mark.rule("PU-12", "PU-14", "PU-15", "PU-16")
def test_impure_calls_are_found() -> None:
    x, c = var("x", tensor(2)), var("c", BOOL)
    assert not contains_impure_call(op.shape_of(x))
    assert contains_impure_call(show(x))
    assert contains_impure_call(rx.If(c, seq(show(x)), seq(x)))
    assert contains_impure_call(seq(block(cast(None, show(x), prim())), x))
    assert not contains_impure_call(seq(block(bind(var("f"), function([], show(x)))), x))
    assert contains_impure_call(function([], show(x)))
    good, bad = var("g", func(ret=prim())), var("b", func(ret=prim(), pure=False))
    assert not contains_impure_call(good())
    assert contains_impure_call(bad())
    assert contains_impure_call(rx.Call(Op("test.unregistered"), ()))
    assert not contains_impure_call(pure("f"))


def test_a_function_may_call_itself_by_its_own_name() -> None:
    main = rx.GlobalVar("main")
    p = var("p", prim())
    recursive = function([p], main(p), prim())
    assert contains_impure_call(recursive)
    assert not contains_impure_call(recursive, main)
    other = rx.GlobalVar("other")
    assert contains_impure_call(rx.Tuple((main(p), other(p))), main)
    assert contains_impure_call(rx.Tuple((other(p), main(p))), main)
    assert not contains_impure_call(rx.Call(function([], rx.const(1)), ()))
    assert contains_impure_call(rx.Call(function([], rx.const(1), is_pure=False), ()))


@pytest.mark.rule("PU-16")
def test_a_call_that_stands_in_many_places_is_made_known_once() -> None:
    value: rx.Expr = var("x", tensor(2))
    for _ in range(12):
        value = pure("f", value, value)
    assert len(list(calls_made(value))) == 12
    printed, literal = show(value), function([], value)
    for parts in ((value, value, printed), (printed, value, value), (literal, printed, literal)):
        assert contains_impure_call(rx.Tuple(parts))


def test_sizes_are_not_relax_variables() -> None:
    n = size("n")
    x = var("x", tensor(n))
    assert variables.all_vars(pure("f", x, rx.ShapeExpr((n,)))) == [x]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        *[(n, "a node") for n in ("all_vars", "bound_vars", "free_vars")],
        *[(n, "a Relax function") for n in ("get_var2val", "name_to_binding")],
        *[(n, "a Relax function") for n in ("defined_symbolic_vars", "free_symbolic_vars")],
        *[(n, "a Relax expression") for n in ("contains_impure_call", "remove_all_unused")],
        ("computable_at_compile_time", "a Relax function"),
        ("all_global_vars", "a node"),
        ("udchain", "a dataflow block"),
        ("detect_recursion", "a module"),
        ("tir_vars_in_struct_info", "a StructInfo"),
        ("definable_tir_vars_in_struct_info", "a StructInfo"),
        ("collect_non_negative_expressions", "a StructInfo"),
        ("erase_to_well_defined", "a StructInfo"),
    ],
)
def test_values_of_other_kinds_are_refused_as_programs(name: str, wanted: str) -> None:
    with pytest.raises(MisuseError, match=f"expected {wanted}, found int") as caught:
        getattr(analysis, name)(3)
    assert isinstance(caught.value, TypeError)


PARAMETERS = {
    "all_global_vars": "expr",
    "all_vars": "expr",
    "bound_vars": "expr",
    "collect_non_negative_expressions": "sinfo",
    "computable_at_compile_time": "func",
    "contains_impure_call": "expr own_name=None",
    "definable_tir_vars_in_struct_info": "sinfo",
    "defined_symbolic_vars": "func",
    "derive_call_ret_struct_info": "func_sinfo call ctx",
    "detect_recursion": "mod",
    "erase_to_well_defined": "sinfo shape_var_map=None var_map=None",
    "free_symbolic_vars": "func",
    "free_vars": "expr",
    "get_static_type": "sinfo",
    "get_var2val": "func",
    "has_reshape_pattern": "func",
    "name_to_binding": "func",
    "post_order_visit": "expr fvisit",
    "remove_all_unused": "func",
    "struct_info_base_check": "base derived",
    "struct_info_lca": "lhs rhs",
    "tir_vars_in_struct_info": "sinfo",
    "udchain": "dfb",
}


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_have_the_names_that_users_of_tvm_know(name: str) -> None:
    found = inspect.signature(getattr(analysis, name)).parameters.values()
    found = [p for p in found if p.name != "shape_vars"]  # of ours, behind those of TVM
    shown = (p.name if p.default is p.empty else f"{p.name}={p.default}" for p in found)
    assert " ".join(shown) == PARAMETERS[name]


def test_what_is_called_for_each_expression_is_a_function() -> None:
    with pytest.raises(MisuseError, match="fvisit is a function"):
        variables.post_order_visit(rx.Var("x", rx.ObjectStructInfo()), None)  # type: ignore[arg-type]


@pytest.mark.rule("OPT-3")
@pytest.mark.parametrize(
    ("value", "may"),
    [
        *((f"R.{call}", False) for call in ("add(x, x)", "add(x, y)", "reshape(x, (4,))")),
        *((call, False) for call in ("R.concat((x, y))", "(x, u)", "x", "R.add(u, u)")),
        *((f"R.reshape({operands})", True) for operands in ("u, (4,)", "x, s")),
        *((call, True) for call in ("R.concat((x, u))", "R.add(x, u)", "R.exp(w)")),
        *((call, True) for call in ("g(x)", "R.match_cast(x, f32[2, 2])")),
        ('R.call_pure_packed("f", x, sinfo_args=f32[4])', True),
    ],
)
def test_an_operator_cannot_fail_on_operands_of_known_shapes_and_datatypes(value, may) -> None:
    func = graph(f"""
def main(x: f32[2, 2], y: f32[2, 2], u: R.Tensor("float32"), w: R.Tensor((2,)),
         s: R.Shape(ndim=1), g: R.Callable((f32[2, 2],), f32[2, 2])):
    a = {value}
    return x
""")["main"]
    [binding] = func.body.blocks[0].bindings  # type: ignore[attr-defined]
    assert may_fail(binding) is may


@pytest.mark.rule("OPT-2")
def test_a_mutation_stays_after_what_precedes_it_and_before_what_follows() -> None:
    func = graph("""
@kernel
def increment(a: f32[4]):
    for i in S(4, "A"):
        a[vi] = a[vi] + T.float32(1)

def main(x: f32[4], y: f32[4]):
    a = R.exp(y)
    b = R.exp(x)
    c = R.call_tir_inplace(cls.increment, (x,), 0, f32[4])
    d = R.exp(y)
    e = R.call_tir_inplace(cls.increment, (c,), 0, f32[4])
    f = R.exp(y)
    return f
""")["main"]
    bindings = func.body.blocks[0].bindings  # type: ignore[attr-defined]
    needs = {
        b.var.name_hint: {n.var.name_hint for n in needed if isinstance(n, rx.VarBinding)}
        for b, needed in Dependencies(bindings).needs.items()
    }
    assert needs == {
        "a": set(),
        "b": set(),
        "c": {"a", "b"},
        "d": {"c"},
        "e": {"c", "d"},
        "f": {"e"},
    }
