"""Passes over Relay modules: values stay, and programs get the form that each pass promises."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.ir import structural_equal
from relaxpy.relay import transform
from tests.relay_programs import LIST, result_of


def assert_becomes(text: str, expected: str, *steps: relay.transform.RelayPass) -> None:
    module = relay.parse(text)
    for step in steps:
        module = step(module)
    assert structural_equal(module, relay.parse(expected)), module.astext()


# ---- dead code


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let %a = 1 + 2; let %b = %a * 2; 7", "7"),
        ("let %a = 1 + 2; let %b = %a * 2; %a", "let %a = 1 + 2; %a"),
        ("let %f = fn(%n: int32) -> int32 { %f(%n) }; 3", "3"),
        ("let %r = ref(1); 2", "let %r = ref(1); 2"),
        ("fn(%x: int32) { let %y = %x; fn() { let %z = %y; 1 } }", "fn(%x: int32) { fn() { 1 } }"),
    ],
)
def test_unused_lets_are_removed(text: str, expected: str) -> None:
    assert_becomes(text, expected, transform.DeadCodeElimination())


@pytest.mark.rule("RLY-108")
def test_effects_are_removed_on_demand_only() -> None:
    text = "let %r = ref(1); let %u = ref_write(%r, 2); 3"
    assert_becomes(text, text, transform.DeadCodeElimination())
    assert_becomes(text, "3", transform.DeadCodeElimination(ignore_impurity=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let %a = 1 + 2; %a * 3", "(1 + 2) * 3"),
        ("let %a = 1 + 2; let %b = %a * 3; %b + 1", "((1 + 2) * 3) + 1"),
        ("let %a = 1 + 2; %a * %a", "let %a = 1 + 2; %a * %a"),
        ("let %a = 1 + 2; fn() { %a }", "let %a = 1 + 2; fn() { %a }"),
        (
            "let %r = ref(1); let %a = ref_read(%r); let %u = ref_write(%r, 2); %a",
            "let %r = ref(1); let %a = ref_read(%r); let %u = ref_write(%r, 2); %a",
        ),
    ],
)
def test_what_is_used_once_is_put_in_place(text: str, expected: str) -> None:
    assert_becomes(text, expected, transform.DeadCodeElimination(inline_once=True))


def test_functions_that_nothing_reaches_are_removed() -> None:
    text = "def @f() { @g() }\ndef @g() { 1 }\ndef @h() { @f() }\ndef @main() { @g() }"
    module = relay.parse(text)
    assert set(transform.RemoveUnusedFunctions()(module).functions_by_name) == {"g", "main"}
    kept = transform.RemoveUnusedFunctions(["main", "h"])(module)
    assert kept is module
    with pytest.raises(MisuseError, match="entry function @k"):
        transform.RemoveUnusedFunctions(["k"])(module)


# ---- common expressions


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(1 + 2, 1 + 2)", "%0 = 1 + 2\n(%0, %0)"),
        ("((1 + 2) * 3, (1 + 2) * 3)", "%0 = 1 + 2\n%1 = %0 * 3\n(%1, %1)"),
        ("(1 + 2, 2 + 1)", "(1 + 2, 2 + 1)"),
        ("(1 + 2, 1f + 2f)", "(1 + 2, 1f + 2f)"),
        (
            "fn(%x: Tensor[(2, 3), float32]) { (sum(%x, axis=[0]), sum(%x), sum(%x, axis=[0])) }",
            "fn(%x: Tensor[(2, 3), float32]) { %0 = sum(%x, axis=[0])\n(%0, sum(%x), %0) }",
        ),
        ("(ref(1), ref(1))", "(ref(1), ref(1))"),
    ],
)
def test_equal_calls_are_shared(text: str, expected: str) -> None:
    assert_becomes(text, expected, transform.EliminateCommonSubexpr())


def test_expressions_may_be_spared() -> None:
    def spares_sums(expr: relay.Expr) -> bool:
        return isinstance(expr, relay.Call) and expr.op == relay.op.get("add")

    text = "((1 + 2) * 3, (1 + 2) * 3)"
    assert_becomes(text, text, transform.EliminateCommonSubexpr(fskip=spares_sums))


# ---- constants


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", "7"),
        ("let %a = 2; let %b = %a + 1; (%b, %b * %a)", "(3, 6)"),
        ("if (1 == 1) { 5 } else { 6 }", "5"),
        ("(1 + 2, 3).0", "3"),
        ("fn(%x: int32) { %x + (1 + 2) }", "fn(%x: int32) { %x + 3 }"),
        ("fn(%x: int32) { (%x, 2 * 2).1 }", "fn(%x: int32) { 4 }"),
        ("let %r = ref(1 + 1); ref_read(%r)", "let %r = ref(2); ref_read(%r)"),
        ("zeros(shape=[2], dtype=float32)", "zeros(shape=[2], dtype=float32)"),
    ],
)
def test_calls_on_constants_are_evaluated(text: str, expected: str) -> None:
    assert_becomes(text, expected, transform.FoldConstant())


def test_a_large_value_is_not_a_constant() -> None:
    text = "broadcast_to(1f, shape=[1024, 1024])"
    assert_becomes(text, text, transform.FoldConstant())


def test_branches_that_fail_stay() -> None:
    text = "fn(%c: bool) { if (%c) { floor_divide(1, 0) } else { 2 } }"
    assert_becomes(text, text, transform.FoldConstant())


# ---- functions


def test_marked_functions_are_inlined() -> None:
    module = relay.parse(
        "def @double(%x: int32) { let %y = %x + %x; %y }\n"
        "def @cell() { ref(0) }\n"
        "def @count(%n: int32) -> int32 { if (%n == 0) { 0 } else { @count(%n - 1) } }\n"
        "def @main() { (@double(1 + 2), @double(4), @cell(), @cell(), @count(2)) }"
    )
    for name in ("double", "cell", "count"):
        module[name] = module[name].with_attr("Inline", 1)
    result = transform.Inline()(module)
    called = {n.name_hint for n in calls_of_globals(result["main"])}
    assert called == {"count"}
    first, second, one, other, last = relay.create_executor(mod=result).evaluate()()
    assert (first, second, last) == (6, 8, 0)
    assert one is not other


def test_polymorphic_functions_are_inlined_at_each_type() -> None:
    module = relay.parse(
        "def @pair<a, b>(%x: a, %y: b) -> (b, a) { let %z: (b, a) = (%y, %x); %z }\n"
        "def @main() { (@pair(1, 2f), @pair((), 3)) }"
    )
    module["pair"] = module["pair"].with_attr("Inline", 1)
    result = transform.Inline()(module)
    assert not calls_of_globals(result["main"])
    assert str(result["main"].ret_type) == str(module["main"].ret_type)


def calls_of_globals(function: relay.Function) -> list[relay.GlobalVar]:
    found: list[relay.GlobalVar] = []

    def visit(expr: relay.Expr) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.GlobalVar):
            found.append(expr.op)

    relay.analysis.post_order_visit(function, visit)
    return found


def test_constructors_and_functions_become_functions_where_they_are_values() -> None:
    text = LIST + "def @f(%x: int32) -> int32 { %x }\n"
    assert_becomes(
        text + "let %c = Cons; let %f = @f; %c(%f(1), Nil)",
        text + "let %c = fn(%a, %b) { Cons(%a, %b) }; let %f = fn(%x) { @f(%x) }; %c(%f(1), Nil)",
        transform.EtaExpand(expand_constructor=True, expand_global_var=True),
    )
    given = text + "let %c = Cons; %c(@f(1), Nil)"
    assert_becomes(given, given, transform.EtaExpand())


def test_lifted_functions_take_what_they_capture() -> None:
    module = relay.parse("let %k = 3; let %f = fn(%x: int32) { %x + %k }; %f(4)")
    result = transform.LambdaLift()(module)
    lifted = result["main_f"]
    assert lifted.attrs["Closure"] == 1
    assert [str(p.type_annotation) for p in lifted.params] == ["int32"]
    for function in result.functions_by_name.values():
        inside = [] if function is lifted else [function.body]
        for expr in inside:
            relay.analysis.post_order_visit(
                expr, lambda e: pytest.fail(str(e)) if isinstance(e, relay.Function) else None
            )
    assert result_of(result) == 7


@pytest.mark.rule("RLY-110")
def test_what_a_lifted_function_shares_is_evaluated_once() -> None:
    text = "%0 = ref(1)\nlet %f = fn() { ref_write(%0, 5) }; let %u = %f(); ref_read(%0)"
    module = relay.parse(text)
    assert result_of(module) == result_of(transform.LambdaLift()(module)) == 5


# ---- basic blocks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "%0 = 3 * 3\nif (%0 == 9) { %0 + 1 } else { %0 - 1 }",
            "let %x = 3 * 3; if (%x == 9) { %x + 1 } else { %x - 1 }",
        ),
        ("%0 = 1 + 2\n(%0, %0)", "%0 = 1 + 2\n(%0, %0)"),
        ("%0 = 1 + 2\nfn() { %0 * 2 }", "%0 = 1 + 2\nfn() { %0 * 2 }"),
        ("%0 = 1 + 2\n(%0, fn() { %0 * 2 })", "let %x = 1 + 2; (%x, fn() { %x * 2 })"),
    ],
)
def test_what_branches_share_is_bound_by_a_let(text: str, expected: str) -> None:
    assert_becomes(text, expected, transform.ToBasicBlockNormalForm())


# ---- normalisations


NORMS = [
    ("nn.batch_norm(%x, %c, %c, %c, %v, axis={axis}).0", "nn.batch_norm"),
    (
        "nn.batch_norm(%x, %c, %c, %c, %v, axis={axis}, scale=False, center=False).0",
        "nn.batch_norm",
    ),
    ("nn.layer_norm(%x, %c, %c, axis={axis}, epsilon=0.1)", "nn.layer_norm"),
    ("nn.layer_norm(nn.layer_norm(%x, %c, %c, axis={axis}), %c, %c, axis={axis})", "nn.layer_norm"),
    ("nn.instance_norm(%x, %c, %c, axis={axis}, scale=False)", "nn.instance_norm"),
    ("nn.group_norm(%x, %c, %c, num_groups=2, axis={axis})", "nn.group_norm"),
    ("nn.l2_normalize(%x, axis=[{axis}])", "nn.l2_normalize"),
    ("nn.dropout(%x).0", "nn.dropout"),
]


@pytest.mark.each_choice
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize(("text", "name"), NORMS)
def test_normalisations_are_written_out(text: str, name: str, axis: int) -> None:
    shape = "Tensor[(2, 4, 3, 4), float32]"
    vector = "Tensor[(4), float32]"
    params = f"%x: {shape}, %c: {vector}, %v: {vector}"
    module = relay.parse(f"fn({params}) {{ {text.format(axis=axis)} }}")
    result = transform.SimplifyInference()(module)
    assert name not in result.astext()
    rng = np.random.default_rng(0)
    args = [
        rng.standard_normal((2, 4, 3, 4), "f4"),
        rng.standard_normal(4, "f4"),
        rng.random(4, "f4"),
    ]
    expected = relay.create_executor(mod=module).evaluate()(*args)
    actual = relay.create_executor(mod=result).evaluate()(*args)
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.rule("RLY-1")
@pytest.mark.parametrize(
    "value",
    [
        "(let %e: List[int32] = Nil; match? (%e) { Cons(%x, _) => %x + 1 })",
        "(fn(%v: Tensor[(?,), int32]) -> Tensor[(3,), int32] { %v })(Constant(1, (2,), int32))",
    ],
)
def test_dead_code_may_be_a_value_that_fails(value: str) -> None:
    """Failing is no effect: a program that failed may succeed without the unused value."""
    module = relay.parse(f"{LIST} let %unused = {value}; 2")
    with pytest.raises(RuntimeCheckError):
        result_of(module)
    assert result_of(relay.transform.DeadCodeElimination()(module)) == 2


@pytest.mark.rule("RLY-108")
def test_dead_code_that_touches_cells_stays() -> None:
    module = relay.parse(
        LIST + "let %r = ref(1); let %f = fn(%l: List[int32]) { ref_write(%r, 2);"
        "match? (%l) { Cons(%x, _) => %x } }; let %unused = %f(Nil); ref_read(%r)"
    )
    with pytest.raises(RuntimeCheckError):
        result_of(relay.transform.DeadCodeElimination()(module))
