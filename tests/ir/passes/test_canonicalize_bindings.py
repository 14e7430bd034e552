"""CanonicalizeBindings: aliases, tuples, casts, constants, and what outlives a block."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import MatchCastError, TransformError
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import CanonicalizeBindings
from tests.ir.passes.before_after import check, stays, verify
from tests.ir.relax.texts import changes, graph, module, pair

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- aliases are replaced by what they are aliases of
def main(x: f32[4]):
    a = x
    b = a
    c = R.add(b, a)
    d = c
    return (d, b)
=>
    c = R.add(x, x)
    return (c, x)

--- fields of known tuples are used and whole tuples found again
def main(x: f32[4], p: R.Tuple(f32[4], R.Tensor)):
    t = (x, p)
    u = t[1]
    v = u[0]
    w = u[1]
    whole = (v, w)
    half = (w, v)
    y = t[0]
    return (whole, half, y)
=>
    t = (x, p)
    v = p[0]
    w = p[1]
    half = (w, v)
    return (p, half, x)

--- a part of a tuple is not the tuple
def main(p: R.Tuple(R.Tensor, R.Tensor, R.Tensor)):
    a = p[0]
    b = p[1]
    c = (a, b)
    return c
"""),
)
def test_programs_before_and_after(before: str, after: str) -> None:
    verify(CanonicalizeBindings(), before, after)


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- struct info becomes more precise where dimensions become known
def main(x: R.Tuple(R.Tensor(("m", "n")))):
-   k = T.int64()
-   p = T.int64()
-   same = R.match_cast(x, R.Tuple(R.Tensor((k, p))))
-   a = same[0]
+   a = x[0]
    b = x[0]
    c = R.add(a, b)
    return R.exp(c)
"""),
)
def test_programs_before_and_after_2(before: str, after: str) -> None:
    verify(CanonicalizeBindings(), before, after, run=False)


Outputs = graph("""
def main(x: f32[4]):
    a = R.exp(x)
    b = a
    c = R.add(a, b)
    d = R.abs(c)
    R.output(b, c, d)
    return (b, d)
""")

OutputsAfter = graph("""
def main(x: f32[4]):
    b = R.exp(x)
    c = R.add(b, b)
    d = R.abs(c)
    return (b, d)
""")


def test_a_variable_that_an_output_is_an_alias_of_is_the_output() -> None:
    check(CanonicalizeBindings(), Outputs, OutputsAfter, X)
    [block] = CanonicalizeBindings()(Outputs)["main"].body.blocks
    assert [b.var.name_hint for b in block.bindings] == ["b", "c", "d"]
    assert [isinstance(b.var, rx.DataflowVar) for b in block.bindings] == [False, True, False]
    stays(CanonicalizeBindings(), OutputsAfter)


Casts = module("""
def main(x: f32[n, n], y: R.Tensor):
    n, k, m, p = (T.int64(), T.int64(), T.int64(), T.int64())
    a = R.match_cast(x, f32[n, n])
    b = R.match_cast(a, f32[k, k])
    c = R.match_cast(y, f32[m, p])
    d = R.match_cast(c, f32[n, p])
    return (b, d, R.shape([k, p]))
""")

CastsAfter = module("""
def main(x: f32[n, n], y: R.Tensor):
    n, m, p = (T.int64(), T.int64(), T.int64())
    c = R.match_cast(y, f32[m, p])
    d = R.match_cast(c, f32[n, p])
    return (x, d, R.shape([n, p]))
""")


@pytest.mark.rule("OPT-9", "OPT-14")
def test_casts_stay_as_far_as_they_check_or_bind_something() -> None:
    square = np.ones((2, 2), "float32")
    check(CanonicalizeBindings(), Casts, CastsAfter, square, np.ones((2, 3), "float32"))
    after = relaxpy.compile(CanonicalizeBindings()(Casts), target="reference")
    with pytest.raises(MatchCastError):
        after["main"](square, np.ones((3, 3), "float32"))


Contradiction = module("""
def main(a: f32[16, 16], b: f32[32, 32]):
    n, m, k = (T.int64(), T.int64(), T.int64())
    c = R.match_cast(a, f32[n, m])
    d = R.match_cast(b, f32[k, m])
    return (c, d)
""")


def test_known_dimensions_that_contradict_each_other_are_an_error() -> None:
    with pytest.raises(TransformError, match="MatchCast statements must be consistent") as caught:
        CanonicalizeBindings()(Contradiction)
    assert isinstance(caught.value, ValueError)
    assert caught.value.diagnostic.span is not None


ContradictionInBranch = module("""
def main(a: f32[16], b: f32[32], c: bool):
    m = T.int64()
    d = R.match_cast(a, f32[m])
    if c:
        e = R.match_cast(b, f32[m])
        f = R.sum(e)
    else:
        f = R.sum(d)
    return f
""")


@pytest.mark.rule("OPT-7")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_a_cast_that_may_not_be_reached_is_not_an_error() -> None:
    after = relaxpy.compile(CanonicalizeBindings()(ContradictionInBranch), target="reference")
    a, b = np.ones(16, "float32"), np.ones(32, "float32")
    assert after["main"](a, b, np.array(False)) == 16
    with pytest.raises(MatchCastError):
        after["main"](a, b, np.array(True))


Constants, ConstantsAfter = pair("""
def once():
    with R.dataflow():
        n = R.const(1)
-   return n
+       R.output(n)
+   return R.const(1)

def read(x: i32):
    c = R.const(2)
-   y = R.add(x, c)
-   z = R.add(y, c)
+   y = R.add(x, R.const(2))
+   z = R.add(y, R.const(2))
    return z

def twice():
    c = R.const(3)
    return (c, c)
""")


@pytest.mark.rule("OPT-11", "EV-2")
def test_constants_are_used_directly_unless_two_results_would_no_longer_be_one() -> None:
    check(CanonicalizeBindings(), Constants, ConstantsAfter, np.array(5, "int32"), name="read")
    one, other = relaxpy.compile(CanonicalizeBindings()(Constants), target="numpy")["twice"]()
    assert one is other


Coarse = module("""
def main(x: i32[n, 16]):
    y = x
    z: R.Tensor(ndim=2, dtype="int32") = R.add(y, y)
    return z
""")


def test_struct_info_becomes_more_precise_where_operands_change() -> None:
    after = CanonicalizeBindings()(Coarse)
    [[binding]] = [block.bindings for block in after["main"].body.blocks]
    assert binding.var.struct_info == after["main"].params[0].struct_info


Captured = graph("""
def main(x: f32[4]):
    a = R.exp(x)
    b = a
    def inner(y: f32[4]) -> f32[4]:
        z = R.add(y, b)
        return z
    c = inner(b)
    R.output(a, b, inner, c)
    return c
""")


@pytest.mark.rule("WF-11")
def test_what_a_local_function_captures_is_not_a_dataflow_variable() -> None:
    after = CanonicalizeBindings()(Captured)
    first = after["main"].body.blocks[0].bindings[0]
    assert not isinstance(first.var, rx.DataflowVar)
    assert relaxpy.relax.analysis.well_formed(after)
    result = relaxpy.compile(after, target="reference")["main"](X)
    np.testing.assert_allclose(result, 2 * np.exp(X), rtol=1e-6)
