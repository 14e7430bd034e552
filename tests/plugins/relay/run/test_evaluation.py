"""Values of Relay programs."""

from ast import literal_eval

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RuntimeCheckError
from tests.relay_programs import LIST, NAT, numbers, plain, prelude, value
from tests.rows import sections

#: Facts and values, each before the program; $NAT, $INC and $LOG stand for definitions.
VALUES = sections(r"""
--- every construct is an expression: (9, (), 6)
$NAT
((if (True) { 1 } else { 2 }) + (match (Z) { case Z { 3 } case _ { 4 } }) + { let %x = 5; %x },
 ref_write(ref(1), 2), fn() { 6 }())
--- recursion in recursion: (1, 5, 9)
def @ackermann(%m : Tensor[(), int32], %n : Tensor[(), int32]) -> Tensor[(), int32] {
    if (%m == 0) {
        %n + 1
    } else if (%m > 0 && %n == 0) {
        @ackermann(%m - 1, 1)
    } else {
        @ackermann(%m - 1, @ackermann(%m, %n - 1))
    }
}
(@ackermann(0, 0), @ackermann(1, 3), @ackermann(2, 3))
--- a reference means its definition: (12, 12)
def @f(%x: int32) -> int32 { %x * 2 }
(@f(@f(3)), (fn(%x: int32) -> int32 { %x * 2 })((fn(%x: int32) -> int32 { %x * 2 })(3)))
--- functions are bound, passed and returned: 7
let %twice = fn(%f, %x) { %f(%f(%x)) }; let %add = fn(%n) { fn(%x) { %x + %n } };
%twice(%add(3), 1)
--- functions of lets are recursive: 120
let %f = fn(%n: int32) -> int32 { if (%n == 0) { 1 } else { %n * %f(%n - 1) } }; %f(5)
--- closures keep the values of their variables: 22
let %c = 1; let %f = fn(%x : float32, %y : float32) { %x + %y + %c }; let %c = 100.0; %f(10, 11)
--- tuples and projections: (2.5, (), 1)
let %t = (1, (2.5, True), ()); (%t.1.0, %t.2, %t.0)
--- a shared node is evaluated once: (1, 1, 2)
$INC %0 = %inc()
(%0, %0, %inc())
--- equal nodes are evaluated each: (1, 2)
$INC (%inc(), %inc())
--- a shared node is evaluated once in each call: (2, 4)
$INC let %f = fn() { %0 = %inc()
%0 + %0 }; (%f(), %f())
--- the line of a graph binding has no influence: (2, 2)
let %r = ref(1); %0 = ref_read(%r)
let %u = ref_write(%r, 2); (%0, %0)
--- only the chosen branch is evaluated: (2, 0)
let %r = ref(0);
let %x = if (False) { ref_write(%r, 1); 1 } else if (True) { 2 } else { ref_write(%r, 3); 3 };
(%x, ref_read(%r))
--- the first clause that fits is evaluated: ("Z", "S(Z)", "Z")
$NAT def @f(%v: Nat[]) -> Nat[] { match(%v) { case S(S(%n)) { %n } case _ { %v } } }
(@f(Z), @f(S(Z)), @f(S(S(Z))))
--- later clauses are not evaluated: ("Z", "S(Z)", "S(S(Z))")
$NAT def @f(%v: Nat[]) -> Nat[] {
    match(%v) { case _ { %v } case S(S(%n)) { S(%n) } case S(%n) { %n } case Z() { S(Z()) } }
}
(@f(Z), @f(S(Z)), @f(S(S(Z))))
--- fields of an instance are bound: ("Z", "Z", "S(Z)")
$NAT def @f(%v: Nat[]) -> Nat[] { match(%v) { case Z() { Z() } case S(%n) { %n } } }
(@f(Z), @f(S(Z)), @f(S(S(Z))))
--- variable and tuple patterns: 4
$NAT match((1, (Z, 3))) { (%x, (S(_), _)) => 0, (%x, (%y, %z)) => %x + %z }
--- fields and operands are evaluated from left to right: 1234
$LOG (%put(1), %put(2)); (%put(3) + %put(4)); ref_read(%r)
--- a callee is evaluated before its arguments, whether it uses them or not: 123
$LOG (%put(1); fn(%a, %b) { %a })(%put(2), %put(3)); ref_read(%r)
--- both operands of logic are evaluated: 1234
$LOG !%yes(1) && %yes(2); %yes(3) || %yes(4); ref_read(%r)
--- cells are shared by all their holders: (1, 5, 5, 5)
let %r = ref(1); let %t = (%r, %r); let %get = fn() { ref_read(%r) };
let %a = %get(); ref_write(%t.0, 5); let %b = ref_read(%t.1); let %q = ref(1);
ref_write(%q, 7); (%a, %b, %get(), ref_read(%r))
--- recursion is not limited by the stack of Python: (3000, 3000)
def @down(%n: int32) -> int32 { if (%n == 0) { 0 } else { 1 + @down(%n - 1) } }
def @loop(%n: int32, %a: int32) -> int32 { if (%n == 0) { %a } else { @loop(%n - 1, %a + 1) } }
(@down(3000), @loop(3000, 0))
--- a closure writes what the function around it reads: 5
%0 = ref(1)
let %f = fn() { ref_write(%0, 5) }; let %u = %f(); ref_read(%0)
--- a closure reads what the function around it wrote: 5
%0 = ref(1)
let %f = fn() { ref_read(%0) }; let %u = ref_write(%0, 5); %f()
--- each call has its own shared nodes: 10
let %f = fn() { %0 = ref(1)
let %u = ref_write(%0, 5); ref_read(%0) }; %f() + %f()
--- closures of two calls share nothing: (2, 1)
let %f = fn() { %0 = ref(1)
(fn() { ref_write(%0, ref_read(%0) + 1) }, %0) };
let %a = %f(); let %b = %f(); let %u = %a.0(); (ref_read(%a.1), ref_read(%b.1))
""")
DEFINITIONS = {
    "$NAT": NAT,
    "$INC": """
let %r = ref(0); let %inc = fn() { ref_write(%r, ref_read(%r) + 1); ref_read(%r) };
""",
    "$LOG": """
let %r = ref(0);
let %put = fn(%d: int32) { ref_write(%r, ref_read(%r) * 10 + %d); %d };
let %yes = fn(%d: int32) { %put(%d); True };
""",
}


