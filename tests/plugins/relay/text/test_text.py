"""Reading of Relay text, in both formats."""

import json

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import ParseError
from relaxpy.ir import structural_equal
from relaxpy.plugins.relay.text import cursor as lexer
from tests.relay_programs import LIST, NAT, numbers, refused, signature, type_of, value


@pytest.mark.rule("RLY-4")
def test_globals_locals_and_operators_have_their_own_spelling() -> None:
    assert numbers("def @f(%x: int32) { add(%x, 1) }\n@f(1)") == 2
    assert "@add is not defined" in refused("@add(1, 2)", "RLY-95")


@pytest.mark.rule("RLY-8")
def test_a_later_let_shadows_in_its_body() -> None:
    assert numbers("let %a = 1; let %b = 2 * %a; let %a = %a + %a; %a + %b") == 4


@pytest.mark.rule("RLY-9")
def test_each_definition_makes_a_new_variable() -> None:
    outer = relay.parse_expr("let %a = 1; let %a = 2; %a")
    assert isinstance(outer, relay.Let)
    inner = outer.body
    assert isinstance(inner, relay.Let)
    assert inner.var is not outer.var
    assert inner.body is inner.var


@pytest.mark.rule("RLY-11")
@pytest.mark.parametrize("params", ["", "%x: int32", "%x: int32, %y: float32,"])
def test_functions_have_any_number_of_parameters(params: str) -> None:
    function = relay.parse_expr(f"fn({params}) {{ 1 }}")
    assert isinstance(function, relay.Function)
    assert len(function.params) == params.count("%")


@pytest.mark.rule("RLY-39")
def test_literals_are_constants_of_rank_0() -> None:
    literal = relay.parse_expr("True")
    assert isinstance(literal, relay.Constant)
    assert literal.data.dtype == np.bool_
    assert literal.data.shape == ()


@pytest.mark.rule("RLY-43")
def test_a_let_variable_is_in_scope_in_a_function_value_only() -> None:
    assert (
        numbers("let %f = fn(%n: int32) -> int32 { if (%n == 0) { 0 } else { %f(%n - 1) } }; %f(3)")
        == 0
    )
    assert numbers("let %x = 1; let %x = %x + 1; %x") == 2


@pytest.mark.rule("RLY-47", "RLY-79")
def test_graph_bindings_end_at_semicolons_and_line_ends() -> None:
    assert numbers("%1 = 2 + 3\n%2 = %1 * %1\n%2 - %1") == 20
    assert numbers("%1 = 2\n  + 3;%2 = (%1\n, 4)\n-1") == -1
    assert "expected ; or a line end" in refused("%1 = 2 %1", "RLY-79")


@pytest.mark.rule("RLY-46")
def test_the_name_of_a_graph_binding_has_no_scope() -> None:
    assert numbers(
        "def @f() { if (True) { %0 = 3\n %0 } else { 4 } }\n(@f(), { %1 = 5\n 6 }, %1)"
    ) == (3, 6, 5)


@pytest.mark.rule("RLY-58")
def test_both_formats_may_be_mixed() -> None:
    text = """
    data Nat { Z : () -> Nat  S : (Nat) -> Nat }
    type List[A] { Cons(A, List[A]), Nil }
    def @f(%n : Nat) { match(%n) { case Z() { 1 } S(_) => 2, } }
    @f(S(Z))
    """
    assert numbers(text) == 2


@pytest.mark.rule("RLY-59")
def test_definitions_stand_in_any_order() -> None:
    assert numbers("def @f(%d: D[]) { @g(C) }\ndef @g(%d: D[]) { 7 }\ntype D { C }\n@f(C)") == 7
    with pytest.raises(ParseError, match="the text is empty"):
        relay.parse("  # nothing")


@pytest.mark.rule("RLY-60")
def test_names() -> None:
    assert numbers("let %_a1 = 1; let %A_ = 2; %_a1 + %A_") == 3
    assert "is not a name" in refused("let %é = 1; 2", "RLY-60")


