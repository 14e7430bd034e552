"""StaticPlanBlockMemory, LowerAllocTensor and KillAfterLastUse on modules written by hand."""

import textwrap

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule, relax
from relaxpy.errors import TransformError
from relaxpy.ir import assert_structural_equal
from relaxpy.ir.core.traverse import walk
from relaxpy.ir.relax import nodes as rx
from relaxpy.relax.transform import (
    CallTIRRewrite,
    KillAfterLastUse,
    LegalizeOps,
    LowerAllocTensor,
    RemovePurityChecking,
    StaticPlanBlockMemory,
    ToNonDataflow,
)
from relaxpy.transform import Sequential
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import graph, module

PREPARE = Sequential([LegalizeOps(), ToNonDataflow(), RemovePurityChecking(), CallTIRRewrite()])
DATA = np.arange(-4, 4, dtype="float32")


def parse(body: str, params: str, attrs: str = '{"relax.force_pure": True}') -> IRModule:
    """A module of a kernel `exp` over a vector, and `main`."""
    lines = textwrap.indent(body.strip(), "        ")
    return module(f"""
    @T.prim_func
    def exp(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            with T.block("exp"):
                vi = T.axis.spatial(n, i)
                B[vi] = T.exp(A[vi])

    def main({params}):
        R.func_attr({attrs})
{lines}
    """)


X = 'x: R.Tensor((8,), "float32")'
#: Four kernels, each of the result of the one before, on vectors of a size.
CHAIN = """
a = R.builtin.alloc_tensor(R.shape([{n}]), "float32", 0)
_1 = cls.exp(x, a)
b = R.builtin.alloc_tensor(R.shape([{n}]), "float32", 0)
_2 = cls.exp(a, b)
c = R.builtin.alloc_tensor(R.shape([{n}]), "float32", 0)
_3 = cls.exp(b, c)
d = R.builtin.alloc_tensor(R.shape([{n}]), "float32", 0)
_4 = cls.exp(c, d)
return d
"""
PLANNED = """
s = R.memory.alloc_storage(R.shape([{size}]), 0, "global", "float32")
a = R.memory.alloc_tensor(s, 0, R.shape([{n}]), "float32")
_1 = cls.exp(x, a)
t = R.memory.alloc_storage(R.shape([{size}]), 0, "global", "float32")
b = R.memory.alloc_tensor(t, 0, R.shape([{n}]), "float32")
_2 = cls.exp(a, b)
c = R.memory.alloc_tensor(s, 0, R.shape([{n}]), "float32")
_3 = cls.exp(b, c)
d = R.builtin.alloc_tensor(R.shape([{n}]), "float32", 0)
_4 = cls.exp(c, d)
return d
"""
STATIC = parse(CHAIN.format(n=8), X)


@pytest.mark.rule("OPT-10")
def test_a_chain_needs_two_storages_and_its_result() -> None:
    check(StaticPlanBlockMemory(), STATIC, parse(PLANNED.format(n=8, size=32), X), DATA)


def test_the_lowered_chain_is_explicit_to_the_last_release() -> None:
    lowered = KillAfterLastUse()(LowerAllocTensor()(StaticPlanBlockMemory()(STATIC)))
    expected = parse(
        """
s = R.memory.alloc_storage(R.shape([32]), 0, "global", "float32")
a = R.memory.alloc_tensor(s, 0, R.shape([8]), "float32")
_1 = cls.exp(x, a)
t = R.memory.alloc_storage(R.shape([32]), 0, "global", "float32")
b = R.memory.alloc_tensor(t, 0, R.shape([8]), "float32")
_6 = R.memory.kill_storage(t)
_2 = cls.exp(a, b)
_3 = R.memory.kill_tensor(a)
c = R.memory.alloc_tensor(s, 0, R.shape([8]), "float32")
_4 = R.memory.kill_storage(s)
_5 = cls.exp(b, c)
_7 = R.memory.kill_tensor(b)
u = R.memory.alloc_storage(R.shape([32]), 0, "global", "uint8")
d = R.memory.alloc_tensor(u, 0, R.shape([8]), "float32")
_8 = R.memory.kill_storage(u)
_9 = cls.exp(c, d)
_10 = R.memory.kill_tensor(c)
return d
""",
        X,
    )
    assert_structural_equal(lowered, expected)


def test_a_smaller_storage_grows_for_a_later_tensor() -> None:
    before = parse(
        """
a = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_1 = cls.exp(x, a)
b = R.builtin.alloc_tensor(R.shape([10]), "float32", 0)
return x
""",
        X,
    )
    after = parse(
        """
s = R.memory.alloc_storage(R.shape([40]), 0, "global", "float32")
a = R.memory.alloc_tensor(s, 0, R.shape([8]), "float32")
_1 = cls.exp(x, a)
b = R.memory.alloc_tensor(s, 0, R.shape([10]), "float32")
return x
""",
        X,
    )
    check(StaticPlanBlockMemory(), before, after, DATA)


