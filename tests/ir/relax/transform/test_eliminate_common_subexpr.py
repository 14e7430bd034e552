"""EliminateCommonSubexpr: which values are merged, and which must stay two."""

import numpy as np
import pytest

import relaxpy
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import EliminateCommonSubexpr
from relaxpy.script import ir as I, relax as R, tir as T
from tests.ir.relax.transform.before_after import check, stays

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@I.ir_module
class Allocated:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
        b = R.builtin.alloc_tensor(R.shape([4]), R.dtype("float32"), R.prim_value(0))
        c = R.add(a, b)
        return c


def test_memory_that_is_allocated_twice_stays_so() -> None:
    stays(EliminateCommonSubexpr(), Allocated)


@I.ir_module
class ShapesByVariables:
    @R.function
    def main(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=2, dtype="float32")):
        with R.dataflow():
            s = R.shape_of(x)
            t = R.shape_of(x)
            a = R.collapse_sum_to(y, s)
            b = R.collapse_sum_to(y, t)
            c = R.negative(a)
            d = R.negative(b)
            e = R.add(c, d)
            R.output(b, e, t)
        f = R.collapse_sum_to(y, t)
        g = R.add(e, R.multiply(b, f))
        return g


@pytest.mark.parametrize("call_only", [False, True])
def test_shapes_in_struct_info_are_merged_before_what_has_them(call_only: bool) -> None:
    after = EliminateCommonSubexpr(call_only=call_only)(ShapesByVariables)
    kept = [
        b.value.op.name
        for block in after["main"].body.blocks
        for b in block.bindings
        if isinstance(b.value, rx.Call)
    ]
    assert kept.count("relax.shape_of") == kept.count("relax.negative") == 1
    y = np.arange(8, dtype="float32").reshape(2, 4)
    total = y.sum(0)
    for mod in (ShapesByVariables, after):
        found = relaxpy.compile(mod, target="reference")["main"](X, y)
        np.testing.assert_array_equal(found, total * total - 2 * total)


@I.ir_module
class Scopes:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        a = R.exp(x)
        if c:
            b = R.exp(x)
            d = R.multiply(x, b)
            e = R.add(a, d)
        else:
            b = R.log(x)
            e = R.add(a, b)
        f = R.log(x)
        g = R.add(e, f)
        return g


@I.ir_module
class ScopesAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
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


def test_values_from_before_a_branch_are_used_in_it_and_its_own_only_there() -> None:
    with np.errstate(invalid="ignore"):
        check(EliminateCommonSubexpr(), Scopes, ScopesAfter, X, np.array(True))
    stays(EliminateCommonSubexpr(), ScopesAfter)


@I.ir_module
class Boundary:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(x)
            c = R.multiply(a, b)
            R.output(b, c)
        d = R.shape_of(x)
        e = R.shape_of(x)
        return (b, c, d, e)


@I.ir_module
class BoundaryAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = a
            c = R.multiply(a, a)
            R.output(b, c)
        d = R.shape_of(x)
        e = R.shape_of(x)
        return (b, c, d, e)


def test_a_dataflow_variable_replaces_an_output_inside_its_block_only() -> None:
    check(EliminateCommonSubexpr(), Boundary, BoundaryAfter, X)


@I.ir_module
class Results:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(x)
            R.output(a, b)
        return (a, b)


@pytest.mark.rule("OPT-11")
def test_two_new_tensors_that_leave_the_function_stay_two() -> None:
    stays(EliminateCommonSubexpr(), Results)
    first, second = relaxpy.compile(EliminateCommonSubexpr()(Results), target="numpy")["main"](X)
    first[:] = 0
    np.testing.assert_allclose(second, np.exp(X), rtol=1e-6)


@I.ir_module
class Mutated:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        a = R.exp(x)
        _ = R.call_packed("tests.cse.clear", a, sinfo_args=R.Object)
        b = R.exp(x)
        c = R.add(b, b)
        _1 = R.call_packed("tests.cse.clear", x, sinfo_args=R.Object)
        d = R.add(x, x)
        e = R.call_packed("tests.cse.clear", x, sinfo_args=R.Object)
        f = R.add(x, x)
        return (c, d, f)


@pytest.mark.rule("OPT-3", "OPT-4")
def test_nothing_is_merged_across_calls_with_effects() -> None:
    stays(EliminateCommonSubexpr(), Mutated)


@I.ir_module
class Expressions:
    @R.function
    def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor, R.Tensor)):
        a = t[0]
        b = t[0]
        c = (a, x)
        d = (b, x)
        e = R.shape([2, 3])
        f = R.shape([2, 3])
        g = R.exp(x)
        h = R.exp(x)
        i = R.add(g, h)
        return (c, d, e, f, i)


