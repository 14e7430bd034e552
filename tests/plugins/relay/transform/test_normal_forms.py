"""A-normal form and graph form of Relay programs."""

import pytest

from relaxpy import relay
from relaxpy.ir import structural_equal
from tests.relay_programs import result_of


@pytest.mark.rule("RLY-48")
def test_graph_form_shares_what_lets_bound() -> None:
    lets = relay.parse("let %x = 1 + 2; let %y = %x * %x; (%x, %y)")
    graph = relay.parse("%0 = 1 + 2\n%1 = %0 * %0\n(%0, %1)")
    assert structural_equal(relay.transform.ToGraphNormalForm()(lets), graph)


@pytest.mark.rule("RLY-44")
def test_independent_lets_may_be_exchanged() -> None:
    one = "let %a = 1 + 2; let %b = 3 * 4; (%a, %b)"
    other = "let %b = 3 * 4; let %a = 1 + 2; (%a, %b)"
    assert result_of(relay.parse(one)) == result_of(relay.parse(other))
    graphs = [relay.transform.ToGraphNormalForm()(relay.parse(text)) for text in (one, other)]
    assert structural_equal(*graphs)
    first = "let %r = ref(1); let %a = ref_write(%r, 2); let %b = ref_read(%r); %b"
    second = "let %r = ref(1); let %b = ref_read(%r); let %a = ref_write(%r, 2); %b"
    assert result_of(relay.parse(first)) != result_of(relay.parse(second))


@pytest.mark.rule("RLY-2", "RLY-3")
@pytest.mark.parametrize(
    ("text", "dataflow"),
    [
        ("1 + 2", True),
        ("let %x = (1, 2); %x.0", True),
        ("if (True) { 1 } else { 2 }", False),
        ("match (1) { _ => 2 }", False),
        ("let %f = fn(%x: int32) { %x + 1 }; %f(%f(2))", True),
        ("let %f = fn(%x: int32) { if (True) { %x } else { 1 } }; %f(2)", False),
        ("def @g(%x: int32) { %x * 2 }\n@g(1)", True),
        ("def @g(%x: int32) -> int32 { @g(%x) }\n@g(1)", False),
        ("fn(%f: fn(int32) -> int32) { %f(1) }", False),
        ("let %f = fn() { if (True) { 1 } else { 2 } }; 3", False),
        ("let %r = ref(1); ref_read(%r)", True),
    ],
)
def test_the_dataflow_fragment(text: str, dataflow: bool) -> None:
    module = relay.parse(text)
    assert relay.analysis.is_dataflow(module["main"].body, module) is dataflow


@pytest.mark.rule("RLY-81")
def test_cells_are_created_read_and_written() -> None:
    create, read, write = (
        relay.parse_expr(f"let %r = ref(1); {text}").body if text else relay.parse_expr("ref(1)")
        for text in ("", "ref_read(%r)", "ref_write(%r, 2)")
    )
    assert isinstance(create, relay.RefCreate)
    assert isinstance(read, relay.RefRead)
    assert isinstance(write, relay.RefWrite)
