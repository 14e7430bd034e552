"""Masked loads and gathers of halves, also in functions that LLVM does not optimise.

LLVM 22 makes single loads of vectors that the processor cannot mask, and fails on those of halves
in such functions.
"""

import ctypes

import numpy as np
import pytest

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Type
from relaxpy.exec.native.machine_code.machine import host, narrow
from tests.guard_pages import guarded

NAMES = ("loaded", "chosen", "gathered")


@pytest.mark.parametrize("machine", [host, narrow])
@pytest.mark.parametrize("is_optimised", [True, False])
@pytest.mark.parametrize("lanes", [2, 8, 16, 32, 64])
def test_only_the_active_lanes_are_read(lanes, is_optimised, machine) -> None:
    module = Module(machine().triple, machine().vector_bits)
    for name in NAMES:
        function = module.function(name, [(POINTER, "x"), (POINTER, "y"), (I64, "count")])
        function.optimised = is_optimised
        x, y, count = function.params
        type_, mask = Type("half", lanes), function.lanes_below(count, lanes)
        if name == "gathered":
            places = function.iota(Type("i64", lanes)) * 2
            value = function.gather(Type("half"), x, places, mask)
        else:
            value = function.masked_load(type_, x, mask, 0 if name == "loaded" else -1.5)
        function.store(value, y)
        function.ret()
    library = compile_module(module, list(NAMES), machine())
    numbers = np.arange(1, 2 * lanes + 1, dtype="float16")
    for name in NAMES:
        run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
            library[name]
        )
        for count in (0, 1, lanes // 2, lanes - 1, lanes):
            used = numbers[: 2 * count : 2] if name == "gathered" else numbers[:count]
            reached = max(0, 2 * count - 1) if name == "gathered" else count
            placed = guarded(numbers[:reached], at_end=True)
            found = np.zeros(lanes, "float16")
            run(placed.ctypes.data, found.ctypes.data, count)
            other = -1.5 if name == "chosen" else 0.0
            assert found.tolist() == [*used.tolist(), *[other] * (lanes - count)]
