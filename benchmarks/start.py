"""Compilation in fresh processes: for NumPy, and native without and with machine code on disk.

`PYTHONPATH=. python benchmarks/start.py` prints milliseconds of processor time, each the least of
several processes, for the whole of `compile`. Imports are not included, except those that are late.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.models import encoder_layer, encoder_weights, floats, model
from relaxpy.exec.compile import compile
from relaxpy.ir.relax import op

PROGRAMS = {
    "BERT-base layer": lambda: model(encoder_layer, (floats(1, 128, 768), *encoder_weights())),
    "softmax": lambda: model(lambda emit, x: emit(op.nn.softmax(x)), (floats(512, 1000),)),
    "matmul": lambda: model(
        lambda emit, x, y: emit(op.matmul(x, y)), (floats(128, 256), floats(256, 128))
    ),
    "exp": lambda: model(lambda emit, x: emit(op.exp(x)), (floats(128, 256),)),
}
REPEATS = 5


def measure(name: str, target: str) -> None:
    """Print the seconds of a compilation in this process."""
    program = PROGRAMS[name]()
    start = time.process_time()
    compile(program, target)
    print(time.process_time() - start)


def seconds(name: str, target: str, directory: str) -> float:
    """What `measure` prints in a fresh process."""
    env = {**os.environ, "RELAXPY_CACHE": "1", "RELAXPY_CACHE_DIR": directory}
    command = [sys.executable, "-m", "benchmarks.start", name, target]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Print the table."""
    print(f"{'ms':20}{'NumPy':>10}{'native':>10}{'from disk':>10}")
    for name in PROGRAMS:
        runs = []
        for _ in range(REPEATS):
            with tempfile.TemporaryDirectory() as folder:
                directory = str(Path(folder, "cache"))
                runs.append(
                    [seconds(name, target, directory) for target in ("numpy", "native", "native")]
                )
        times = map(min, zip(*runs, strict=True))
        print(f"{name:20}" + "".join(f"{t * 1e3:10.1f}" for t in times), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1], sys.argv[2])
    else:
        main()
