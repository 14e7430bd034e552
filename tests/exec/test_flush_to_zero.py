"""Subnormal numbers are zeros in all tasks of a loop or in none, and in no program of others."""

import ctypes
import platform
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.api.compile import compile_made
from relaxpy.exec.machine.process import process
from relaxpy.script import from_source

_FLUSH = {
    # The place of the control word in an environment of C, and its bits.
    ("linux", "x86_64"): (28, 0x8040),
    ("linux", "aarch64"): (0, 1 << 24),
}
PLACE = _FLUSH.get((process().system.name, platform.machine()))
SIZE = 1 << 21
TEXT = f"""
@R.function
def main(x: R.Tensor(({SIZE},), "float32")):
    return R.multiply(R.add(x, R.const(0.0, "float32")), R.const(0.5, "float32"))
"""

pytestmark = pytest.mark.skipif(PLACE is None, reason="the environment has another form here")


def flushing(function: Callable[[], Any]) -> Any:
    """The result of a function, in a thread that takes subnormal numbers for zeros."""
    assert PLACE is not None
    at, bits = PLACE
    results: list[Any] = []

    def run() -> None:
        environment = (ctypes.c_uint8 * 256)()
        start = ctypes.addressof(environment)
        libm = ctypes.CDLL(None)
        libm.fegetenv(ctypes.c_void_p(start))
        ctypes.c_uint32.from_address(start + at).value |= bits
        libm.fesetenv(ctypes.c_void_p(start))
        results.append(function())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return results[0]


@pytest.mark.parametrize("target", ["native", "numpy"])
def test_all_tasks_round_as_the_thread_that_calls(target: str) -> None:
    main = relaxpy.compile(from_source(TEXT), target)["main"]
    subnormal = np.full(SIZE, 1e-39, "float32")

    def zeros() -> int:
        return int((main(subnormal).view("uint32") == 0).sum())

    assert zeros() == 0  # the workers start in this thread
    for _ in range(8):
        assert flushing(zeros) == SIZE
        assert zeros() == 0


FOLDED = """
@R.function
def main(x: R.Tensor((2,), "float32")):
    small = R.multiply(R.const([2e-38, 4e-38], "float32"), R.const([0.01, 0.01], "float32"))
    return R.add(x, R.multiply(small, R.const([1e30, 1e30], "float32")))
"""
WAYS: dict[str, Callable[[Any], Callable[[Any], Any]]] = {
    "the same module": lambda module: relaxpy.compile(module, "native")["main"],
    "the same text": lambda module: relaxpy.compile(from_source(FOLDED), "native")["main"],
    "the same recipe": lambda module: compile_made(lambda: module, "folded", "native")["main"],
    "calls": lambda module: module["main"],
}


@pytest.mark.parametrize("way", WAYS)
def test_constants_that_one_thread_computes_as_zeros_are_not_those_of_others(
    way: str, lowered: list[str]
) -> None:
    module = relaxpy.IRModule.from_expr(from_source(FOLDED))
    zeros = np.zeros(2, "float32")

    def result() -> Any:
        return WAYS[way](module)(zeros)

    for _ in range(2):
        np.testing.assert_array_equal(flushing(result), zeros)
        np.testing.assert_allclose(result(), [2e-10, 4e-10], rtol=1e-4)