@I.ir_module
class ExpressionsAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor, R.Tensor)):
        a = t[0]
        b = a
        c = (a, x)
        d = c
        e = R.shape([2, 3])
        f = e
        g = R.exp(x)
        h = g
        i = R.add(g, g)
        return (c, c, e, e, i)


@I.ir_module
class CallsAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor, R.Tensor)):
        a = t[0]
        b = t[0]
        c = (a, x)
        d = (b, x)
        e = R.shape([2, 3])
        f = R.shape([2, 3])
        g = R.exp(x)
        h = g
        i = R.add(g, g)
        return (c, d, e, f, i)


def test_expressions_other_than_calls_are_merged_too_unless_that_is_switched_off() -> None:
    check(EliminateCommonSubexpr(), Expressions, ExpressionsAfter, X, (X, X))
    check(EliminateCommonSubexpr(call_only=True), Expressions, CallsAfter, X, (X, X))


@I.ir_module
class Casts:
    @R.function
    def main(x: R.Tensor):
        n, m = T.int64(), T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.match_cast(x, R.Tensor((m,), "float32"))
        c = R.match_cast(x, R.Tensor((n,), "float32"))
        d = R.add(a, c)
        return (d, R.shape([m]))


@I.ir_module
class CastsAfter:
    @R.function
    def main(x: R.Tensor):
        n, m = T.int64(), T.int64()
        a = R.match_cast(x, R.Tensor((n,), "float32"))
        b = R.match_cast(x, R.Tensor((m,), "float32"))
        c = a
        d = R.add(a, a)
        return (d, R.shape([m]))


@pytest.mark.rule("OPT-9")
def test_casts_that_bind_different_symbols_are_different() -> None:
    check(EliminateCommonSubexpr(), Casts, CastsAfter, X)


@I.ir_module
class Precise:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        a: R.Tensor = R.exp(x)
        b = R.exp(x)
        c = R.add(b, b)
        return c


@pytest.mark.rule("OPT-14")
def test_a_value_of_which_less_is_known_replaces_no_other() -> None:
    stays(EliminateCommonSubexpr(), Precise)


@I.ir_module
class Inner:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(x)

            @R.function
            def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                c = R.add(y, b)
                d = R.add(y, b)
                e = R.multiply(c, d)
                return e

            f = inner(a)
            R.output(b, inner, f)
        return f


@pytest.mark.rule("WF-11")
def test_a_local_function_uses_no_dataflow_variable_instead() -> None:
    after = EliminateCommonSubexpr()(Inner)
    assert relaxpy.relax.analysis.well_formed(after)
    one, other = (relaxpy.compile(m, target="reference")["main"](X) for m in (Inner, after))
    np.testing.assert_array_equal(one, other)


@I.ir_module
class InnerBlock:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(x)

            @R.function
            def inner(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                with R.dataflow():
                    c = R.add(y, y)
                    d = R.add(y, y)
                    e = R.multiply(c, d)
                    R.output(d, e)
                return e

            f = inner(x)
            g = R.multiply(a, b)
            R.output(b, f, g)
        h = R.add(b, f)
        return R.add(h, g)


@pytest.mark.rule("WF-11")
def test_a_local_function_may_have_dataflow_blocks() -> None:
    after = EliminateCommonSubexpr()(InnerBlock)
    assert relaxpy.relax.analysis.well_formed(after)
    assert after.script().count("R.exp") == 1
    one, other = (relaxpy.compile(m, target="reference")["main"](X) for m in (InnerBlock, after))
    np.testing.assert_array_equal(one, other)


@I.ir_module
class Functions:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        @R.function
        def f(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.multiply(a, x)
            return b

        @R.function
        def g(c: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            d = R.multiply(c, x)
            return d

        @R.function
        def captures_y(c: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            d = R.multiply(c, y)
            return d

        p = f(y)
        q = g(y)
        r = captures_y(y)
        s = R.add(p, q)
        t = R.add(s, r)
        return t


@I.ir_module
class FunctionsAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        @R.function
        def f(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.multiply(a, x)
            return b

        g = f

        @R.function
        def captures_y(c: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            d = R.multiply(c, y)
            return d

        p = f(y)
        q = p
        r = captures_y(y)
        s = R.add(p, p)
        t = R.add(s, r)
        return t


def test_equal_local_functions_are_one_and_so_are_their_calls() -> None:
    check(EliminateCommonSubexpr(), Functions, FunctionsAfter, X, X)
    stays(EliminateCommonSubexpr(call_only=True), Functions)


@I.ir_module
class Recursive:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def f(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = f(a)
            return b

        @R.function
        def g(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = g(a)
            return b

        return (f, g)


def test_functions_that_call_themselves_stay_two() -> None:
    stays(EliminateCommonSubexpr(), Recursive)
