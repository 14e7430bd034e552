"""EliminateCommonSubexpr: which values are merged, and which must stay two."""

import numpy as np
import pytest

import relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import EliminateCommonSubexpr
from tests.ir.passes.before_after import verify
from tests.ir.relax.texts import changes, module

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- memory that is allocated twice stays so
def main(x: f32[4]):
    a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
    b = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
    c = R.add(a, b)
    return c

--- values from before a branch are used in it and its own only there
def main(x: f32[4], c: bool):
    a = R.exp(x)
    if c:
-       b = R.exp(x)
-       d = R.multiply(x, b)
+       b = a
+       d = R.multiply(x, a)
        e = R.add(a, d)
    else:
        b = R.log(x)
        e = R.add(a, b)
    f = R.log(x)
    g = R.add(e, f)
    return g

--- what branches compute themselves stays
def main(x: f32[4], c: bool):
    a = R.exp(x)
    if c:
        b = a
        d = R.multiply(x, a)
        e = R.add(a, d)
    else:
        b = R.log(x)
        e = R.add(a, b)
    f = R.log(x)
    g = R.add(e, f)
    return g

--- a dataflow variable replaces an output inside its block only
def main(x: f32[4]):
    with R.dataflow():
        a = R.exp(x)
-       b = R.exp(x)
-       c = R.multiply(a, b)
+       b = a
+       c = R.multiply(a, a)
    d = R.shape_of(x)
    e = R.shape_of(x)
    return (b, c, d, e)

--- OPT-11: two new tensors that leave the function stay two
def main(x: f32[4]):
    with R.dataflow():
        a = R.exp(x)
        b = R.exp(x)
    return (a, b)

--- OPT-11: the second of three leaves the function in place of the first, the third stays
def main(x: f32[4]):
    a = R.exp(x)
-   b = R.exp(x)
+   b = a
    c = R.exp(x)
    d = R.add(a, a)
-   return (b, c, d)
+   return (a, c, d)

--- OPT-11: the first of three leaves the function, the second is merged, the third stays
def main(x: f32[4]):
    a = R.exp(x)
-   b = R.exp(x)
+   b = a
    c = R.exp(x)
-   d = R.add(b, b)
+   d = R.add(a, a)
    return (a, c, d)

--- OPT-11: tuples of new constants that leave the function stay two
def main(x: f32[4]):
    a = (x, R.const([1.0, 2.0], "float32"))
    b = (x, R.const([1.0, 2.0], "float32"))
    return (a, b)

--- OPT-4: a branch with an effect separates equal values
@impure
def main(x: f32[4], c: bool):
    a = R.exp(x)
    if c:
        _ = R.call_packed("tests.cse.clear", x, sinfo_args=R.Object)
        b = x
    else:
        b = a
    d = R.exp(x)
    e = R.add(a, d)
    return (b, e)

--- a branch without effects does not separate them
def main(x: f32[4], c: bool):
    a = R.exp(x)
    if c:
        b = R.log(x)
    else:
        b = R.abs(x)
-   d = R.exp(x)
-   e = R.add(a, d)
+   d = a
+   e = R.add(a, a)
    return R.add(b, e)

--- a variable of one block is not used in another
def main(x: f32[4]):
    with R.dataflow():
        a = R.exp(x)
        b = R.add(a, a)
        R.output(b)
    m = R.negative(b)
    with R.dataflow():
        c = R.exp(x)
        d = R.multiply(m, c)
        R.output(d)
    return d

--- OPT-3 OPT-4: nothing is merged across calls with effects
@impure
def main(x: f32[4]):
    a = R.exp(x)
    _ = R.call_packed("tests.cse.clear", a, sinfo_args=R.Object)
    b = R.exp(x)
    c = R.add(b, b)
    _1 = R.call_packed("tests.cse.clear", x, sinfo_args=R.Object)
    d = R.add(x, x)
    e = R.call_packed("tests.cse.clear", x, sinfo_args=R.Object)
    f = R.add(x, x)
    return (c, d, f)

--- expressions other than calls are merged too
def main(x: f32[4], t: R.Tuple(f32[4], f32[4])):
    a = t[0]
-   b = t[0]
+   b = a
    c = (a, x)
-   d = (b, x)
+   d = c
    e = R.shape([2, 3])
-   f = R.shape([2, 3])
+   f = e
    g = R.exp(x)
-   h = R.exp(x)
-   i = R.add(g, h)
-   return (c, d, e, f, i)
+   h = g
+   i = R.add(g, g)
+   return (c, c, e, e, i)

