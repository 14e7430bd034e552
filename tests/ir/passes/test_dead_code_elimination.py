"""DeadCodeElimination: what goes, and what stays for its effects, its errors and its symbols."""

import numpy as np
import pytest

import relaxpy
from relaxpy import relax as rx
from relaxpy.errors import MatchCastError, UnknownNameError
from relaxpy.ir.pass_infra.passes import Pass
from relaxpy.relax.transform import (
    AppendInPlace,
    DeadCodeElimination,
    LiftTransformParams,
    OptimizeLayoutTransform,
    QuantizeWeights,
)
from tests.ir.passes.before_after import check, verify
from tests.ir.relax.texts import both, graph, module

X = np.array([1.0, -2.0, 3.0, 0.5], "float32")

Bindings = """
@impure
def main(x: f32[4]):
-   with R.dataflow():
-       a = R.exp(x)
-       b = R.abs(a)
-       R.output(b)
    c = R.add(x, x)
-   d = R.sqrt(c)
    e = R.call_packed("tests.dce.touch", c, sinfo_args=R.Object)
    return x
"""


@pytest.mark.rule("OPT-4")
def test_impure_calls_stay_with_what_they_use() -> None:
    before, after = both(Bindings)
    touched = []
    relaxpy.register_func("tests.dce.touch", touched.append, override=True)
    verify(DeadCodeElimination(), before, after, run=False)
    relaxpy.compile(DeadCodeElimination()(module(before)), target="numpy")["main"](X)
    np.testing.assert_array_equal(touched, [X + X])


MayFail = module("""
def ordinary(x: f32[n], y: R.Tensor("float32")):
    a = R.match_cast(x, f32[4])
    b = R.add(x, y)
    return x

def dataflow(x: f32[n], y: R.Tensor("float32")):
    with R.dataflow():
        a = R.match_cast(x, f32[4])
        b = R.add(x, y)
        c = R.abs(x)
    return c
""")


@pytest.mark.rule("OPT-5", "OPT-7", "OPT-8")
@pytest.mark.parametrize("target", ["numpy", "reference"])
def test_errors_stay_outside_dataflow_blocks_and_only_there(target: str) -> None:
    executable = relaxpy.compile(DeadCodeElimination()(MayFail), target=target)
    three, two = X[:3], X[:2]
    with pytest.raises(MatchCastError):
        executable["ordinary"](three, three)
    with pytest.raises(relaxpy.errors.RelaxpyError):
        executable["ordinary"](X, two)
    np.testing.assert_array_equal(executable["ordinary"](X, X), X)
    np.testing.assert_array_equal(executable["dataflow"](three, two), abs(three))


Endless = module("""
@private
def spin(x: i64) -> i64:
    y = cls.spin(x)
    return y

def main(x: i64):
    with R.dataflow():
        a = cls.spin(x)
        b = R.add(x, x)
    return b

def outside(x: i64):
    a = cls.spin(x)
    return x
""")


@pytest.mark.rule("OPT-6")
def test_an_endless_pure_call_goes_from_a_dataflow_block_only() -> None:
    after = DeadCodeElimination()(Endless)
    assert relaxpy.compile(after, target="reference")["main"](np.array(4)) == 8
    [block] = after["outside"].body.blocks
    assert len(block.bindings) == 1


Symbols = """
def main(x: R.Tensor, y: R.Tensor):
    n, m = T.int64(), T.int64()
    with R.dataflow():
        a = R.match_cast(x, f32[n])
-       b = R.match_cast(y, f32[m])
        c = R.zeros(R.shape([n]), "float32")
    return c
"""


@pytest.mark.rule("OPT-9")
def test_an_unused_cast_stays_for_a_symbol_that_is_used() -> None:
    before, after = both(Symbols)
    verify(DeadCodeElimination(), before, after, run=False)
    check(DeadCodeElimination(), module(before), module(after), X, X)


