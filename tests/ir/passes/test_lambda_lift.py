"""LambdaLift: closures, recursion, captured shapes, and names."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax
from relaxpy.errors import RelaxpyError
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax.analysis.well_formed import check_well_formed
from relaxpy.relax.transform import LambdaLift
from tests.fuzz import higher_order
from tests.fuzz.seed import COUNT, SEED
from tests.ir.passes.before_after import agree, verify
from tests.ir.relax.texts import changes, graph, module

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")


@pytest.mark.parametrize(
    ("before", "after"),
    changes("""
--- a function that captures nothing is called directly and others are closures
def main(x: f32[4], y: f32[4]):
    def outer(c: f32[4]) -> R.Callable((f32[4],), f32[4]):
        def inner(d: f32[4]) -> f32[4]:
            s = R.add(d, c)
            return s
        return inner
    f = outer(x)
    z = f(y)
    return z
=>
def main(x: f32[4], y: f32[4]):
    f = cls.main_outer(x)
    z = R.invoke_pure_closure(f, (y,), sinfo_args=f32[4])
    return z

@private
def main_outer(c: f32[4]) -> R.Object:
    inner = R.make_closure(cls.main_inner, (c,))
    return inner

@private
def main_inner(d: f32[4], c: f32[4]) -> f32[4]:
    s = R.add(d, c)
    return s

--- a recursive function calls itself with what it captured
def main(x: i32):
    def loop(i: i32) -> i32:
        c = R.less(i, x)
        if c:
            n = R.add(i, R.const(1))
            r = loop(n)
        else:
            r = i
        return r
    y = loop(R.const(0))
    return y
=>
def main(x: i32):
    loop = R.make_closure(cls.main_loop, (x,))
    y = R.invoke_pure_closure(loop, (R.const(0),), sinfo_args=i32)
    return y

@private
def main_loop(i: i32, x: i32) -> i32:
    c = R.less(i, x)
    if c:
        n = R.add(i, R.const(1))
        r = cls.main_loop(n, x)
    else:
        r = i
    return r
"""),
)
def test_programs_before_and_after(before: str, after: str) -> None:
    verify(LambdaLift(), before, after)


Impure = module("""
@impure
def main(x: f32[4]):
    @impure
    def inner():
        _ = R.call_packed("tests.lift.note", x, sinfo_args=R.Object)
        return R.tuple()
    a = inner()
    b = inner()
    return x
""")


def test_effects_stay() -> None:
    notes = []
    relaxpy.register_func("tests.lift.note", notes.append, override=True)
    after = LambdaLift()(Impure)
    relaxpy.compile(after, target="reference")["main"](X)
    np.testing.assert_array_equal(notes, [X, X])
    calls = relaxpy.relax.analysis.get_var2val(after["main"]).values()
    assert [call.op.name for call in calls] == ["relax.make_closure", *["relax.invoke_closure"] * 2]


Names = module("""
def main(x: f32[4]):
    def a(y: f32[4]) -> f32[4]:
        def b(z: f32[4]) -> f32[4]:
            return z
        return b(y)
    def b(y: f32[4]) -> f32[4]:
        return y
    def c(y: f32[4]) -> f32[4]:
        return y
    return (a(x), b(x), c(x))

def main_c(x: f32[4]):
    return x
""")


def test_names_tell_where_a_function_was_and_are_new() -> None:
    after = LambdaLift()(Names)
    lifted = {var.name_hint for var in after} - {"main", "main_c"}
    assert lifted == {"main_a", "main_a_b", "main_b", "main_c_0"}
    assert relaxpy.relax.analysis.well_formed(after)


Sizes = module("""
def known(x: f32[n]):
    def inner(y: f32[n]) -> f32[n]:
        z = R.add(y, y)
        return z
    w = inner(x)
    return w

def needed(x: f32[n]):
    def inner() -> f32[n]:
        z = R.zeros(R.shape([n]), "float32")
        return z
    w = inner()
    return w
""")


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
    Unproved = module("""
    def main(x: f32[n], y: R.Tensor(ndim=1, dtype="float32")):
        def inner(z: f32[n]) -> f32[n]:
            w = R.add(z, z)
            return w
        v = inner(y)
        return v
    """)
    for mod in (Unproved, LambdaLift()(Unproved)):
        executable = relaxpy.compile(mod, target=target)
        np.testing.assert_array_equal(executable["main"](X, X), X + X)
        with pytest.raises(RelaxpyError):
            executable["main"](X, X[:3])


Recursive = graph("""
def main(n: i32) -> i32:
    one = R.const(1, "int32")
    three = R.add(one, R.const(2, "int32"))
    def local(k: i32):
        c = R.less(k, R.const(1, "int32"))
        if c:
            r = k
        else:
            m = R.subtract(k, R.const(1, "int32"))
            r = cls.main(m)
        return r
    w = local(n)
    a = R.add(w, one)
    b = R.add(a, three)
    return b
