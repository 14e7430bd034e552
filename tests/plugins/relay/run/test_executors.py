"""Executors: which functions are compiled, and that all kinds give the same values."""

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RuntimeCheckError
from tests.relay_programs import plain, prelude

CELL = """
def @cell(%h: Tensor[(4,), float32], %x: Tensor[(4,), float32]) { tanh(%h * 0.5 + %x) }
def @main(%x: Tensor[(4,), float32]) {
  let %l = Cons(%x, Cons(%x + %x, Nil));
  @foldl(@cell, zeros(shape=[4], dtype="float32"), %l)
}
"""


def test_functions_that_translate_are_compiled_and_the_others_evaluated() -> None:
    """RLY-112: a fold over a list calls the compiled cell."""
    module = relay.parse(CELL, init_module=prelude())
    machine = relay.create_executor("vm", mod=module)
    rows = {row.function: row for row in machine.report()}
    assert {name: row.method for name, row in rows.items()} == {
        "main": "evaluated",
        "cell": "compiled",
        "foldl": "evaluated",
    }
    assert "Cons constructs an instance" in str(machine.report())
    x = np.arange(4, dtype="float32")
    expected = relay.create_executor("debug", mod=module).evaluate()(x)
    np.testing.assert_allclose(machine.evaluate()(x), expected, rtol=1e-6)
    assert {row.method for row in relay.create_executor("debug", mod=module).report()} == {
        "evaluated"
    }


def test_functions_of_a_module_are_called_by_name() -> None:
    """RLY-5, RLY-63: Python numbers take the datatypes of the parameters."""
    module = relay.parse(CELL + "def @half(%x: float32) { %x / 2 }", init_module=prelude())
    for kind in ("debug", "vm", "graph", "aot"):
        executor = relay.create_executor(kind, mod=module)
        assert executor.evaluate(module.get_global_var("half"))(3) == 1.5
        assert executor.evaluate(module.get_global_var("half"))(x=3) == 1.5
        assert executor.evaluate(relay.const(2) + relay.const(3)) == 5


def test_functions_of_functions_are_evaluated() -> None:
    """RLY-10: a closure of the evaluator is called by the evaluator."""
    text = (
        "def @twice(%f: fn(int32) -> int32, %x: int32) { %f(%f(%x)) }\n@twice(fn(%a) {%a * 3}, 2)"
    )
    module = relay.parse(text)
    machine = relay.create_executor("vm", mod=module)
    assert {row.function: row.method for row in machine.report()} == {
        "main": "compiled",
        "twice": "evaluated",
    }
    assert machine.evaluate()() == 18


def test_recursion_that_nests_is_evaluated() -> None:
    """RLY-14: its depth is not that of Python's stack; calls in the last place are loops."""
    module = relay.parse("""
    def @count(%n: int32) -> int32 { if (%n < 1) { 0 } else { 1 + @count(%n - 1) } }
    def @above(%n: int32) { @count(%n) }
    def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }
    def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }
    def @inner(%n: int32) {
      let %f = fn(%k: int32) -> int32 { if (%k < 1) { 0 } else { %f(%k - 1) * 1 } };
      %f(%n)
    }
    def @main(%n: int32) { (@above(%n), @even(%n), @inner(%n)) }
    """)
    machine = relay.create_executor("vm", mod=module)
    assert plain(machine.evaluate()(3000)) == (3000, True, 0)
    ways = {row.function: row.method for row in machine.report()}
    compiled = {name for name, method in ways.items() if method == "compiled"}
    assert compiled == {"even", "odd"}


def test_instances_have_names_that_the_module_does_not() -> None:
    """RLY-5, RLY-16."""
    module = relay.parse(
        "def @id_0(%x: int32) { %x * 100 } def @main(%x: int32) { (@id(%x), @id_0(%x)) }",
        init_module=prelude(),
    )
    for kind in ("debug", "vm"):
        assert plain(relay.create_executor(kind, mod=module).evaluate()(2)) == (2, 200)


@pytest.mark.parametrize("kind", ["debug", "vm"])
@pytest.mark.rule("RLY-50")
def test_a_division_by_zero_in_a_branch_that_is_not_taken_does_not_matter(kind: str) -> None:
    module = relay.parse("def @main(%c: bool, %x: int32) { if (%c) { %x / 0 } else { %x + 1 } }")
    run = relay.create_executor(kind, module).evaluate()
    assert run(False, 2) == 3
    with pytest.raises(RuntimeCheckError, match="division by zero"):
        run(True, 2)


