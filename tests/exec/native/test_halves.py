"""The conversions of float16 by integers, against those of NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llvmlite")

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.half import narrowed, widened
from relaxpy.exec.native.llvm.writer import I64, POINTER, Function, Type, Value
from relaxpy.exec.native.machine_code.machine import host

Array = np.ndarray[Any, Any]


def converted(
    convert: Callable[[Function, Value], Value], element: str, x: Array, target: type[np.generic]
) -> Array:
    """The numbers `x`, converted in vectors of four lanes."""
    module = host().module()
    f = module.function("run", [(POINTER, "x"), (POINTER, "y"), (I64, "n")])
    source, out, count = f.params
    type = Type(element, 4)

    def body(index: Value) -> None:
        value = convert(f, f.load(type, f.element(source, index, type)))
        f.store(value, f.element(out, index, value.type))

    f.loop(0, count, 4, [], body)
    f.ret()
    library, result = compile_module(module, ["run"]), np.empty(x.shape, target)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(library["run"])
    run(x.ctypes.data, result.ctypes.data, x.size)
    return result


def check_same(found: Array, expected: Array, bits: type[np.generic]) -> None:
    same = found.view(bits) == expected.view(bits)
    assert (same | (np.isnan(found) & np.isnan(expected))).all()


def test_every_number_is_widened() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    check_same(converted(widened, "half", x, np.float32), x.astype(np.float32), np.uint32)


def test_numbers_are_rounded_to_nearest_and_ties_to_even() -> None:
    """All numbers of float16, those between two of them, and neighbours of both; others drawn."""
    bits = np.arange(1 << 16, dtype=np.uint32)
    sign, size = (bits & 0x8000) << 16, (bits & 0x7FFF).astype(np.uint16)
    near = size.view(np.float16).astype(np.float32).view(np.uint32) | sign
    between = near + (1 << 12)
    drawn = np.random.default_rng(0).integers(0, 1 << 32, 1 << 18, dtype=np.uint32)
    subnormal = drawn % (0x39000000 - 0x32000000) + 0x32000000
    every = [near, between, near - 1, near + 1, between - 1, between + 1, drawn, subnormal]
    x = np.concatenate(every).view(np.float32)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float16)
    check_same(converted(narrowed, "float", x, np.float16), expected, np.uint16)
