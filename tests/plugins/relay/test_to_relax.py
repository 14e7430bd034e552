"""Relay programs as Relax: what is translated gives the same values, the rest is refused."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay
from relaxpy.errors import RuntimeCheckError, TransformError, UnknownNameError
from relaxpy.script import from_source
from tests.ir.relax import texts
from tests.relay_programs import prelude


def translated(text: str, **options: Any) -> relaxpy.IRModule:
    """The translation of a text after the Prelude, which is well-formed and reads back."""
    module = relay.to_relax(relay.parse(text, init_module=prelude()), **options)
    assert relax.analysis.check_well_formed(module) == []
    relaxpy.ir.assert_structural_equal(from_source(module.script()), module)
    return module


def same(text: str, *args: Any) -> relaxpy.IRModule:
    """The translation of a text, whose `main` returns what the evaluator returns."""
    module = translated(text)
    expected = relay.create_executor(mod=relay.parse(text, init_module=prelude())).evaluate()(*args)
    for target in ("numpy", "reference"):
        assert_same(relaxpy.compile(module, target=target)["main"](*args), expected)
    return module


def assert_same(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def refused(text: str, *rules: str) -> str:
    """The message of the errors of the translation, which name these rules and have positions."""
    with pytest.raises(TransformError) as caught:
        translated(text)
    assert sorted(d.rule or "" for d in caught.value.diagnostics) == sorted(rules)
    assert all(d.span is not None for d in caught.value.diagnostics)
    return str(caught.value)


ONES = np.ones((2, 3), "float32")


def test_a_function_of_tensors_is_a_dataflow_block() -> None:
    """RLY-3, RLY-45: a shared expression is bound once, and everything is dataflow."""
    module = same(
        """
        def @main(%x: Tensor[(2, 3), float32]) {
          let %y = %x + %x;
          %0 = nn.relu(%y) * 2f
          (%0, %0 - %y)
        }
        """,
        ONES,
    )
    expected = texts.graph("""
    def main(x: f32[2, 3]) -> R.Tuple(f32[2, 3], f32[2, 3]):
        y = R.add(x, x)
        a = R.nn.relu(y)
        b = R.multiply(a, R.const(2.0, "float32"))
        c = R.subtract(b, y)
        d = (b, c)
        return d
    """)
    relaxpy.ir.assert_structural_equal(module, expected)


def test_branches_recursion_and_closures() -> None:
    """RLY-2, RLY-14, RLY-15, RLY-38, RLY-49, RLY-50."""
    same(
        """
        def @fact(%n: int32) -> int32 { if (%n < 1) {1} else {%n * @fact(%n - 1)} }
        def @main(%n: int32) {
          let %f = fn(%k: int32) -> int32 { if (%k < 1) {%n} else {%f(%k - 1) + 2} };
          let %n = 1000;
          (@fact(%f(2)), @compose(@fact, %f)(1), fn(%a) { (%a, ()) }(%n))
        }
        """,
        np.array(3, "int32"),
    )


def test_a_shared_expression_of_both_branches_is_evaluated_before_them() -> None:
    """RLY-110: its scope is that of the if."""
    module = same(
        """
        def @main(%c: bool, %x: float32) {
          %0 = exp(%x)
          if (%c) {%0 + 1f} else {%0 - 1f}
        }
        """,
        np.array(False),
        np.array(2, "float32"),
    )
    assert module.script().count("R.exp") == 1


def test_a_polymorphic_function_is_translated_for_each_instance() -> None:
    """RLY-16, RLY-97: functions that are not used have no translation."""
    module = same(
        "def @main(%n: int32) { (@id(%n), @id(%n + 1), @id((%n, 1f)), @flip(subtract1)(%n, 1)) }"
        "def @subtract(%a: int32, %b: int32) { %a - %b }".replace("subtract1", "@subtract"),
        np.array(3, "int32"),
    )
    names = {var.name_hint for var in module.functions}
    assert names == {"main", "subtract", "id_0", "id_1", "flip_0"}


def test_shapes_that_are_parameters_are_shape_variables() -> None:
    """RLY-17, RLY-18: ShapeVar, Shape and BaseType."""
    module = same(
        """
        def @f<n: ShapeVar>(%x: Tensor[(n, 3), float32]) -> Tensor[(n, 3), float32] { %x + %x }
        def @g<s: Shape, t: BaseType>(%x: Tensor[s, t]) -> Tensor[s, t] { %x * %x }
        def @main(%x: Tensor[(2, 3), float32]) { @g(@f(%x)) }
        """,
        ONES,
    )
    text = module.script()
    assert 'def f(x: R.Tensor(("n", 3), dtype="float32"))' in text
    assert "def g(x: R.Tensor) -> R.Tensor" in text


def test_unknown_dimensions_are_checked_where_a_size_is_demanded() -> None:
    """RLY-88, RLY-103: each `?` is a shape variable of its own."""
    text = """
    def @main(%x: Tensor[(?, 3), float32], %y: Tensor[(?, 3), float32])
        -> Tensor[(4, 3), float32] {
      let %z = %x + %y;
      concatenate((%z, %z))
    }
    """
    module = same(text, ONES, ONES[:1])
    with pytest.raises(RuntimeCheckError, match="3"):
        relaxpy.compile(module)["main"](np.ones((3, 3), "float32"), ONES[:1])


def test_a_known_size_is_demanded_by_a_call() -> None:
    """RLY-88: the argument is checked."""
    text = """
    def @f(%x: Tensor[(2,), int32]) { %x + 1 }
    def @main(%x: Tensor[(?,), int32]) { @f(%x) }
    """
    module = same(text, np.zeros(2, "int32"))
    with pytest.raises(RuntimeCheckError):
        relaxpy.compile(module)["main"](np.zeros(3, "int32"))


def test_tuple_patterns_are_projections() -> None:
    """RLY-109: a match without constructors takes its first clause, in either format (RLY-78)."""
    same(
        """
        def @main(%x: int32) {
          let %t = (%x, (%x * 2, ()));
          (match (%t) { (%a, (%b, _)) => %a - %b },
           match (%t) { case (%a, %b) { %b.0 } case _ { 0 } })
        }
        """,
        np.array(5, "int32"),
    )


def test_functions_are_values() -> None:
    """RLY-10: they are returned, passed, and fields of tuples."""
    module = translated(
        """
    def @main(%x: int32) {
      let %fs = (fn(%a: int32) { %a + %x }, @id);
      (%fs.0, %fs.0(1))
    }
    """.replace(", @id", ", fn(%b: int32) { %b }")
    )
    closure, value = relaxpy.compile(module)["main"](np.array(4, "int32"))
    assert value == 5
    assert closure(np.array(10, "int32")) == 14


def test_an_operator_of_the_user_is_a_kernel() -> None:
    """RLY-28: its computation is a PrimFunc of the module."""
    from relaxpy import te

    op = relay.op.register("to_relax.twice", "Twice the operand.")
    op.set_num_inputs(1)
    op.add_type_rel("Identity")
    relay.op.register_compute(
        "to_relax.twice",
        lambda attrs, inputs, out: [te.compute(inputs[0].shape, lambda *i: inputs[0][i] * 2)],
    )
    module = same(
        "def @main(%x: Tensor[(?,), int32]) { to_relax.twice(%x) }", np.arange(3, dtype="int32")
    )
    assert any(isinstance(f, relaxpy.tir.PrimFunc) for f in module.functions.values())


def test_data_types_and_cells_are_refused_with_each_expression() -> None:
    """RLY-31, RLY-34, RLY-52, RLY-107."""
    message = refused(
        """
        def @main(%x: int32) {
          let %l = Cons(%x, Nil);
          let %r = ref(%x);
          let %u = ref_write(%r, 1);
          match? (%l) { Cons(%a, _) => %a + ref_read(%r) }
        }
        """,
        *("RLY-34", "RLY-34", "RLY-52", "RLY-107", "RLY-107", "RLY-107"),
    )
    assert "Cons constructs an instance of a data type" in message


def test_a_function_that_refers_to_one_without_translation_is_refused() -> None:
    """RLY-5: the reason is that of the function it refers to."""
    text = """
    def @f() -> int32 { @g() }
    def @g() -> int32 { @length(Cons(1, Nil)) + @f() }
    def @h() -> int32 { 1 }
    """
    module = relay.parse(text, init_module=prelude())
    found = relay.analysis.untranslatable(module)
    assert "h" not in found
    assert {"f", "g", "length", "sum", "id"} <= set(found)
    assert "@g, which has no translation" in found["f"][0].message
    with pytest.raises(TransformError, match="Cons constructs"):
        relay.to_relax(module, ["f"])
    assert relaxpy.compile(relay.to_relax(module, ["h"]))["h"]() == 1
    with pytest.raises(UnknownNameError):
        relay.to_relax(module, ["k"])


def test_polymorphic_recursion_has_no_end_of_instances() -> None:
    """RLY-97: each call of @f is another instance."""
    message = refused(
        """
        def @f<a>(%x: a, %n: int32) -> int32 { if (%n < 1) {0} else {@f((%x,), %n - 1)} }
        def @main() { @f(1, 3) }
        """,
        "RLY-97",
    )
    assert "@f calls itself with other types each time" in message


def test_a_branch_takes_a_type_with_unknown_dimensions() -> None:
    """RLY-88, RLY-89."""
    text = """
    def @main(%c: bool, %x: Tensor[(?,), int32]) -> Tensor[(2,), int32] {
      if (%c) { %x } else { concatenate((%x, %x)) }
    }
    """
    same(text, np.array(True), np.zeros(2, "int32"))
    same(text, np.array(False), np.zeros(1, "int32"))
