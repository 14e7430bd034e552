"""ConvertToDataflow and ToNonDataflow."""

import numpy as np
import pytest

from relaxpy.errors import MatchCastError, MisuseError
from relaxpy.exec.api.compile import compile
from relaxpy.relax.transform import ConvertToDataflow, DeadCodeElimination, ToNonDataflow
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import graph, module, pair

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")

Mixed, MixedAfter = pair("""
@impure
def main(x: f32[4]):
-   a = R.add(x, x)
-   b = R.multiply(a, x)
+   with R.dataflow():
+       a = R.add(x, x)
+       b = R.multiply(a, x)
    _ = R.print(b, format="{}")
    c = R.exp(b)
    _1 = R.print(c, format="{}")
-   d = R.abs(c)
-   e = R.sqrt(d)
+   with R.dataflow():
+       d = R.abs(c)
+       e = R.sqrt(d)
    return (b, e)
""")


def test_pure_bindings_between_effects_form_blocks_if_there_are_enough() -> None:
    check(ConvertToDataflow(), Mixed, MixedAfter, X)
    stays(ConvertToDataflow(min_size=3), Mixed)


def test_single_bindings_form_blocks_on_request() -> None:
    after = ConvertToDataflow(min_size=1)(Mixed)
    assert [type(b).__name__ for b in after["main"].body.blocks] == [
        "DataflowBlock",
        "BindingBlock",
        "DataflowBlock",
        "BindingBlock",
        "DataflowBlock",
    ]


Neighbours = module("""
def main(x: f32[4]):
    a = R.add(x, x)
    with R.dataflow():
        b = R.multiply(a, x)
    c = R.exp(b)
    return c
""")

NeighboursAfter = graph("""
def main(x: f32[4]):
    a = R.add(x, x)
    b = R.multiply(a, x)
    c = R.exp(b)
    return c
""")


def test_a_block_takes_in_single_neighbours() -> None:
    check(ConvertToDataflow(), Neighbours, NeighboursAfter, X)
    stays(ConvertToDataflow(), NeighboursAfter)


Branches, BranchesAfter = pair("""
def main(x: f32[4], c: bool):
    def inner(y: f32[4]) -> f32[4]:
-       a = R.add(y, x)
-       b = R.exp(a)
+       with R.dataflow():
+           a = R.add(y, x)
+           b = R.exp(a)
        return b
    if c:
-       d = inner(x)
-       e = R.sqrt(d)
+       with R.dataflow():
+           d = inner(x)
+           f = R.sqrt(d)
+       e = f
    else:
        e = R.abs(x)
    return e
""")


def test_branches_and_local_functions_are_converted() -> None:
    check(ConvertToDataflow(), Branches, BranchesAfter, X, np.array(True))
    check(ConvertToDataflow(), Branches, BranchesAfter, X, np.array(False))


Checked = module("""
def main(x: f32[n]):
    a = R.exp(x)
    b = R.match_cast(a, f32[4])
    c = R.add(x, x)
    d = R.abs(c)
    return d
""")


@pytest.mark.rule("OPT-8", "OPT-9")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_unused_cast_stays_outside_and_fails_as_before(target: str) -> None:
    after = DeadCodeElimination()(ConvertToDataflow(min_size=1)(Checked))
    executable = compile(after, target)
    np.testing.assert_array_equal(executable["main"](X), abs(X + X))
    with pytest.raises(MatchCastError):
        executable["main"](X[:3])


Used = module("""
def main(x: f32[n]):
    a = R.exp(x)
    b = R.match_cast(a, f32[4])
    return b
""")


@pytest.mark.rule("OPT-5")
def test_a_cast_whose_result_is_used_goes_in() -> None:
    after = ConvertToDataflow()(Used)
    [block] = after["main"].body.blocks
    assert len(block.bindings) == 2
    with pytest.raises(MatchCastError):
        compile(after, "reference")["main"](X[:3])


@pytest.mark.parametrize("size", [0, -1])
def test_the_smallest_size_is_a_positive_integer(size: int) -> None:
    with pytest.raises(MisuseError, match="min_size is a positive integer"):
        ConvertToDataflow(size)


Ordinary = module("""
@impure
def main(x: f32[4]):
    a = R.add(x, x)
    b = R.multiply(a, x)
    _ = R.print(b, format="{}")
    c = R.exp(b)
    _1 = R.print(c, format="{}")
    d = R.abs(c)
    e = R.sqrt(d)
    return (b, e)
""")


def test_dataflow_blocks_become_ordinary_ones_that_are_joined() -> None:
    check(ToNonDataflow(), MixedAfter, Ordinary, X)
    stays(ToNonDataflow(), Ordinary)


Sized = graph("""
def main(x: R.Tensor):
    n = T.int64()
    a = R.match_cast(x, f32[n])
    s = R.shape_of(a)
    b = R.zeros(s, "float32")
    return b
""")


def test_shapes_that_mention_dataflow_variables_are_kept() -> None:
    after = ToNonDataflow()(Sized)
    assert len(after["main"].body.blocks) == 1
    np.testing.assert_array_equal(compile(after, "reference")["main"](X), np.zeros(4, "float32"))
