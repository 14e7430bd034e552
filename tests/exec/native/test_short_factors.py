"""Padded images of bfloat16 and floats of 8 bits, which dot-product instructions multiply."""

import re
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.native.contraction import tiles
from relaxpy.exec.native.contraction.blocking import Columns
from relaxpy.exec.native.contraction.operands import Gemm
from relaxpy.exec.native.llvm.writer import Function
from relaxpy.exec.native.machine_code.machine import generating_for, host
from relaxpy.script import from_source
from relaxpy.support.dataclass import replace

HAS_DOTS = "+avx512bf16" in host().features
WITHOUT = replace(host(), features=re.sub(r"\+(?=avx512bf16|amx-bf16)", "-", host().features))

TEXT = """
@T.prim_func
def main(X: T.Buffer((12, 12), "bfloat16"), W: T.Buffer((12, 20), "bfloat16"),
         Y: T.Buffer((14, 20), "float32"), Z: T.Buffer((14, 12), "float32")):
    P = T.alloc_buffer((14, 12), "float32")
    for i, j in T.grid(14, 12):
        P[i, j] = T.if_then_else(1 <= i and i < 13, {value}, T.float32({edge}))
    for i, j, k in T.grid(14, 20, 12):
        with T.block("product"):
            m, n, p = T.axis.remap("SSR", [i, j, k])
            with T.init():
                Y[m, n] = T.float32(0)
            Y[m, n] = Y[m, n] + P[m, p] * T.Cast("float32", W[p, n])
    for i, j in T.grid(14, 12):
        Z[i, j] = {other}
"""
WIDE = 'T.Cast("float32", X[i - 1, j])'


@pytest.mark.skipif(not HAS_DOTS, reason="the processor has no dot products of bfloat16")
@pytest.mark.parametrize(
    ("value", "edge", "other", "is_short"),
    [
        (WIDE, "0", "T.float32(1)", True),
        (WIDE, "-0.0", "T.float32(1)", True),
        (f"T.if_then_else(X[j, 0] > X[0, j], {WIDE}, T.float32(0))", "0", "T.float32(1)", True),
        (f"T.Select(X[j, 0] > X[0, j], T.float32(0), {WIDE})", "0", "T.float32(1)", True),
        (WIDE, "0.3", "T.float32(1)", False),
        (f"{WIDE} * T.float32(0.3)", "0", "T.float32(1)", False),
        (WIDE, "0", "P[i, j] + T.float32(0.3)", False),
    ],
)
def test_a_local_factor_is_short_if_it_is_exact_and_has_no_other_reader(
    value: str, edge: str, other: str, *, is_short: bool
) -> None:
    program = from_source(TEXT.format(value=value, edge=edge, other=other))
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(s).astype("bfloat16") for s in ((12, 12), (12, 20)))
    found = []
    for target in ("native", "reference"):
        y, z = (relaxpy.runtime.tensor(np.zeros(s, "float32")) for s in ((14, 20), (14, 12)))
        ex = relaxpy.compile(program, target=target)
        ex["main"](x, w, y, z)
        found.append((y.numpy(), z.numpy()))
        if target == "native":
            assert ("dpbf16ps" in ex.kernel_source("main", "llvm")) == is_short
    # The reference multiplies and adds in two roundings.
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found[0][1], found[1][1])


@pytest.mark.skipif(not HAS_DOTS, reason="the processor has no dot products of bfloat16")
@pytest.mark.parametrize(
    ("dtype", "inputs", "size"),
    [
        ("bfloat16", 16, 18),
        ("bfloat16", 5, 23),
        ("float8_e4m3fn", 16, 18),
        ("float8_e5m2fnuz", 16, 18),
    ],
)
def test_convolutions_have_the_bits_of_a_cpu_without_dot_products(
    dtype: str, inputs: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With them, the pixels of an image are columns, and its rows are folded."""
    folds, columns_of = list[bool](), tiles.columns_of

    def noted(f: Function, contraction: Gemm, *rest: Any, **options: Any) -> Columns:
        folds.append(contraction.fold is not None)
        return columns_of(f, contraction, *rest, **options)

    monkeypatch.setattr(tiles, "columns_of", noted)
    shapes = (2, inputs, size, size), (24, inputs, 3, 3)
    program = from_source(f"""
@R.function
def main(x: R.Tensor({shapes[0]}, "{dtype}"), w: R.Tensor({shapes[1]}, "{dtype}")):
    return R.nn.conv2d(x, w, padding=1, strides=1)
""")
    random = np.random.default_rng(0)
    x, w = (random.standard_normal(s).astype(relaxpy.DataType(dtype).numpy()) for s in shapes)
    found = []
    for machine in (host(), WITHOUT):
        with generating_for(machine, runs_here=True):
            ex = relaxpy.compile(program, "native")
            found.append(ex["main"](x, w).tobytes())
            folds.clear()
            source = ex.kernel_source("conv2d", "llvm")
            assert ("dpbf16ps" in source) == (machine is not WITHOUT)
            assert ex.report().varying == {"conv2d": "instructions for bfloat16"}
            if machine is not WITHOUT:
                assert folds
                assert all(folds)
    assert found[0] == found[1]