@pytest.mark.rule("RLY-61")
def test_comments_and_headers() -> None:
    text = '#[version = "0.0.5"]\n// one\n# two\n/* three /* four */ */ 1 + 2 # five'
    assert numbers(text) == 3
    assert "does not end" in refused("/* /* */ 1", "RLY-61")


@pytest.mark.rule("RLY-62")
@pytest.mark.parametrize(
    ("text", "dtype"),
    [
        *(("1i16", "int16"), ("1i32", "int32"), ("1i", "int32"), ("-1i64", "int64")),
        *(("1.5f16", "float16"), ("1f32", "float32"), ("1e2f", "float32"), ("2.5f64", "float64")),
    ],
)
def test_suffixes_fix_datatypes(text: str, dtype: str) -> None:
    assert type_of(text) == dtype


@pytest.mark.rule("RLY-62")
@pytest.mark.parametrize("text", ["40000i16", "-32769i16", "1e39f", "70000f16", "1.5i32"])
def test_a_literal_that_does_not_fit_its_suffix_is_refused(text: str) -> None:
    assert "does not fit" in refused(text, "RLY-62")


@pytest.mark.rule("RLY-63")
@pytest.mark.parametrize(
    ("text", "ty"),
    [
        *(("1", "int32"), ("1.5", "float32"), ("1e3", "float32"), ("3000000000", "int64")),
        *(("True", "bool"), ("1 + 2i64", "int64"), ("1 + 2.5", "float32")),
        ("(fn(%x: float64) { %x })(1)", "float64"),
        ("let %c = 1; let %f = fn(%x: float32) { %x + %c }; %f(10)", "float32"),
    ],
)
def test_open_literals_take_the_datatype_of_their_uses(text: str, ty: str) -> None:
    assert type_of(text) == ty


@pytest.mark.rule("RLY-63")
@pytest.mark.parametrize("text", ["1.5 + 1i", "(fn(%x: int16) { %x })(40000)", "True && 1"])
def test_open_literals_must_fit(text: str) -> None:
    with pytest.raises(relay.RelayTypeError):
        relay.parse(text)


@pytest.mark.rule("RLY-64")
def test_constants_are_filled_with_one_value() -> None:
    result = value("Constant(1.5, (2, 3), float64)")
    assert result.dtype == np.float64
    assert result.tolist() == [[1.5] * 3] * 2
    assert "consists of integers" in refused("Constant(1, (?,), int8)", "RLY-64")


@pytest.mark.rule("RLY-65")
def test_entries_of_the_metadata_are_constants() -> None:
    table = {"relay.Constant": [np.arange(3, dtype="uint8")]}
    module = relay.parse("meta[relay.Constant][0]", init_meta_table=table)
    assert relay.create_executor(mod=module).evaluate()().tolist() == [0, 1, 2]
    assert "no table" in refused("meta[relay.Nothing][0]", "RLY-65")
    assert "not JSON" in refused("1\n#[metadata]\n{", "RLY-65")


@pytest.mark.rule("RLY-66")
@pytest.mark.parametrize(
    ("written", "printed"),
    [
        ("Tensor[(2, 3), float32]", "Tensor[(2, 3), float32]"),
        ("Tensor[(), bool]", "bool"),
        ("float32", "float32"),
        ("(int32, (bool,), ())", "(int32, (bool,), ())"),
        ("fn(int32, bool) -> int8", "fn (int32, bool) -> int8"),
        ("fun(int32) -> int8", "fn (int32) -> int8"),
        ("ref(int32)", "ref(int32)"),
        ("Tensor[(?, 2), int8]", "Tensor[(?, 2), int8]"),
        ("fn<t>(t) -> t", "fn [t](t) -> t"),
    ],
)
def test_types(written: str, printed: str) -> None:
    function = relay.parse_expr(f"fn(%x : {written}) {{ %x }}")
    assert isinstance(function, relay.Function)
    assert str(function.params[0].type_annotation) == printed


