"""The speed of this machine, measured: floating-point operations and memory, on all threads."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter
from typing import Final, Literal

import numpy as np

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Type, Value
from relaxpy.exec.native.machine_code.machine import host
from relaxpy.exec.native.threads.pool import native_threads

_CHAINS: Final = 12
"""Independent operations, which hide the latency."""
_ROUNDS: Final = 2_000_000
"""So many that the staggered start of threads does not matter."""
_REPEATS: Final = 5
_COPIED_BYTES: Final = 1 << 23
LEAST_BYTES: Final = 1 << 16
MOST_BYTES: Final = 1 << 26


@cache
def peak_operations(element: Literal["float", "double"]) -> float:
    """Operations per second; a fused multiply-add counts as two.

    Errors:
        CompileError: there is no native code on this machine.
    """
    machine = host()
    module = Module(machine.triple, machine.vector_bits)
    f = module.function("run", [(I64, "n"), (POINTER, "out")])
    n, out = f.params
    type = Type(element)
    type = Type(element, machine.lanes(type.bits))
    factor = f.load(type, out)

    def body(index: Value, *sums: Value) -> list[Value]:
        return [f.fma(value, factor, factor) for value in sums]

    sums = f.loop(0, n, 1, [factor] * _CHAINS, body)
    for value in sums:
        f.store(value, out)
    f.ret()
    library = compile_module(module, ["run"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)(library["run"])
    places = [np.full(256, 0.5) for _ in range(native_threads())]

    def work(place: np.ndarray) -> Callable[[], object]:
        return lambda: run(_ROUNDS, place.ctypes.data)

    seconds = _seconds([work(place) for place in places])
    return 2.0 * _CHAINS * type.lanes * _ROUNDS * len(places) / seconds


def peak_bytes(size: int) -> float:
    """Bytes read and written per second, by a copy that accesses `size` bytes in all.

    Data that fits into a cache is copied faster. The size is rounded to a power of two.
    """
    return _copied(min(max(1 << (size - 1).bit_length(), LEAST_BYTES), MOST_BYTES))


@cache
def _copied(size: int) -> float:
    threads = native_threads()
    arrays = [np.ones((2, size // 2 // threads), np.uint8) for _ in range(threads)]
    count = max(1, _COPIED_BYTES // size)

    def work(target: np.ndarray, source: np.ndarray) -> Callable[[], None]:
        def copy() -> None:
            for _ in range(count):
                np.copyto(target, source)

        return copy

    seconds = _seconds([work(target, source) for target, source in arrays])
    return count * sum(pair.nbytes for pair in arrays) / seconds


def _seconds(tasks: Sequence[Callable[[], object]]) -> float:
    """The least time in which the tasks run, each in a thread."""
    best = float("inf")
    for _ in range(_REPEATS):
        barrier = threading.Barrier(len(tasks))
        spans: list[tuple[float, float]] = []

        def timed(task: Callable[[], object]) -> None:
            barrier.wait()  # noqa: B023
            start = perf_counter()
            task()
            spans.append((start, perf_counter()))  # noqa: B023

        threads = [threading.Thread(target=timed, args=(task,)) for task in tasks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        best = min(best, max(stop for _, stop in spans) - min(start for start, _ in spans))
    return best
