"""Passes in pairs, on programs with recursion, closures, tuples, sizes and shared symbols."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.script import ir as I, relax as R, tir as T
from tests.exec.passes import ROWS

X = np.array([1.0, 2.0, 3.0, 4.0], "float32")
YES, NO = np.array(True), np.array(False)
pytestmark = pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")


@I.ir_module
class Calls:
    @R.function(private=True)
    def recursive(
        n: R.Tensor((), "int32"),
        p: R.Tuple(R.Tensor((4,), "float32"), R.Tensor(("k",), "float32")),
        u: R.Tensor((4,), "float32"),
    ) -> R.Tuple(R.Tensor((4,), "float32"), R.Tensor, R.Tensor):
        c = R.less(n, R.const(1))
        if c:
            a = p[0]
            r = (a, a, u)
        else:
            m = R.subtract(n, R.const(1))
            q = Calls.recursive(m, p, u)
            b = q[0]
            d = R.add(b, b)
            r = (d, b, b)
        return r

    @R.function(private=True)
    def sized(
        x: R.Tensor(("n",), "float32"),
        y: R.Tensor(("n",), "float32"),
        z: R.Tensor(("m",), "float32"),
    ):
        n, m = T.int64(), T.int64()
        s = R.zeros(R.shape([n, m]), "float32")
        return (s, x, R.shape([m, n]))

    @R.function(private=True)
    def ignored(x: R.Tensor(("n",), "float32"), f: R.Object) -> R.Tuple():
        return R.tuple()

    @R.function
    def main(x: R.Tensor((4,), "float32"), z: R.Tensor(("w",), "float32")):
        a = Calls.recursive(R.const(3), (x, z), x)
        b = a[0]
        c = Calls.sized(b, x, z)
        d = c[0]
        e = c[2]
        v = Calls.sized(z, z, x)
        g = Calls.ignored(x, Calls.sized)
        h = R.match_cast(
            Calls.recursive(R.const(1), (x, x), x),
            R.Tuple(R.Tensor((4,), "float32"), R.Tensor, R.Tensor),
        )
        return (b, d, e, v, g, h)

    @R.function
    def closures(x: R.Tensor(("n",), "float32"), c: R.Tensor((), "bool")):
        n = T.int64()
        k = R.const([1.0], "float32")

        @R.function
        def outer(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            @R.function
            def inner(w: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                a = R.add(w, y)
                b = R.add(a, k)
                return b

            d = inner(y)
            e = inner(d)
            return e

        t = (outer, x)
        h = t[0]
        if c:
            u = h(x)
            r = R.add(u, k)
        else:
            v = outer(x)
            r = R.add(v, k)
        return (r, outer(x))


@I.ir_module
class Blocks:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        with R.dataflow():
            a = R.exp(x)
            t = (a, x)
            R.output(t)
        if c:
            b = t[0]
            d = R.add(b, b)
        else:
            e = t[1]
            d = R.add(e, e)
        return d

    @R.function
    def shaped(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            s = R.shape_of(x)
            z = R.zeros(s, "float32")
            w = s
            y = R.match_cast(R.add(z, x), R.Tensor(w, "float32"))
            R.output(y)
        return y

    @R.function
    def repeated(x: R.Tensor(("n",), "float32")):
        with R.dataflow():
            m = T.int64()
            a = R.match_cast(x, R.Tensor((m,), "float32"))
            b = R.match_cast(x, R.Tensor((m,), "float32"))
            c = R.add(a, b)
            d = R.shape([m, m])
            R.output(c, d)
        return (c, d)

    @R.function
    def branches(x: R.Tensor, c: R.Tensor((), "bool")):
        m = T.int64()
        if c:
            a = R.match_cast(x, R.Tensor((m,), "float32"))
            y = R.sum(a)
        else:
            b = R.match_cast(x, R.Tensor((m,), "float32"))
            y = R.max(b)
        return y


PASSES = {
    name: ROWS[name]
    for name in (
        *("AttachGlobalSymbol", "CanonicalizeBindings", "ConvertToDataflow(1)"),
        *("DeadCodeElimination", "EliminateCommonSubexpr", "ExpandTupleArguments", "FoldConstant"),
        *("InlinePrivateFunctions", "LambdaLift", "RemoveUnusedOutputs", "RemoveUnusedParameters"),
        *("ToNonDataflow", "TopologicalSort(outputs)"),
    )
}
USES: list[tuple[IRModule, list[tuple[str, tuple[Any, ...]]]]] = [
    (Calls, [("main", (X, X[:2])), ("closures", (X, YES)), ("closures", (X, NO))]),
    (
        Blocks,
        [
            *(("main", (X, YES)), ("main", (X, NO)), ("shaped", (X,)), ("repeated", (X,))),
            *(("branches", (X, YES)), ("branches", (X, NO))),
        ],
    ),
]


def flat(value: Any) -> list[Any]:
    return [x for v in value for x in flat(v)] if isinstance(value, tuple) else [value]


@pytest.mark.rule("OPT-1")
@pytest.mark.parametrize("first", PASSES)
@pytest.mark.parametrize("use", USES, ids=["calls", "blocks"])
def test_two_passes_keep_the_values(
    use: tuple[IRModule, list[tuple[str, tuple[Any, ...]]]], first: str
) -> None:
    mod, calls = use
    before = relaxpy.compile(mod, target="reference")
    once = PASSES[first](mod)
    for second, step in PASSES.items():
        after = step(once)
        assert check_well_formed(after, normal_form=True) == [], second
        executable = relaxpy.compile(after, target="reference")
        for name, args in calls:
            results = flat(before[name](*args)), flat(executable[name](*args))
            for one, other in zip(*results, strict=True):
                np.testing.assert_array_equal(one, other, f"{name} after {second}")