@pytest.mark.rule("RLY-67")
def test_data_types_take_as_many_types_as_they_have_parameters() -> None:
    assert signature(NAT + "def @f(%n: Nat, %m: Nat[]) { 1 }", "f") == "fn (Nat[], Nat[]) -> int32"
    assert "takes 0 types" in refused(NAT + "fn(%x: Nat[int32]) { 1 }", "RLY-67")


@pytest.mark.rule("RLY-30", "RLY-69")
@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("1 + 2 * 3", "add(1, multiply(2, 3))"),
        ("1 - 2 - 3", "subtract(subtract(1, 2), 3)"),
        ("8 / 4 / 2", "divide(divide(8, 4), 2)"),
        ("1 < 2 == True", "equal(less(1, 2), True)"),
        (
            "1 + 1 <= 2 && 3 > 2 || False",
            "logical_or(logical_and(less_equal(add(1, 1), 2), greater(3, 2)), False)",
        ),
        ("1 != 2 && 2 >= 1", "logical_and(not_equal(1, 2), greater_equal(2, 1))"),
        ("!True || True", "logical_or(logical_not(True), True)"),
        ("!(1, True).1", "logical_not((1, True).1)"),
    ],
)
def test_signs_stand_for_operators(text: str, calls: str) -> None:
    assert structural_equal(relay.parse_expr(text), relay.parse_expr(calls))
    assert numbers(text) == numbers(calls)


@pytest.mark.rule("RLY-70")
def test_suffixes_follow_each_other_and_bind_tighter_than_signs() -> None:
    assert numbers("let %f = fn(%x: int32) { fn(%y: int32) { %x - %y } }; %f(5)(2) * 2") == 6
    assert numbers("let %t = (0, (1, 2)); %t.1.0 + %t.1.1") == 3
    assert numbers("let %x = 3; %x-1") == 2
    assert numbers("let %x = 3; %x - -1") == 4
    assert "negative(x)" in refused("let %x = 1; -%x", "RLY-1")


@pytest.mark.rule("RLY-71")
def test_attributes_are_those_of_the_operator() -> None:
    assert "has no attribute axis" in refused("add(1, 2, axis=1)", "RLY-71")
    assert "only operators" in refused("def @f(%x: int32) { %x }\n@f(1, axis=1)", "RLY-71")


@pytest.mark.rule("RLY-72")
def test_tuples_brackets_and_commas() -> None:
    assert numbers("((), (1,), (1), (1, 2,),)") == ((), (1,), 1, (1, 2))


@pytest.mark.rule("RLY-73")
def test_braces_open_a_scope_and_semicolons_drop_a_value() -> None:
    assert numbers("{ let %x = 1; %x } + 2") == 3
    assert numbers("1; 2") == 2
    first = relay.parse_expr("1; 2")
    assert isinstance(first, relay.Let)
    assert "not defined" in refused("{ let %x = 1; %x } + %x", "RLY-95")


@pytest.mark.rule("RLY-20", "RLY-74")
def test_type_parameters() -> None:
    function = relay.parse_expr("fn<a, s : Shape, b : BaseType,>(%x: a, %y: Tensor[s, b]) { %x }")
    assert isinstance(function, relay.Function)
    assert [p.kind.name for p in function.type_params] == ["Type", "Shape", "BaseType"]
    assert signature("def @f[a](%x: a) { %x }", "f") == "fn [a](a) -> a"
    assert "two type parameters" in refused("fn<a, a>() { 1 }", "RLY-74")


@pytest.mark.rule("RLY-75")
def test_less_than_and_type_arguments() -> None:
    assert numbers("let %a = 1; let %b = 2; (%a < %b, %a < (%b), 1 < 2 == (2 > 1))") == (
        True,
        True,
        True,
    )
    assert numbers("let %f = fn<t>(%x: t) -> t { %x }; %f<int32>(3)") == 3
    assert type_of("let %f = fn<t>(%x: t) -> t { %x }; %f<int64>(3)") == "int64"


