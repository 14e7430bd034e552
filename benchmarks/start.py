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
from collections.abc import Callable
from pathlib import Path

from benchmarks.models import encoder_layer, encoder_weights, floats, model
from relaxpy.exec.compile import compile
from relaxpy.ir.relax import nodes as rx, op

Emit = Callable[[rx.Expr], rx.Var]
LAYERS = ((16, 3, 2), (24, 3, 2), (72, 1, 1), (72, 5, 2), (40, 1, 1), (120, 1, 1), (112, 3, 2))
"""The output channels, the window and the stride of convolutions."""


def convolutions(emit: Emit, x: rx.Var) -> rx.Expr:
    """Convolutions whose sizes all differ; as many channels as before make groups of one."""
    result, channels = x, 3
    for outputs, window, stride in LAYERS:
        groups = channels if outputs == channels else 1
        weights = rx.Constant(floats(outputs, channels // groups, window, window))
        options = {"strides": stride, "padding": window // 2, "groups": groups}
        result = emit(op.nn.conv2d(result, weights, **options))
        result = emit(op.nn.relu(emit(op.add(result, rx.Constant(floats(1, outputs, 1, 1))))))
        channels = outputs
    return result


def small_kernels(emit: Emit, *values: rx.Var) -> tuple[rx.Expr, ...]:
    """Three small kernels for each of the values, whose sizes all differ."""
    return tuple(
        emit(result) for x in values for result in (op.exp(x), op.nn.softmax(x), op.permute_dims(x))
    )


PROGRAMS = {
    "BERT-base layer": lambda: model(encoder_layer, (floats(1, 128, 768), *encoder_weights())),
    "softmax": lambda: model(lambda emit, x: emit(op.nn.softmax(x)), (floats(512, 1000),)),
    "matmul": lambda: model(
        lambda emit, x, y: emit(op.matmul(x, y)), (floats(128, 256), floats(256, 128))
    ),
    "convolutions": lambda: model(convolutions, (floats(1, 3, 112, 112),)),
    "60 small kernels": lambda: model(
        small_kernels, tuple(floats(100 + n, 64 + n) for n in range(20))
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
