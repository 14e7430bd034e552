"""Passes in pairs, on programs with recursion, closures, tuples, sizes and shared symbols."""

from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from tests.exec.passes import ROWS
from tests.ir.passes.before_after import leaves
from tests.ir.relax.texts import module

X = np.array([1.0, 2.0, 3.0, 4.0], "float32")
YES, NO = np.array(True), np.array(False)
pytestmark = pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")

Calls = module("""
@private
def recursive(n: i32, p: R.Tuple(f32[4], f32[k]), u: f32[4]) -> R.Tuple(
    f32[4], R.Tensor, R.Tensor
):
    c = R.less(n, R.const(1))
    if c:
        a = p[0]
        r = (a, a, u)
    else:
        m = R.subtract(n, R.const(1))
        q = cls.recursive(m, p, u)
        b = q[0]
        d = R.add(b, b)
        r = (d, b, b)
    return r

@private
def sized(x: f32[n], y: f32[n], z: f32[m]):
    s = R.zeros(R.shape([n, m]), "float32")
    return (s, x, R.shape([m, n]))

@private
def ignored(x: f32[n], f: R.Object) -> R.Tuple():
    return R.tuple()

def main(x: f32[4], z: f32[w]):
    a = cls.recursive(R.const(3), (x, z), x)
    b = a[0]
    c = cls.sized(b, x, z)
    d = c[0]
    e = c[2]
    v = cls.sized(z, z, x)
    g = cls.ignored(x, cls.sized)
    h = R.match_cast(cls.recursive(R.const(1), (x, x), x), R.Tuple(f32[4], R.Tensor, R.Tensor))
    return (b, d, e, v, g, h)

def closures(x: f32[n], c: bool):
    k = R.const([1.0], "float32")
    def outer(y: f32[n]) -> f32[n]:
        def inner(w: f32[n]) -> f32[n]:
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
""")

Blocks = module("""
def main(x: f32[4], c: bool):
    with R.dataflow():
        a = R.exp(x)
        t = (a, x)
    if c:
        b = t[0]
        d = R.add(b, b)
    else:
        e = t[1]
        d = R.add(e, e)
    return d

def shaped(x: f32[n]):
    with R.dataflow():
        s = R.shape_of(x)
        z = R.zeros(s, "float32")
        w = s
        y = R.match_cast(R.add(z, x), R.Tensor(w, "float32"))
    return y

def repeated(x: f32[n]):
    with R.dataflow():
        m = T.int64()
        a = R.match_cast(x, f32[m])
        b = R.match_cast(x, f32[m])
        c = R.add(a, b)
        d = R.shape([m, m])
    return (c, d)

def branches(x: R.Tensor, c: bool):
    m = T.int64()
    if c:
        a = R.match_cast(x, f32[m])
        y = R.sum(a)
    else:
        b = R.match_cast(x, f32[m])
        y = R.max(b)
    return y
""")

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


@pytest.mark.rule("OPT-1")
@pytest.mark.each_choice
@pytest.mark.parametrize("first", PASSES)
@pytest.mark.parametrize("use", USES, ids=["calls", "blocks"])
def test_two_passes_keep_the_values(use, first) -> None:
    mod, calls = use
    before = relaxpy.compile(mod, target="reference")
    expected = [leaves(before[name](*args)) for name, args in calls]
    once = PASSES[first](mod)
    for second, step in PASSES.items():
        after = step(once)
        if after is once and second != first:
            continue  # the values after the first pass alone are compared in its own turn
        assert check_well_formed(after, normal_form=True) == [], second
        executable = relaxpy.compile(after, target="reference")
        for values, (name, args) in zip(expected, calls, strict=True):
            for one, other in zip(values, leaves(executable[name](*args)), strict=True):
                np.testing.assert_array_equal(one, other, f"{name} after {second}")
