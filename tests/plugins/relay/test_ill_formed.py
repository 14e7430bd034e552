"""Ill-formed twins of what the rules allow: the rule and the position of each error."""

import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from tests.relay_programs import LIST, NAT

TWINS = [
    # the rule, a program that breaks it, the rule and position of its first error, and its words
    ("RLY-4", "let x = 1; x", "RLY-4 1:1 local names begin with %"),
    ("RLY-5", "def @f() { 1 }\ndef @f() { 2 }", "RLY-5 2:5 @f is defined twice: also in line 1"),
    ("RLY-7", "let %y = (let %x = 1; %x);\n%x", "RLY-95 2:1 the variable %x is not defined"),
    ("RLY-7", "(fn(%a: int32) { %a })(1) + %a", "RLY-95 1:29 the variable %a is not defined"),
    ("RLY-7", NAT + "match (Z) { S(%m) => 1, Z => %m }", "RLY-95 2:30 variable %m is not defined"),
    ("RLY-11", "fn(%x: int32, %x: int32) { %x }", "RLY-85 1:3"),
    ("RLY-12", "fn(%x: int32) -> float32 {\n  %x }", "RLY-12 1:1"),
    ("RLY-14", "let %x = (%x, 1); %x", "RLY-95 1:11 %x is not defined"),
    ("RLY-16", "let %f = fn<t>(%x: t, %y: t) -> t { %x };\n%f(1i, True)", "RLY-12 2:8"),
    ("RLY-16", "fn<t>(%x: t) -> t { 1 }", "RLY-12 1:21"),
    ("RLY-17", "fn<s: Shape>(%x: s) { %x }", "RLY-17 1:18"),
    (
        "RLY-18",
        "let %f = fn<s: Shape, b: BaseType>(%x: Tensor[s, b]) { %x };\n%f(())",
        "RLY-12 2:4",
    ),
    ("RLY-19", "let %f = fn<a>() -> int32 { 1 };\n%f()", "RLY-101 2:1"),
    ("RLY-20", "let %f = fn<a>(%x: a) { %x };\n%f<int32, bool>(1)", "RLY-94 2:1"),
    ("RLY-21", "fn(%x: int32, %y: bool) -> int32 where Broadcast { %x }", "RLY-23 1:40"),
    (
        "RLY-22",
        "def @f<a, b, c>(%x: a, %y: b) -> c where Broadcast { %x + %y }\n@f(1i, True)",
        "RLY-23 2:1",
    ),
    ("RLY-23", "fn(%x: int32) { %x + True }", "RLY-23 1:17"),
    (
        "RLY-24",
        "fn(%x: Tensor[(2, 3), float32], %y: Tensor[(2,), float32]) { %x + %y }",
        "RLY-23 1:62",
    ),
    ("RLY-26", "fn(%x: int32) -> int32 where Unheard { %x }", "RLY-95 1:30"),
    ("RLY-30", "True && 1", "RLY-23 1:1"),
    ("RLY-31", "data D { C : () -> E }\ndata E { F : () -> E }\n1", "RLY-31 1:20"),
    (
        "RLY-32",
        "type D[a] { C(a) }\nfn(%x: D[int32]) { match (%x) { C(%y) => %y && True } }",
        "RLY-23 2:42",
    ),
    ("RLY-33", "type D[a] { C(b) }\n1", "RLY-95 1:15 the type b is not defined"),
    ("RLY-35", "let %x = 1; %x(2)", "RLY-35 1:13 only functions can be called"),
    ("RLY-37", "@f(1)", "RLY-95 1:1"),
    ("RLY-39", "True + 1", "RLY-23 1:1"),
    ("RLY-41", "let %t = (1, 2);\n%t.2", "RLY-41 2:1"),
    ("RLY-42", "let %x: float32 = 1i; %x", "RLY-42 1:19 expected float32, found int32"),
    ("RLY-43", "let %f = (fn() { %f }); %f", "RLY-87 1:11"),
    ("RLY-43", "let %f = fn() { %f }(); %f", "RLY-95 1:17 %f is not defined"),
    ("RLY-47", "%0 = 1\n%0 = 2\n%0", "RLY-79 2:1 bound twice"),
    ("RLY-47", "let %1 = 1; %1", "RLY-47 1:5"),
    ("RLY-50", "if True { 1 } else { 2 }", "RLY-50 1:1"),
    ("RLY-63", "(1, 1e400)", "RLY-63 1:5"),
    ("RLY-95", "%x = 1; %x", "RLY-95 1:1"),
    ("RLY-101", "def @f() {\n  let %f = add; %f }", "RLY-101 2:3"),
    ("RLY-49", "if (1) { 2 } else { 3 }", "RLY-49 1:5"),
    ("RLY-50", "if (True) { 1 }", "RLY-50 1:15"),
    ("RLY-52", NAT + "match (Z) { S(%x, %y) => 1, Z => 2 }", "RLY-91 2:13"),
    ("RLY-53", NAT + "match (Z) { S(S(1)) => 1, _ => 2 }", "RLY-78 2:17"),
    ("RLY-58", "def @f(%x: int32) { %x", "RLY-58 1:19"),
    ("RLY-60", "let %1x = 2; %1x", "RLY-60 1:5"),
    ("RLY-60", "foo..bar(1)", "RLY-95 1:1"),
    ("RLY-61", "/* open\n1", "RLY-61 1:1"),
    ("RLY-62", "300i8", "RLY-62 1:1"),
    ("RLY-62", "(1,\n 70000i16)", "RLY-62 2:2"),
    ("RLY-63", "(fn(%x: int8) { %x })(300)", "RLY-12 1:23"),
    ("RLY-63", "(fn(%x: int32) { %x })(1.5)", "RLY-12 1:24"),
    ("RLY-64", "Constant((1, 2), (2,), float32)", "RLY-64 1:10"),
    ("RLY-64", "Constant(300, (2,), int8)", "RLY-64 1:10 does not fit"),
    ("RLY-65", "meta[relay.Constant][3]", "RLY-65 1:22 no entry 3"),
    ("RLY-66", "fn(%x: Tensor[2, float32]) { %x }", "RLY-66 1:15"),
    ("RLY-67", "type D[a] { C(a) }\nfn(%x: D) { 1 }", "RLY-67 2:8 takes 1 type"),
    *(
        ("RLY-68", f"fn(%x: Tensor[({n},), float32]) {{ 1 }}", "RLY-68 1:16 a dimension")
        for n in ("-1", "1.5", "%x")
    ),
    ("RLY-69", "1 +\n* 2", "RLY-1 2:1"),
    ("RLY-70", "(1, 2).x", "RLY-59 1:7"),
    ("RLY-71", "nn.relu(1f, alpha=2f)", "RLY-71 1:13"),
    ("RLY-71", "nn.softmax(Constant(1, (2,), float32), axis=0.0)", "RLY-71 1:40"),
    ("RLY-72", "(,)", "RLY-1 1:2"),
    ("RLY-73", "{ 1; }", "RLY-1 1:6"),
    ("RLY-74", "fn<t: Kinds>(%x: t) { %x }", "RLY-17 1:7 not a kind"),
    ("RLY-75", "let %f = fn<a>(%x: a) { %x };\n%f<3>(1)", "RLY-17 2:1"),
    ("RLY-76", "fn<a, b>(%x: a) -> b where Broadcast(a { %x }", "RLY-58 1:37"),
    ("RLY-77", "type D { C(E) }\n1", "RLY-95 1:12"),
    ("RLY-78", NAT + "match (Z) { case Z => 1 }", "RLY-78 2:20"),
    ("RLY-79", "%1", "RLY-79 1:1 before it is bound"),
    ("RLY-80", "free_var x; 1", "RLY-80 1:1"),
    ("RLY-81", "ref()", "RLY-81 1:1"),
    ("RLY-85", "let %f = fn(%x: int32) { %x }; %f(True)", "RLY-12 1:35"),
    ("RLY-86", "type D { C }\ntype E { F }\n(fn(%x: D[]) { 1 })(F)", "RLY-12 3:21"),
    ("RLY-87", "fn(%x) { %x(%x) }", "RLY-87 1:10 contain itself"),
    ("RLY-89", "if (True) { 1i }\nelse { () }", "RLY-89 2:8"),
    ("RLY-90", NAT + "match (Z) { Z => 1i, _ => () }", "RLY-90 2:27"),
    ("RLY-91", "match ((1, 2)) { (%x, %y, %z) => %x }", "RLY-91 1:18"),
    ("RLY-92", "match ((1, 2)) { (%x, %x) => %x }", "RLY-92 1:23 binds %x twice"),
    ("RLY-93", NAT + "fn(%n: Nat) {\n  match (%n) { S(_) => 1 } }", "RLY-93 3:3"),
    ("RLY-94", "(fn(%x: int32) { %x })(1, 2)", "RLY-94 1:1"),
    ("RLY-95", "type D { A }\ntype E { A }\n1", "RLY-95 2:10 two constructors"),
    ("RLY-96", "let %f: fn(int32) -> int32 = add; %f(1)", "RLY-42 1:1"),
    ("RLY-97", "(fn(%id) { (%id(1i), %id(True)) })(fn<t>(%x: t) -> t { %x })", "RLY-12 1:26"),
    ("RLY-98", "let %f = fn(%x) { %x + 1 };\n(%f(2f), %f(2i))", "RLY-12 2:13"),
    (
        "RLY-99",
        "def @f<a>(%x: a, %y: a) -> a where Broadcast(a, a, a) { %x + %y }\n@f((), ())",
        "RLY-23 2:1",
    ),
    ("RLY-101", "fn(%t) { %t.0 }", "RLY-101 1:10 annotate"),
    ("RLY-102", "sqrt((1f, 2f))", "RLY-23 1:1"),
    ("RLY-102", "1i < 2f", "RLY-23 1:1"),
    ("RLY-103", "fn(%x: Tensor[(?, 2), int8], %y: Tensor[(3,), int8]) { %x + %y }", "RLY-23 1:56"),
    ("RLY-104", "(fn(%t) { %t.3 })((1, 2))", "RLY-41 1:11"),
    ("RLY-105", "ref_read(1)", "RLY-105 1:10 expected ref(_), found int32"),
    ("RLY-105", "ref_write(ref(1i), True)", "RLY-105 1:20"),
    (
        "RLY-12",
        "(fn(%x: int32) -> int32 { %x })(True)",
        "RLY-12 1:33 argument 1 of the function: expected int32, found bool",
    ),
    ("RLY-12", "fn(%x: int32) -> bool { %x }", "RLY-12 1:1 the body of the function"),
    ("RLY-12", "fn(%y: bool) {\n  (fn(%x: int32) { %x })(%y) }", "RLY-12 2:3"),
    (
        "RLY-12",
        "(fn(%x: (int32, float32)) { %x })((1, True))",
        "RLY-12 1:35 note: float32 is not bool",
    ),
    ("RLY-17", "fn<t : Type>(%x : Tensor[t, float32]) { %x }", "RLY-17 1:26 which is of kind"),
    ("RLY-17", "fn<b : BaseType>(%x : b) { %x }", "RLY-17 1:23 which is of kind"),
    ("RLY-17", "fn<n : ShapeVar>(%x : Tensor[n, float32]) { %x }", "RLY-17 1:30 which is of kind"),
    ("RLY-17", "fn<s : Shape>(%x : Tensor[(s,), float32]) { %x }", "RLY-17 1:28 which is of kind"),
    ("RLY-17", "fn<n : ShapeVar>(%x : Tensor[(2,), n]) { %x }", "RLY-17 1:36 which is of kind"),
    (
        "RLY-18",
        "let %f = fn<s: Shape, b: BaseType>(%x: Tensor[s, b]) { %x }; %f((1, 2))",
        "RLY-12 1:65",
    ),
    ("RLY-19", "let %f = fn<a, b>(%x: a, %y: b) -> a { %x }; %f<bool>(1, True)", "RLY-12 1:55"),
    (
        "RLY-19",
        "let %f = fn<a, b>(%x: a, %y: b) -> a { %x }; %f<int8, int8, int8>(1, 2)",
        "RLY-94 1:46 type argument",
    ),
    (
        "RLY-22",
        "def @f<a, b, c>(%x: a, %y: b) -> c where Broadcast { %x + %y }\n"
        "@f(Constant(1, (2,), int8), Constant(1, (3,), int8))",
        "RLY-23 2:1",
    ),
    (
        "RLY-23",
        "Constant(1, (2,), float32) + Constant(1, (3,), float32)",
        "RLY-23 1:1 neither equal nor 1",
    ),
    (
        "RLY-23",
        "Constant(1, (2, 3), float32) + Constant(1, (2,), float32)",
        "RLY-23 1:1 neither equal nor 1",
    ),
    ("RLY-24", "1i + 1f", "RLY-23 1:1"),
    ("RLY-24", "(1, 2) + 3", "RLY-23 1:1 expected a tensor"),
    ("RLY-41", "(1, 2).2", "RLY-41 1:1 index 2 is out of range"),
    ("RLY-49", "if (Constant(True, (1,), bool)) { 1 } else { 2 }", "RLY-49 1:5"),
    ("RLY-91", NAT + "match (1) { case Z { 1 } case _ { 2 } }", "RLY-91 2:18"),
    ("RLY-91", NAT + "match (Z) { case S { 1 } case _ { 2 } }", "RLY-91 2:18"),
    ("RLY-91", "match (1) { %x : bool => 1 }", "RLY-91 1:13"),
    ("RLY-94", "(fn() { 1 })(2)", "RLY-94 1:1"),
    ("RLY-94", "(fn(%x: int32) { 1 })()", "RLY-94 1:1"),
    ("RLY-94", "add(1)", "RLY-94 1:1"),
    ("RLY-94", "add(1, 2, 3)", "RLY-94 1:1"),
    ("RLY-94", NAT + "S()", "RLY-94 2:1"),
    ("RLY-94", NAT + "Z(1)", "RLY-94 2:1"),
    ("RLY-98", "let %f = fn(%x) { %x + 1 }; 2", "RLY-101 1:19"),
    ("RLY-101", LIST + "match (Nil) { Nil => 1, Cons(_, _) => 2 }", "RLY-101 2:8 annotate"),
    (
        "RLY-98",
        "let %f = fn(%x) { exp(%x) }; %f((1f, 2f))",
        "RLY-23 1:19 exp of (float32, float32): expected a tensor",
    ),
    ("RLY-98", "fn(%x) { exp(%x) }", "RLY-101 1:10"),
    (
        "RLY-63",
        "(fn(%x: ()) { %x })((1.5, 3000000000))",
        "RLY-12 1:21 expected (), found (float32, int64)",
    ),
    ("RLY-105", "ref_write(ref(True), ())", "RLY-105 1:22"),
    ("RLY-109", "match (1) { (%x, _) => %x }", "RLY-91 1:13"),
]


@pytest.mark.rule("RLY-5", "RLY-7", "RLY-12", "RLY-33", "RLY-35", "RLY-49", "RLY-68", "RLY-89")
@pytest.mark.rule("RLY-90", "RLY-91", "RLY-92")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(text, expected, marks=pytest.mark.rule(rule), id=f"{rule}-{number}")
        for number, (rule, text, expected) in enumerate(TWINS)
    ],
)
def test_what_a_rule_forbids_is_refused_where_it_stands(text: str, expected: str) -> None:
    with pytest.raises(RelaxpyError) as caught:
        relay.parse(text)
    first = caught.value.diagnostics[0]
    assert first.span is not None
    place = f"{first.rule} {first.span.line}:{first.span.column}"
    assert place == " ".join(expected.split()[:2]), str(caught.value)
    assert expected.removeprefix(place).strip() in str(caught.value)
    follow = (first.rule, "RLY-59")  # what is left of a text that cannot be read to its end
    assert all(d.span is not None and d.rule in follow for d in caught.value.diagnostics)