""")


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


Curried = module("""
def global_(p: f32[4]):
    def add(q: f32[4]):
        return R.add(p, q)
    return add

def main(x: f32[4], choice: R.Tensor((), "bool")):
    def make(p: f32[4]):
        def add(q: f32[4]):
            return R.add(p, q)
        return add
    def captures(p: f32[4]):
        def add(q: f32[4]):
            a = R.add(p, q)
            return R.add(a, x)
        return add
    def higher(p: f32[4]):
        m = make
        return m
    def both(p: f32[4]):
        return (make, p)
    def identity(f: R.Callable((f32[4],), R.Callable((f32[4],), f32[4]))):
        return f
    def apply(f: R.Callable((f32[4],), R.Callable((f32[4],), f32[4]))):
        a = f(x)
        b = a(x)
        return b
    if choice:
        one = captures
    else:
        one = make
    two = higher(x)
    pair = both(x)
    three = pair[0]
    four = R.match_cast(make, R.Callable((f32[4],), R.Callable((f32[4],), f32[4])))
    five = identity(captures)
    six = cls.global_
    return (apply(one), apply(two), apply(three), apply(four), apply(five), apply(six))
""")


@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_functions_may_return_functions_that_return_functions(target: str) -> None:
    after = LambdaLift()(Curried)
    assert check_well_formed(after, normal_form=True) == []
    assert not any(isinstance(node, relax.Function) for node in walk(after["main"].body))
    for choice in (True, False):
        found = relaxpy.compile(after, target)["main"](X, np.array(choice))
        for result, factor in zip(found, (3 if choice else 2, 2, 2, 2, 3, 2), strict=True):
            np.testing.assert_array_equal(result, factor * X)


Sized = module("""
def main(x: f32[n]):
    def itself():
        return x
    def forward(f: R.Callable((f32[n],), f32[n])) -> R.Callable((f32[n],), f32[n]):
        return f
    def twice(a: f32[n]):
        return R.add(a, a)
    f = R.match_cast(itself, R.Callable((), f32[n]))
    g = forward(twice)
    return (f(), g(x))
""")


@pytest.mark.rule("VAL-7", "RES-54", "SC-16")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_a_captured_size_is_that_of_the_types_of_functions(target: str) -> None:
    after = LambdaLift()(Sized)
    assert check_well_formed(after, normal_form=True) == []
    agree(Sized, after, X, targets=(target,))


@pytest.mark.parametrize("number", range(COUNT))
def test_functions_of_functions_are_lifted(number: int) -> None:
    before = higher_order.write(f"{SEED}.{number}")
    after = LambdaLift()(before)
    assert check_well_formed(after, normal_form=True) == []
    functions = (f for f in after.functions.values() if isinstance(f, relax.Function))
    assert not any(isinstance(node, relax.Function) for f in functions for node in walk(f.body))
    for choice in (True, False):
        agree(before, after, X, X[::-1].copy(), np.array(choice))


Passed = module("""
def main(x: f32[4], y: f32[n]):
    def add(a: f32[4]) -> f32[4]:
        b = R.add(a, x)
        return b
    def fill(a: f32[4]) -> f32[n]:
        b = R.zeros(R.shape([n]), "float32")
        return b
    def apply(f: R.Callable((f32[4],), f32[4]), a: f32[4]) -> f32[4]:
        b = f(a)
        c = f(b)
        return c
    def nested(f: R.Callable((f32[4],), f32[4]), a: f32[4]) -> f32[4]:
        b = apply(f, a)
        return b
    def both(t: R.Tuple(R.Callable((f32[4],), f32[4]), f32[4])) -> f32[4]:
        f = t[0]
        b = f(t[1])
        return b
    def sized(f: R.Callable((f32[4],), f32[n])) -> f32[n]:
        b = f(x)
        return b
    with R.dataflow():
        p = apply(add, x)
        q = nested(add, p)
    t = (add, q)
    r = both(t)
    s = sized(fill)
    return (p, q, r, s)
""")


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
