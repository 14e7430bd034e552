"""Values of Relay programs."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RuntimeCheckError
from tests.relay_programs import LIST, NAT, numbers, plain, prelude, value

ACKERMANN = """
def @ackermann(%m : Tensor[(), int32], %n : Tensor[(), int32]) -> Tensor[(), int32] {
    if (%m == 0) {
        %n + 1
    } else if (%m > 0 && %n == 0) {
        @ackermann(%m - 1, 1)
    } else {
        @ackermann(%m - 1, @ackermann(%m, %n - 1))
    }
}
"""


@pytest.mark.rule("RLY-1")
def test_every_construct_is_an_expression() -> None:
    text = (
        NAT
        + """
    ((if (True) { 1 } else { 2 }) + (match (Z) { case Z { 3 } case _ { 4 } }) + { let %x = 5; %x },
     ref_write(ref(1), 2), fn() { 6 }())
    """
    )
    assert numbers(text) == (9, (), 6)


@pytest.mark.rule("RLY-38")
@pytest.mark.parametrize(("m", "n", "result"), [(0, 0, 1), (1, 3, 5), (2, 3, 9)])
def test_ackermann(m: int, n: int, result: int) -> None:
    assert numbers(f"{ACKERMANN}@ackermann({m}, {n})") == result


@pytest.mark.rule("RLY-6")
def test_a_reference_means_its_definition() -> None:
    body = "fn(%x: int32) -> int32 { %x * 2 }"
    assert numbers("def @f(%x: int32) -> int32 { %x * 2 }\n@f(@f(3))") == 12
    assert numbers(f"({body})(({body})(3))") == 12


@pytest.mark.rule("RLY-10")
def test_functions_are_bound_passed_and_returned() -> None:
    text = (
        "let %twice = fn(%f, %x) { %f(%f(%x)) }; let %add = fn(%n) { "
        "fn(%x) { %x + %n } }; %twice(%add(3), 1)"
    )
    assert numbers(text) == 7


@pytest.mark.rule("RLY-14")
def test_functions_of_lets_are_recursive() -> None:
    text = "let %f = fn(%n: int32) -> int32 { if (%n == 0) { 1 } else { %n * %f(%n - 1) } }; %f(5)"
    assert numbers(text) == 120


@pytest.mark.rule("RLY-15", "RLY-36")
def test_closures_keep_the_values_of_their_variables() -> None:
    text = (
        "let %c = 1; let %f = fn(%x : float32, %y : float32) { %x "
        "+ %y + %c }; let %c = 100.0; %f(10, 11)"
    )
    assert numbers(text) == 22


@pytest.mark.rule("RLY-34")
def test_an_instance_has_the_tag_and_the_fields() -> None:
    result = value(LIST + "Cons(1, Nil)")
    assert isinstance(result, relay.ConstructorValue)
    assert result.constructor.name_hint == "Cons"
    assert result.tag == result.constructor.tag
    assert result.fields[0] == 1
    assert result.fields[1].fields == ()


@pytest.mark.rule("RLY-40", "RLY-41")
def test_tuples_and_projections() -> None:
    assert numbers("let %t = (1, (2.5, True), ()); (%t.1.0, %t.2, %t.0)") == (2.5, (), 1)


@pytest.mark.rule("RLY-45", "RLY-110")
def test_a_shared_node_is_evaluated_once() -> None:
    count = "let %r = ref(0); let %inc = fn() { ref_write(%r, ref_read(%r) + 1); ref_read(%r) };"
    assert numbers(f"{count} %0 = %inc()\n(%0, %0, %inc())") == (1, 1, 2)
    assert numbers(f"{count} (%inc(), %inc())") == (1, 2)
    body = "%0 = %inc()\n%0 + %0"
    assert numbers(f"{count} let %f = fn() {{ {body} }}; (%f(), %f())") == (2, 4)


@pytest.mark.rule("RLY-110")
def test_the_line_of_a_graph_binding_has_no_influence() -> None:
    text = "let %r = ref(1); %0 = ref_read(%r)\nlet %u = ref_write(%r, 2); (%0, %0)"
    assert numbers(text) == (2, 2)


@pytest.mark.rule("RLY-50")
def test_only_the_chosen_branch_is_evaluated() -> None:
    text = (
        "let %r = ref(0); let %x = if (False) { ref_write(%r, 1); 1 } else if "
        "(True) { 2 } else { ref_write(%r, 3); 3 }; (%x, ref_read(%r))"
    )
    assert numbers(text) == (2, 0)


@pytest.mark.rule("RLY-51", "RLY-52", "RLY-53", "RLY-54")
@pytest.mark.parametrize(
    ("clauses", "results"),
    [
        ("case S(S(%n)) { %n } case _ { %v }", ("Z", "S(Z)", "Z")),
        (
            "case _ { %v } case S(S(%n)) { S(%n) } case S(%n) { %n } case Z() { S(Z()) }",
            ("Z", "S(Z)", "S(S(Z))"),
        ),
        ("case Z() { Z() } case S(%n) { %n }", ("Z", "Z", "S(Z)")),
    ],
)
def test_the_first_fitting_clause_is_evaluated(clauses: str, results: tuple[str, ...]) -> None:
    text = (
        f"{NAT}def @f(%v: Nat[]) -> Nat[] {{ match(%v) {{ "
        f"{clauses} }} }}\n(@f(Z), @f(S(Z)), @f(S(S(Z))))"
    )
    assert numbers(text) == results


@pytest.mark.rule("RLY-109")
def test_variable_and_tuple_patterns() -> None:
    assert (
        numbers(NAT + "match((1, (Z, 3))) { (%x, (S(_), _)) => 0, (%x, (%y, %z)) => %x + %z }") == 4
    )


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


@pytest.mark.rule("RLY-106")
def test_evaluation_is_from_left_to_right_and_strict() -> None:
    log = """
    let %r = ref(0);
    let %put = fn(%d: int32) { ref_write(%r, ref_read(%r) * 10 + %d); %d };
    let %yes = fn(%d: int32) { %put(%d); True };
    """
    assert numbers(log + "(%put(1), %put(2)); (%put(3) + %put(4)); ref_read(%r)") == 1234
    assert numbers(log + "(%put(1); fn(%a, %b) { %a })(%put(2), %put(3)); ref_read(%r)") == 123
    assert numbers(log + "!%yes(1) && %yes(2); %yes(3) || %yes(4); ref_read(%r)") == 1234


@pytest.mark.rule("RLY-107", "RLY-108")
def test_cells_are_shared_by_all_their_holders() -> None:
    text = """
    let %r = ref(1); let %t = (%r, %r); let %get = fn() { ref_read(%r) };
    let %a = %get(); ref_write(%t.0, 5); let %b = ref_read(%t.1); let %q = ref(1);
    ref_write(%q, 7); (%a, %b, %get(), ref_read(%r))
    """
    assert numbers(text) == (1, 5, 5, 5)


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


@pytest.mark.rule("RLY-1")
def test_recursion_is_not_limited_by_the_stack_of_python() -> None:
    text = """
    def @down(%n: int32) -> int32 { if (%n == 0) { 0 } else { 1 + @down(%n - 1) } }
    def @loop(%n: int32, %a: int32) -> int32 { if (%n == 0) { %a } else { @loop(%n - 1, %a + 1) } }
    (@down(3000), @loop(3000, 0))
    """
    assert numbers(text) == (3000, 3000)


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


@pytest.mark.rule("RLY-110")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%0 = ref(1)\nlet %f = fn() { ref_write(%0, 5) }; let %u = %f(); ref_read(%0)", 5),
        ("%0 = ref(1)\nlet %f = fn() { ref_read(%0) }; let %u = ref_write(%0, 5); %f()", 5),
        ("let %f = fn() { %0 = ref(1)\nlet %u = ref_write(%0, 5); ref_read(%0) }; %f() + %f()", 10),
        (
            "let %f = fn() { %0 = ref(1)\n(fn() { ref_write(%0, ref_read(%0) + 1) }, %0) };"
            "let %a = %f(); let %b = %f(); let %u = %a.0(); (ref_read(%a.1), ref_read(%b.1))",
            (2, 1),
        ),
    ],
)
def test_a_closure_shares_expressions_with_the_function_around_it(text, expected) -> None:
    assert numbers(text) == expected


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
