"""Kernels of all forms are planned and emitted for each machine, and are right where they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from relaxpy.exec.native.machine_code.machine import Machine, host, narrow
from relaxpy.target import Native
from tests.exec.native.forms import (
    DTYPES,
    KINDS,
    PRODUCTS,
    ROWS,
    Form,
    drawn_product,
    emit,
    generator,
    lowered,
    product_of,
)
from tests.rows import check_all, whole_tables

pytest.importorskip("llvmlite")

CPUS = {
    "AVX2": "linux-x86_64:x86-64-v3",
    "AVX-512": "linux-x86_64:x86-64-v4",
    "NEON": "linux-aarch64:generic",
    "VNNI and BF16": "linux-x86_64:znver4",
    "dot products of NEON": "linux-aarch64:neoverse-v1",
    "relaxed SIMD": "wasm32",
    "SIMD of WebAssembly": "wasm32:simd128",
    "strict": "native:strict",
}
WIDTHS = ("AVX2", "AVX-512", "NEON")
HERE: Mapping[str, Callable[[], Machine]] = {
    "host": host,
    "AVX2": narrow,
    "strict": lambda: host().strict(),
}


def machine(name: str) -> Machine:
    found = Native.of_text(CPUS[name]).machine_or_host()
    assert found is not None
    return found


def check_emitted(form: Form, names: tuple[str, ...]) -> None:
    """Check that a program is emitted for machines, unless it uses what they lack."""
    module = lowered(form)
    for name in names:
        emit(module, machine(name))


@pytest.mark.parametrize("rows", ROWS)
def test_few_rows_by_matrices_of_all_sizes(rows: int) -> None:
    """Each axis is fixed or symbolic, for each width of vectors."""
    forms = [how for how in PRODUCTS if how.rows == rows and ("m" not in how.symbolic or rows == 9)]
    check_all(forms, lambda how: check_emitted(product_of(how, "float32", (70, 37)), WIDTHS))


@pytest.mark.each_choice
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_emitted(dtype: str, name: str) -> None:
    rng = generator("emitted products", dtype, name)
    forms = PRODUCTS if whole_tables() else rng.sample(PRODUCTS, 6)
    check_all(forms, lambda how: check_emitted(drawn_product(how, dtype, name), (name,)))


@pytest.mark.each_choice
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_are_right(dtype: str, name: str) -> None:
    rng = generator("products", dtype, name)
    forms = rng.sample(PRODUCTS, 60 if whole_tables() else 5)
    check_all(forms, lambda how: drawn_product(how, dtype, "run", name).run(HERE[name]()))


@pytest.mark.each_choice
@pytest.mark.parametrize("name", CPUS)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_emitted(kind: str, name: str) -> None:
    rng = generator("emitted", kind, name)
    forms = [KINDS[kind](rng) for _ in range(60 if whole_tables() else 8)]
    check_all(forms, lambda form: check_emitted(form, (name,)))


@pytest.mark.each_choice
@pytest.mark.parametrize("name", HERE)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_are_right(kind: str, name: str) -> None:
    rng = generator("right", kind, name)
    forms = [KINDS[kind](rng) for _ in range(60 if whole_tables() else 6)]
    check_all(forms, lambda form: form.run(HERE[name]()))
