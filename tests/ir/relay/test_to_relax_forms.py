"""Programs that the translation rewrites first: deep ones, and functions that are values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay
from relaxpy.errors import TransformError
from tests.relay_programs import prelude

DEPTH = 300


def nested(step: str, depth: int = DEPTH, numbers: int = 3) -> str:
    """A function whose body is a step around a step, and so on; `K` is one of a few numbers."""
    body = "%x"
    for k in range(depth):
        body = step.replace("K", f"{k % numbers}f").replace("BODY", body)
    return f"def @main(%x: float32) {{ {body} }}"


def assert_same(text: str, *args: Any, module: relay.IRModule | None = None) -> relaxpy.IRModule:
    """The translation gives what the evaluator gives."""
    typed = relay.parse(text, init_module=module)
    translated = relay.to_relax(typed)
    assert relax.analysis.check_well_formed(translated) == []
    found = relaxpy.compile(translated)["main"](*args)
    expected = relay.create_executor("debug", mod=typed).evaluate()(*args)
    for one, other in zip(flat(found), flat(expected), strict=True):
        np.testing.assert_allclose(one, other, 1e-6)
    return translated


def flat(value: Any) -> list[Any]:
    return [part for field in value for part in flat(field)] if type(value) is tuple else [value]


@pytest.mark.rule("RLY-50")
@pytest.mark.parametrize(
    "step",
    [
        "if (%x < K) { %x + K } else { BODY }",
        "if (%x > K) { BODY } else { %x - K }",
        "if ((if (%x > K) { True } else { False })) { BODY } else { %x }",
        "(let %y = BODY; %y + 1f)",
        "(let %y = (if (%x > K) { BODY } else { K }); %y + 1f)",
        "fn() { BODY }()",
        "(let %f = fn(%y: float32) { if (%y > K) { BODY } else { %y } }; %f(%x))",
        "(match ((%x, K)) { (%a, %b) => BODY + %b, })",
    ],
)
def test_programs_nest_as_deeply_as_they_want(step: str) -> None:
    assert_same(nested(step, 60 if "let %f" in step else DEPTH), np.array(500, "float32"))


@pytest.mark.rule("RLY-110")
def test_what_deep_branches_share_is_evaluated_once() -> None:
    text = nested("if (%x > K) { BODY } else { %0 * K }", 30, 30)
    text = text.replace("{ if", "{ %0 = exp(%x)\n if", 1).replace("{ %x }", "{ %0 }", 1)
    for number in (-1.0, 20.0, 50.0):
        translated = assert_same(text, np.array(number, "float32"))
        assert str(translated).count("R.exp(") == 1


def test_parts_of_deep_functions_may_be_polymorphic_in_dimensions() -> None:
    body = "%x"
    for k in range(30):
        body = f"if (%k < {k}) {{ %x + {k}f }} else {{ {body} }}"
    text = f"""def @f<n: ShapeVar>(%k: int32, %x: Tensor[(n, 2), float32]) {{ {body} }}
               def @main(%k: int32, %x: Tensor[(?, 2), float32]) {{ @f(%k, %x) }}"""
    assert_same(text, np.array(20, "int32"), np.ones((3, 2), "float32"))


@pytest.mark.rule("RLY-96")
@pytest.mark.parametrize(
    "text",
    [
        "fn(%x: float32) { let %f = nn.relu; %f(%x) + %f(1f) }",
        "fn(%x: float32) { (if (%x < 1f) { add } else { subtract })(%x, 2f) }",
        "fn(%x: float32) { let %t = (exp, multiply); (%t.0(%x), %t.1(%x, %x)) }",
        "fn(%x: float32) { @compose(negative, exp)(%x) }",
        "fn(%x: float32) { @flip(subtract)(%x, 3f) }",
        "fn(%x: float32) { (match ((exp, %x)) { (%f, %y) => %f(%y), }) }",
    ],
)
def test_operators_are_values(text: str) -> None:
    assert_same(text, np.array(2, "float32"), module=prelude())


def test_an_operator_without_a_default_is_refused_as_a_value() -> None:
    module = relay.parse("fn(%x: float32) { let %f = clip; %f(%x) }")
    with pytest.raises(TransformError, match=r"the operator clip is used as a value \[RLY-96\]"):
        relay.to_relax(module)


@pytest.mark.rule("RLY-97")
@pytest.mark.parametrize(
    "text",
    [
        "fn(%x: float32) { let %id = fn<t>(%y: t) -> t { %y }; (%id(%x), %id((1, %x)), %id(2f)) }",
        "fn(%x: float32) { let %id = fn(%y) { %y }; %id(%id)(%x) }",
        "fn(%x: float32) { (fn<t>(%y: t) -> t { %y })(%x) }",
        "fn(%x: float32) { @compose(fn<t>(%y: t) -> t { %y }, @id)(%x) }",
        "fn(%x: float32) { let %two = fn<t>(%f: fn(t) -> t, %y: t) -> t { %f(%f(%y)) };"
        "%two(fn(%y: float32) { %y * 2f }, %x) + cast(%two(fn(%n: int32) { %n + 1 }, 3), "
        'dtype="float32") }',
        "fn(%x: float32) { let %pair = fn<a>(%y: a) { let %other = fn<b>(%z: b) { (%y, %z) };"
        "(%other(1), %other(%y)) }; (%pair(%x), %pair(True)) }",
        "fn(%x: float32) { let %n = fn<t>(%k: int32, %y: t) -> t "
        "{ if (%k == 0) { %y } else { %n(%k - 1, %y) } }; (%n(3, %x), %n(2, (%x, 1))) }",
        "fn(%x: float32) { let %f = @id; (%f(%x), %f(1)) }",
        "fn(%x: float32) { let %id = fn<t>(%y: t) -> t { %y }; let %f = %id; (%f(%x), %f(1)) }",
        "fn(%x: float32) { let %unused = fn<t>(%y: t) { %y }; %x }",
        "fn(%x: float32) { let %t = (fn<t>(%y: t) -> (t, t) { (%y, %y) }, fn<t>(%y: t) { %y });"
        "let %g = %t.1; %g(%t.0(%x)) }",
        "fn(%x: float32) { let %f = if (%x > 1f) { fn<t>(%y: t) -> t { %y } } else {"
        "let %k = 1; fn<t>(%y: t) -> t { (%y, %k).0 } }; (%f(%x), %f(2f)) }",
        "fn(%x: float32) { let %m = fn() { fn<t>(%y: t) -> t { %y } }; (%m()(%x), %m()(%x)) }",
    ],
)
def test_polymorphic_closures_have_instances(text: str) -> None:
    assert_same(text, np.array(2, "float32"), module=prelude())


ID = "def @i<t>(%y: t) -> t { %y }\n"
POLY = "fn<t>(t) -> t"


@pytest.mark.rule("RLY-97")
@pytest.mark.parametrize(
    "text",
    [
        f"def @f(%g: {POLY}, %x: float32) {{ (%g(%x), %g(1)) }} def @main(%x: float32) "
        "{ @f(@i, %x) }",
        f"def @f(%g: {POLY}, %x: float32) {{ (%g(%x), %g(1)) }} def @main(%x: float32) "
        "{ let %j = fn<t>(%y: t) -> t { %y }; let %k = %j; (@f(%k, %x), @f(%j, 2f)) }",
        f"def @f(%g: {POLY}) {{ (%g(1), %g).1(2f) }} def @h(%g: {POLY}) {{ @f(%g) }}"
        "def @main(%x: float32) { @h(@i) * %x }",
        f"def @f<u>(%g: {POLY}, %x: u, %h: fn<t>(t) -> (t, t)) {{ %h(%g((%x, 1))) }}"
        "def @main(%x: float32) { let %d = fn<t>(%y: t) -> (t, t) { (%y, %y) };"
        "(@f(@i, %x, %d), @f(@i, True, %d)) }",
        f"def @f(%g: {POLY}, %n: int32, %x: float32) -> float32 {{ if (%n < 1) {{ %g(%x) }} else "
        "{ @f(%g, %n - 1, %g(%x * 3f)) } } def @main(%x: float32) { @f(@i, 3, %x) }",
        f"def @f(%g: {POLY}) {{ %g }} def @main(%x: float32) {{ @f(@i)(%x) }}",
        f"def @f_0(%x: float32) {{ %x }} def @f(%g: {POLY}) {{ @f_0(%g(2f)) }}"
        "def @main(%x: float32) { @f(@i) + @f_0(%x) }",
    ],
)
def test_functions_take_known_polymorphic_functions(text: str) -> None:
    assert_same(ID + text, np.array(2, "float32"))


K = "fn<t>(%y: t) -> (t, float32) { (%y, %x) }"
CAPTURES = "fn<t>(t) -> (t, float32)"
BOTH = f"def @f(%g: {CAPTURES}) {{ (%g(1), %g(True)) }} def @main(%x: float32) "


@pytest.mark.rule("RLY-97")
@pytest.mark.parametrize(
    "text",
    [
        BOTH + f"{{ @f({K}) }}",
        BOTH + f"{{ let %k = {K}; let %j = %k; (@f(%j), @f(%k), %k(2f)) }}",
        BOTH + f"{{ let %k = {K}; @f(fn<t>(%y: t) -> (t, float32) {{ %k(%k(%y).0) }}) }}",
        BOTH + "{ let %k = fn<t>(%n: float32, %y: t) -> (t, float32) { if (%n < %x) { (%y, %n) } "
        "else { %k(%n - 1f, %y) } }; @f(fn<t>(%y: t) -> (t, float32) { %k(9f, %y) }) }",
        f"def @f(%g: {CAPTURES}) {{ %g(1) }} def @h(%g: {CAPTURES}) {{ (@f(%g), %g(2f)) }}"
        f"def @main(%x: float32) {{ @h({K}) }}",
        f"def @f(%g: {CAPTURES}, %n: int32) -> float32 {{ if (%n < 1) {{ %g(%n).1 }} else "
        f"{{ @f(%g, %n - 1) + %g(2f).0 }} }} def @main(%x: float32) {{ @f({K}, 3) }}",
        f"def @f(%g: {CAPTURES}) {{ fn(%z: int32) {{ %g(%z) }} }}"
        f"def @main(%x: float32) {{ @f({K})(3) }}",
        "def @f<u>(%x: u) -> (u, u) { @h(fn<t>(%y: t) -> (t, u) { (%y, %x) }, %x) }"
        "def @h<v>(%g: fn<t>(t) -> (t, v), %x: v) -> (v, v) { %g(%x) }"
        "def @main(%x: float32) { (@f(%x), @f(1)) }",
        f"def @main(%x: float32) {{ let %f = fn(%g: {CAPTURES}) {{ (%g(1), %g(%x)) }};"
        f"let %h = %f; (%f({K}), %h({K})) }}",
        f"def @main(%x: float32) {{ (fn(%g: {CAPTURES}) {{ (%g(1), %g(%x)) }})({K}) }}",
        f"def @main(%x: float32) {{ let %f = fn(%g: {CAPTURES}, %n: int32) -> float32 {{"
        f"if (%n < 1) {{ %g(%x).0 }} else {{ %f(%g, %n - 1) }} }}; %f({K}, 2) }}",
        f"def @main(%x: float32) {{ let %k = {K}; let %f = fn(%g: {CAPTURES}) {{ %k(%g(2).0) }};"
        f"let %h = fn(%g: {CAPTURES}) {{ (%f(%g), %g(1)) }}; %h({K}) }}",
    ],
)
def test_polymorphic_functions_that_are_passed_may_capture(text: str) -> None:
    assert_same(text, np.array(2, "float32"))


@pytest.mark.rule("RLY-66")
def test_types_nested_too_deeply_are_reported_where_they_occur() -> None:
    inner, outer = "(" * 101, ",)" * 101
    module = relay.parse(f"def @main(%x: float32) {{\n  {inner}%x{outer}.0 }}")
    with pytest.raises(TransformError, match="more than 100 types inside each other") as refusal:
        relay.to_relax(module)
    assert refusal.value.diagnostic.span.line == 2
    assert_same(f"def @main(%x: float32) {{ {inner[3:]}%x{outer[6:]} }}", np.array(2, "float32"))


@pytest.mark.rule("RLY-97")
@pytest.mark.parametrize(
    "text",
    [
        # Each call passes another function.
        f"def @f(%g: {POLY}, %n: int32) -> int32 {{ if (%n < 1) {{ %g(%n) }} else "
        "{ @f(fn<t>(%y: t) -> t { %g(%g(%y)) }, %n - 1) } } "
        "def @main(%x: int32) { @f(fn<t>(%y: t) -> t { %y }, %x) }",
    ],
)
def test_unknown_polymorphic_arguments_are_reported(text: str) -> None:
    with pytest.raises(TransformError, match="a closure is polymorphic") as refusal:
        relay.to_relax(relay.parse(text))
    assert 'relay.create_executor("vm") runs it' in str(refusal.value)


@pytest.mark.rule("RLY-97")
def test_obstacles_of_copies_are_those_of_their_function() -> None:
    module = relay.parse(
        ID + f"def @f(%g: {POLY}) {{ ref_read(ref(%g(1))) }} def @main() {{ @f(@i) }}"
    )
    found = relay.analysis.untranslatable(module)
    assert found.keys() == {"f", "i", "main"}
    assert [d.message for d in found["main"]] == [
        "the function refers to @f, which has no translation"
    ]
    assert "Relax has no reference cells" in [d.message for d in found["f"]]


@pytest.mark.rule("RLY-97")
def test_any_number_of_closures_may_be_polymorphic() -> None:
    lets = "".join(f"let %f{i} = fn(%y) {{ %f{i - 1}(%y) }};" for i in range(1, 80))
    assert_same(
        f"fn(%x: float32) {{ let %f0 = fn(%y) {{ %y }}; {lets} (%f79(%x), %f79(1)) }}",
        np.array(2, "float32"),
        module=prelude(),
    )


@pytest.mark.rule("RLY-97")
def test_a_function_may_have_any_number_of_instances() -> None:
    calls = ", ".join(f"@id({'(' * i}%x{',)' * i})" for i in range(71))
    module = relay.parse(f"def @id(%y) {{ %y }} def @main(%x: float32) {{ ({calls}) }}")
    assert len(relay.to_relax(module).functions) == 72


@pytest.mark.rule("RLY-97")
def test_polymorphic_recursion_is_reported() -> None:
    text = """def @main(%x: float32) {
      let %f = fn<t>(%k: int32, %y: t) -> int32 {
        if (%k == 0) { 1 } else { %f(%k - 1, (%y, %y)) } };
      %f(3, %x) }"""
    with pytest.raises(TransformError, match="a closure is polymorphic"):
        relay.to_relax(relay.parse(text))


@pytest.mark.rule("RLY-82")
def test_attributes_of_functions_are_kept() -> None:
    text = """def @main(%x: float32, Compiler="dnnl", level=3) {
      let %f = fn(%y: float32, tag="inner") { %y }; %f(%x) }"""
    translated = relay.to_relax(relay.parse(text))
    attrs = translated["main"].attrs
    assert (attrs["Compiler"], attrs["level"]) == ("dnnl", 3)
    assert attrs["global_symbol"] == "main"
    assert 'R.func_attr({"tag": "inner"})' in translated.script()


def test_fused_operators_are_translated_in_their_places() -> None:
    module = relay.parse("fn(%x: float32) { exp(%x) + 1f }")
    fused = relay.transform.FuseOps(2)(module)
    assert relaxpy.ir.structural_equal(relay.to_relax(fused), relay.to_relax(module))
