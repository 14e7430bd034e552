"""Compare the digits model with plain NumPy, and measure the time until its first result.

Calls of both are timed alternately in one process. Importing, parsing and compiling are timed in
new processes, whose files the operating system has in memory.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

EXAMPLE = Path(__file__).parents[1] / "examples" / "digits"
sys.path.insert(0, str(EXAMPLE))

BATCHES = (1, 32, 1000)
PINNING = ("OMP_NUM_THREADS", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS")


def stages() -> dict[str, float]:
    """The seconds of each stage until the first result, in this process."""
    times = {}

    def measure(name: str, stage: Callable[[], object]) -> None:
        start = perf_counter()
        stage()
        times[name] = perf_counter() - start

    def compile_model() -> None:
        nonlocal executable
        executable = importlib.import_module("relaxpy").compile(sys.modules["model"].Digits)

    def call() -> None:
        np, train = importlib.import_module("numpy"), importlib.import_module("train")
        weights = train.arguments(train.initial_weights(seed=0))
        start = perf_counter()
        executable["main"](np.zeros((1, 64), np.float32), *weights)
        times["first call"] = perf_counter() - start

    executable = None
    measure("import numpy", lambda: importlib.import_module("numpy"))
    measure("import relaxpy", lambda: importlib.import_module("relaxpy"))
    measure(
        "import I, R, T",
        lambda: [
            importlib.import_module(f"relaxpy.script.{name}") for name in ("ir", "relax", "tir")
        ],
    )
    measure("load the parser, parse the model", lambda: importlib.import_module("model"))
    measure("parse it again", lambda: importlib.reload(sys.modules["model"]))
    measure("load the compiler, compile it", compile_model)
    measure("compile it again", compile_model)
    call()
    return times


def fresh_stages(count: int) -> dict[str, list[float]]:
    """Samples of `stages` from `count` new processes, after one that fills the caches."""
    samples: dict[str, list[float]] = {}
    for run in range(count + 1):
        process = subprocess.run(
            [sys.executable, __file__, "--stages"],
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        for name, seconds in json.loads(process.stdout).items():
            if run:
                samples.setdefault(name, []).append(seconds)
    return samples


def report(*, processes: int, samples: int) -> None:
    """Measure, and print two tables."""
    import data
    import numpy as np
    import numpy_model
    import train
    from model import Digits
    from timing import Timing, interleaved

    import relaxpy

    print(
        f"relaxpy {relaxpy.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, {platform.machine()}, {os.cpu_count()} processors, float32"
    )
    pinned = [f"{name}={os.environ[name]}" for name in PINNING if name in os.environ]
    if pinned:
        print(f"The environment binds NumPy's library: {', '.join(pinned)}")
    digits = data.load()
    arguments = train.arguments(train.train(digits))
    main = relaxpy.compile(Digits)["main"]
    print(f"\n64-32-10 perceptron, median of {samples} samples (quartiles)\n")
    print(f"{'batch':>6}  {'relaxpy':>28}  {'plain NumPy':>28}  ratio")
    for batch in BATCHES:
        x = np.resize(digits.x_test, (batch, 64))
        ours, theirs = interleaved(
            [lambda x=x: main(x, *arguments), lambda x=x: numpy_model.main(x, *arguments)],
            samples=samples,
        )
        print(f"{batch:>6}  {ours.spread():>28}  {theirs.spread():>28}  {ours.ratio(theirs):.2f}")
    print(f"\nUntil the first result, median of {processes} processes (quartiles)\n")
    for name, seconds in fresh_stages(processes).items():
        print(f"{name:<42}{Timing(tuple(seconds)).spread():>28}")


def run() -> None:
    """Run the benchmark with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=9, help="fresh processes (default: 9)")
    parser.add_argument("--samples", type=int, default=50, help="samples of a call (default: 50)")
    parser.add_argument("--stages", action="store_true", help="print one process's stages as JSON")
    options = parser.parse_args()
    if options.stages:
        print(json.dumps(stages()))
    else:
        report(processes=options.processes, samples=options.samples)


if __name__ == "__main__":
    run()