@pytest.mark.rule("OPT-11")
@pytest.mark.parametrize(
    "use",
    [
        "c = R.reshape(a, R.shape([2, 4]))",
        "c = R.match_cast(a, R.Tensor((8,), 'float32'))",
        "c = (a, x)",
    ],
)
def test_a_tensor_lives_as_long_as_values_that_refer_to_it(use: str) -> None:
    last = "(c[0], b)" if use == "c = (a, x)" else "(c, b)"
    lines = f"""
a = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_1 = cls.exp(x, a)
{use}
b = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_2 = cls.exp(x, b)
return {last}
"""
    mod = parse(lines, X)
    stays(StaticPlanBlockMemory(), mod)  # both are results


@pytest.mark.rule("OPT-11")
def test_what_a_packed_function_has_had_is_never_overwritten() -> None:
    kept = []
    relaxpy.register_func("test.plan.keep", lambda tensor: kept.append(tensor), override=True)
    mod = parse(
        """
a = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_1 = cls.exp(x, a)
_2 = R.call_packed("test.plan.keep", a, sinfo_args=R.Tuple())
b = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_3 = cls.exp(a, b)
c = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_4 = cls.exp(b, c)
return c
""",
        X,
    )
    planned = LowerAllocTensor()(StaticPlanBlockMemory()(mod))
    for target in ("numpy", "reference"):
        relaxpy.compile(planned, target=target)["main"](DATA)
        np.testing.assert_allclose(kept.pop(), np.exp(DATA), rtol=1e-6)


@pytest.mark.parametrize(
    "lines",
    [
        "a = R.builtin.alloc_tensor(R.shape([8]), 'float32', 0)\nb = R.add(x, a)\nreturn x",
        """a = R.builtin.alloc_tensor(R.shape([]), 'bool', 0)
if a:
    y = x
else:
    b = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
    _1 = cls.exp(x, b)
    y = b
return y""",
        """a = R.builtin.alloc_tensor(R.shape([8]), "float32", 0)
_1 = cls.exp(x, a)
return a""",
    ],
)
def test_what_other_code_uses_keeps_its_allocation(lines: str) -> None:
    stays(StaticPlanBlockMemory(), parse(lines, X))


N = 'x: R.Tensor(("n",), "float32")'
SYMBOLIC = "n = T.int64()\n" + CHAIN.format(n="n")


@pytest.mark.parametrize(
    ("bound", "size"), [("", "4 * n"), (', "tir_var_upper_bound": {"n": 20}', "80")]
)
def test_symbolic_sizes_are_compared_or_bounded(bound: str, size: str) -> None:
    attrs = f'{{"relax.force_pure": True{bound}}}'
    planned = PLANNED.format(n="n", size=size)
    before, after = (parse(text, N, attrs) for text in (SYMBOLIC, f"n = T.int64()\n{planned}"))
    check(StaticPlanBlockMemory(), before, after, DATA)


def test_a_result_with_a_bound_may_be_planned_too() -> None:
    attrs = (
        '{"relax.force_pure": True, "tir_var_upper_bound": {"n": 20}, '
        '"relax.memory_plan_dynamic_func_output": True}'
    )
    planned = StaticPlanBlockMemory()(parse(SYMBOLIC, N, attrs))
    assert "relax.memory_plan_dynamic_func_output" not in planned["main"].attrs
    calls = [node for node in walk(planned["main"]) if isinstance(node, rx.Call)]
    names = [getattr(call.op, "name", "") for call in calls]
    assert names.count("relax.memory.alloc_storage") == 2  # the result lies where `b` was
    assert "relax.builtin.alloc_tensor" not in names
    small = DATA / 8 - 0.5  # so that powers of powers do not magnify rounding errors
    np.testing.assert_allclose(
        relaxpy.compile(planned)["main"](small), np.exp(np.exp(np.exp(np.exp(small)))), rtol=1e-5
    )


@pytest.mark.parametrize("bound", ["{'n': [4]}", "[4]", "{'n': 'm'}"])
def test_a_bound_is_an_integer(bound: str) -> None:
    mod = parse(SYMBOLIC, N, f'{{"relax.force_pure": True, "tir_var_upper_bound": {bound}}}')
    with pytest.raises(TransformError, match="tir_var_upper_bound"):
        StaticPlanBlockMemory()(mod)


def test_a_tensor_larger_than_its_bound_is_an_error() -> None:
    attrs = '{"relax.force_pure": True, "tir_var_upper_bound": {"n": 2}}'
    planned = StaticPlanBlockMemory()(parse(SYMBOLIC, N, attrs))
    with pytest.raises(relaxpy.errors.RuntimeCheckError, match="leaves the storage"):
        relaxpy.compile(planned)["main"](DATA)


@pytest.mark.rule("OPT-2")
def test_calls_of_one_executable_do_not_share_storage() -> None:
    Module = graph("""
    def main(x: f32[n]) -> f32[n]:
        a = R.exp(x)
        b = R.multiply(a, a)
        c = R.subtract(b, x)
        return c
    """)
    steps = Sequential([PREPARE, StaticPlanBlockMemory(), LowerAllocTensor(), KillAfterLastUse()])
    lowered = relaxpy.compile(steps(Module), relax_pipeline=None)
    vm = relax.VirtualMachine(lowered, relaxpy.cpu())
    first = vm["main"](DATA)
    again = vm["main"](DATA + 1)
    np.testing.assert_allclose(first, np.exp(DATA) ** 2 - DATA, rtol=1e-5)
    np.testing.assert_allclose(again, np.exp(DATA + 1) ** 2 - (DATA + 1), rtol=1e-5)
