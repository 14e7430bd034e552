"""Tail calls in circles take no stack: of several functions, and of ones that define functions."""

import random
import weakref

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import FunctionSignatureError
from relaxpy.script import from_source
from tests.counting import depth
from tests.exec.graph_rows import run_row
from tests.ir.relax import texts
from tests.rows import sections

STEPS = {"numpy": 20_000, "native": 2_000, "reference": 500}
"""More than Python's stack holds, and as many as the evaluator takes in a moment."""
TARGETS = pytest.mark.parametrize("target", STEPS)
QUIET = pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")


PARITY = """
def even(k: i64) -> bool:
    if k > 0:
        found = cls.odd(k - 1)
    else:
        found = R.const(True)
    return found

def odd(k: i64) -> bool:
    if k > 0:
        found = cls.even(k - 1)
    else:
        found = R.const(False)
    return found
"""
CIRCLES = sections(f"""
--- two functions that call each other{PARITY}# holds: even(N) and not odd(N) and odd(N + 1)
--- each step checks its arguments
def left(x: f32[4], y: R.Tensor("float32", ndim=1), k: i64) -> R.Object:
    if k > 0:
        found = cls.right(y, k - 1, x)
    else:
        found = x
    return found

def right(x: R.Tensor("float32", ndim=1), k: i64, y: R.Tensor("float32", ndim=1)) -> R.Object:
    if k > 0:
        found = cls.left(x, y, k - 1)
    else:
        found = x
    return found
# holds: left(ones(4), zeros(4), 3).tolist() == [1] * 4
# holds: left(ones(4), zeros(5), 1).tolist() == [0] * 5
# error: left(ones(4), zeros(5), 2) -> FN-5: parameter x of left
# error: left(zeros(5), zeros(5), 0) -> FN-5
--- callers check the result by their own annotations, the last caller first
def named(x: f32[n], k: i64) -> f32[n]:
    if k > 0:
        found = cls.open(R.concat([x, x], axis=0), k - 1)
    else:
        found = x
    return found

def open(x: R.Tensor("float32", ndim=1), k: i64) -> R.Tensor("float32", ndim=1):
    if k > 0:
        found = cls.named(x, k - 1)
    else:
        found = x
    return found
# holds: named(ones(3), 0).shape == (3,)
# error: named(ones(3), 5) -> FN-8: is 24, but n = 12
--- a caller checks the result by its constant annotation
def fixed(x: f32[n], k: i64) -> f32[12]:
    if k > 0:
        found = cls.loose(x, k - 1)
    else:
        found = R.zeros((12,), "float32")
    return found

def loose(x: f32[n], k: i64) -> R.Tensor("float32", ndim=1):
    if k > 0:
        found = cls.fixed(x, k - 1)
    else:
        found = x
    return found
# holds: fixed(ones(3), 4).shape == (12,)
# holds: fixed(ones(12), 5).shape == (12,)
# error: fixed(ones(3), 5) -> FN-8: the result of fixed
--- closures of many iterations keep their values
def collect(k: i64, f: R.Object) -> R.Object:
    twice = k + k

    def here(y: i64) -> i64:
        return y + twice

    if R.equal(k, R.const(0, "int64")):
        found = (f, here)
    else:
        found = cls.collect(k - 1, (f, here))
    return found
# holds: [int(f(10)) for f in linked(collect(N // 5, ()))] == [*range(10, 11 + N // 5 * 2, 2)]
--- local functions call themselves and the one around them
def outer(k: i64, acc: i64) -> i64:
    def inner(j: i64) -> i64:
        if j > 0:
            found = inner(j - R.const(1, "int64"))
        else:
            if k > 0:
                back = cls.outer(k - 1, acc + k)
            else:
                back = acc
            found = back
        return found

    done = inner(R.const(3, "int64"))
    return done
# holds: outer(N // 5, 0) == N // 5 * (N // 5 + 1) // 2
--- a local loop that defines functions
def main(x: f32[n], count: i64):
    def step(k: i64, acc: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
        def add(y: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
            return y + x

        if k > 0:
            found = step(k - 1, add(acc))
        else:
            found = acc
        return found

    return step(count, R.zeros_like(x)), step
# holds: main(ones(2), N // 2)[0].tolist() == [N // 2] * 2
# holds: main(ones(2), N // 2)[1](3, zeros(2)).tolist() == [3, 3]
--- circles that no path leaves are refused
def first(k: i64) -> i64:
    found = cls.second(k)
    return found

def second(k: i64) -> i64:
    found = cls.first(k)
    return found
# error: first(1) -> -: nest deeper than Python allows
--- calls in a circle that are not tail calls nest
def first(k: i64) -> i64:
    if k > 0:
        inner = cls.second(k - 1)
        found = inner + k
    else:
        found = k
    return found

def second(k: i64) -> i64:
    if k > 10:
        found = cls.third(k)
    else:
        found = cls.first(k)
    return found

def third(k: i64) -> i64:
    if R.equal(k, R.const(21, "int64")):
        found = cls.second(k - 1)
    else:
        found = cls.first(k)
    return found
# holds: first(4) == 4 + 3 + 2 + 1
# holds: first(30) == sum(range(31)) - 21
# error: first(100_000) -> -: nest deeper than Python allows
""")
Parity = texts.module(PARITY)


