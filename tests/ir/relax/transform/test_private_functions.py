"""Passes that change private functions and their calls."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.compile import compile
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import (
    ExpandTupleArguments,
    InlinePrivateFunctions,
    RemoveUnusedOutputs,
    RemoveUnusedParameters,
)
from relaxpy.script import from_source, ir as I, relax as R, tir as T
from tests.ir.relax.transform.before_after import check, stays

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@I.ir_module
class Parameters:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32"), z: R.Object) -> R.Tensor(
        (4,), "float32"
    ):
        a = R.abs(y)
        return a

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = R.exp(x)
            b = Parameters.f(y, x, y)
            c = Parameters.f(x, b, x)
            R.output(c)
        return c


@I.ir_module
class ParametersAfter:
    @R.function(private=True)
    def f(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        a = R.abs(y)
        return a

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            b = ParametersAfter.f(x)
            c = ParametersAfter.f(b)
            R.output(c)
        return c


def test_unused_parameters_go_with_the_bindings_of_their_arguments() -> None:
    check(RemoveUnusedParameters(), Parameters, ParametersAfter, X)
    stays(RemoveUnusedParameters(), ParametersAfter)


@I.ir_module
class Sizes:
    @R.function(private=True)
    def f(a: R.Tensor(("m", "n"), "float32")) -> R.Tensor(("m", "n"), "float32"):
        m, n = T.int64(), T.int64()
        z = R.zeros(R.shape([m, n]), "float32")
        return z

    @R.function
    def main(a: R.Tensor(("m", "n"), "float32")):
        z = Sizes.f(a)
        return z


@I.ir_module
class SizesAfter:
    @R.function(private=True)
    def f(param_n: R.Prim(value="n"), param_m: R.Prim(value="m")) -> R.Tensor(
        ("m", "n"), "float32"
    ):
        m, n = T.int64(), T.int64()
        z = R.zeros(R.shape([m, n]), "float32")
        return z

    @R.function
    def main(a: R.Tensor(("m", "n"), "float32")):
        m, n = T.int64(), T.int64()
        z = SizesAfter.f(R.prim_value(n), R.prim_value(m))
        return z


def test_dimensions_that_are_used_become_parameters() -> None:
    check(RemoveUnusedParameters(), Sizes, SizesAfter, np.ones((2, 3), "float32"))
    stays(RemoveUnusedParameters(), SizesAfter)


@I.ir_module
class KnownSizes:
    @R.function(private=True)
    def f(
        a: R.Tensor(("m", "n"), "float32"), s: R.Shape(("m", "n")), k: R.Prim(value="m")
    ) -> R.Tensor(("m", "n"), "float32"):
        m, n = T.int64(), T.int64()
        z = R.zeros(R.shape([m, n]), "float32")
        b = R.add(a, z)
        return b

    @R.function
    def main(a: R.Tensor(("m", "n"), "float32")):
        m, n = T.int64(), T.int64()
        z = KnownSizes.f(a, R.shape([m, n]), R.prim_value(m))
        return z


def test_sizes_that_another_parameter_has_are_not_passed_again() -> None:
    after = RemoveUnusedParameters()(KnownSizes)
    assert [param.name_hint for param in after["f"].params] == ["a"]
    a = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(relaxpy.compile(after, target="reference")["main"](a), a)


@pytest.mark.rule("OPT-8")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_a_parameter_that_a_call_checks_stays() -> None:
    @I.ir_module
    class Checked:
        @R.function(private=True)
        def f(x: R.Tensor((4,), "float32"), y: R.Tensor((4,))) -> R.Tensor((4,), "float32"):
            return x

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor(ndim=1)):
            z = Checked.f(x, y)
            return z

    stays(RemoveUnusedParameters(), Checked)
    executable = relaxpy.compile(RemoveUnusedParameters()(Checked), target="numpy")
    with pytest.raises(RelaxpyError):
        executable["main"](X, X[:3])


@I.ir_module
class AsValue:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return x

    @R.function(private=True)
    def g(x: R.Tuple(R.Tensor((4,), "float32"), R.Tensor)) -> R.Tensor((4,), "float32"):
        y = x[0]
        return y

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        a = AsValue.f(x, x)
        b = AsValue.g((x, x))
        return (a, b, AsValue.f, AsValue.g)


@pytest.mark.parametrize(
    "step", [RemoveUnusedParameters(), ExpandTupleArguments(), InlinePrivateFunctions()]
)
def test_functions_that_are_values_keep_their_signature(step: object) -> None:
    stays(step, AsValue)  # type: ignore[arg-type]


@I.ir_module
class Outputs:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")) -> R.Tuple(R.Tensor, R.Tensor, R.Tensor):
        with R.dataflow():
            a = R.exp(x)
            b = R.abs(x)
            c = R.negative(x)
            R.output(a, b, c)
        return (a, b, c)

    @R.function(private=True)
    def g(p: R.Tuple(R.Tensor((4,), "float32"), R.Tensor)) -> R.Tuple(R.Tensor, R.Tensor):
        return p

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        t = Outputs.f(x)
        u = Outputs.f(x)
        v = Outputs.g((x, x))
        y = t[0]
        z = u[2]
        w = v[1]
        return (y, z, w)


@I.ir_module
class OutputsAfter:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            c = R.negative(x)
            R.output(a, c)
        return (a, c)

    @R.function(private=True)
    def g(p: R.Tuple(R.Tensor((4,), "float32"), R.Tensor)):
        q = p[1]
        return q

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        t = OutputsAfter.f(x)
        u = OutputsAfter.f(x)
        w = OutputsAfter.g((x, x))
        y = t[0]
        z = u[1]
        return (y, z, w)


def test_fields_that_no_call_uses_are_not_returned() -> None:
    check(RemoveUnusedOutputs(), Outputs, OutputsAfter, X)
    stays(RemoveUnusedOutputs(), OutputsAfter)


@I.ir_module
class WholeResult:
    @R.function(private=True)
    def f(x: R.Tensor((4,), "float32")):
        y = R.exp(x)
        return (x, y)

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        t = WholeResult.f(x)
        y = t[0]
        return (t, y)


def test_a_result_that_is_used_as_a_whole_keeps_all_fields() -> None:
    stays(RemoveUnusedOutputs(), WholeResult)


@I.ir_module
class Nested:
    @R.function(private=True)
    def f(
        p: R.Tuple(R.Tensor((4,), "float32"), R.Tuple(R.Tensor((4,), "float32"), R.Tuple())),
        y: R.Tensor((4,), "float32"),
    ):
        a = p[1]
        b = a[0]
        c = R.add(b, y)
        return c

    @R.function
    def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple())):
        z = Nested.f((x, t), x)
        return z


@I.ir_module
class NestedAfter:
    @R.function(private=True)
    def f(
        p_0: R.Tensor((4,), "float32"),
        p_1_0: R.Tensor((4,), "float32"),
        y: R.Tensor((4,), "float32"),
    ):
        c = R.add(p_1_0, y)
        return c

    @R.function
    def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"), R.Tuple())):
        a = t[0]
        z = NestedAfter.f(x, a, x)
        return z


def test_fields_of_tuples_at_every_depth_become_parameters() -> None:
    check(ExpandTupleArguments(), Nested, NestedAfter, X, (X, ()))
    names = [param.name_hint for param in ExpandTupleArguments()(Nested)["f"].params]
    assert names == ["p_0", "p_1_0", "y"]
    stays(ExpandTupleArguments(), NestedAfter)


@I.ir_module
class Calls:
    @R.function(private=True)
    def inner(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        return y

    @R.function(private=True)
    def outer(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = Calls.inner(x)
        z = Calls.inner(y)
        return z

    @R.function(private=True)
    def endless(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = Calls.inner(x)
        z = Calls.endless(y)
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            y = Calls.outer(x)
            z = R.abs(y)
            R.output(z)
        return z

    @R.function
    def other(x: R.Tensor((4,), "float32")):
        y = Calls.endless(x)
        return y


@I.ir_module
class CallsAfter:
    @R.function(private=True)
    def endless(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        y = R.exp(x)
        z = CallsAfter.endless(y)
        return z

    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        y = R.exp(a)
        with R.dataflow():
            z = R.abs(y)
            R.output(z)
        return z

    @R.function
    def other(x: R.Tensor((4,), "float32")):
        y = CallsAfter.endless(x)
        return y


def test_private_functions_are_inlined_unless_they_are_recursive() -> None:
    check(InlinePrivateFunctions(), Calls, CallsAfter, X)
    stays(InlinePrivateFunctions(), CallsAfter)
    assert isinstance(InlinePrivateFunctions()(Calls)["endless"], rx.Function)


def chain(count: int, *, calls: int = 1) -> str:
    """A program whose functions each add 1 to `calls` results of the next one."""
    scalar = 'R.Tensor((), "float32")'
    lines = ["@I.ir_module", "class Chain:"]
    for k in range(count):
        visibility = "(private=True)" if k else ""
        lines += [f"    @R.function{visibility}", f"    def f{k}(x: {scalar}) -> {scalar}:"]
        lines += ["        with R.dataflow():"]
        for _ in range(calls if k < count - 1 else 0):
            lines.append(f"            x = Chain.f{k + 1}(x)")
        lines += [
            "            y = R.add(x, R.const(1.0))",
            "            R.output(y)",
            "        return y",
        ]
    return "\n".join(lines)


@pytest.mark.parametrize(("count", "calls"), [(160, 1), (7, 2)])
def test_functions_that_call_functions_are_inlined_at_every_depth(count: int, calls: int) -> None:
    after = InlinePrivateFunctions()(from_source(chain(count, calls=calls)))  # type: ignore[arg-type]
    assert [var.name_hint for var in after.functions] == ["f0"]
    additions = count if calls == 1 else 2**count - 1
    assert len(after["f0"].body.blocks[0].bindings) == additions  # type: ignore[union-attr]
    found = compile(after, "reference")["f0"](np.float32(0))
    np.testing.assert_equal(found, np.float32(additions))


def test_what_nothing_calls_is_not_inlined() -> None:
    unused = chain(40, calls=2).replace("def f0", "def main").replace("Chain.f1(x)", "R.abs(x)")
    after = InlinePrivateFunctions()(from_source(unused))  # type: ignore[arg-type]
    assert [var.name_hint for var in after.functions] == ["main"]
