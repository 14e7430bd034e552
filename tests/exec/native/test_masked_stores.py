"""Masked loads of first lanes, and masked stores of integers that are narrowed on the way.

LLVM 22 narrows in the store instruction where AVX-512 has one for that. If the mask is a constant
with one active lane, it makes a scalar store of it later, of all bits before the narrowing.
"""

import ctypes
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Type, Value
from relaxpy.exec.native.machine_code.machine import Machine, host, narrow
from tests.guard_pages import guarded

WIDTHS = (8, 16, 32, 64)
SYMBOLIC = "symbolic"


def active(lanes: int) -> dict[str, int | None]:
    """The active lanes as bits, by the name of a function; None if a parameter counts them."""
    counts = {1, 2, lanes // 2 + 1, lanes - 1, lanes}
    masks: dict[str, int | None] = {f"first_{n}": (1 << n) - 1 for n in counts if n <= lanes}
    masks |= {f"only_{n}": 1 << n for n in (1, lanes // 2, lanes - 1)}
    masks |= {"every_other": sum(1 << n for n in range(0, lanes, 2)), SYMBOLIC: None}
    return masks


def storing(source: int, stored: int, lanes: int, machine: Machine) -> Module:
    """Functions that load integers of `source` bits, and store those of the active lanes."""
    module = Module(machine.triple, machine.vector_bits)
    for name, bits in active(lanes).items():
        function = module.function(name, [(POINTER, "x"), (POINTER, "y"), (I64, "count")])
        x, y, count = function.params
        value = function.load(Type(f"i{source}", lanes), x)
        if stored < source:
            value = function.cast("trunc", value, f"i{stored}")
        if bits is None:
            mask = function.lanes_below(count, lanes)
        elif name.startswith("first"):
            mask = function.lanes_below(function.index(bits.bit_length()), lanes)
        else:
            literal = ", ".join(f"i1 {bits >> n & 1}" for n in range(lanes))
            mask = Value(function, Type("i1", lanes), f"<{literal}>")
        function.masked_store(value, y, mask)
        function.ret()
    return module


@pytest.mark.each_choice
@pytest.mark.parametrize("lanes", [2, 4, 8, 16, 64])
@pytest.mark.parametrize(
    ("source", "stored"), [(a, b) for a, b in itertools.product(WIDTHS, WIDTHS) if b <= min(a, 32)]
)
def test_the_active_lanes_are_stored_and_no_other(source: int, stored: int, lanes: int) -> None:
    rng = np.random.default_rng(source * stored + lanes)
    numbers = rng.integers(0, 256, lanes * source // 8, "uint8").view(f"uint{source}")
    for machine in (host(), narrow()):
        masks = active(lanes)
        library = compile_module(storing(source, stored, lanes, machine), list(masks), machine)
        for name, bits in masks.items():
            store = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
                library[name]
            )
            counts = range(lanes + 1) if bits is None else [0]
            for count in counts:
                held = [(1 << count) - 1 if bits is None else bits]
                is_stored = np.array([held[0] >> n & 1 for n in range(lanes)], bool)
                # What is after the last active lane cannot be accessed.
                reached = int(np.flatnonzero(is_stored)[-1]) + 1 if held[0] else 0
                found = guarded(np.full(reached, 77, f"uint{stored}"), at_end=True)
                expected = np.where(is_stored, numbers.astype(f"uint{stored}"), 77)[:reached]
                store(numbers.ctypes.data, found.ctypes.data, count)
                np.testing.assert_array_equal(found, expected, err_msg=f"{name} {count}")


@pytest.mark.parametrize("lanes", [2, 8, 32, 64])
@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("kind", [host, narrow])
def test_a_known_number_of_first_lanes_is_loaded_and_no_other(
    bits: int, lanes: int, kind: Callable[[], Machine]
) -> None:
    machine = kind()
    module = Module(machine.triple, machine.vector_bits)
    type = Type(f"i{bits}", lanes)
    for count in range(lanes + 1):
        function = module.function(f"first_{count}", [(POINTER, "x"), (POINTER, "y")])
        x, y = function.params
        mask = function.lanes_below(function.index(count), lanes)
        function.store(function.masked_load(type, x, mask, 7), y)
        function.ret()
    names = [f"first_{count}" for count in range(lanes + 1)]
    library = compile_module(module, names, machine)
    numbers = np.arange(100, 100 + lanes).astype(f"uint{bits}")
    for count, name in enumerate(names):
        held = guarded(numbers[:count], at_end=True)
        found = np.zeros(lanes, numbers.dtype)
        load = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library[name])
        load(held.ctypes.data, found.ctypes.data)
        np.testing.assert_array_equal(found, np.where(np.arange(lanes) < count, numbers, 7))


@pytest.mark.parametrize("lanes", [2, 8, 16, 64, 128])
@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("kind", [host, narrow])
def test_an_unknown_number_of_first_lanes_is_loaded_and_no_other_page(
    bits: int, lanes: int, kind: Callable[[], Machine]
) -> None:
    machine, type = kind(), Type(f"i{bits}", lanes)
    module = Module(machine.triple, machine.vector_bits)
    function = module.function("first", [(POINTER, "x"), (POINTER, "y"), (I64, "count")])
    x, y, count = function.params
    function.store(function.masked_load(type, x, function.lanes_below(count, lanes), 7), y)
    function.ret()
    library = compile_module(module, ["first"], machine)
    load = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        library["first"]
    )
    numbers = np.arange(100, 100 + lanes).astype(f"uint{bits}")
    for number, at_end in itertools.product(range(-1, lanes + 2), (True, False)):
        held = guarded(numbers[: max(number, 0)], at_end=at_end)
        found = np.zeros(lanes, numbers.dtype)
        load(held.ctypes.data, found.ctypes.data, number)
        np.testing.assert_array_equal(found, np.where(np.arange(lanes) < number, numbers, 7))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("kind", [host, narrow])
def test_a_mask_may_have_more_lanes_than_a_register(bits: int, kind: Callable[[], Machine]) -> None:
    lanes, machine = 128, kind()
    library = compile_module(storing(bits, bits, lanes, machine), list(active(lanes)), machine)
    store = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        library[SYMBOLIC]
    )
    numbers = np.arange(lanes, dtype=f"uint{bits}")
    for count in range(lanes + 1):
        found = guarded(np.full(count, 255, numbers.dtype), at_end=True)
        store(numbers.ctypes.data, found.ctypes.data, count)
        np.testing.assert_array_equal(found, numbers[:count])


