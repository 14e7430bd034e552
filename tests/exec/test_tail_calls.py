# ruff: noqa: SIM108
"""Tail calls are loops: any number of iterations, with the checks and effects of calls."""

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError, MatchCastError, RuntimeCheckError
from relaxpy.script import relax as R, tir as T
from tests.ir.relax.texts import module

TARGETS = pytest.mark.parametrize("target", ["native", "numpy", "reference"])


def steps(target: str) -> int:
    """More than Python's stack holds, and as many as the evaluator takes in a moment."""
    return {"numpy": 100_000, "native": 2_000, "reference": 500}[target]


@R.function
def total(n: R.Tensor((), "int64"), acc: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
    if n > 0:
        with R.dataflow():
            less = n - 1
            more = acc + n
            R.output(less, more)
        found = total(less, more)
        result = found
    else:
        result = acc
    return result


@TARGETS
@pytest.mark.rule("SC-1")
def test_a_tail_call_takes_no_stack(target: str) -> None:
    count = steps(target)
    assert relaxpy.compile(total, target)["total"](count, 0) == count * (count + 1) // 2


def test_a_tail_call_reads_as_a_loop() -> None:
    source = relaxpy.compile(total).source
    loop = source[source.index("def total(") :]
    assert "while True:" in loop
    assert "continue" in loop
    assert "total(" not in loop.partition('"""')[2].partition('"""')[2]


@TARGETS
def test_branches_in_branches_and_swapped_parameters(target: str) -> None:
    @R.function
    def gcd(
        a: R.Tensor((), "int64"), b: R.Tensor((), "int64"), turn: R.Tensor((), "bool")
    ) -> R.Tensor((), "int64"):
        if R.equal(b, R.const(0, "int64")):
            found = a
        else:
            if turn:
                found = gcd(b, a, R.const(False))
            else:
                if a >= b:
                    found = gcd(a - b, b, turn)
                else:
                    found = gcd(a, b, R.const(True))
        return found

    assert relaxpy.compile(gcd, target)["gcd"](steps(target), 1, False) == 1
    assert relaxpy.compile(gcd, target)["gcd"](84, 36, False) == 12


@TARGETS
def test_local_functions_loop_over_what_they_capture(target: str) -> None:
    @R.function
    def main(x: R.Tensor(("n",), "float32"), count: R.Tensor((), "int64")):
        n = T.int64()

        @R.function
        def step(k: R.Tensor((), "int64"), acc: R.Tensor((n,), "float32")) -> R.Tensor(
            (n,), "float32"
        ):
            if k > 0:
                found = step(k - 1, acc + x)
            else:
                found = acc
            return found

        return step(count, R.zeros_like(x))

    count = steps(target)
    found = relaxpy.compile(main, target)["main"](np.ones(2, "float32"), count)
    assert found.tolist() == [count, count]


@TARGETS
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_each_iteration_checks_its_arguments(target: str) -> None:
    @R.function
    def fall(
        x: R.Tensor((4,), "float32"), y: R.Tensor("float32", ndim=1), k: R.Tensor((), "int64")
    ) -> R.Object:
        if k > 0:
            found = fall(y, x, k - 1)
        else:
            found = x
        return found

    run = relaxpy.compile(fall, target)["fall"]
    assert run(np.ones(4, "float32"), np.zeros(4, "float32"), 3).tolist() == [0] * 4
    with pytest.raises(FunctionSignatureError, match="parameter x of fall") as caught:
        run(np.ones(4, "float32"), np.zeros(5, "float32"), 3)
    assert caught.value.diagnostic.rule == "FN-5"


@TARGETS
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_each_iteration_checks_the_result_by_its_own_sizes(target: str) -> None:
    @R.function
    def grow(x: R.Tensor(("n",), "float32"), k: R.Tensor((), "int64")) -> R.Tensor(
        ("n",), "float32"
    ):
        if k > 0:
            found = grow(R.concat([x, x], axis=0), k - 1)
        else:
            found = x
        return found

    run = relaxpy.compile(grow, target)["grow"]
    assert run(np.ones(3, "float32"), 0).shape == (3,)
    with pytest.raises(FunctionSignatureError, match="dimension 0 is 12, but n = 6") as caught:
        run(np.ones(3, "float32"), 2)
    assert caught.value.diagnostic.rule == "FN-8"


@TARGETS
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
def test_sizes_that_stay_are_checked_once(target: str) -> None:
    @R.function
    def walk(x: R.Tensor(("n",), "float32"), y: R.Tensor, k: R.Tensor((), "int64")) -> R.Tensor(
        ("n",), "float32"
    ):
        if k > 0:
            found = walk(R.match_cast(y, R.Tensor(ndim=1, dtype="float32")), x, k - 1)
        else:
            found = x
        return found

    count = steps(target)
    x, y = np.zeros(3, "float32"), np.ones(3, "float32")
    assert relaxpy.compile(walk, target)["walk"](x, y, count).tolist() == [0] * 3
    with pytest.raises(FunctionSignatureError, match="FN-8"):
        relaxpy.compile(walk, target)["walk"](x, np.ones(4, "float32"), 1)


@TARGETS
def test_a_cast_of_the_result_is_not_a_tail_call(target: str) -> None:
    @R.function
    def down(x: R.Tensor, k: R.Tensor((), "int64")) -> R.Tensor:
        if k > 0:
            y = down(x, k - 1)
            found = R.match_cast(y, R.Tensor((4,), "float32"))
        else:
            found = x
        return found

    run = relaxpy.compile(down, target)["down"]
    assert run(np.ones(4, "float32"), 3).shape == (4,)
    with pytest.raises(MatchCastError):
        run(np.ones(5, "float32"), 3)
    with pytest.raises(RuntimeCheckError, match="nest deeper than Python allows"):
        run(np.ones(4, "float32"), 100_000)


@TARGETS
def test_effects_of_iterations_happen_in_order(target: str) -> None:
    seen: list[int] = []
    relaxpy.register_func("tests.tail.see", lambda k: seen.append(int(k)), override=True)

    @R.function(pure=False)
    def count(k: R.Tensor((), "int64")) -> R.Tuple():
        R.call_packed("tests.tail.see", k, sinfo_args=R.Tuple())
        if k > 0:
            done = count(k - 1)
        else:
            done = ()
        return done

    assert relaxpy.compile(count, target)["count"](3) == ()
    assert seen == [3, 2, 1, 0]


@TARGETS
def test_closures_keep_the_values_of_their_iteration(target: str) -> None:
    @R.function
    def collect(k: R.Tensor((), "int64"), f: R.Object) -> R.Object:
        @R.function
        def here(y: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
            return y + k

        if R.equal(k, R.const(0, "int64")):
            found = (f, here)
        else:
            found = collect(k - 1, (f, here))
        return found

    found = relaxpy.compile(collect, target)["collect"](3, ())
    values = []
    while found:
        found, function = found
        values.append(int(function(10)))
    assert values == [10, 11, 12, 13]


Compositions = module("""
def main(x: i32) -> i32:
    def double(a: i32) -> i32:
        return a * R.const(2, "int32")
    once = cls.after(double, double)
    twice = cls.after(once, once)
    return twice(x)

def after(f: R.Callable((i32,), i32), g: R.Callable((i32,), i32)) -> R.Callable((i32,), i32):
    def composed(y: i32) -> i32:
        z = g(y)
        return f(z)
    return composed
""")


@TARGETS
def test_a_closure_may_end_in_a_call_of_a_closure_with_the_same_code(target: str) -> None:
    assert relaxpy.compile(Compositions, target)["main"](3) == 48


@TARGETS
def test_a_loop_that_never_ends_is_refused_like_any_recursion(target: str) -> None:
    @R.function
    def non_tail(k: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        if k > 0:
            found = non_tail(k - 1) + k
        else:
            found = k
        return found

    run = relaxpy.compile(non_tail, target)["non_tail"]
    assert run(10) == 55
    with pytest.raises(RuntimeCheckError, match="nest deeper than Python allows"):
        run(1_000_000)


@TARGETS
def test_recursion_may_be_a_hundred_and_twenty_calls_deep(target: str) -> None:
    @R.function
    def triangle(k: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        if k > 0:
            result = triangle(k - 1) + k
        else:
            result = k
        return result

    assert relaxpy.compile(triangle, target)["triangle"](120) == 120 * 121 // 2


Doubling = module("""
def step(x: i64) -> i64:
    y = R.add(x, x)
    return y

def make() -> R.Callable((i64,), i64):
    def twice(x: i64) -> i64:
        y = cls.step(x)
        z = cls.step(y)
        return z
    return twice
""")

Applying = module("""
def step(x: i64) -> i64:
    return x

def main(f: R.Callable((i64,), i64), x: i64) -> i64:
    y = f(x)
    return y
""")


@TARGETS
def test_a_tail_call_of_a_closure_of_another_executable_runs_in_its_module(target: str) -> None:
    closure = relaxpy.compile(Doubling, target)["make"]()
    assert relaxpy.compile(Applying, target)["main"](closure, 5) == 20


def test_an_instrument_sees_every_call() -> None:
    seen: list[str] = []

    virtual_machine = relaxpy.VirtualMachine(relaxpy.compile(total))
    virtual_machine.set_instrument(lambda func, name, before, *rest: seen.append(name))
    assert virtual_machine["total"](3, 0) == 6
    assert seen.count("total") >= 6