@pytest.mark.rule("RLY-26", "RLY-76")
def test_where_relates_the_types_of_a_signature() -> None:
    assert signature("def @f<a, b, c>(%x: a, %y: b) -> c where Broadcast { %x + %y }", "f") == (
        "fn [a, b, c](a, b) -> c where Broadcast(a, b, c)"
    )
    text = (
        "def @f<a, b, c>(%x: a, %y: b, %z: c) -> a where "
        "Identity(a, b), Identity(b, c) { %x }\n@f(1, 2, 3)"
    )
    assert numbers(text) == 1
    assert "Broadcats is not defined" in refused("fn(%x) where Broadcats { %x }", "RLY-95")


@pytest.mark.rule("RLY-77", "RLY-31")
def test_both_declarations_of_a_data_type_mean_the_same() -> None:
    one = relay.parse("data D<a> { C : (a, D[a]) -> D[a]  E : () -> D[a] } 1")
    other = relay.parse("type D[a] { C(a, D[a]), E } 1")
    assert structural_equal(one, other)
    older = "data D<a> { C : (a, D) -> D  E : () -> D } 1"  # among its constructors, D is D[a]
    assert structural_equal(relay.parse(older), other)
    assert "takes 1 type" in refused("type D[a] { C(D) } 1", "RLY-67")
    assert relay.parse("extern type Storage\n1").type_definitions
    # The constructor is declared all the same.
    with pytest.raises(ParseError, match="belongs to D") as caught:
        relay.parse("type E { F }\ndata D { C : () -> E  G : () -> D } (C, G)")
    assert [diagnostic.rule for diagnostic in caught.value.diagnostics] == ["RLY-31"]


@pytest.mark.rule("RLY-78")
def test_patterns() -> None:
    text = (
        LIST + "match((1, Cons(2, Nil))) { (%x : int32, Cons(%y, _)) => %x + %y, (_, Nil()) => 0 }"
    )
    assert numbers(text) == 3
    assert "expected a pattern" in refused("match(1) { 1 => 2 }", "RLY-78")


@pytest.mark.rule("RLY-80")
def test_free_variables_become_parameters() -> None:
    module = relay.parse("free_var %x : Tensor[(2,), float32]; %x + %x")
    assert [p.name_hint for p in module["main"].params] == ["x"]
    assert relay.create_executor(mod=module).evaluate()([1.0, 2.0]).tolist() == [2.0, 4.0]


@pytest.mark.rule("RLY-95")
def test_all_undefined_names_are_reported() -> None:
    message = refused("let %a = 1; %b + @f(%c) + foo(C) + Cons(1)", "RLY-95")
    for name in ("%b", "@f", "%c", "foo", "Cons"):
        assert f"{name} is not defined" in message
    assert "two data types" in refused("type D { A } type D { B } 1", "RLY-95")


