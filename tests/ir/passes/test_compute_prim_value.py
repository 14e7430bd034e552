"""ComputePrimValue: which scalars become calls, and that kernels are shared."""

import numpy as np

import relaxpy
from relaxpy.relax.transform import ComputePrimValue, RemovePurityChecking
from tests.ir.passes.before_after import check, stays
from tests.ir.relax.texts import module

X = np.ones(6, "float32")

Scalars = module("""
@impure
def main(x: f32[n], y: f32[m]):
    a = R.prim_value(n * 2)
    b = R.prim_value(m * 2)
    c = R.prim_value(n)
    d = (R.prim_value(n + m), R.prim_value(3))
    e = R.shape([n * 2])
    return (a, b, c, d, e, R.prim_value(m * n))
""")

ScalarsAfter = module("""
@kernel
def compute_symbolic_expr(n: T.int64) -> T.int64:
    T.func_attr({"tir.is_host_func": True})
    T.ret(n * 2)

@kernel
def compute_symbolic_expr1(n: T.int64, m: T.int64) -> T.int64:
    T.func_attr({"tir.is_host_func": True})
    T.ret(n + m)

@kernel
def compute_symbolic_expr2(m: T.int64, n: T.int64) -> T.int64:
    T.func_attr({"tir.is_host_func": True})
    T.ret(m * n)

@impure
def main(x: f32[n], y: f32[m]):
    a = cls.compute_symbolic_expr(R.prim_value(n))
    b = cls.compute_symbolic_expr(R.prim_value(m))
    c = R.prim_value(n)
    f = cls.compute_symbolic_expr1(R.prim_value(n), R.prim_value(m))
    d = (f, R.prim_value(3))
    e = R.shape([n * 2])
    g = cls.compute_symbolic_expr2(R.prim_value(m), R.prim_value(n))
    return (a, b, c, d, e, g)
""")


def test_compound_scalars_become_calls_of_shared_kernels() -> None:
    check(ComputePrimValue(), Scalars, ScalarsAfter, X, X[:5])
    stays(ComputePrimValue(), ScalarsAfter)


Pure = module("""
def main(x: f32[n]):
    a = R.prim_value(n * 2)
    return a
""")


def test_pure_functions_change_only_if_they_are_forced_to_be_pure() -> None:
    stays(ComputePrimValue(), Pure)
    after = ComputePrimValue()(RemovePurityChecking()(Pure))
    assert "compute_symbolic_expr" in after
    assert relaxpy.compile(after, target="reference")["main"](X) == 12