def test_a_chain_of_functions_may_be_longer_than_the_stack() -> None:
    """RLY-37: functions that would nest too deeply when compiled are evaluated."""
    chain = "".join(f"def @f{i}(%x: int32) {{ @f{i - 1}(%x) + 1 }}" for i in range(1, 160))
    text = f"def @f0(%x: int32) {{ %x }} {chain} def @main(%x: int32) {{ @f159(%x) }}"
    machine = relay.create_executor("vm", mod=relay.parse(text))
    assert machine.evaluate()(1) == 160
    methods = {row.function: row.method for row in machine.report()}
    assert (methods["f50"], methods["f150"]) == ("compiled", "evaluated")


def test_a_chain_of_closures_may_be_longer_than_the_stack() -> None:
    """RLY-15: the closures of a function that would nest too deeply are evaluated."""
    head = "let %f0 = fn(%x: int32) { %x };"
    calls = "".join(f"let %f{i} = fn(%x: int32) {{ %f{i - 1}(%x) + 1 }};" for i in range(1, 160))
    composed = "".join(f"let %f{i} = @compose(%f{i - 1}, %f0);" for i in range(1, 160))
    for chain, result in ((calls, 162), (composed, 3)):
        module = relay.parse(f"{head} {chain} %f159(3)", init_module=prelude())
        executor = relay.create_executor("vm", mod=module)
        assert executor.evaluate()() == result
        (row,) = [row for row in executor.report() if row.function == "main"]
        assert "Python's stack" in row.reasons[0].message


def test_types_may_nest_more_deeply_than_the_stack() -> None:
    """RLY-40: such functions are evaluated."""
    text = f"fn(%x: int32) {{ {'(' * 1000}%x{',)' * 1000}{'.0' * 1000} }}"
    machine = relay.create_executor("vm", mod=relay.parse(f"def @main{text[2:]}"))
    assert machine.evaluate()(3) == 3
    assert [row.method for row in machine.report()] == ["evaluated"]


@pytest.mark.rule("RLY-16")
@pytest.mark.parametrize("kind", ["debug", "vm", "graph"])
@pytest.mark.parametrize(
    ("signature", "shapes", "wrong"),
    [
        ("fn<n: ShapeVar>(%x: Tensor[(n, n), float32]) { %x }", ["2,2f"], ["2,3f"]),
        (
            "fn<n: ShapeVar>(%x: Tensor[(n,), float32], %y: Tensor[(n,), float32])"
            " -> Tensor[(n,), float32] { add(%x, %y) }",
            ["2f", "2f"],
            ["2f", "1f"],
        ),
        (
            "fn<t: BaseType>(%x: Tensor[(2,), t], %y: Tensor[(2,), t]) { %x }",
            ["2i", "2i"],
            ["2f", "2i"],
        ),
        (
            "fn<s: Shape>(%x: Tensor[s, float32], %y: Tensor[s, int32]) { %x }",
            ["2,3f", "2,3i"],
            ["2,3f", "3,2i"],
        ),
        ("fn<t: Type>(%x: t, %y: t) { %x }", ["2f", "2f"], ["2f", "3f"]),
        ("fn<t: Type>(%x: t, %y: (t, t)) { %x }", ["2f", "2f 2f"], ["2f", "2f 1f"]),
        ("fn<t: Type>(%x: t, %y: t) { %x }", ["2f 1i", "2f 1i"], ["2f 1i", "1i 2f"]),
    ],
)
def test_all_arguments_agree_on_the_type_parameters(kind, signature, shapes, wrong) -> None:
    def argument(text: str) -> object:
        if " " in text:
            return tuple(map(argument, text.split()))
        shape = tuple(map(int, text[:-1].split(",")))
        return np.ones(shape, {"f": "float32", "i": "int32"}[text[-1]])

    function = relay.create_executor(kind, mod=relay.parse(signature)).evaluate()
    function(*map(argument, shapes))
    with pytest.raises(RuntimeCheckError, match="RLY-12"):
        function(*map(argument, wrong))
