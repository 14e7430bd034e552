"""Programs that the translation rewrites first, or refuses: deep ones, functions as values."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay
from relaxpy.errors import TransformError
from tests.relay_programs import prelude

DEPTH = 59


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
def test_programs_nest(step: str) -> None:
    assert_same(nested(step, DEPTH // 2 if "let %f" in step else DEPTH), np.array(500, "float32"))


@pytest.mark.rule("RLY-50")
def test_deeper_programs_are_evaluated() -> None:
    module = relay.parse(nested("if (%x < K) { %x + K } else { BODY }", 300, 300))
    with pytest.raises(TransformError, match="more than 60 branches and functions are inside"):
        relay.to_relax(module)
    assert relay.create_executor("vm", mod=module).evaluate()(7.5) == 306.5


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


CAPTURES = "fn<t>(t) -> (t, float32)"


@pytest.mark.rule("RLY-97")
@pytest.mark.parametrize(
    "text",
    [
        f"def @f(%g: {POLY}, %x: float32) {{ (%g(%x), %g(1)) }} def @main(%x: float32) "
        "{ let %j = fn<t>(%y: t) -> t { %y }; let %k = %j; (@f(%k, %x), @f(%j, 2f)) }",
        f"def @f(%g: {CAPTURES}) {{ %g(1) }} def @h(%g: {CAPTURES}) {{ (@f(%g), %g(2f)) }}"
        "def @main(%x: float32) { @h(fn<t>(%y: t) -> (t, float32) { (%y, %x) }) }",
        # Each call passes another function.
        f"def @f(%g: {POLY}, %n: int32, %x: float32) -> float32 {{ if (%n < 1) {{ %g(%x) }} else "
        "{ @f(fn<t>(%y: t) -> t { %g(%g(%y)) }, %n - 1, %x * 3f) } } "
        "def @main(%x: float32) { @f(@i, 3, %x) }",
    ],
)
def test_functions_that_take_polymorphic_functions_are_evaluated(text: str) -> None:
    module = relay.parse(ID + text)
    with pytest.raises(TransformError, match=r"polymorphic.*RLY-97") as refusal:
        relay.to_relax(module)
    assert 'relay.create_executor("vm") runs it' in str(refusal.value)
    one, other = (relay.create_executor(kind, mod=module).evaluate() for kind in ("debug", "vm"))
    assert flat(one(2.0)) == flat(other(2.0))


@pytest.mark.rule("RLY-66")
def test_types_nested_too_deeply_are_reported_where_they_occur() -> None:
    inner, outer = "(" * 101, ",)" * 101
    module = relay.parse(f"def @main(%x: float32) {{\n  {inner}%x{outer}.0 }}")
    with pytest.raises(TransformError, match="more than 100 types inside each other") as refusal:
        relay.to_relax(module)
    assert refusal.value.diagnostic.span.line == 2
    assert_same(f"def @main(%x: float32) {{ {inner[3:]}%x{outer[6:]} }}", np.array(2, "float32"))


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
    calls = ", ".join(f"@id({'(' * i}%x{',)' * i})" for i in range(41))
    module = relay.parse(f"def @id(%y) {{ %y }} def @main(%x: float32) {{ ({calls}) }}")
    assert len(relay.to_relax(module).functions) == 42


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
