"""Statements visited and rewritten by plain functions."""

import pytest

from relaxpy import tir
from relaxpy.errors import MisuseError
from relaxpy.ir.tir import ops
from relaxpy.tir.stmt_functor import ir_transform, post_order_visit, pre_order_visit, substitute

I, J = tir.Var("i"), tir.Var("j")  # noqa: E741
A = tir.decl_buffer((8,), "float32", "A")
STORE = tir.BufferStore(A, A[I + 1] * 2.0, [I])
LOOP = tir.For(I, 0, 4, 0, STORE)


def kinds(visit, *args: object) -> list[str]:
    seen: list[str] = []

    def note(node: object) -> bool:
        seen.append(type(node).__name__)
        return not isinstance(node, tir.BufferLoad)

    visit(*args, note)
    return seen


def test_everything_is_visited_once_from_the_inside() -> None:
    found = kinds(post_order_visit, LOOP)
    assert found[-2:] == ["BufferStore", "For"]
    assert found.count("Var") == 1
    assert found.index("Add") < found.index("BufferLoad") < found.index("Mul")
    assert "Buffer" not in found


def test_from_the_outside_parts_can_be_left_out() -> None:
    found = kinds(pre_order_visit, LOOP)
    assert found[0] == "For"
    assert found.index("BufferStore") < found.index("Mul") < found.index("BufferLoad")
    assert "Add" not in found


def test_nodes_are_changed_on_the_way_in_or_out() -> None:
    def to_j(node: object) -> object:
        return J if node is I else None

    inside = ir_transform(STORE, None, to_j)
    assert inside.indices == (J,)
    assert inside.value.a.indices == (J + 1,)
    stopped = ir_transform(STORE, lambda n: A[0] if isinstance(n, tir.BufferLoad) else None, None)
    assert stopped.value.a is A[0]
    assert ir_transform(STORE, to_j, to_j, ["tir.Mul"]) is STORE
    assert ir_transform(STORE, None, lambda n: 7, ["tir.Add"]).value.a is A[7]
    assert ir_transform(LOOP, None, None) is LOOP


def test_values_take_the_place_of_variables() -> None:
    assert str(substitute(I + 1, {I: 3})) == "T.Add(3, 1)"
    assert substitute(STORE, {I: J}).indices == (J,)
    with pytest.raises(MisuseError, match="i of int32 cannot be int64"):
        substitute(STORE, {I: ops.const(3, "int64")})
    with pytest.raises(MisuseError, match=r"defines a tir\.Var, found 'i'"):
        substitute(STORE, {"i": 3})
    with pytest.raises(MisuseError, match="vmap maps variables to values, found 3"):
        substitute(STORE, 3)


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: post_order_visit(3, print), "a statement or an expression, found 3"),
        (lambda: pre_order_visit(None, print), "a statement or an expression, found None"),
        (lambda: ir_transform("x", None, None), "a statement or an expression, found 'x'"),
        (lambda: substitute(3, {}), "a statement or an expression, found 3"),
        (lambda: post_order_visit(LOOP, 3), "a function of nodes, found 3"),
        (lambda: ir_transform(LOOP, None, 3), "a function of nodes, found 3"),
    ],
)
def test_other_things_are_not_visited(use, message: str) -> None:
    with pytest.raises(MisuseError, match=f"expected {message}"):
        use()
