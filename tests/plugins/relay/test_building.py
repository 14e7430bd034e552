"""Programs built by Python: scopes, well-formedness, substitution."""

import pytest

from relaxpy import IRModule, relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from tests.relay_programs import numbers


@pytest.mark.rule("RLY-42", "RLY-50")
def test_a_scope_builder_makes_lets_and_branches() -> None:
    builder = relay.ScopeBuilder()
    x = builder.let("x", 1)
    y = builder.let(("y", relay.scalar_type("int32")), x + x)
    with builder.if_scope(relay.less(x, y)):
        z = builder.let("z", relay.const(3))
        builder.ret(z + y)
    with builder.else_scope():
        builder.ret([x, y][0])
    expr = builder.get()
    text = "let %x = 1; let %y : int32 = %x + %x; if (%x < %y) { let %z = 3; %z + %y } else { %x }"
    assert structural_equal(expr, relay.parse_expr(text))
    assert relay.create_executor().evaluate(expr) == numbers(text)
    assert str(builder.type_of(y)) == "int32"


@pytest.mark.rule("RLY-42")
def test_a_scope_has_one_result() -> None:
    builder = relay.ScopeBuilder()
    with pytest.raises(MisuseError, match="no result"):
        builder.get()
    builder.ret(1)
    with pytest.raises(MisuseError, match="result already"):
        builder.ret(2)
    with pytest.raises(MisuseError, match="follows if_scope"), builder.else_scope():
        pass


X, Y = relay.var("x", "int32"), relay.var("y", "int32")
ONE = relay.const(1)


@pytest.mark.rule("RLY-7", "RLY-85")
@pytest.mark.parametrize(
    ("expr", "well_formed"),
    [
        (relay.Let(X, ONE, X + X), True),
        (X + Y, True),
        (relay.Let(X, ONE, relay.Let(X, ONE, X)), False),
        (relay.Tuple([relay.Let(X, ONE, X), X]), False),
        (relay.Let(X, X, X), False),
        (relay.Let(X, relay.Function([], X), X), True),
        (relay.Function([X, Y], X), True),
        (relay.Function([X, X], X), False),
        (relay.Match(ONE, [relay.Clause(relay.PatternVar(X), X)]), True),
        (relay.Match(X, [relay.Clause(relay.PatternVar(X), X)]), False),
    ],
)
def test_variables_are_bound_once_and_used_in_their_scope(expr, well_formed) -> None:
    assert relay.analysis.well_formed(expr) is well_formed


@pytest.mark.rule("RLY-85")
def test_well_formedness_of_modules_and_shared_graphs() -> None:
    assert relay.analysis.well_formed(relay.Prelude().mod)
    module = relay.IRModule({"f": relay.Function([], X)})
    assert not relay.analysis.well_formed(module)
    expr: relay.Expr = X
    for _ in range(80):
        expr = expr + expr
    assert relay.analysis.well_formed(relay.Function([X], expr))
    visited: list[relay.Expr] = []
    relay.analysis.post_order_visit(expr, visited.append)
    assert visited[-1] is expr
    assert len(visited) == 82


@pytest.mark.rule("RLY-6")
def test_free_variables_are_replaced() -> None:
    assert structural_equal(relay.bind(X + Y, {X: ONE}), ONE + Y, map_free_vars=True)
    with pytest.raises(MisuseError, match="expressions by variables"):
        relay.bind(X, {X: 1})
    with pytest.raises(MisuseError, match="expressions by variables, found 1"):
        relay.bind(X, 1)  # type: ignore[arg-type]


@pytest.mark.rule("RLY-113")
def test_the_prelude_is_part_of_a_module() -> None:
    with pytest.raises(MisuseError, match="expected a module of Relay, found 1"):
        relay.Prelude(1)  # type: ignore[arg-type]


@pytest.mark.rule("RLY-17")
def test_dimensions_may_be_parameters() -> None:
    n = relay.ShapeVar("n")
    x = relay.var("x", shape=(n, 2))
    function = relay.Function([x], x, None, [n])
    module = relay.transform.InferType()(relay.IRModule.from_expr(function))
    expected = "fn [n: ShapeVar](Tensor[(n, 2), float32]) -> Tensor[(n, 2), float32]"
    assert str(module["main"].checked_type) == expected


def test_names_stand_under_the_paths_of_tvm() -> None:
    assert relay.expr.Call is relay.Call
    assert relay.ty.TensorType is relay.TensorType
    assert relay.adt.Match is relay.Match
    assert relay.function.Function is relay.Function
    assert relay.prelude.Prelude is relay.Prelude
    assert relay.expr_functor.ExprMutator is relay.ExprMutator
    x = relay.var("x", shape=(2,))
    assert relay.op.nn.relu(relay.op.negative(x)).args[0].op is relay.op.get("negative")


def test_a_pass_runs_on_an_expression() -> None:
    expr = relay.parse_expr("1 + 2")
    folded = relay.testing.run_opt_pass(expr, relay.transform.FoldConstant())
    assert folded.data == 3
    function = relay.parse_expr("fn(%x: int32) { let %y = %x; %x }")
    cleaned = relay.testing.run_opt_pass(function, relay.transform.DeadCodeElimination(), True)
    assert isinstance(cleaned.body, relay.Var)


def test_a_function_of_relay_is_in_a_module_of_relay() -> None:
    function = relay.Function([], relay.const(1.0))
    for create in (IRModule.from_expr, lambda func: IRModule({"main": func})):
        with pytest.raises(MisuseError, match="of their own: relay"):
            create(function)