def test_masks_are_right_where_many_vectors_are_in_registers() -> None:
    lanes, many = 8, 26
    machine = host()
    module = Module(machine.triple, machine.vector_bits)
    function = module.function("kernel", [(POINTER, "x"), (POINTER, "y"), (I64, "count")])
    x, y, count = function.params
    type = Type("i64", lanes)

    def part(pointer: Value, number: int, type: Type) -> Value:
        return function.element(pointer, function.const(I64, number * lanes), type)

    values = [function.load(type, part(x, n, type)) for n in range(many)]
    mask = function.lanes_below(count, lanes)
    narrow_values = [function.cast("trunc", v, "i16") for v in values]
    for number, value in enumerate(narrow_values):
        order = [(n * 3 + number) % lanes for n in range(lanes)]
        function.masked_store(
            value, part(y, number, value.type), function.shuffle(mask, None, order)
        )
    for number, value in enumerate(values):
        doubled = function.arithmetic("add", value, value)
        function.store(doubled, part(x, number, type))
    function.ret()
    library = compile_module(module, ["kernel"], machine)
    kernel = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(
        library["kernel"]
    )
    for active_lanes in range(lanes + 1):
        numbers = np.arange(many * lanes).reshape(many, lanes)
        found = np.full((many, lanes), -1, "int16")
        kernel(numbers.ctypes.data, found.ctypes.data, active_lanes)
        places = (np.arange(lanes) * 3 + np.arange(many)[:, None]) % lanes
        expected = np.where(places < active_lanes, numbers // 2, -1)
        np.testing.assert_array_equal(found, expected)
