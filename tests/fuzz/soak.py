"""Threads that call the same programs for a long time, while signals arrive.

`python -m tests.fuzz.soak SECONDS` runs a third of the time each with one, two and five threads in
the pool of native code. It compares every result, and prints the calls, errors included, and how
much memory the process has gained since a tenth of the time.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import relaxpy
from relaxpy.errors import RelaxpyError
from relaxpy.script import from_source

Array: TypeAlias = np.ndarray[Any, Any]
CALLERS = 8
TEXT = """
@I.ir_module
class Programs:
    @T.prim_func
    def gather(a: T.handle, i: T.handle, b: T.handle):
        n = T.int64()
        m = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        I = T.match_buffer(i, (m,), "int64")
        B = T.match_buffer(b, (m,), "float32")
        P = T.alloc_buffer((m,), "int64")
        for k in range(m):
            P[k] = I[k] - 1
        for k in range(m):
            B[k] = B[k] + A[P[k]]

    @T.prim_func
    def smooth(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for k in range(n - 1):
            B[k] = A[k] + A[k + 1]

    @T.prim_func
    def collatz(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "int64")
        B = T.match_buffer(b, (n,), "int64")
        for k in range(n):
            B[k] = 0
            while A[k] > 1:
                A[k] = T.Select(A[k] % 2 == 0, A[k] // 2, 3 * A[k] + 1)
                B[k] = B[k] + 1

    @T.prim_func
    def double(a: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            A[i, j] = A[i, j] * T.float32(2)

    @R.function
    def layer(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.matmul(x, w))
            z = R.nn.softmax(R.add(y, x), axis=-1)
            R.output(z)
        return z

    @R.function
    def attend(q: R.Tensor((1, "n", 2, 32), "float32")):
        with R.dataflow():
            y = R.nn.attention(q, q, q)
            R.output(y)
        return y

    @R.function(pure=False)
    def again(x: R.Tensor(("n", 8), "float32")):
        n = T.int64()
        y = R.call_tir_inplace(
            Programs.double, (x,), inplace_indices=[0], out_sinfo=R.Tensor((n, 8), "float32")
        )
        z = R.call_packed("soak.again", y, sinfo_args=R.Tensor((n, 8), "float32"))
        return (R.reshape(z, (8, n)), y)
"""


def programs() -> dict[str, Callable[[np.random.Generator], None]]:
    """Functions that call a program with new arguments, and check what it returns."""
    run = relaxpy.compile(from_source(TEXT), target="native")

    @relaxpy.register_func("soak.again", override=True)
    def again(x: Array) -> Array:
        weight = np.eye(64, dtype="float32")
        run["layer"](np.ones((3, 64), "float32"), weight)
        return np.asarray(x) + np.float32(1)

    def gather(rng: np.random.Generator) -> None:
        n, m = rng.integers(1, 3000, 2)
        a, b = rng.random(n, dtype="float32"), rng.random(m, dtype="float32")
        index = rng.integers(1, n + 1, m)
        expected = b + a[index - 1]
        run["gather"](a, index, b)
        np.testing.assert_array_equal(b, expected)
        index[rng.integers(m)] = n + 1
        with pytest.raises(RelaxpyError, match="outside dimension 0 of buffer A"):
            run["gather"](a, index, b)

    def smooth(rng: np.random.Generator) -> None:
        a = rng.random(rng.integers(1, 3000), dtype="float32")
        expected = np.append(a[:-1] + a[1:], a[-1])
        run["smooth"](a, a)
        np.testing.assert_array_equal(a, expected)

    def collatz(rng: np.random.Generator) -> None:
        start = rng.integers(1, 1000, rng.integers(1, 30))
        found, a = start * 0, start.copy()
        run["collatz"](a, found)
        for number, steps in zip(start.tolist(), found.tolist(), strict=True):
            for _ in range(steps):
                assert number > 1
                number = 3 * number + 1 if number % 2 else number // 2
            assert number == 1

    def layer(rng: np.random.Generator) -> None:
        x = rng.random((rng.integers(0, 90), 64), dtype="float32")
        w = rng.random((64, 64), dtype="float32") / 64
        y = np.maximum(x @ w, 0) + x
        e = np.exp(y - y.max(axis=-1, keepdims=True, initial=0))
        expected = e / e.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(run["layer"](x, w), expected, rtol=2e-4)

    def attend(rng: np.random.Generator) -> None:
        q = rng.random((1, rng.integers(1, 40), 2, 32), dtype="float32")
        heads = q[0].transpose(1, 0, 2)
        e = np.exp(heads @ heads.transpose(0, 2, 1) / np.sqrt(32))
        expected = (e / e.sum(axis=-1, keepdims=True) @ heads).transpose(1, 0, 2)[None]
        np.testing.assert_allclose(run["attend"](q), expected, rtol=2e-4)

    def inside(rng: np.random.Generator) -> None:
        x = rng.random((rng.integers(1, 400), 8), dtype="float32")
        twice = x * 2
        one, other = run["again"](x)
        np.testing.assert_array_equal(x, twice)
        np.testing.assert_array_equal(other, twice)
        np.testing.assert_array_equal(one, (twice + 1).reshape(8, -1))

    own = (gather, smooth, collatz, layer, attend, inside)
    return {function.__name__: function for function in own}


def resident() -> int:
    """The resident memory of this process. Units: KiB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def soak(seconds: float) -> int:
    """Call programs in several threads for `seconds`; the number of threads that failed."""
    calls: Counter[str] = Counter()
    signals: list[int] = []
    failed: list[str] = []
    listed = programs()
    begin = time.monotonic()

    def caller(seed: int) -> None:
        rng, choice = np.random.default_rng(seed), random.Random(seed)
        while time.monotonic() - begin < seconds and not failed:
            name = choice.choice(list(listed))
            try:
                listed[name](rng)
            except BaseException as error:
                failed.append(f"{name}: {type(error).__name__}: {error}")
                raise
            calls[name] += 1  # a call may be lost here, when two threads count at once

    signal.signal(signal.SIGALRM, lambda number, frame: signals.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    threads = [threading.Thread(target=caller, args=[n]) for n in range(1, CALLERS)]
    for thread in threads:
        thread.start()
    before: list[int] = []
    timer = threading.Timer(seconds / 10, lambda: before.append(resident()))
    timer.start()
    caller(0)
    for thread in threads:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    timer.join()
    threads_of_pool = os.environ.get("RELAXPY_NUM_THREADS")
    grown = resident() - before[0]
    print(f"{threads_of_pool} threads: {sum(calls.values())} calls {dict(calls)},")
    print(f"  {len(signals)} signals, {grown} KiB more than {before[0]}; failed: {failed}")
    return len(failed)


def main(seconds: float) -> int:
    """Soak with one, two and five threads in the pool; the number of runs that failed."""
    failures = 0
    for threads in ("1", "2", "5"):
        command = [sys.executable, "-m", "tests.fuzz.soak", str(seconds / 3), "here"]
        environment = os.environ | {"RELAXPY_NUM_THREADS": threads}
        failures += subprocess.run(command, env=environment, check=False).returncode != 0
    return failures


if __name__ == "__main__":
    duration = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    sys.exit(int((soak if "here" in sys.argv else main)(duration) > 0))
