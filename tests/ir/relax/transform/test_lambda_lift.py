"""LambdaLift: closures, recursion, captured shapes, and names."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import LambdaLift
from relaxpy.script import ir as I, relax as R, tir as T
from tests.ir.relax.transform.before_after import check, stays

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@I.ir_module
class Returned:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        @R.function
        def outer(c: R.Tensor((4,), "float32")) -> R.Callable(
            (R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")
        ):
            @R.function
            def inner(d: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                s = R.add(d, c)
                return s

            return inner

        f = outer(x)
        z = f(y)
        return z


@I.ir_module
class ReturnedAfter:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
        f = ReturnedAfter.main_outer(x)
        z = R.invoke_pure_closure(f, (y,), sinfo_args=R.Tensor((4,), "float32"))
        return z

    @R.function(private=True)
    def main_outer(c: R.Tensor((4,), "float32")) -> R.Object:
        inner = R.make_closure(ReturnedAfter.main_inner, (c,))
        return inner

    @R.function(private=True)
    def main_inner(d: R.Tensor((4,), "float32"), c: R.Tensor((4,), "float32")) -> R.Tensor(
        (4,), "float32"
    ):
        s = R.add(d, c)
        return s


def test_a_function_that_captures_nothing_is_called_directly_and_others_are_closures() -> None:
    check(LambdaLift(), Returned, ReturnedAfter, X, X + 1)
    stays(LambdaLift(), ReturnedAfter)


@I.ir_module
class Loop:
    @R.function
    def main(x: R.Tensor((), "int32")):
        @R.function
        def loop(i: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
            c = R.less(i, x)
            if c:
                n = R.add(i, R.const(1))
                r = loop(n)
            else:
                r = i
            return r

        y = loop(R.const(0))
        return y


@I.ir_module
class LoopAfter:
    @R.function
    def main(x: R.Tensor((), "int32")):
        loop = R.make_closure(LoopAfter.main_loop, (x,))
        y = R.invoke_pure_closure(loop, (R.const(0),), sinfo_args=R.Tensor((), "int32"))
        return y

    @R.function(private=True)
    def main_loop(i: R.Tensor((), "int32"), x: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        c = R.less(i, x)
        if c:
            n = R.add(i, R.const(1))
            r = LoopAfter.main_loop(n, x)
        else:
            r = i
        return r


def test_a_recursive_function_calls_itself_with_what_it_captured() -> None:
    check(LambdaLift(), Loop, LoopAfter, np.array(5, "int32"))


@I.ir_module
class Impure:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        @R.function(pure=False)
        def inner():
            _ = R.call_packed("tests.lift.note", x, sinfo_args=R.Object)
            return R.tuple()

        a = inner()
        b = inner()
        return x


def test_effects_stay() -> None:
    notes = []
    relaxpy.register_func("tests.lift.note", notes.append, override=True)
    after = LambdaLift()(Impure)
    relaxpy.compile(after, target="reference")["main"](X)
    np.testing.assert_array_equal(notes, [X, X])
    calls = relaxpy.relax.analysis.get_var2val(after["main"]).values()
    assert [call.op.name for call in calls] == ["relax.make_closure", *["relax.invoke_closure"] * 2]


@I.ir_module
class Names:
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        @R.function
        def a(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            @R.function
            def b(z: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
                return z

            return b(y)

        @R.function
        def b(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return y

        @R.function
        def c(y: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            return y

        return (a(x), b(x), c(x))

    @R.function
    def main_c(x: R.Tensor((4,), "float32")):
        return x


def test_names_tell_where_a_function_was_and_are_new() -> None:
    after = LambdaLift()(Names)
    lifted = {var.name_hint for var in after} - {"main", "main_c"}
    assert lifted == {"main_a", "main_a_b", "main_b", "main_c_0"}
    assert relaxpy.relax.analysis.well_formed(after)


@I.ir_module
class Sizes:
    @R.function
    def known(x: R.Tensor(("n",), "float32")):
        n = T.int64()

        @R.function
        def inner(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            z = R.add(y, y)
            return z

        w = inner(x)
        return w

    @R.function
    def needed(x: R.Tensor(("n",), "float32")):
        n = T.int64()

        @R.function
        def inner() -> R.Tensor((n,), "float32"):
            z = R.zeros(R.shape([n]), "float32")
            return z

        w = inner()
        return w


def test_captured_dimensions_are_passed_if_arguments_do_not_have_them() -> None:
    after = LambdaLift()(Sizes)
    assert len(after["known_inner"].params) == 1
    [size] = after["needed_inner"].params
    assert isinstance(size.struct_info, relaxpy.relax.PrimStructInfo)
    executable = relaxpy.compile(after, target="reference")
    np.testing.assert_array_equal(executable["known"](X), X + X)
    np.testing.assert_array_equal(executable["needed"](X), np.zeros(4))


@pytest.mark.rule("OPT-8")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_call_that_fails_still_fails(target: str) -> None:
    @I.ir_module
    class Unproved:
        @R.function
        def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(ndim=1, dtype="float32")):
            n = T.int64()

            @R.function
            def inner(z: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
                w = R.add(z, z)
                return w

            v = inner(y)
            return v

    for mod in (Unproved, LambdaLift()(Unproved)):
        executable = relaxpy.compile(mod, target=target)
        np.testing.assert_array_equal(executable["main"](X, X), X + X)
        with pytest.raises(RelaxpyError):
            executable["main"](X, X[:3])


@I.ir_module
class Recursive:
    @R.function
    def main(n: R.Tensor((), "int32")) -> R.Tensor((), "int32"):
        with R.dataflow():
            one = R.const(1, "int32")
            three = R.add(one, R.const(2, "int32"))

            @R.function
            def local(k: R.Tensor((), "int32")):
                c = R.less(k, R.const(1, "int32"))
                if c:
                    r = k
                else:
                    m = R.subtract(k, R.const(1, "int32"))
                    r = Recursive.main(m)
                return r

            w = local(n)
            a = R.add(w, one)
            b = R.add(a, three)
            R.output(b)
        return b


@pytest.mark.rule("WF-7b", "WF-25", "WF-8b")
def test_calls_that_become_recursive_are_moved_out_of_dataflow_blocks() -> None:
    after = LambdaLift()(Recursive)
    assert check_well_formed(Recursive) == []
    assert check_well_formed(after, normal_form=True) == []
    first, call, last = after["main"].body.blocks
    assert [type(block) for block in (first, last)] == [relax.DataflowBlock] * 2
    assert len(call.bindings) == 1
    assert LambdaLift()(after) is after
    for target in ("numpy", "reference"):
        results = [relaxpy.compile(m, target=target)["main"](5) for m in (Recursive, after)]
        np.testing.assert_array_equal(*results)
        assert int(results[0]) == 24


@I.ir_module
class Passed:
    @R.function
    def main(x: R.Tensor((4,), "float32"), y: R.Tensor(("n",), "float32")):
        n = T.int64()

        @R.function
        def add(a: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            b = R.add(a, x)
            return b

        @R.function
        def fill(a: R.Tensor((4,), "float32")) -> R.Tensor((n,), "float32"):
            b = R.zeros(R.shape([n]), "float32")
            return b

        @R.function
        def apply(
            f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
            a: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            b = f(a)
            c = f(b)
            return c

        @R.function
        def nested(
            f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
            a: R.Tensor((4,), "float32"),
        ) -> R.Tensor((4,), "float32"):
            b = apply(f, a)
            return b

        @R.function
        def both(
            t: R.Tuple(
                R.Callable((R.Tensor((4,), "float32"),), R.Tensor((4,), "float32")),
                R.Tensor((4,), "float32"),
            ),
        ) -> R.Tensor((4,), "float32"):
            f = t[0]
            b = f(t[1])
            return b

        @R.function
        def sized(
            f: R.Callable((R.Tensor((4,), "float32"),), R.Tensor((n,), "float32")),
        ) -> R.Tensor((n,), "float32"):
            b = f(x)
            return b

        with R.dataflow():
            p = apply(add, x)
            q = nested(add, p)
            R.output(p, q)
        t = (add, q)
        r = both(t)
        s = sized(fill)
        return (p, q, r, s)


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_closures_are_passed_as_what_they_are_declared_to_be(target: str) -> None:
    after = LambdaLift()(Passed)
    assert check_well_formed(after, normal_form=True) == []
    functions = (f for f in after.functions.values() if isinstance(f, relax.Function))
    assert not any(isinstance(node, relax.Function) for f in functions for node in walk(f.body))
    found = relaxpy.compile(after, target)["main"](X, X[:2])
    for one, factor in zip(found[:3], (3, 5, 6), strict=True):
        np.testing.assert_array_equal(one, factor * X)
    np.testing.assert_array_equal(found[3], np.zeros(2, "float32"))
