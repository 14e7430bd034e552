"""Relay programs as Relax: what is translated gives the same values, the rest is refused."""

from functools import partial
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import relax, relay
from relaxpy.errors import TransformError, UnknownNameError
from relaxpy.script import from_source
from tests.ir.relax import texts
from tests.relay_programs import prelude
from tests.rows import commented, follow, rows


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


DATAFLOW = texts.graph("""
def main(x: f32[2, 3]) -> R.Tuple(f32[2, 3], f32[2, 3]):
    y = R.add(x, x)
    a = R.nn.relu(y)
    b = R.multiply(a, R.const(2.0, "float32"))
    c = R.subtract(b, y)
    d = (b, c)
    return d
""")
PROGRAMS = rows("""
--- RLY-3 RLY-45: a shared expression is bound once, and everything is dataflow
def @main(%x: Tensor[(2, 3), float32]) {
  let %y = %x + %x;
  %0 = nn.relu(%y) * 2f
  (%0, %0 - %y)
}
# do: relaxpy.ir.assert_structural_equal(same(ONES), DATAFLOW)
--- RLY-2 RLY-14 RLY-15 RLY-38 RLY-49 RLY-50: branches, recursion and closures
def @fact(%n: int32) -> int32 { if (%n < 1) {1} else {%n * @fact(%n - 1)} }
def @main(%n: int32) {
  let %f = fn(%k: int32) -> int32 { if (%k < 1) {%n} else {%f(%k - 1) + 2} };
  let %n = 1000;
  (@fact(%f(2)), @compose(@fact, %f)(1), fn(%a) { (%a, ()) }(%n))
}
# do: same(np.array(3, "int32"))
--- RLY-110: a shared expression of both branches is evaluated before them
def @main(%c: bool, %x: float32) {
  %0 = exp(%x)
  if (%c) {%0 + 1f} else {%0 - 1f}
}
# holds: same(np.array(False), np.array(2, "float32")).script().count("R.exp") == 1
--- RLY-16 RLY-97: a polymorphic function is translated for each instance that is used
def @main(%n: int32) { (@id(%n), @id(%n + 1), @id((%n, 1f)), @flip(@subtract)(%n, 1)) }
def @subtract(%a: int32, %b: int32) { %a - %b }
# do: names = {var.name_hint for var in same(np.array(3, "int32")).functions}
# holds: names == {"main", "subtract", "id_0", "id_1", "flip_0"}
--- RLY-17 RLY-18: parameters of kinds ShapeVar, Shape and BaseType are translated
def @f<n: ShapeVar>(%x: Tensor[(n, 3), float32]) -> Tensor[(n, 3), float32] { %x + %x }
def @g<s: Shape, t: BaseType>(%x: Tensor[s, t]) -> Tensor[s, t] { %x * %x }
def @main(%x: Tensor[(2, 3), float32]) { @g(@f(%x)) }
# do: shown = same(ONES).script()
# holds: 'def f(x: R.Tensor(("n", 3), dtype="float32"))' in shown
# holds: "def g(x: R.Tensor) -> R.Tensor" in shown
--- RLY-88 RLY-103: each unknown dimension is a shape variable, checked where a size is demanded
def @main(%x: Tensor[(?, 3), float32], %y: Tensor[(?, 3), float32])
    -> Tensor[(4, 3), float32] {
  let %z = %x + %y;
  concatenate((%z, %z))
}
# do: main = relaxpy.compile(same(ONES, ONES[:1]))["main"]
# error: main(np.ones((3, 3), "float32"), ONES[:1]) -> RuntimeCheckError: 3
--- RLY-88: a known size is demanded by a call
def @f(%x: Tensor[(2,), int32]) { %x + 1 }
def @main(%x: Tensor[(?,), int32]) { @f(%x) }
# do: main = relaxpy.compile(same(np.zeros(2, "int32")))["main"]
# error: main(np.zeros(3, "int32")) -> RuntimeCheckError: 3
--- RLY-109 RLY-78: a match without constructors takes its first clause, in either format
def @main(%x: int32) {
  let %t = (%x, (%x * 2, ()));
  (match (%t) { (%a, (%b, _)) => %a - %b },
   match (%t) { case (%a, %b) { %b.0 } case _ { 0 } })
}
# do: same(np.array(5, "int32"))
--- RLY-10: functions are returned, passed, and fields of tuples
def @main(%x: int32) {
  let %fs = (fn(%a: int32) { %a + %x }, fn(%b: int32) { %b });
  (%fs.0, %fs.0(1))
}
# do: closure, value = relaxpy.compile(translated())["main"](np.array(4, "int32"))
# holds: (value, closure(np.array(10, "int32"))) == (5, 14)
--- RLY-31 RLY-34 RLY-52 RLY-107: data types and cells are refused with each expression
def @main(%x: int32) {
  let %l = Cons(%x, Nil);
  let %r = ref(%x);
  let %u = ref_write(%r, 1);
  match? (%l) { Cons(%a, _) => %a + ref_read(%r) }
}
# do: message = refused("RLY-34", "RLY-34", "RLY-52", "RLY-107", "RLY-107", "RLY-107")
# holds: "Cons constructs an instance of a data type" in message
--- RLY-97: polymorphic recursion has no end of instances
def @f<a>(%x: a, %n: int32) -> int32 { if (%n < 1) {0} else {@f((%x,), %n - 1)} }
def @main() { @f(1, 3) }
# holds: "@f calls itself with other types each time" in refused("RLY-97")
--- RLY-88 RLY-89: a branch takes a type with unknown dimensions
def @main(%c: bool, %x: Tensor[(?,), int32]) -> Tensor[(2,), int32] {
  if (%c) { %x } else { concatenate((%x, %x)) }
}
# do: same(np.array(True), np.zeros(2, "int32"))
# do: same(np.array(False), np.zeros(1, "int32"))
""")


@pytest.mark.parametrize("row", PROGRAMS)
def test_a_program_is_translated_or_refused(row: str) -> None:
    text, comments = commented(row)
    own = {func.__name__: partial(func, text) for func in (same, translated, refused)}
    names = {**globals(), **own}
    follow(comments, names)


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
