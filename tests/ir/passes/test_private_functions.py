"""Passes that change private functions and their calls."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.exec.api.compile import compile
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import (
    ExpandTupleArguments,
    InlinePrivateFunctions,
    RemoveUnusedOutputs,
    RemoveUnusedParameters,
)
from relaxpy.script import from_source
from tests.ir.passes.before_after import check, stays, verify
from tests.ir.relax.texts import changes, module, pair

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- unused parameters go with the bindings of their arguments
@private
-def f(x: f32[4], y: f32[4], z: R.Object) -> f32[4]:
+def f(y: f32[4]) -> f32[4]:
    a = R.abs(y)
    return a

def main(x: f32[4]):
    with R.dataflow():
-       y = R.exp(x)
-       b = cls.f(y, x, y)
-       c = cls.f(x, b, x)
+       b = cls.f(x)
+       c = cls.f(b)
    return c

--- dimensions that are used become parameters
@private
-def f(a: f32[m, n]) -> f32[m, n]:
+def f(param_n: R.Prim(value="n"), param_m: R.Prim(value="m")) -> f32[m, n]:
    z = R.zeros(R.shape([m, n]), "float32")
    return z

def main(a: f32[m, n]):
-   z = cls.f(a)
+   z = cls.f(R.prim_value(n), R.prim_value(m))
    return z
"""),
)
def test_parameters_before_and_after(before: str, after: str) -> None:
    verify(RemoveUnusedParameters(), before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- fields that no call uses are not returned
@private
-def f(x: f32[4]) -> R.Tuple(R.Tensor, R.Tensor, R.Tensor):
+def f(x: f32[4]):
    with R.dataflow():
        a = R.exp(x)
-       b = R.abs(x)
        c = R.negative(x)
-   return (a, b, c)
+   return (a, c)

@private
-def g(p: R.Tuple(f32[4], R.Tensor)) -> R.Tuple(R.Tensor, R.Tensor):
-   return p
+def g(p: R.Tuple(f32[4], R.Tensor)):
+   q = p[1]
+   return q

def main(x: f32[4]):
    t = cls.f(x)
    u = cls.f(x)
-   v = cls.g((x, x))
+   w = cls.g((x, x))
    y = t[0]
-   z = u[2]
-   w = v[1]
+   z = u[1]
    return (y, z, w)

--- a result that is used as a whole keeps all fields
@private
def f(x: f32[4]):
    y = R.exp(x)
    return (x, y)

def main(x: f32[4]):
    t = cls.f(x)
    y = t[0]
    return (t, y)
"""),
)
def test_outputs_before_and_after(before: str, after: str) -> None:
    verify(RemoveUnusedOutputs(), before, after)


KnownSizes = module("""
@private
def f(a: f32[m, n], s: R.Shape(("m", "n")), k: R.Prim(value="m")) -> f32[m, n]:
    z = R.zeros(R.shape([m, n]), "float32")
    b = R.add(a, z)
    return b

def main(a: f32[m, n]):
    z = cls.f(a, R.shape([m, n]), R.prim_value(m))
    return z
""")


def test_sizes_that_another_parameter_has_are_not_passed_again() -> None:
    after = RemoveUnusedParameters()(KnownSizes)
    assert [param.name_hint for param in after["f"].params] == ["a"]
    a = np.ones((2, 3), "float32")
    np.testing.assert_array_equal(relaxpy.compile(after, target="reference")["main"](a), a)


@pytest.mark.rule("OPT-8")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_a_parameter_that_a_call_checks_stays() -> None:
    Checked = module("""
    @private
    def f(x: f32[4], y: R.Tensor((4,))) -> f32[4]:
        return x

    def main(x: f32[4], y: R.Tensor(ndim=1)):
        z = cls.f(x, y)
        return z
    """)
    stays(RemoveUnusedParameters(), Checked)
    executable = relaxpy.compile(RemoveUnusedParameters()(Checked), target="numpy")
    with pytest.raises(RelaxpyError):
        executable["main"](X, X[:3])


AsValue = module("""
@private
def f(x: f32[4], y: f32[4]) -> f32[4]:
    return x

@private
def g(x: R.Tuple(f32[4], R.Tensor)) -> f32[4]:
    y = x[0]
    return y

def main(x: f32[4], c: bool):
    a = cls.f(x, x)
    b = cls.g((x, x))
    return (a, b, cls.f, cls.g)
""")


@pytest.mark.parametrize(
    "step", [RemoveUnusedParameters(), ExpandTupleArguments(), InlinePrivateFunctions()]
)
def test_functions_that_are_values_keep_their_signature(step: object) -> None:
    stays(step, AsValue)  # type: ignore[arg-type]


Nested, NestedAfter = pair("""
@private
-def f(p: R.Tuple(f32[4], R.Tuple(f32[4], R.Tuple())), y: f32[4]):
-   a = p[1]
-   b = a[0]
-   c = R.add(b, y)
+def f(p_0: f32[4], p_1_0: f32[4], y: f32[4]):
+   c = R.add(p_1_0, y)
    return c

def main(x: f32[4], t: R.Tuple(f32[4], R.Tuple())):
-   z = cls.f((x, t), x)
+   a = t[0]
+   z = cls.f(x, a, x)
    return z
""")


def test_fields_of_tuples_at_every_depth_become_parameters() -> None:
    check(ExpandTupleArguments(), Nested, NestedAfter, X, (X, ()))
    names = [param.name_hint for param in ExpandTupleArguments()(Nested)["f"].params]
    assert names == ["p_0", "p_1_0", "y"]
    stays(ExpandTupleArguments(), NestedAfter)


Calls, CallsAfter = pair("""
-@private
-def inner(x: f32[4]) -> f32[4]:
-   y = R.exp(x)
-   return y
-@private
-def outer(x: f32[4]) -> f32[4]:
-   y = cls.inner(x)
-   z = cls.inner(y)
-   return z
@private
def endless(x: f32[4]) -> f32[4]:
-   y = cls.inner(x)
+   y = R.exp(x)
    z = cls.endless(y)
    return z

def main(x: f32[4]):
+   a = R.exp(x)
+   y = R.exp(a)
    with R.dataflow():
-       y = cls.outer(x)
        z = R.abs(y)
    return z

def other(x: f32[4]):
    y = cls.endless(x)
    return y
""")


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
