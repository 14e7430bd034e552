"""What is remembered of nodes: once for each, and no longer than it is alive."""

import gc

from relaxpy.ir.core.memo import NodeTable, memoised
from relaxpy.ir.relax import nodes as rx
from relaxpy.ir.relax.block_builder import derive
from relaxpy.ir.relax.block_builder.derive import normalize_function
from tests.ir.relax.graphs import function, var
from tests.ir.relax.sinfos import tensor


def identity() -> rx.Function:
    x = var("x", tensor(2))
    return function([x], x)


def test_an_analysis_is_made_once_for_each_node() -> None:
    seen: list[rx.Function] = []

    @memoised
    def count_params(func: rx.Function) -> int:
        seen.append(func)
        return len(func.params)

    one, other = identity(), identity()
    assert [count_params(func) for func in (one, other, one, other)] == [1, 1, 1, 1]
    assert [id(func) for func in seen] == [id(one), id(other)]


def test_values_go_with_their_nodes() -> None:
    table: NodeTable[str] = NodeTable()
    nodes = [identity() for _ in range(10)]
    for node in nodes:
        table[node] = "value"
    assert len(table) == 10
    del node, nodes[3:]
    gc.collect()
    assert len(table) == 3
    assert [table.get(node) for node in nodes] == ["value"] * 3


def test_a_node_with_the_address_of_one_that_is_gone_has_no_value() -> None:
    table: NodeTable[int] = NodeTable()
    for count in range(1000):
        node = identity()
        assert table.get(node) is None
        table[node] = count
        del node
    assert len(table) == 0


def test_normal_forms_are_forgotten_with_their_functions() -> None:
    gc.collect()
    before = len(derive._NORMAL)
    kept = normalize_function(identity())
    for _ in range(10):
        normalize_function(identity())
    gc.collect()
    assert len(derive._NORMAL) == before + 1
    assert normalize_function(kept) is kept
