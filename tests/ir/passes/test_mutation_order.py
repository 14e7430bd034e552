"""Passes use no operand after a kernel has written into it."""

from collections.abc import Callable

import numpy as np
import pytest

import relaxpy
from relaxpy import IRModule
from relaxpy.relax import transform
from tests.ir.passes.before_after import leaves
from tests.ir.relax.texts import graph

Doubling = graph("""
@kernel
def double(A: f32[2, 2]):
    for i, j in SS(2, 2):
        A[vi, vj] = A[vi, vj] * T.float32(2)

def main(x: f32[2, 2], y: f32[2, 2]):
    a = R.multiply(x, y)
    total = R.add(a, y)
    flat = R.reshape(a, (4,))
    turned = R.permute_dims(a)
    inner = R.matmul(a, y)
    unused = R.exp(y)
    twice = R.call_tir_inplace(cls.double, (a,), [0], f32[2, 2])
    product = R.matmul(x, total)
    square = R.reshape(flat, (2, 2))
    joined = R.concat((turned, R.permute_dims(y)), axis=0)
    again = R.matmul(inner, R.sum(y, axis=1))
    late = R.exp(y)
    return (twice, product, square, joined, again, late)
""")


PASSES: dict[str, Callable[[IRModule], IRModule]] = {
    "AdjustMatmulOrder": transform.AdjustMatmulOrder(),
    "ConvertToDataflow": transform.ConvertToDataflow(),
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr(),
    "ExpandMatmulOfSum": transform.ExpandMatmulOfSum(),
    "FuseTIR": lambda mod: transform.FuseTIR()(transform.FuseOps()(annotated(mod))),
    "RemoveRedundantReshape": transform.RemoveRedundantReshape(),
    "ReorderPermuteDimsAfterConcat": transform.ReorderPermuteDimsAfterConcat(),
    "ShareSums": transform.ShareSums(),
    "ToNonDataflow": transform.ToNonDataflow(),
    "TopologicalSort(breadth)": transform.TopologicalSort("breadth-first"),
    "TopologicalSort(breadth, outputs)": transform.TopologicalSort("breadth-first", "from-outputs"),
    "TopologicalSort(depth)": transform.TopologicalSort(),
    "TopologicalSort(outputs)": transform.TopologicalSort(direction="from-outputs"),
}


def annotated(mod: IRModule) -> IRModule:
    return transform.AnnotateTIROpPattern()(transform.LegalizeOps()(mod))


@pytest.mark.rule("OPT-2", "OPT-4")
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("name", PASSES)
def test_what_a_kernel_overwrites_is_used_before(name: str, outside: bool) -> None:
    mod = transform.ToNonDataflow()(Doubling) if outside else Doubling
    x, y = (
        np.array([[1.0, 2.0], [3.0, 4.0]], "float32"),
        np.array([[5.0, 6.0], [7.0, 8.0]], "float32"),
    )
    expected, found = (
        leaves(relaxpy.compile(m, target="reference")["main"](x, y))
        for m in (mod, PASSES[name](mod))
    )
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)