--- OPT-9: casts that bind different symbols are different
def main(x: R.Tensor(ndim=1, dtype="float32")):
    n, m = T.int64(), T.int64()
    a = R.match_cast(x, f32[n])
    b = R.match_cast(x, f32[m])
-   c = R.match_cast(x, f32[n])
-   d = R.add(a, c)
+   c = a
+   d = R.add(a, a)
    return (d, R.shape([m]))

--- OPT-14: a value of which less is known replaces no other
def main(x: f32[4]):
    a: R.Tensor = R.exp(x)
    b = R.exp(x)
    c = R.add(b, b)
    return c

--- equal local functions are one and so are their calls
def main(x: f32[4], y: f32[4]):
    def f(a: f32[4]) -> f32[4]:
        b = R.multiply(a, x)
        return b
-   def g(c: f32[4]) -> f32[4]:
-       d = R.multiply(c, x)
-       return d
+   g = f
    def captures_y(c: f32[4]) -> f32[4]:
        d = R.multiply(c, y)
        return d
    p = f(y)
-   q = g(y)
+   q = p
    r = captures_y(y)
-   s = R.add(p, q)
+   s = R.add(p, p)
    t = R.add(s, r)
    return t

--- WF-11: a local function uses no dataflow variable instead
def main(x: f32[4]):
    with R.dataflow():
        a = R.exp(x)
        b = R.exp(x)
        def inner(y: f32[4]) -> f32[4]:
            c = R.add(y, b)
-           d = R.add(y, b)
-           e = R.multiply(c, d)
+           d = c
+           e = R.multiply(c, c)
            return e
        f = inner(a)
        R.output(b, inner, f)
    return f

--- WF-11: a local function may have dataflow blocks
def main(x: f32[4]):
    with R.dataflow():
        a = R.exp(x)
-       b = R.exp(x)
+       b = a
        def inner(y: f32[4]) -> f32[4]:
            with R.dataflow():
                c = R.add(y, y)
-               d = R.add(y, y)
-               e = R.multiply(c, d)
+               d = c
+               e = R.multiply(c, c)
                R.output(d, e)
            return e
        f = inner(x)
-       g = R.multiply(a, b)
+       g = R.multiply(a, a)
        R.output(b, f, g)
    h = R.add(b, f)
    return R.add(h, g)

--- functions that call themselves stay two
def main(x: f32[4]):
    def f(a: f32[4]) -> f32[4]:
        b = f(a)
        return b
    def g(a: f32[4]) -> f32[4]:
        b = g(a)
        return b
    return (f, g)
"""),
)
def test_equal_values_are_merged_where_that_is_not_seen(before: str, after: str) -> None:
    verify(EliminateCommonSubexpr(), before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- expressions that compute nothing
def main(x: f32[4], t: R.Tuple(R.Tensor, R.Tensor)):
    a = t[0]
    b = t[0]
    c = (a, x)
    d = (b, x)
    e = R.shape([2, 3])
    f = R.shape([2, 3])
    g = R.exp(x)
-   h = R.exp(x)
-   i = R.add(g, h)
+   h = g
+   i = R.add(g, g)
    return (c, d, e, f, i)

--- local functions
def main(x: f32[4], y: f32[4]):
    def f(a: f32[4]) -> f32[4]:
        b = R.multiply(a, x)
        return b
    def g(c: f32[4]) -> f32[4]:
        d = R.multiply(c, x)
        return d
    return R.add(f(y), g(y))
"""),
)
def test_call_only_merges_calls_only(before: str, after: str) -> None:
    verify(EliminateCommonSubexpr(call_only=True), before, after, run=False)


@pytest.mark.parametrize("call_only", [False, True])
def test_shapes_in_struct_info_are_merged_before_what_has_them(call_only: bool) -> None:
    before = module("""
    def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=2, dtype="float32")):
        with R.dataflow():
            s = R.shape_of(x)
            t = R.shape_of(x)
            a = R.collapse_sum_to(y, s)
            b = R.collapse_sum_to(y, t)
            c = R.negative(a)
            d = R.negative(b)
            e = R.add(c, d)
        f = R.collapse_sum_to(y, t)
        g = R.add(e, R.multiply(b, f))
        return g
    """)
    after = EliminateCommonSubexpr(call_only=call_only)(before)
    kept = [
        b.value.op.name
        for block in after["main"].body.blocks
        for b in block.bindings
        if isinstance(b.value, rx.Call)
    ]
    assert kept.count("relax.shape_of") == kept.count("relax.negative") == 1
    y = np.arange(8, dtype="float32").reshape(2, 4)
    total = y.sum(0)
    for mod in (before, after):
        actual = relaxpy.compile(mod, target="reference")["main"](X, y)
        np.testing.assert_array_equal(actual, total * total - 2 * total)
