"""Relay programs are saved as JSON, and read back."""

import pytest

from relaxpy import relay
from relaxpy.errors import RelaxpyError
from relaxpy.ir import load_json, save_json, structural_equal
from tests.relay_programs import LIST


@pytest.mark.parametrize(
    "text",
    [
        "fn<s: Shape, d: BaseType>(%x: Tensor[s, d]) -> Tensor[s, d] { %x }",
        "fn(%x: Tensor[(?, 3), float32]) { sum(%x, axis=[0]) }",
        "fn(%x: Tensor[(2, 3), float32]) { split(%x, indices_or_sections=[1], axis=1).0 }",
        "fn(%f: fn(int32) -> (int32, ref(bool))) { %f(1) }",
    ],
)
def test_types_read_back(text: str) -> None:
    module = relay.parse(text)
    again = load_json(save_json(module))
    assert structural_equal(again, module)
    assert str(again["main"].checked_type) == str(module["main"].checked_type)


def test_single_nodes_read_back() -> None:
    module = relay.parse(LIST + "match (Cons(1, Nil)) { Cons(%x, _) => %x, Nil => 0 }")
    for node in (
        module["main"],
        module["main"].body,
        module["main"].body.clauses[0],
        module.get_global_type_var("List"),
        module.type_definitions[module.get_global_type_var("List")],
        relay.const(1),
        relay.op.get("add"),
        relay.TensorType((1, relay.Any()), "float32"),
        relay.IncompleteType(),
    ):
        assert structural_equal(load_json(save_json(node)), node, map_free_vars=True)


def test_a_module_without_types_reads_back_without_types() -> None:
    x = relay.var("x")
    module = relay.IRModule({"f": relay.Function((x,), x)})
    again = load_json(save_json(module))
    assert again["f"].checked_type_ is None
    assert structural_equal(again, module)


def test_sharing_stays() -> None:
    expr = relay.const(1.0)
    for _ in range(60):
        expr = expr + expr
    again = load_json(save_json(expr))
    assert structural_equal(again, expr)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("relay.Call", "relay.Cell"),
        ('"name_hint"', '"name"'),
        ('"add"', '"adder"'),
        ('"main"', "7"),
        ('"int32"', '"int33"'),
        ('"typed"', '"type"'),
    ],
)
def test_malformed_programs_are_refused(old: str, new: str) -> None:
    saved = save_json(relay.parse("def @main() -> int32 { 1 + 2 }"))
    assert old in saved
    with pytest.raises(RelaxpyError) as error:
        load_json(saved.replace(old, new, 1))
    assert isinstance(error.value, ValueError)


def test_ill_typed_programs_are_refused() -> None:
    saved = save_json(relay.parse("def @main() -> int32 { 1 + 2 }"))
    i = saved.index('"dtype":"int32"')
    with pytest.raises(RelaxpyError):
        load_json(saved[:i] + '"dtype":"float32"' + saved[i + len('"dtype":"int32"') :])


def test_what_load_refuses_is_not_saved() -> None:
    lets = ["let %f0 = fn(%x) { (%x, %x) };"]
    lets += [f"let %f{i + 1} = fn(%x) {{ %f{i}(%f{i}(%x)) }};" for i in range(12)]
    module = relay.parse("\n".join(lets) + "%f12")
    with pytest.raises(RelaxpyError, match="nodes when shared nodes are expanded"):
        save_json(module)