SymbolsOfLocalFunctions = """
def unused(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    with R.dataflow():
        a = R.match_cast(x, f32[n])
        b = R.zeros(R.shape([n]), "float32")
        R.output(a, b)
-   def inner(c: f32[n]):
-       return R.negative(c)
    return b

def used(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    with R.dataflow():
        a = R.match_cast(x, f32[n])
        R.output(a)
    def inner(c: f32[n]):
        return R.negative(c)
    d = inner(y)
    return d

def called(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    with R.dataflow():
        a = R.match_cast(x, f32[n])
        R.output(a)
    def inner(f: R.Callable((f32[n],), f32[n])):
        return f(y)
    def negative(c: f32[4]):
        return R.negative(c)
    d = inner(negative)
    return d

def before(x: R.Tensor(ndim=1, dtype="float32"), y: R.Tensor(ndim=1, dtype="float32")):
    n = T.int64()
    def inner(c: f32[n]):
        return R.negative(c)
    with R.dataflow():
        a = R.match_cast(x, f32[n])
        b = R.zeros(R.shape([n]), "float32")
        R.output(a, b)
    return (b, inner(y))
"""


@pytest.mark.rule("OPT-9", "SC-13", "SC-15")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize("name", ["unused", "used", "called", "before"])
def test_parameters_of_a_local_function_do_not_bind_a_symbol_of_a_cast(name: str) -> None:
    before, after = map(module, both(SymbolsOfLocalFunctions))
    check(DeadCodeElimination(), before, after, X, X, name=name)


SymbolOfUnusedCall = graph("""
def main(x: R.Tensor):
    n = T.int64()
    a = R.match_cast(x, f32[n])
    b = R.zeros(R.shape([n]), "float32")
    c = R.shape_of(x)
    return c
""")


def test_a_symbol_that_only_unused_values_mention_is_not_used() -> None:
    [block] = DeadCodeElimination()(SymbolOfUnusedCall)["main"].body.blocks
    assert [b.var.name_hint for b in block.bindings] == ["c"]


Functions = module("""
@kernel
def kernel(a: f32[4], b: f32[4]):
    for i in range(4):
        b[i] = a[i] * T.float32(2)

@T.prim_func
def public_kernel(a: f32[4], b: f32[4]):
    for i in range(4):
        b[i] = a[i]

@private
def helper(x: f32[4]) -> f32[4]:
    y = R.call_tir(cls.kernel, (x,), f32[4])
    return y

@private
def recursive(x: f32[4]) -> f32[4]:
    y = cls.recursive(x)
    return y

def main(x: f32[4]):
    with R.dataflow():
        y = cls.helper(x)
        R.output(y)
    return x
""")


def test_functions_stay_if_they_are_public_or_used_in_the_end() -> None:
    def names(*entries: str) -> set[str]:
        after = DeadCodeElimination(entries or None)(Functions)
        return {var.name_hint for var in after}

    assert names() == {"main", "public_kernel"}
    assert names("recursive") == {"main", "public_kernel", "recursive"}
    assert names("helper") == {"main", "public_kernel", "helper", "kernel"}


def test_entries_are_names_of_functions() -> None:
    with pytest.raises(UnknownNameError, match="no function mian"):
        DeadCodeElimination(["mian"])(Functions)


CALLS = """
@private
def twice(x: f32[n]) -> f32[n]:
    y = R.add(x, x)
    return y

@private
def calls(x: f32[4]) -> f32[4]:
    y = cls.twice(x)
    return y

@private
def checks(x: R.Tensor) -> f32[4]:
    y = R.match_cast(x, f32[4])
    return y

@private
def branches(x: f32[4], c: bool):
    if c:
        y = cls.checks(x)
    else:
        y = cls.calls(x)
    return y

@private
def even(x: f32[4]) -> f32[4]:
    y = cls.odd(x)
    return y

@private
def odd(x: f32[4]) -> f32[4]:
    y = cls.even(x)
    return y

@private
def same(x: f32[n], y: f32[n]):
    z = R.add(x, y)
    return z

@R.function(private=True, pure=False)
def prints(x: f32[4]):
    R.print(x, format="{}")
    return x

@R.function(pure=PURE)
def main(x: f32[4], c: bool, u: f32[m], f: R.Callable((f32[4],), f32[4])):
    def local(y: f32[4]) -> f32[4]:
        z = cls.calls(y)
        return z
    def endless(y: f32[4]) -> f32[4]:
        z = endless(y)
        return z
    def calls_endless(y: f32[4]) -> f32[4]:
        z = endless(y)
        return z
    a = CALL
    return x
"""


