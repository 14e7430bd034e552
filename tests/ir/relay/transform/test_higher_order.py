"""Gradients of programs with closures, branches, recursion, data types and cells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError, TransformError
from relaxpy.relay import transform
from tests.relay_programs import prelude

VECTOR = np.array([0.3, -0.4, 0.9])
TREE = """
type T { Leaf(float64), Node(T, T), Fun(fn(float64) -> float64) }
def @s(%t: T, %x: float64) -> float64 {
  match (%t) {
    Leaf(%v) => %v * %x,
    Node(%l, %r) => @s(%l, %x) + @s(%r, %x) * %x,
    Fun(%f) => %f(%x)
  }
}
"""


def differentiated(text: str) -> relay.IRModule:
    """The module of a text, in which @adjoint is the gradient of @main."""
    module = relay.parse(text, init_module=prelude())
    main = module.get_global_var("main")
    module["adjoint"] = transform.gradient(main, module, mode="higher_order")
    return module


def run(module: relay.IRModule, name: str, *args: Any) -> Any:
    return relay.create_executor(mod=module).evaluate(module.get_global_var(name))(*args)


@pytest.mark.parametrize(
    ("text", "args"),
    [
        ("def @main(%x: float64) { %x }", (0.7,)),
        ("def @main(%x: float64) { %0 = (%x, %x * %x + 3f64); (%0.0 * %0.1, %0) }", (0.7,)),
        (
            "def @power(%n: int32, %x: float64) -> float64 {"
            "if (%n == 0) { 1f64 } else { %x * @power(%n - 1, %x) } }"
            "def @main(%x: float64, %n: int32) { @power(%n, %x) }",
            (0.7, np.array(5, "int32")),
        ),
        (
            "def @main(%x: float64, %v: Tensor[(3,), float64]) {"
            "let %f = fn(%y: Tensor[(3,), float64]) { tanh(%y) * %x }; %f(%f(%v)) }",
            (0.7, VECTOR),
        ),
        (
            "def @main(%x: float64, %n: int32) {"
            "let %loop = fn(%i: int32, %a: float64) -> float64 {"
            "if (%i < 1) { %a } else { %loop(%i - 1, %a * %x + 1f64) } }; %loop(%n, %x) }",
            (0.7, np.array(6, "int32")),
        ),
        (
            "def @main(%x: float64) { let %r = ref(%x); ref_write(%r, ref_read(%r) * %x);"
            "ref_write(%r, ref_read(%r) * ref_read(%r)); ref_read(%r) }",
            (0.7,),
        ),
        (
            "def @main(%x: float64, %y: float64) {"
            "@foldl(fn(%a, %b) { %a * %b + sin(%a) }, %x, Cons(%x, Cons(%y, Nil))) }",
            (0.7, 1.3),
        ),
        (
            "def @main(%x: float64, %y: float64) {"
            "@foldl(multiply, %x, @map(fn(%a) { exp(%a) }, Cons(%x, Cons(%y, Nil)))) }",
            (0.7, 1.3),
        ),
        (
            TREE + "def @main(%x: float64) {"
            "@s(Node(Node(Leaf(%x), Leaf(2f64)), Fun(fn(%y) { %y * %y * %x })), %x) }",
            (0.7,),
        ),
        (
            "def @main(%x: (Tensor[(3,), float64], float64)) {"
            "%0 = split(concatenate((%x.0, %x.0)), indices_or_sections=2, axis=0);"
            "sum(%0.0 * %0.1) * %x.1 }",
            ((VECTOR, np.array(0.7)),),
        ),
        ("def @main(%x: float64) { @iterate(fn(%y) { sin(%y) * %x }, 3)(%x) }", (0.7,)),
    ],
)
def test_gradients_are_those_of_finite_differences(text: str, args: tuple[Any, ...]) -> None:
    module = differentiated(text)
    result, gradients = run(module, "adjoint", *args)
    assert str(result) == str(run(module, "main", *args))
    for place, gradient in leaves(gradients):
        expected = np.zeros(np.shape(gradient))
        for index in np.ndindex(*np.shape(gradient)) if gradient.dtype.kind == "f" else ():
            above, below = (
                run(module, "main", *moved(args, place, index, by)) for by in (1e-5, -1e-5)
            )
            expected[index] = (total(above) - total(below)) / 2e-5
        np.testing.assert_allclose(gradient, expected, 1e-5, 1e-6)


def leaves(value: Any, place: tuple[int, ...] = ()) -> list[tuple[tuple[int, ...], Any]]:
    """The tensors of a tuple, each with its place."""
    if not isinstance(value, tuple):
        return [(place, value)]
    return [leaf for k, field in enumerate(value) for leaf in leaves(field, (*place, k))]


def moved(value: Any, place: tuple[int, ...], index: tuple[int, ...], by: float) -> Any:
    """A tuple of which one element of one tensor is moved."""
    if place:
        first, *rest = place
        fields = [
            moved(f, tuple(rest), index, by) if k == first else f for k, f in enumerate(value)
        ]
        return tuple(fields)
    new = np.array(value, "float64")
    new[index] += by
    return new


def total(value: Any) -> float:
    return sum(float(np.sum(tensor)) for _, tensor in leaves(value))


@pytest.mark.parametrize("mode", ["first_order", "higher_order"])
@pytest.mark.parametrize(
    ("body", "second"),
    [
        ("%x * %x * %x", 6 * 0.3),
        ("sin(%x) * %x", 2 * np.cos(0.3) - 0.3 * np.sin(0.3)),
        ("1f64 / %x", 2 / 0.3**3),
    ],
)
def test_gradients_have_gradients(body: str, second: float, mode: str) -> None:
    module = relay.parse(f"fn(%x: float64) {{ {body} }}")
    adjoint = transform.gradient(module["main"], module, mode=mode)
    x = relay.var("x", "float64")
    slope = relay.TupleGetItem(relay.TupleGetItem(relay.Call(adjoint, [x]), 1), 0)
    module["slope"] = relay.Function([x], slope)
    slope_var = module.get_global_var("slope")
    module["adjoint"] = transform.gradient(slope_var, module, mode="higher_order")
    np.testing.assert_allclose(run(module, "adjoint", 0.3)[1][0], second, 1e-6)


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        ("def @main<t>(%x: t) { %x }", "RLY-16", "polymorphic"),
        ("def @main(%x: List[float32]) { 1f }", "RLY-84", "%x has the type List"),
        ("def @main(%x: float32) { Cons(%x, Nil) }", "RLY-84", "the result has the type List"),
        (
            "def @f<s: Shape>(%x: Tensor[s, float32]) -> Tensor[s, float32] { %x }"
            "def @main(%x: float32) { @f(%x) }",
            "RLY-17",
            "polymorphic in shapes",
        ),
        ("def @main(%x: float32) { test.strange(%x) }", "RLY-28", "has no gradient"),
    ],
)
def test_what_has_no_gradient_is_refused(text: str, rule: str, message: str) -> None:
    op = relay.op.register("test.strange", "An operator without a gradient.")
    op.set_num_inputs(1)
    op.add_type_rel("Identity")
    try:
        with pytest.raises(TransformError, match=message) as caught:
            differentiated(text)
    finally:
        relay.op.Op._table.pop("test.strange")
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.rule == rule
    assert diagnostic.span is not None


def test_the_module_receives_what_the_gradient_needs() -> None:
    module = relay.parse(TREE + "def @main(%x: float64) { @s(Leaf(%x), %x) }")
    before = set(module.functions_by_name)
    main = module.get_global_var("main")
    with pytest.raises(RelaxpyError):
        transform.gradient(main, module, mode="third_order")
    assert set(module.functions_by_name) == before
    transform.gradient(main, module, mode="higher_order")
    assert set(module.functions_by_name) - before == {"s_grad"}
    assert "T_grad" in module.definitions_by_name
    for _ in range(3):
        transform.gradient(main, module, mode="higher_order")
    assert sum("T" in name for name in module.definitions_by_name) == 5
    transform.InferType()(module)
