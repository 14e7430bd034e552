"""PartialEvaluate: what is known disappears, what is not stays, and the pass ends."""

import re

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RuntimeCheckError
from relaxpy.ir import structural_equal
from relaxpy.relay import transform
from tests.relay_programs import LIST, NAT, prelude, result_of


def evaluated(text: str, module: relay.IRModule | None = None) -> relay.IRModule:
    """A program after the pass, without the lets that became useless."""
    result = transform.PartialEvaluate()(relay.parse(text, init_module=module))
    return transform.DeadCodeElimination(inline_once=True)(result)


@pytest.mark.rule("RLY-1")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("let %f = fn(%x: int32) { %x + 1 }; %f(2) * 3", "9"),
        ("fn(%d: int32) { let %t = (%d, 2); %t.0 + %t.1 }", "fn(%d: int32) { %d + 2 }"),
        (
            "fn(%d: float32) { (fn(%f: fn(float32) -> float32) { %f(%f(%d)) })"
            "(fn(%x) { %x * 2f }) }",
            "fn(%d: float32) { %d * 2f * 2f }",
        ),
        ("fn(%d: int32) { if (1 < 2) { %d } else { %d + 1 } }", "fn(%d: int32) { %d }"),
        (
            LIST + "fn(%d: int32) { match (Cons(%d, Nil)) { Cons(%x, _) => %x, Nil => 0 } }",
            LIST + "fn(%d: int32) { %d }",
        ),
        (
            "def @power(%n: int32, %x: int32) -> int32 "
            "{ if (%n == 0) { 1 } else { %x * @power(%n - 1, %x) } }"
            "fn(%d: int32) { @power(3, %d) }",
            "def @power(%n: int32, %x: int32) -> int32 "
            "{ if (%n == 0) { 1 } else { %x * @power(%n - 1, %x) } }"
            "fn(%d: int32) { %d * (%d * (%d * 1)) }",
        ),
        (
            "fn(%d: int32) { let %up = fn(%n: int32, %x: int32) -> int32 "
            "{ if (%n == 3) { %x } else { %up(%n + 1, %x * 2) } }; %up(0, %d) }",
            "fn(%d: int32) { %d * 2 * 2 * 2 }",
        ),
        ("let %id = fn<t>(%x: t) -> t { %x }; (%id(1), %id(()))", "(1, ())"),
        (
            "fn(%d: int32) { match ((1, %d)) { (%a, %b) => %a + %b } }",
            "fn(%d: int32) { 1 + %d }",
        ),
    ],
)  # fmt: skip
def test_what_is_known_is_evaluated(text: str, expected: str) -> None:
    result = evaluated(text)
    assert structural_equal(result["main"], relay.parse(expected)["main"]), result.astext()


def test_functions_of_the_prelude_are_unrolled_for_known_lists() -> None:
    """The list is known, its elements are not."""
    text = "fn(%d: int32) { @foldl(fn(%a, %x) { %a * %x }, %d, @map(@id, Cons(%d, Cons(3, Nil)))) }"
    result = evaluated(text, prelude())
    assert structural_equal(result["main"], relay.parse("fn(%d: int32) { %d * %d * 3 }")["main"])


@pytest.mark.rule("RLY-107", "RLY-108")
def test_cells_are_known_until_something_may_write_them() -> None:
    head = "fn(%b: bool, %f: fn() -> int32) { let %r = ref(1); "
    known = evaluated(head + "ref_write(%r, 2); ref_read(%r) + 1 }")["main"].astext()
    assert known.count("ref_write") == known.count("ref_read") == 1
    assert "\n  3\n" in known
    for write in (
        "(if (%b) { ref_write(%r, 2) } else { () })",
        "%f()",
        "(let %w = fn() { ref_write(%r, 3) }; (if (%b) { %w } else { %w })())",
        "(let %w = fn(%x: bool) { if (%x) { ref_write(%r, 3) } else { () } }; %w(%b))",
    ):
        unknown = evaluated(f"{head}{write}; ref_read(%r) + 1 }}")["main"].astext()
        assert re.search(r"add\(%x\d, 1\)", unknown), unknown