@pytest.mark.rule("RLY-58")
@pytest.mark.parametrize(
    "text",
    [
        *("1 +", "f(", "(1]", "let %x = ; 1", "let x = 1; 1", "if (True) { 1 }", "match 1 { }"),
        *("fn %x { 1 }", "def f() { 1 }", '"text"', "1 2", "{", "}", "%", "@", "$", "a.b.c", "1.x"),
        *(
            "type",
            "data D {",
            "extern type",
            "def @f",
            "def @f(",
            "#[metadata]",
            "\0",
            "1 & 2",
            "ref()",
        ),
        *("meta[", "Constant(1)", "fn<>", "%x.", "%0 =", "match(1) { case }", "1;", "free_var %x;"),
    ],
)
def test_malformed_text_has_an_error_with_a_position(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        relay.parse(text)
    assert "RLY-" in str(caught.value)


@pytest.mark.rule("RLY-59")
@pytest.mark.parametrize(
    "text",
    [
        "(" * 20_000 + "1" + ")" * 20_000,
        "{" * 20_000 + "1" + "}" * 20_000,
        "!" * 20_000 + "True",
        " + ".join(["1"] * 5_000),
        "".join(f"let %x{i} = {i}; " for i in range(5_000)) + "1",
    ],
    ids=["brackets", "braces", "negations", "sum", "lets"],
)
def test_deep_and_long_text_is_read(text: str) -> None:
    assert relay.parse_expr(text) is not None


@pytest.mark.rule("RLY-66")
@pytest.mark.parametrize(
    "text",
    [
        "fn(%x: {}int32{}) {{ %x }}".format("(" * 1200, ",)" * 1200),
        "fn(%f: {}int32) {{ %f }}".format("fn () -> " * 1200),
        "type D {{ A, S(D) }} fn(%d: D) {{ match (%d) {{ {}A{} => 1, _ => 0 }} }}".format(
            "S(" * 2000, ")" * 2000
        ),
    ],
    ids=["tuple", "function", "pattern"],
)
def test_types_and_patterns_nest_as_deeply_as_expressions(text: str) -> None:
    module = relay.parse(text)
    assert structural_equal(relay.parse(module.astext()), module)


def _polymorphic(depth: int) -> str:
    """Functions each of which applies the one before twice: the last type has 2**depth levels."""
    lets = ["let %f0 = fn(%x) { (%x, %x) };"]
    lets += [f"let %f{i + 1} = fn(%x) {{ %f{i}(%f{i}(%x)) }};" for i in range(depth)]
    return "\n".join(lets) + f"%f{depth}"


def _entry(dtype: str, shape: list[int], data: str = "") -> str:
    table = {"relay.Constant": [{"dtype": dtype, "shape": shape, "data": data}]}
    return f"meta[relay.Constant][0]\n#[metadata]\n{json.dumps(table)}"


HOSTILE = {
    "268435456 bytes of constants": [
        "(" + ",".join(["Constant(1, (67108864,), float64)"] * 3) + ")",
        "Constant(1, (1000000, 1000000), int8)",
        "Constant(1, (999999999, 999999999, 0, 999999999), int8), Constant(1, (1000000000,), int8)",
    ],
    "visits more than 1000000 nodes of types": [_polymorphic(40)],
    "functions nested more than 1000 deep": [
        "fn() { " * 20_000 + "1" + " }" * 20_000,
        "".join(f"fn<t{i}>() {{ " for i in range(20_000)) + "1" + " }" * 20_000,
    ],
    "lists nested more than 50 deep": [
        f"reshape(1, newshape={'[' * 20_000}1{']' * 20_000})",
        f"reshape(1, newshape={'(' * 20_000}1{',)' * 20_000})",
    ],
    "at most 32 dimensions": [
        f"Constant(1, ({'1, ' * 65}), float32)",
        _entry("float32", [1] * 65, "AACAPw=="),
    ],
    "no tensor has the datatype": [
        _entry(dtype, [], "AACAPw==") for dtype in ("handle", "float32x4", "void", "")
    ],
    "no tensor has the shape": [_entry("float32", [0, 10**12, 10**12])],
    "there is no entry": [f"meta[relay.Constant][{i}]" for i in ("0000000000", "1" * 5000, "7i64")],
    "is not JSON": ["1\n#[metadata]\n" + "[" * 20_000],
    "more than 200000 tokens": ["1 + " * 120_000 + "1"],
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("reason", "text"), [(reason, text) for reason, texts in HOSTILE.items() for text in texts]
)
def test_hostile_text_is_refused_before_it_takes_time_or_memory(reason, text, monkeypatch) -> None:
    """With a lower limit of tokens than that of programs, which takes less time."""
    assert lexer.MAX_TOKENS == 1_000_000
    monkeypatch.setattr(lexer, "MAX_TOKENS", 200_000)
    with pytest.raises(ParseError, match=reason):
        relay.parse(text)


def test_entries_of_the_metadata_may_have_leading_zeros() -> None:
    module = relay.parse(_entry("float32", [], "AACAPw==").replace("[0]", "[0000000000]", 1))
    assert module["main"].body.data == 1  # type: ignore[attr-defined]
