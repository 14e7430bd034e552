"""A parallel loop takes subnormal numbers for zeros in all of its tasks, or in none."""

import ctypes
import platform
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxpy
from relaxpy.exec.process import process
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