@pytest.mark.rule("RLY-1", "RLY-6", "RLY-10", "RLY-14", "RLY-15", "RLY-36", "RLY-38", "RLY-40")
@pytest.mark.rule("RLY-41", "RLY-45", "RLY-50", "RLY-51", "RLY-52", "RLY-53", "RLY-54", "RLY-106")
@pytest.mark.rule("RLY-107", "RLY-108", "RLY-109", "RLY-110")
@pytest.mark.parametrize("fact", VALUES)
def test_programs_have_values(fact: str) -> None:
    text = VALUES[fact]
    for name, definition in DEFINITIONS.items():
        text = text.replace(name, definition)
    assert numbers(text) == literal_eval(fact.rpartition(": ")[2])


@pytest.mark.rule("RLY-34")
def test_an_instance_has_the_tag_and_the_fields() -> None:
    result = value(LIST + "Cons(1, Nil)")
    assert isinstance(result, relay.ConstructorValue)
    assert result.constructor.name_hint == "Cons"
    assert result.tag == result.constructor.tag
    assert result.fields[0] == 1
    assert result.fields[1].fields == ()


@pytest.mark.rule("RLY-55")
def test_a_partial_match_fails_with_the_value() -> None:
    with pytest.raises(RuntimeCheckError, match=r"no clause fits S\(Z\)"):
        value(NAT + "match?(S(Z)) { case Z { 1 } }")


