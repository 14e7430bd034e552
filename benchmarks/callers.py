"""Measure calls of one model by several threads of a process at the same time.

Prints for each number of callers the calls per second, as many times those of one caller with one
thread, the mean time of a call, the longest and the 99th percentile as multiples of it, the calls
of the thread with the fewest by those of the one with the most, and the CPU time of a call. The
model takes about a millisecond. Each figure is the median of five rounds, which take turns.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np

import relaxpy
from relaxpy.script import ir as I, relax as R

CALLERS = (1, 2, 4, 8)
ROUNDS, SECONDS = 5, 2.0


@I.ir_module
class Perceptron:
    @R.function
    def main(
        x: R.Tensor((64, 512), "float32"),
        w: R.Tensor((512, 1024), "float32"),
        v: R.Tensor((1024, 512), "float32"),
    ):
        with R.dataflow():
            y = R.nn.softmax(R.matmul(R.nn.gelu(R.matmul(x, w)), v))
            R.output(y)
        return y


def model() -> Callable[[object], object]:
    """The compiled model, which has its weights."""
    random = np.random.default_rng(0)
    weights = {
        name: random.standard_normal(shape, "float32") / 30
        for name, shape in (("w", (512, 1024)), ("v", (1024, 512)))
    }
    return relaxpy.compile(relaxpy.relax.transform.BindParams("main", weights)(Perceptron))["main"]


def measured(run: Callable[[object], object], callers: int) -> list[float]:
    """Calls per second, and the other figures of a round."""
    inputs = [np.full((64, 512), n, "float32") for n in range(callers)]
    times: list[list[float]] = [[] for _ in inputs]
    begin = threading.Barrier(callers + 1)

    def work(n: int) -> None:
        begin.wait()
        end = time.perf_counter() + SECONDS
        while (start := time.perf_counter()) < end:
            run(inputs[n])
            times[n].append(time.perf_counter() - start)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(callers)]
    for thread in threads:
        thread.start()
    cpu = time.process_time()
    begin.wait()
    for thread in threads:
        thread.join()
    cpu = time.process_time() - cpu
    counts, calls = [*map(len, times)], [t for each in times for t in each]
    mean = statistics.mean(calls)
    late = float(np.quantile(calls, 0.99))
    return [
        *(len(calls) / SECONDS, mean * 1e3, max(calls) / mean, late / mean),
        *(min(counts) / max(counts), cpu / len(calls) * 1e3),
    ]


def main() -> None:
    """Measure and print, or measure one caller with one thread."""
    run = model()
    for _ in range(3):
        run(np.zeros((64, 512), "float32"))
    if sys.argv[1:] == ["--single"]:
        print(json.dumps([measured(run, 1) for _ in range(ROUNDS)]))
        return
    command = [sys.executable, __file__, "--single"]
    environment = os.environ | {"RELAXPY_NUM_THREADS": "1"}
    single = json.loads(subprocess.check_output(command, env=environment, timeout=600))
    found: dict[str, list[list[float]]] = {"1, one thread": single}
    for _ in range(ROUNDS):
        for callers in CALLERS:
            found.setdefault(str(callers), []).append(measured(run, callers))
    print(f"Python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} CPUs")
    heads = "calls/s", "of one", "mean ms", "longest", "99 %", "fewest", "CPU ms"
    print(f"{'callers':14}" + "".join(f"{head:>9}" for head in heads))
    base = statistics.median(row[0] for row in single)
    for name, rounds in found.items():
        rate, *others = map(statistics.median, zip(*rounds, strict=True))
        figures = f"{rate:9.0f}{rate / base:9.2f}"
        print(f"{name:14}{figures}" + "".join(f"{other:9.2f}" for other in others))


if __name__ == "__main__":
    main()