def functions_after(call: str) -> set[str]:
    """The functions that remain if `main` has a call whose result it does not use."""
    text = CALLS.replace("CALL", call).replace("PURE", str("prints" not in call))
    after = DeadCodeElimination()(module(text))
    functions = {name for name in after.functions_by_name if name != "main"}
    bindings = [b for block in after["main"].body.blocks for b in block.bindings]
    return functions | {b.var.name_hint for b in bindings if isinstance(b.value, rx.Function)}


@pytest.mark.rule("OPT-8")
@pytest.mark.filterwarnings("ignore::relaxpy.errors.RelaxpyWarning")
@pytest.mark.parametrize(
    ("call", "needed"),
    [
        *((f"cls.{call}", "") for call in ("twice(x)", "twice(u)", "calls(x)")),
        *((call, "") for call in ("local(x)", "cls.same(x, x)", "cls.same(u, u)")),
        ("cls.calls(u)", "calls twice"),
        ("cls.same(x, u)", "same"),
        ("cls.checks(u)", "checks"),
        ("cls.branches(x, c)", "branches checks calls twice"),
        ("cls.even(x)", "even odd"),
        ("cls.prints(x)", "prints"),
        ("endless(x)", "endless"),
        ("calls_endless(x)", "endless calls_endless"),
        ("f(x)", ""),
    ],
)
def test_an_unused_call_stays_if_it_may_fail(call: str, needed: str) -> None:
    assert functions_after(call) == set(needed.split())


CHECKED = """
    fails = R.call_pure_packed("tests.dce.fails", {0}, sinfo_args=f32[4, 4])
    with R.dataflow():
{1}
        R.output(y)
    return {2}
"""
UNUSED = {
    AppendInPlace(): (
        "def main(x: f32[m, 4], past: f32[k, 4]):",
        ("x", "        y = R.concat((past, x), axis=0)", "y"),
    ),
    LiftTransformParams(): (
        """
def main_transform_params(params: R.Tuple(f32[m, 4])):
    w = params[0]"""
        + CHECKED.format("w", "        y = (w,)", "y")
        + """
def main(x: f32[m, m], w: f32[m, 4]):
    R.func_attr({"num_input": 1})""",
        ("x", "        v = R.negative(w)\n        y = R.matmul(x, v)", "y"),
    ),
    OptimizeLayoutTransform(): (
        "def main(x: f32[4, 4]):",
        (
            "x",
            """        a = R.layout_transform(x, lambda i, j: (i * 4 + j,))
        b = R.layout_transform(a, lambda i: (i // 4, i % 4))
        y = R.exp(b)""",
            "y",
        ),
    ),
    QuantizeWeights(params=["w"]): (
        "def main(x: f32[m, 8], w: f32[8, 8]):",
        ("x", "        y = R.matmul(x, w)", "y"),
    ),
}


@pytest.mark.rule("OPT-8")
@pytest.mark.parametrize("step", UNUSED, ids=lambda step: type(step).__name__)
def test_passes_that_leave_bindings_unused_keep_those_that_may_fail(step: Pass) -> None:
    head, parts = UNUSED[step]
    before = module(f"{head}{CHECKED.format(*parts)}")
    after = step(before)
    assert after is not before
    assert after.script().count("tests.dce.fails") == before.script().count("tests.dce.fails")
