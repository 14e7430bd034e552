"""Exported programs in an engine of WebAssembly have the bits of native code.

Relaxed SIMD is compared with native code on an engine that fuses products and sums, and plain SIMD
with strict native code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("llvmlite")

import relaxpy
from relaxpy.exec.native.machine_code.machine import Machine, host
from relaxpy.script import from_source
from tests.exec.export.in_node import (
    CPUS,
    Case,
    check_same,
    needs_linker,
    needs_node,
    run_in_node,
    run_natively,
    typed,
)
from tests.exec.native import same_bits
from tests.exec.native.forms import DTYPES, KINDS, PRODUCTS, Form, drawn_product, generator
from tests.rows import whole_tables

pytestmark = [needs_node, needs_linker]
NATIVE: Mapping[str, Callable[[], Machine]] = {
    "relaxed-simd": host,
    "simd128": lambda: host().strict(),
}


def check(cases: Mapping[str, Case], cpu: str, folder: Path) -> None:
    """Check that all cases have the same results in node and as native code."""
    found = run_in_node([*cases.values()], cpu, folder)
    for (name, case), each in zip(cases.items(), found, strict=True):
        check_same(each, run_natively(case, NATIVE[cpu]()), name)


@pytest.mark.parametrize("cpu", CPUS)
def test_programs_have_the_bits_of_native_code(cpu: str, tmp_path: Path) -> None:
    names = [name for name in same_bits.texts() if name not in ("decoder", "packed weights")]
    cases = {}
    for name in names:
        shapes = same_bits.CNN_SHAPES if name == "network" else same_bits.SINGLE[name][1]
        given = [same_bits.numbers(*shape, seed=7 * n + 1) for n, shape in enumerate(shapes)]
        cases[name] = Case(same_bits.module_of(name), given)
    for rows in (1, 7):
        given = [same_bits.numbers(rows, 96)]
        cases[f"packed weights, {rows}"] = Case(same_bits.module_of("packed weights"), given)
    check(cases, cpu, tmp_path)


def _case(form: Form) -> Case:
    given = [array for name, array in form.operands.items() if name not in form.constant]
    return Case(form.module(), given)


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_kernels_are_right(kind: str, cpu: str, tmp_path: Path) -> None:
    rng = generator("in node", kind, cpu)
    forms = [KINDS[kind](rng) for _ in range(12 if whole_tables() else 2)]
    check_forms(forms, cpu, tmp_path)


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_right(dtype: str, cpu: str, tmp_path: Path) -> None:
    rng = generator("products in node", dtype, cpu)
    chosen = rng.sample(PRODUCTS, 16 if whole_tables() else 3)
    check_forms([drawn_product(how, dtype, "node", cpu) for how in chosen], cpu, tmp_path)


def check_forms(forms: list[Form], cpu: str, folder: Path) -> None:
    """Check the results of programs whose exact results are known."""
    found = run_in_node([_case(form) for form in forms], cpu, folder)
    for form, each in zip(forms, found, strict=True):
        [output] = each.outputs
        assert output.dtype == form.wanted.dtype
        np.testing.assert_array_equal(
            output.astype("f8"), form.wanted.astype("f8"), err_msg=form.body
        )


ELEMENTWISE = """
@R.function
def main(x: R.Tensor(("n",), "{dtype}"), y: R.Tensor(("n",), "{dtype}")):
    return {body}
"""
BODIES = {
    "float": [
        *(f"R.{n}(x)" for n in ("exp", "log", "sin", "cos", "tan", "tanh", "erf", "sqrt", "rsqrt")),
        *(f"R.{n}(x)" for n in ("sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh")),
        *(f"R.{n}(x)" for n in ("sigmoid", "floor", "ceil", "round", "trunc", "abs", "sign")),
        *(f"R.{n}(x, y)" for n in ("add", "multiply", "divide", "power", "maximum", "minimum")),
        *(f"R.{n}(x, y)" for n in ("floor_divide", "mod", "less", "equal")),
        *(f'R.astype(x, "{n}")' for n in ("int8", "int32", "int64", "uint8", "float16")),
        *(f'R.astype(x, "{n}")' for n in ("bfloat16", "float32", "float64", "bool")),
        *("R.sum(x)", "R.max(x)", "R.argmax(x)", "R.cumsum(x)", "R.nn.softmax(x)", "R.nn.gelu(x)"),
    ],
    "int": [
        *(f"R.{n}(x, y)" for n in ("add", "multiply", "maximum", "less", "bitwise_xor")),
        *(f"R.{n}(x)" for n in ("abs", "sign", "negative")),
        *(f'R.astype(x, "{n}")' for n in ("int8", "int64", "float16", "float32", "float64")),
        *("R.sum(x)", "R.max(x)", "R.argmin(x)", "R.cumsum(x)"),
    ],
}


@pytest.mark.each_choice
@pytest.mark.parametrize("cpu", CPUS)
@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"]
)
def test_operators_have_the_bits_of_native_code(dtype: str, cpu: str, tmp_path: Path) -> None:
    """Numbers are special ones, large and small ones, and those that any operator likes."""
    rng = np.random.default_rng(5)
    kind = "float" if "float" in dtype else "int"
    if kind == "float":
        special = [0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-310, 1e30, 70000, -3e9, 65504]
        drawn = np.concatenate([rng.uniform(-3, 3, 40), rng.uniform(-1e5, 1e5, 8)])
        every = np.concatenate([special, drawn])
    else:
        every = np.concatenate([rng.integers(0, 127, 50), [0, 1, 127]])
    with np.errstate(all="ignore"):
        x = every.astype(typed(dtype))
        y = rng.permutation(every).astype(typed(dtype))
    bodies = (
        BODIES[kind] if whole_tables() else generator("operators", dtype).sample(BODIES[kind], 6)
    )
    cases = {}
    for body in bodies:
        if dtype.startswith("u") and ("abs" in body or "negative" in body):
            continue
        func = from_source(ELEMENTWISE.format(dtype=dtype, body=body))
        cases[body] = Case(relaxpy.IRModule({"main": func}), [x, y])
    check(cases, cpu, tmp_path)
