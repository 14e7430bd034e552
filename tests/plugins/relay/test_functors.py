"""Visitors and mutators of Relay programs."""

import pytest

from relaxpy import relay
from relaxpy.errors import MisuseError
from relaxpy.ir import structural_equal
from tests.relay_programs import LIST


class Operators(relay.ExprVisitor):
    """The operators of calls, in the order of visits."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def visit_call(self, call: relay.Call) -> None:
        super().visit_call(call)
        if isinstance(call.op, relay.op.Op):
            self.found.append(call.op.name)


class Swap(relay.ExprMutator):
    """Sums become products."""

    def visit_op(self, op: relay.op.Op) -> relay.Expr:
        return relay.op.get("multiply") if op.name == "add" else op


def test_a_visitor_sees_shared_expressions_once() -> None:
    visitor = Operators()
    visitor.visit(relay.parse("%0 = 1 + 2\n(%0 * 3, if (%0 == 3) { %0 } else { 4 - %0 })")["main"])
    assert visitor.found == ["add", "multiply", "equal", "subtract"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%0 = 1 + 2\n(%0, %0 - 3)", "%0 = 1 * 2\n(%0, %0 - 3)"),
        (
            LIST + "match? (Cons(1, Nil)) { Cons(%x, _) => %x + %x }",
            LIST + "match? (Cons(1, Nil)) { Cons(%x, _) => %x * %x }",
        ),
        ("let %f = fn(%x: int32) { %x + 1 }; %f(2)", "let %f = fn(%x: int32) { %x * 1 }; %f(2)"),
    ],
)
def test_a_mutator_rebuilds_what_changes(text: str, expected: str) -> None:
    module = relay.parse(text)
    before = module.astext()
    module["main"] = Swap().visit(module["main"])
    assert structural_equal(relay.transform.InferType()(module), relay.parse(expected))
    assert relay.parse(text).astext() == before


def test_types_are_visited_and_rebuilt() -> None:
    class Shapes(relay.TypeVisitor):
        def __init__(self) -> None:
            super().__init__()
            self.found: list[object] = []

        def visit_tensor_type(self, ty: relay.TensorType) -> None:
            self.found.append(ty.shape)

    class Doubles(relay.TypeMutator):
        def visit_tensor_type(self, ty: relay.TensorType) -> relay.Type:
            return relay.TensorType(ty.shape, "float64")

    ty = relay.parse("fn(%x: Tensor[(2), float32], %y: (float32, int32)) { %x }")["main"]
    shapes = Shapes()
    shapes.visit(ty.checked_type)
    assert shapes.found == [(2,), (), ()]
    doubled = "fn (Tensor[(2,), float64], (float64, float64)) -> Tensor[(2,), float64]"
    assert str(Doubles().visit(ty.checked_type)) == doubled
    assert relay.TypeMutator().visit(ty.checked_type) is ty.checked_type


def test_a_functor_says_which_method_is_missing() -> None:
    class Constants(relay.ExprFunctor):
        def visit_constant(self, constant: relay.Constant) -> int:
            return int(constant.data)

    assert Constants().visit(relay.const(3)) == 3
    with pytest.raises(MisuseError, match="Constants does not define visit_tuple"):
        Constants().visit(relay.Tuple(()))
    with pytest.raises(MisuseError, match="expected a node of Relay"):
        Constants().visit("x")
