"""The conversions of floats of 16 and 8 bits in vectors, against those of NumPy and ml_dtypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("llvmlite")

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.narrow_floats import (
    FLOATS_OF_8_BITS,
    HALF,
    NarrowFloat,
    narrowed,
    rounded,
    widened,
)
from relaxpy.exec.native.llvm.writer import I64, POINTER, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import Machine, host, narrow

Array = np.ndarray[Any, Any]
LANES = 32
FORMATS = {"float16": HALF, **FLOATS_OF_8_BITS}


@pytest.fixture(params=["host", "AVX2", "integers"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine, the last time without instructions that convert float16."""
    if request.param == "integers":
        monkeypatch.setattr(NarrowFloat, "is_in_half", False)
    return narrow() if request.param == "AVX2" else host()


def converted(
    machine: Machine, convert: Callable[[Function, Value], Value], x: Array, target: Any
) -> Array:
    """The numbers `x`, converted in vectors."""
    module = Module(machine.triple, machine.vector_bits)
    f = module.function("run", [(POINTER, "x"), (POINTER, "y"), (I64, "n")])
    source, out, count = f.params
    type = Type("float" if x.dtype == np.float32 else f"i{8 * x.itemsize}", LANES)

    def body(index: Value) -> None:
        value = convert(f, f.load(type, f.element(source, index, type)))
        f.store(value, f.element(out, index, value.type))

    f.loop(0, count, LANES, [], body)
    f.ret()
    library, result = compile_module(module, ["run"], machine), np.empty(x.shape, target)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library["run"])
    run(x.ctypes.data, result.ctypes.data, x.size)
    return result


def check_same(found: Array, expected: Array) -> None:
    bits = f"u{found.itemsize}"
    same = found.view(bits) == expected.view(bits)
    assert (same | (np.isnan(found) & np.isnan(expected))).all()


def every(name: str) -> Array:
    """All numbers of a format."""
    format = FORMATS[name]
    kind = np.dtype(getattr(ml_dtypes, name, name))
    return np.arange(1 << format.bits, dtype=f"u{format.bits // 8}").view(kind)


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_is_widened(name: str, machine: Machine) -> None:
    x, bits = every(name), f"u{FORMATS[name].bits // 8}"
    found = converted(machine, lambda f, v: widened(f, v, FORMATS[name]), x.view(bits), "float32")
    check_same(found, x.astype("float32"))


@pytest.mark.parametrize("name", FORMATS)
def test_numbers_are_rounded_to_nearest_and_ties_to_even(name: str, machine: Machine) -> None:
    """All numbers of the format, those between two of them, and neighbours of both; others drawn.

    The numbers between are those of one bit more of the mantissa, also beyond the largest.
    """
    x = every(name)
    numbers = np.sort(x.astype("float32")[np.isfinite(x.astype("float32"))])
    steps = np.arange(1, 4, dtype="float32") * (numbers[-1] - numbers[-2]) / 2
    between = [numbers[:-1] + np.diff(numbers) / 2, numbers[-1] + steps, numbers[0] - steps]
    known = np.concatenate([numbers, *between]).astype("float32").view("uint32")
    random = np.random.default_rng(0)
    drawn = random.integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    low = random.standard_normal(1 << 16) * 2.0 ** (1 - FORMATS[name].bias)
    bits = [known, known - 1, known + 1, drawn, low.astype("float32").view("uint32")]
    y = np.concatenate(bits).view("float32")
    y = y[: y.size // LANES * LANES]
    with np.errstate(all="ignore"):
        expected = y.astype(x.dtype)
    found = converted(machine, lambda f, v: narrowed(f, v, FORMATS[name]), y, x.dtype)
    check_same(found, expected)
    found = converted(machine, lambda f, v: rounded(f, v, FORMATS[name]), y, "float32")
    check_same(found, expected.astype("float32"))