@QUIET
@pytest.mark.rule("SC-1")
@pytest.mark.parametrize("fact", CIRCLES)
def test_tail_calls_in_circles(fact: str) -> None:
    run_row(CIRCLES[fact], STEPS)


def test_the_text_says_what_is_called_next() -> None:
    source = relaxpy.compile(Parity).source
    assert "return rx.TailCall(odd_step, (" in source
    assert "return rx.TailCall(even_step, (" in source


def test_calls_that_run_in_no_circle_stay_calls() -> None:
    Chain = texts.module("""
    def last(x: f32[2]) -> f32[2]:
        return x + x

    def main(x: f32[2]) -> f32[2]:
        return cls.last(x)
    """)

    source = relaxpy.compile(Chain).source
    assert "TailCall" not in source
    assert "last(x)" in source


@TARGETS
def test_three_functions_of_different_parameters(target: str) -> None:
    seen: list[tuple[str, int]] = []
    depths: set[int] = set()

    def see(name: str, k: np.ndarray) -> None:
        seen.append((name, int(k)))
        depths.add(depth())

    relaxpy.register_func("tests.circle.see", see, override=True)

    Circle = texts.module("""
    @impure
    def first(k: i64) -> i64:
        R.call_packed("tests.circle.see", R.str("first"), k, sinfo_args=R.Tuple())
        if k > 0:
            if R.equal(k, R.const(5, "int64")):
                more = cls.first(k - 1)
            else:
                more = cls.second(k - 1, k)
            found = more
        else:
            found = k
        return found

    @impure
    def second(k: i64, acc: i64) -> i64:
        R.call_packed("tests.circle.see", R.str("second"), k, sinfo_args=R.Tuple())
        if k > 0:
            found = cls.third(acc, k - 1, R.const(2, "int64"))
        else:
            found = acc * R.const(10, "int64")
        return found

    @impure
    def third(acc: i64, k: i64, by: i64) -> i64:
        R.call_packed("tests.circle.see", R.str("third"), k, sinfo_args=R.Tuple())
        R.call_packed("tests.circle.see", R.str("acc"), acc * by, sinfo_args=R.Tuple())
        done = cls.first(k)
        return done
    """)

    run = relaxpy.compile(Circle, target)["first"]
    assert int(run(7)) == 0
    assert seen == [
        *[("first", 7), ("second", 6), ("third", 5), ("acc", 14)],
        *[("first", 5), ("first", 4), ("second", 3), ("third", 2), ("acc", 8)],
        *[("first", 2), ("second", 1), ("third", 0), ("acc", 4), ("first", 0)],
    ]
    assert int(run(3)) == 10
    depths.clear()
    run(20)
    after_few = set(depths)
    depths.clear()
    run(200)
    assert depths == after_few


@QUIET
@TARGETS
def test_a_shape_that_differs_between_steps_is_checked_by_each(target: str) -> None:
    module = from_source("""
@R.function
def turn(
    s: R.Shape(ndim=1),
    t: R.Shape(ndim=1),
    x: R.Tensor("float32", ndim=1),
    k: R.Tensor((), "int64"),
) -> R.Tensor(s, "float32"):
    @R.function
    def less(y: R.Tensor((), "int64")) -> R.Tensor((), "int64"):
        return y - R.const(1, "int64")

    if k > R.const(0, "int64"):
        found = turn(t, s, x, less(k))
        result = found
    else:
        result = x
    return result
""")
    run = relaxpy.compile(module, target)["turn"]
    three, four = relaxpy.runtime.ShapeTuple((3,)), relaxpy.runtime.ShapeTuple((4,))
    x = np.ones(3, "float32")
    assert run(three, three, x, np.array(2)).shape == (3,)
    with pytest.raises(FunctionSignatureError, match=r"the result of turn.*but s is"):
        run(four, three, x, np.array(1))
    with pytest.raises(FunctionSignatureError, match=r"the result of turn.*but s is"):
        run(three, four, x, np.array(2))


def test_arguments_die_with_their_step() -> None:
    alive: list[weakref.ref[np.ndarray]] = []
    counts: list[int] = []

    def see(x: np.ndarray) -> None:
        alive.append(weakref.ref(x))
        counts.append(sum(ref() is not None for ref in alive))

    relaxpy.register_func("tests.circle.keep", see, override=True)

    Turns = texts.module("""
    @impure
    def left(x: f32[2], k: i64) -> f32[2]:
        R.call_packed("tests.circle.keep", x, sinfo_args=R.Tuple())
        if k > 0:
            found = cls.right(k - 1, x + x)
        else:
            found = x
        return found

    @impure
    def right(k: i64, x: f32[2]) -> f32[2]:
        R.call_packed("tests.circle.keep", x, sinfo_args=R.Tuple())
        found = cls.left(x + x, k)
        return found
    """)

    relaxpy.compile(Turns)["left"](np.ones(2, "float32"), 5)
    assert len(counts) == 11
    assert max(counts) == 2  # what the caller gave, and what the step was given