@pytest.mark.parametrize(
    "text",
    [
        "let %f = fn(%n: int32) -> int32 { %f(%n + 1) }; fn() { %f(0) }",
        "let %f = fn(%n: int32) -> int32 { %f(%n - 1) }; fn() { %f(0) }",
        "let %f = fn() -> int32 { %f() }; fn() { %f() }",
        "def @f(%n: int32) -> int32 { @g(%n) } def @g(%n: int32) -> int32 { @f(%n) }fn() { @f(1) }",
        NAT + "def @f(%n: Nat) -> Nat { @f(S(%n)) } fn() { @f(Z) }",
    ],
)
def test_programs_that_do_not_end_are_evaluated_up_to_a_limit(text: str) -> None:
    result = transform.PartialEvaluate()(relay.parse(text))
    assert len(result.astext()) < 100_000


def test_accumulators_do_not_unroll_loops_over_unknown_data() -> None:
    """Their values are known, but not whether there is a next iteration."""
    for text in (
        "fn(%l: List[int32]) { @rev(%l) }",
        "fn(%l: List[int32]) { @length(%l) }",
        "fn(%k: int32) { let %f = fn(%n: int32) -> int32 { if (%n == %k) { %n } else "
        "{ %f(%n + 1) } }; %f(0) }",
    ):
        assert len(evaluated(text, prelude())["main"].astext()) < 1500


def test_recursion_over_unknown_data_stays() -> None:
    text = "fn(%l: List[int32]) { @foldl(fn(%a, %x) { %a + %x }, 0, %l) }"
    result = evaluated(text, prelude())
    assert "@foldl(" in result["main"].astext()


@pytest.mark.rule("RLY-88")
def test_sizes_are_still_checked() -> None:
    text = """def @f(%x: Tensor[(3,), float32]) { %x }
              fn(%x: Tensor[(?,), float32]) { let %y: Tensor[(2,), float32] = %x; @f(%x) }"""
    result = evaluated(text)
    call = relay.create_executor(mod=result).evaluate()
    with pytest.raises(RuntimeCheckError, match="RLY-88"):
        call(np.zeros(2, "float32"))


def test_a_known_program_becomes_its_value() -> None:
    text = "@sum(@map(fn(%x) { %x * %x }, Cons(1, Cons(2, Cons(3, Nil)))))"
    result = evaluated(text, prelude())
    assert isinstance(result["main"].body, relay.Constant)
    assert result_of(result) == 14


def test_the_result_is_not_much_larger_than_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """RLY-6: each of many functions calls the one before; a share of the calls is replaced."""
    monkeypatch.setattr("relaxpy.plugins.relay.transform.partial_evaluate.MAX_CALLS_ELSEWHERE", 300)
    count = 60
    chain = "".join(f"def @f{i}(%x: int32) {{ @f{i - 1}(%x) + 1 }}" for i in range(1, count))
    text = f"def @f0(%x: int32) {{ %x }} {chain} def @main(%x: int32) {{ @f{count - 1}(%x) }}"
    module = relay.parse(text)
    result = relay.transform.PartialEvaluate()(module)
    assert "@f" not in result["main"].astext()
    assert result.astext().count("let ") < 20 * count
    assert relay.create_executor(mod=result).evaluate()(0) == count - 1


def test_functions_inside_each_other_are_not_copied_without_end() -> None:
    """RLY-15: each level has a function, which is left and whose call is replaced."""
    text = "%x"
    for _ in range(30):
        text = f"let %f = fn(%y: int32) {{ {text} }}; %f(%x) + 1"
    module = relay.parse(f"fn(%x: int32) {{ {text} }}")
    result = relay.transform.PartialEvaluate()(module)
    assert result.astext().count("let ") < 50_000
    assert relay.create_executor(mod=result).evaluate()(0) == 30
    graph = relay.transform.ToGraphNormalForm()(module)
    assert relay.create_executor(mod=graph).evaluate()(0) == 30
