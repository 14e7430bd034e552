"""Tail calls are loops: any number of iterations, with the checks and effects of calls."""

import pytest

import relaxpy
from tests.exec.graph_rows import run_row
from tests.ir.relax.texts import module
from tests.rows import sections

STEPS = {"numpy": 100_000, "native": 2_000, "reference": 500}
"""More than Python's stack holds, and as many as the evaluator takes in a moment."""

TOTAL = """
def total(n: i64, acc: i64) -> i64:
    if n > 0:
        with R.dataflow():
            less = n - 1
            more = acc + n
        found = cls.total(less, more)
        result = found
    else:
        result = acc
    return result
"""
LOOPS = sections(f"""
--- a tail call takes no stack{TOTAL}# holds: total(N, 0) == N * (N + 1) // 2
--- branches in branches and swapped parameters
def gcd(a: i64, b: i64, turn: bool) -> i64:
    if R.equal(b, R.const(0, "int64")):
        found = a
    else:
        if turn:
            found = cls.gcd(b, a, R.const(False))
        else:
            if a >= b:
                found = cls.gcd(a - b, b, turn)
            else:
                found = cls.gcd(a, b, R.const(True))
    return found
# holds: gcd(N, 1, False) == 1
# holds: gcd(84, 36, False) == 12
--- local functions loop over what they capture
def main(x: f32[n], count: i64):
    def step(k: i64, acc: R.Tensor((n,), "float32")) -> R.Tensor((n,), "float32"):
        if k > 0:
            found = step(k - 1, acc + x)
        else:
            found = acc
        return found

    return step(count, R.zeros_like(x))
# holds: main(ones(2), N).tolist() == [N, N]
--- each iteration checks its arguments
def fall(x: f32[4], y: R.Tensor("float32", ndim=1), k: i64) -> R.Object:
    if k > 0:
        found = cls.fall(y, x, k - 1)
    else:
        found = x
    return found
# holds: fall(ones(4), zeros(4), 3).tolist() == [0] * 4
# error: fall(ones(4), zeros(5), 3) -> FN-5: parameter x of fall
--- each iteration checks the result by its own sizes
def grow(x: f32[n], k: i64) -> f32[n]:
    if k > 0:
        found = cls.grow(R.concat([x, x], axis=0), k - 1)
    else:
        found = x
    return found
# holds: grow(ones(3), 0).shape == (3,)
# error: grow(ones(3), 2) -> FN-8: dimension 0 is 12, but n = 6
--- sizes that stay are checked once
def walk(x: f32[n], y: R.Tensor, k: i64) -> f32[n]:
    if k > 0:
        found = cls.walk(R.match_cast(y, R.Tensor(ndim=1, dtype="float32")), x, k - 1)
    else:
        found = x
    return found
# holds: walk(zeros(3), ones(3), N).tolist() == [0] * 3
# error: walk(zeros(3), ones(4), 1) -> FN-8
--- a cast of the result is not a tail call
def down(x: R.Tensor, k: i64) -> R.Tensor:
    if k > 0:
        y = cls.down(x, k - 1)
        found = R.match_cast(y, R.Tensor((4,), "float32"))
    else:
        found = x
    return found
# holds: down(ones(4), 3).shape == (4,)
# error: down(ones(5), 3) -> MC-7: match_cast
# error: down(ones(4), 100_000) -> -: nest deeper than Python allows
--- closures keep the values of their iteration
def collect(k: i64, f: R.Object) -> R.Object:
    def here(y: i64) -> i64:
        return y + k

    if R.equal(k, R.const(0, "int64")):
        found = (f, here)
    else:
        found = cls.collect(k - 1, (f, here))
    return found
# holds: [int(f(10)) for f in linked(collect(3, ()))] == [10, 11, 12, 13]
--- a closure may end in a call of a closure with the same code
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
# holds: main(3) == 48
--- recursion that is not a loop may be a hundred and twenty calls deep
def triangle(k: i64) -> i64:
    if k > 0:
        result = cls.triangle(k - 1) + k
    else:
        result = k
    return result
# holds: triangle(10) == 55
# holds: triangle(120) == 120 * 121 // 2
# error: triangle(1_000_000) -> -: nest deeper than Python allows
""")


@pytest.mark.rule("SC-1")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize("fact", LOOPS)
def test_tail_calls_are_loops(fact: str) -> None:
    run_row(LOOPS[fact], STEPS)


def test_a_tail_call_reads_as_a_loop() -> None:
    source = relaxpy.compile(module(TOTAL)).source
    loop = source[source.index("def total(") :]
    assert "while True:" in loop
    assert "continue" in loop
    assert "total(" not in loop.partition('"""')[2].partition('"""')[2]


@pytest.mark.parametrize("target", STEPS)
def test_effects_of_iterations_happen_in_order(target: str) -> None:
    seen: list[int] = []
    relaxpy.register_func("tests.tail.see", lambda k: seen.append(int(k)), override=True)

    counting = module("""
    @impure
    def count(k: i64) -> R.Tuple():
        R.call_packed("tests.tail.see", k, sinfo_args=R.Tuple())
        if k > 0:
            done = cls.count(k - 1)
        else:
            done = ()
        return done
    """)
    assert relaxpy.compile(counting, target)["count"](3) == ()
    assert seen == [3, 2, 1, 0]


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


@pytest.mark.parametrize("target", STEPS)
def test_a_tail_call_of_a_closure_of_another_executable_runs_in_its_module(target: str) -> None:
    closure = relaxpy.compile(Doubling, target)["make"]()
    assert relaxpy.compile(Applying, target)["main"](closure, 5) == 20


def test_an_instrument_sees_every_call() -> None:
    seen: list[str] = []

    virtual_machine = relaxpy.VirtualMachine(relaxpy.compile(module(TOTAL)))
    virtual_machine.set_instrument(lambda func, name, before, *rest: seen.append(name))
    assert virtual_machine["total"](3, 0) == 6
    assert seen.count("total") >= 6