def test_a_function_under_two_names_calls_what_it_names() -> None:
    module = Parity.clone()
    module["same"] = module["even"]
    for target in ("numpy", "reference"):
        run = relaxpy.compile(module, target, relax_pipeline=None)
        assert bool(run["even"](1001)) is False


def test_an_instrument_sees_every_call() -> None:
    for target in ("numpy", "reference"):
        seen: list[str] = []
        machine = relaxpy.VirtualMachine(relaxpy.compile(Parity, target))
        machine.set_instrument(lambda func, name, before, *rest, to=seen: to.append(name))
        assert bool(machine["even"](4))
        assert [name for name in seen if name in ("even", "odd")].count("odd") == 4


class Circles:
    """A random module whose functions call each other last, under branches and inside others."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.params = [self.random.sample("abc", self.random.randint(1, 3)) for _ in range(3)]
        bodies = [self.function(i) for i in range(3)]
        self.text = "\n".join(["@I.ir_module", "class M:", *bodies])

    def value(self, scope: list[str]) -> str:
        one, two = self.random.choices(scope, k=2)
        return self.random.choice([one, f"{one} + {two}", f"{one} - R.const(3, 'int64')"])

    def call(self, scope: list[str]) -> str:
        i = self.random.randrange(3)
        args = ", ".join(self.value(scope) for _ in self.params[i])
        return f"M.f{i}(k - R.const(1, 'int64'), {args})"

    def branch(self, scope: list[str], callees: list[str], depth: int, var: str) -> list[str]:
        """Statements that bind `var`."""
        if depth:
            remainder = f"R.floor_mod(k, R.const({self.random.randint(2, 3)}, 'int64'))"
            yes, no = (self.branch(scope, callees, depth - 1, f"{var}{d}") for d in "01")
            lines = [f"if R.equal({remainder}, R.const(0, 'int64')):"]
            lines += [f"    {line}" for line in [*yes, f"{var} = {var}0"]]
            lines += ["else:", *(f"    {line}" for line in [*no, f"{var} = {var}1"])]
            return lines
        kind = self.random.random()
        if kind < 0.6:
            return [f"{var} = {self.call(scope)}"]
        if kind < 0.8 and callees:
            return [f"{var} = {self.random.choice(callees)}({self.value(scope)})"]
        if kind < 0.9:
            return [f"inner{var} = {self.call(scope)}", f"{var} = inner{var} + k"]
        return [f"{var} = {self.value(scope)}"]

    def ended(self, scope: list[str], callees: list[str]) -> list[str]:
        branch = self.branch(scope, callees, self.random.randint(1, 2), "r")
        lines = ["if k > R.const(0, 'int64'):", *(f"    {line}" for line in branch)]
        return [
            *lines,
            "    found = r",
            "else:",
            f"    found = {self.value(scope)}",
            "return found",
        ]

    def see(self, name: str, scope: list[str]) -> str:
        values = ", ".join(scope)
        return f"R.call_packed('tests.circle.see', R.str('{name}'), {values}, sinfo_args=R.Tuple())"

    def head(self, name: str, params: list[str]) -> list[str]:
        scalar = "R.Tensor((), 'int64')"
        typed = ", ".join(f"{p}: {scalar}" for p in params)
        return ["@R.function(pure=False)", f"def {name}({typed}) -> {scalar}:"]

    def function(self, i: int) -> str:
        scope, callees, lines = ["k", *self.params[i]], [], []
        if self.random.random() < 0.6:
            inner = [self.see("here", ["k", "y"]), *self.ended([*scope, "y"], [])]
            lines += self.head("here", ["y"]) + [f"    {line}" for line in inner]
            callees = ["here"]
        lines = [*lines, self.see(f"f{i}", scope), *self.ended(scope, callees)]
        body = self.head(f"f{i}", scope) + [f"    {line}" for line in lines]
        return "\n".join(f"    {line}" for line in body)


@pytest.mark.parametrize("seed", range(12))
def test_random_circles_run_alike_on_both_targets(seed: int) -> None:
    seen: list[tuple[object, ...]] = []

    def see(name: str, *values: np.ndarray) -> None:
        seen.append((name, *map(int, values)))

    relaxpy.register_func("tests.circle.see", see, override=True)
    circles = Circles(seed)
    module = from_source(circles.text)
    found = []
    for target in ("numpy", "reference"):
        run = relaxpy.compile(module, target)
        for i, params in enumerate(circles.params):
            found.append((target, i, int(run[f"f{i}"](9, *range(5, 5 + len(params)))), seen[:]))
            seen.clear()
    middle = len(found) // 2
    assert [f[1:] for f in found[:middle]] == [f[1:] for f in found[middle:]]