@pytest.mark.rule("RLY-88")
@pytest.mark.parametrize(
    "text",
    [
        "def @f(%x: Tensor[(?,), int32]) { (fn(%y: Tensor[(3,), int32]) { %y })(%x) }",
        "def @f(%x: Tensor[(?,), int32]) -> Tensor[(3,), int32] { %x }",
        "def @f(%x: Tensor[(?,), int32]) { let %y : Tensor[(3,), int32] = %x; %y }",
        "def @f(%x: Tensor[(?,), int32]) { match((%x, 1)) { (%y "
        ": Tensor[(3,), int32], _) => %y } }",
        "def @f(%x: Tensor[(?,), int32]) { %x + Constant(0, (3,), int32) }",
    ],
)
def test_sizes_are_checked_when_the_value_arrives(text: str) -> None:
    function = relay.create_executor(mod=relay.parse(text + "\n1"))
    f = function.evaluate(relay.parse(text + "\n1").get_global_var("f"))
    assert f(np.arange(3, dtype="int32")).tolist() == [0, 1, 2]
    with pytest.raises(RuntimeCheckError):
        f(np.arange(2, dtype="int32"))


@pytest.mark.rule("RLY-112")
def test_running_a_module_calls_main() -> None:
    module = relay.parse("def @main(%x: int32, %y: float32) { (%x, %y) }\ndef @g() { 2 }")
    main = relay.create_executor(mod=module).evaluate()
    assert plain(main(1, 2)) == (1, 2.0)
    assert plain(main(1, y=2)) == (1, 2.0)
    with pytest.raises(TypeError):
        main(1)
    with pytest.raises(TypeError):
        main(True, [1])
    assert numbers("3 * 2") == 6


@pytest.mark.rule("RLY-112")
@pytest.mark.parametrize("kind", ["debug", "vm", "graph", "aot"])
def test_executors(kind: str) -> None:
    executor = relay.create_executor(kind, prelude())
    x = relay.var("x", "int32")
    assert executor.evaluate(x + relay.const(1), {x: 4}) == 5
    f = executor.evaluate(relay.Function([x], x * x))
    assert f(3) == 9
    adder = executor.evaluate(relay.parse_expr("fn(%a: int32) { fn(%b: int32) { %a - %b } }"))
    assert adder(5)(2) == 3
    with pytest.raises(ValueError, match="no executor"):
        relay.create_executor(f"{kind}s")


@pytest.mark.rule("RLY-113")
@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("@id(3)", 3),
        ("@compose(fn(%x) { %x * 2 }, fn(%x) { %x + 1 })(3)", 8),
        ("@flip(fn(%x, %y) { %x - %y })(1, 5)", 4),
        ("@hd(%l)", 1),
        ("@tl(%l)", "Cons(2, Cons(3, Nil))"),
        ("@nth(%l, 2)", 3),
        ("@length(%l)", 3),
        ("@update(%l, 1, 7)", "Cons(1, Cons(7, Cons(3, Nil)))"),
        ("@map(fn(%x) { %x * %x }, %l)", "Cons(1, Cons(4, Cons(9, Nil)))"),
        ("@foldl(fn(%a, %x) { %a * 10 + %x }, 0, %l)", 123),
        ("@foldr(fn(%x, %a) { %a * 10 + %x }, 0, %l)", 321),
        ("@foldr1(fn(%x, %y) { %x - %y }, %l)", 2),
        ("@sum(%l)", 6),
        ("@concat(%l, Cons(4, Nil))", "Cons(1, Cons(2, Cons(3, Cons(4, Nil))))"),
        ("@filter(fn(%x) { %x > 1 }, %l)", "Cons(2, Cons(3, Nil))"),
        ("@zip(%l, Cons(True, Nil))", "Cons((1, True), Nil)"),
        ("@rev(%l)", "Cons(3, Cons(2, Cons(1, Nil)))"),
        (
            "@map_accumr(fn(%a, %x) { (%a + %x, %a * %x) }, 0, %l)",
            (6, "Cons(5, Cons(6, Cons(0, Nil)))"),
        ),
        (
            "@map_accuml(fn(%a, %x) { (%a + %x, %a * %x) }, 0, %l)",
            (6, "Cons(9, Cons(2, Cons(0, Nil)))"),
        ),
        (
            "@unfoldr(fn(%n) { if (%n > 2) { None } else { Some((%n + 1, %n)) } }, 0)",
            "Cons(0, Cons(1, Cons(2, Nil)))",
        ),
        (
            "@unfoldl(fn(%n) { if (%n > 2) { None } else { Some((%n + 1, %n)) } }, 0)",
            "Cons(2, Cons(1, Cons(0, Nil)))",
        ),
        (
            "@tmap(fn(%x) { %x + 1 }, Rose(1, Cons(Rose(2, Nil), Nil)))",
            "Rose(2, Cons(Rose(3, Nil), Nil))",
        ),
        ("@size(Rose(1, Cons(Rose(2, Nil), Nil)))", 2),
        ("@iterate(fn(%x) { %x * 2 }, 5)(1)", 32),
    ],
)
def test_the_prelude(text: str, result: object) -> None:
    assert numbers(f"let %l = Cons(1, Cons(2, Cons(3, Nil))); {text}", prelude()) == result


