"""How long a line of memory takes from the cache of one CPU to that of another.

Kernels that several threads share read what another CPU has just written. The time depends on
whether the CPUs share a cache, and may change while a virtual machine runs: it explains why rounds
of a benchmark with two threads differ.
"""

from __future__ import annotations

import ctypes
import threading
from time import perf_counter

import numpy as np

from relaxpy.exec.native.calls.jit import compile_module
from relaxpy.exec.native.llvm.llvm_module import Module
from relaxpy.exec.native.llvm.writer import I64, POINTER, Value
from relaxpy.exec.native.machine_code.machine import host

WARM, TURNS = 100, 600
SECONDS = 0.5
"""Rounds are short and many, so that other programs do not interrupt the fastest."""


def nanoseconds() -> float:
    """The time of a line on its way while two threads write to it in turn, in the fastest round."""
    machine = host()
    module = Module(machine.triple, machine.vector_bits)
    f = module.function("take_turns", [(POINTER, "line"), (I64, "first"), (I64, "stop")])
    line, first, stop = f.params

    def turn(number: Value) -> None:
        f.while_loop(
            [],
            lambda: f.compare(
                "ne", f.new(I64, f"load atomic i64, {line} acquire, align 8"), number
            ),
            list,
        )
        following = f.arithmetic("add", number, 1)
        f.put(f"store atomic {following}, {line} release, align 8")

    f.loop(first, stop, 2, [], turn)
    f.ret()
    library = compile_module(module, ["take_turns"])
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(
        library["take_turns"]
    )
    best = float("inf")
    end = perf_counter() + SECONDS
    while perf_counter() < end:
        memory = np.zeros(64, np.int64)
        place = memory.ctypes.data + 256
        other = threading.Thread(target=run, args=(place, 1, TURNS))
        other.start()
        run(place, 0, WARM)
        start = perf_counter()
        run(place, WARM, TURNS)
        best = min(best, perf_counter() - start)
        other.join()
    return best / (TURNS - WARM) * 1e9


if __name__ == "__main__":
    print(f"{nanoseconds():.0f} ns")
