"""ConvertToDataflow and ToNonDataflow."""

import numpy as np
import pytest

from relaxpy.errors import MatchCastError, MisuseError
from relaxpy.exec.compile import compile
from relaxpy.relax.transform import ConvertToDataflow, DeadCodeElimination, ToNonDataflow
from relaxpy.script import ir as I, relax as R, tir as T
from tests.ir.relax.transform.before_after import check, stays

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@I.ir_module
class Mixed:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        b = R.multiply(a, x)
        _ = R.print(b, format="{}")
        c = R.exp(b)
        _1 = R.print(c, format="{}")
        d = R.abs(c)
        e = R.sqrt(d)
        return (b, e)


@I.ir_module
class MixedAfter:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(a, x)
            R.output(b)
        _ = R.print(b, format="{}")
        c = R.exp(b)
        _1 = R.print(c, format="{}")
        with R.dataflow():
            d = R.abs(c)
            e = R.sqrt(d)
            R.output(e)
        return (b, e)


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


@I.ir_module
class Neighbours:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        with R.dataflow():
            b = R.multiply(a, x)
            R.output(b)
        c = R.exp(b)
        return c


@I.ir_module
class NeighboursAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.add(x, x)
            b = R.multiply(a, x)
            c = R.exp(b)
            R.output(c)
        return c


def test_a_block_takes_in_single_neighbours() -> None:
    check(ConvertToDataflow(), Neighbours, NeighboursAfter, X)
    stays(ConvertToDataflow(), NeighboursAfter)


@I.ir_module
class Branches:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            a = R.add(y, x)
            b = R.exp(a)
            return b

        if c:
            d = inner(x)
            e = R.sqrt(d)
        else:
            e = R.abs(x)
        return e


@I.ir_module
class BranchesAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        @R.function
        def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            with R.dataflow():
                a = R.add(y, x)
                b = R.exp(a)
                R.output(b)
            return b

        if c:
            with R.dataflow():
                d = inner(x)
                f = R.sqrt(d)
                R.output(f)
            e = f
        else:
            e = R.abs(x)
        return e


def test_branches_and_local_functions_are_converted() -> None:
    check(ConvertToDataflow(), Branches, BranchesAfter, X, np.array(True))
    check(ConvertToDataflow(), Branches, BranchesAfter, X, np.array(False))


@I.ir_module
class Checked:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        a = R.exp(x)
        b = R.match_cast(a, R.Tensor((4,), "float32"))
        c = R.add(x, x)
        d = R.abs(c)
        return d


@pytest.mark.rule("OPT-8", "OPT-9")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_an_unused_cast_stays_outside_and_fails_as_before(target: str) -> None:
    after = DeadCodeElimination()(ConvertToDataflow(min_size=1)(Checked))
    executable = compile(after, target)
    np.testing.assert_array_equal(executable["main"](X), abs(X + X))
    with pytest.raises(MatchCastError):
        executable["main"](X[:3])


@I.ir_module
class Used:
    @R.function
    def main(x: R.Tensor(("n",), "float32")):
        a = R.exp(x)
        b = R.match_cast(a, R.Tensor((4,), "float32"))
        return b


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


@I.ir_module
class Ordinary:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        b = R.multiply(a, x)
        _ = R.print(b, format="{}")
        c = R.exp(b)
        _1 = R.print(c, format="{}")
        d = R.abs(c)
        e = R.sqrt(d)
        return (b, e)


def test_dataflow_blocks_become_ordinary_ones_that_are_joined() -> None:
    check(ToNonDataflow(), MixedAfter, Ordinary, X)
    stays(ToNonDataflow(), Ordinary)


@I.ir_module
class Sized:
    @R.function
    def main(x: R.Tensor):
        with R.dataflow():
            n = T.int64()
            a = R.match_cast(x, R.Tensor((n,), "float32"))
            s = R.shape_of(a)
            b = R.zeros(s, "float32")
            R.output(b)
        return b


def test_shapes_that_mention_dataflow_variables_are_kept() -> None:
    after = ToNonDataflow()(Sized)
    assert len(after["main"].body.blocks) == 1
    np.testing.assert_array_equal(compile(after, "reference")["main"](X), np.zeros(4, "float32"))
