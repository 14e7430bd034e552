"""Measure the overhead of a call of an executable, in addition to the kernels it runs.

Prints microseconds per call, the best and the median of 15 rounds of 2000 calls each.
"""

import itertools
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

import relaxpy
from relaxpy.script import ir as I, relax as R, tir as T


@I.ir_module
class Calls:
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n, 8), "float32")
        B = T.match_buffer(b, (n, 8), "float32")
        for i, j in T.grid(n, 8):
            with T.block("double"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)

    @R.function
    def nothing(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        return x

    @R.function
    def one_kernel(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        return R.call_tir(Calls.double, (x,), out_sinfo=R.Tensor((n, 8), "float32"))

    @R.function
    def two_kernels(x: R.Tensor(("n", 8), "float32")) -> R.Tensor(("n", 8), "float32"):
        n = T.int64()
        with R.dataflow():
            y = R.call_tir(Calls.double, (x,), out_sinfo=R.Tensor((n, 8), "float32"))
            z = R.call_tir(Calls.double, (y,), out_sinfo=R.Tensor((n, 8), "float32"))
            R.output(z)
        return z

    @R.function
    def unknown_operand(x: R.Tensor):
        return R.exp(x)


def microseconds(run: Callable[[], object], rounds: int = 15, calls: int = 2000) -> list[float]:
    """One measurement for each round, sorted."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(calls):
            run()
        times.append((time.perf_counter() - start) / calls * 1e6)
    return sorted(times)


def main() -> None:
    """Measure and print."""
    executable = relaxpy.compile(Calls)
    x = np.ones((4, 8), "float32")
    out = np.empty_like(x)
    two = np.float32(2)
    new_shapes = map(np.empty, itertools.product(range(2, 16), repeat=4))
    cases: dict[str, Callable[[], object]] = {
        "np.multiply(x, 2, out=out)": lambda: np.multiply(x, two, out=out),
        "the kernel called by itself": lambda: executable["double"](x, out),
        "a function that returns its argument": lambda: executable["nothing"](x),
        "a function with one kernel": lambda: executable["one_kernel"](x),
        "a function with two kernels": lambda: executable["two_kernels"](x),
        "np.exp(x, out=out)": lambda: np.exp(x, out=out),
        "an operator on any tensor": lambda: executable["unknown_operand"](x),
        "the same, each time a new shape": lambda: executable["unknown_operand"](next(new_shapes)),
    }
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, {platform.machine()}")
    print(f"{'':36} {'best':>7} {'median':>7}")
    for name, run in cases.items():
        times = microseconds(run)
        print(f"{name:36} {times[0]:7.2f} {statistics.median(times):7.2f}")


if __name__ == "__main__":
    main()