@pytest.mark.rule("RLY-113")
@pytest.mark.parametrize(
    "call",
    [
        "@hd(%e)",
        "@tl(%e)",
        "@nth(%e, 0)",
        "@update(%e, 0, 1)",
        "@foldr1(fn(%x, %y) { %x + %y }, %e)",
    ],
)
def test_partial_functions_of_the_prelude_fail_on_the_empty_list(call: str) -> None:
    with pytest.raises(RuntimeCheckError, match="no clause fits Nil"):
        value(f"let %e : List[int32] = Nil; {call}", prelude())


@pytest.mark.rule("RLY-113")
def test_other_files_of_the_standard_library() -> None:
    module = relay.IRModule()
    module.import_from_std("nat.rly")
    assert (
        numbers("@nat_add(succ(zero), @nat_double(succ(zero)))", module) == "succ(succ(succ(zero)))"
    )
    with pytest.raises(ValueError, match="no file"):
        module.import_from_std("preludes.rly")


@pytest.mark.rule("RLY-28")
def test_an_operator_of_the_user_runs() -> None:
    from relaxpy import te

    op = relay.op.register("test.double", "Twice the operand.")
    try:
        op.set_num_inputs(1)
        op.add_argument("data", "Tensor", "The operand.")
        op.add_type_rel("Identity")
        relay.op.register_compute(
            "test.double",
            lambda attrs, inputs, out_type: [
                te.compute(inputs[0].shape, lambda *i: inputs[0][i] * 2, name="double")
            ],
        )
        assert numbers("test.double(Constant(3, (2,), int32))") == [6, 6]
    finally:
        relay.op.Op._table.pop("test.double")


VIEW = "def @view(%x: Tensor[(?,), float32]) -> Tensor[(?,), float32] { %x }\n"


@pytest.mark.rule("RLY-88")
@pytest.mark.parametrize(
    "body",
    [
        "let %l: List[Tensor[(3,), float32]] = Cons(@view(%x), Nil()); @hd(%l)",
        "let %l: List[(int32, Tensor[(3,), float32])] = Cons((1, @view(%x)), Nil()); @length(%l)",
        "let %r: ref(Tensor[(3,), float32]) = ref(@view(%x)); ref_read(%r)",
        "let %r = ref(Constant(0, (3,), float32)); ref_write(%r, @view(%x)); ref_read(%r)",
        "match (Some(@view(%x))) { Some(%a: Tensor[(3,), float32]) => sum(%a), None => 0f }",
    ],
)
def test_sizes_are_checked_in_instances_and_cells(body: str) -> None:
    module = relay.parse(
        f"{VIEW} fn(%x: Tensor[(?,), float32]) {{ {body} }}", init_module=prelude()
    )
    run = relay.create_executor(mod=module).evaluate()
    run(np.ones(3, "float32"))
    message = r"expected Tensor\[\(3,\), float32\], found Tensor\[\(4,\), float32\] \[RLY-88\]"
    with pytest.raises(RuntimeCheckError, match=message):
        run(np.ones(4, "float32"))


@pytest.mark.rule("RLY-88")
def test_values_that_share_much_are_checked_once() -> None:
    pairs = "".join(f"let %p{i} = (%p{i - 1}, %p{i - 1});" for i in range(1, 30))
    module = relay.parse(f"{VIEW} fn(%x: Tensor[(?,), float32]) {{ let %p0 = %x; {pairs} %p29.0 }}")
    found = relay.create_executor(mod=module).evaluate()(np.ones(3, "float32"))
    for _ in range(28):
        found = found[1]
    assert found.tolist() == [1, 1, 1]
