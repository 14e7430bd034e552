"""TopologicalSort: the four orders, and what limits them."""

import numpy as np
import pytest

from relaxpy.relax.transform import TopologicalSort
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import graph, module, pair

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


UNSORTED, BY_INPUTS = pair(
    """
def main(x: R.Tensor((4,), "float32")):
    b2 = R.exp(x)
+   c2 = R.add(x, b2)
    b1 = R.abs(x)
-   c2 = R.add(x, b2)
    c1 = R.add(x, b1)
    d = R.add(c1, c2)
    return d
""",
    graph,
)

BY_OUTPUTS = graph("""
def main(x: R.Tensor((4,), "float32")):
    b1 = R.abs(x)
    c1 = R.add(x, b1)
    b2 = R.exp(x)
    c2 = R.add(x, b2)
    d = R.add(c1, c2)
    return d
""")


def test_depth_first_follows_a_value_to_its_end() -> None:
    check(TopologicalSort(), UNSORTED, BY_INPUTS, X)
    check(TopologicalSort(direction="from-outputs"), UNSORTED, BY_OUTPUTS, X)
    stays(TopologicalSort(), BY_INPUTS)
    stays(TopologicalSort(direction="from-outputs"), BY_OUTPUTS)


def test_breadth_first_goes_level_by_level() -> None:
    check(TopologicalSort(order="breadth-first"), BY_INPUTS, UNSORTED, X)


UNUSED, UNUSED_AFTER = pair(
    """
def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
    k2 = R.const(2.0, "float32")
+   c2 = R.add(x, k2)
    k1 = R.const(1.0, "float32")
    c1 = R.add(x, k1)
-   c2 = R.add(x, k2)
    d1 = R.abs(c1)
    e = R.add(c1, c2)
    return e
""",
    graph,
)


def test_unused_bindings_and_those_without_operands_are_kept() -> None:
    check(TopologicalSort(), UNUSED, UNUSED_AFTER, X, X)


SIZES = graph("""
def main(x: R.Tensor, y: R.Tensor((4,), "float32")):
    n = T.int64()
    a = R.match_cast(x, R.Tensor((n,), "float32"))
    b = R.exp(y)
    c = R.zeros(R.shape([n]), "float32")
    d = R.add(c, a)
    return (b, d)
""")


@pytest.mark.rule("OPT-9")
@pytest.mark.parametrize("order", ["depth-first", "breadth-first"])
@pytest.mark.parametrize("direction", ["from-inputs", "from-outputs"])
def test_a_cast_precedes_what_mentions_its_symbols(order, direction) -> None:
    [block] = TopologicalSort(order, direction)(SIZES)["main"].body.blocks
    names = [binding.var.name_hint for binding in block.bindings]
    assert names.index("a") < names.index("c") < names.index("d")


Ordinary = module("""
def main(x: f32[4]):
    a = R.exp(x)
    b = R.abs(x)
    c = R.sqrt(a)
    return (b, c)
""")


def test_ordinary_bindings_keep_their_order() -> None:
    stays(TopologicalSort(), Ordinary)
