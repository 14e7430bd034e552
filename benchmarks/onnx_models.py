"""ONNX models beside ONNX Runtime: light ones of the package onnx, and pretrained ones.

`PYTHONPATH=. python benchmarks/onnx_models.py [NAME]` prints, for each model, the times of import
and compilation, the least time of ONNX Runtime with as many threads, the ratio of relaxpy's least
time to it, and the largest difference of the results; then the geometric mean. Both are called in
turn. `make pretrained` downloads the pretrained models.
"""

from __future__ import annotations

import os
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from relaxpy.exec.api.compile import compile
from relaxpy.plugins.onnx.importer import from_onnx

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PRETRAINED = Path(sys.prefix) / "pretrained"
THREADS = len(os.sched_getaffinity(0))
ROUNDS = 3
SECONDS = 0.5
PAUSE = 0.2
"""Seconds after which no library's threads wait actively any longer."""
CLOCK = time.perf_counter
SIZES = {"batch": 1, "sequence": 576, "sequence_length": 1}
"""Values of sizes that models leave open, by name."""


def models() -> Iterator[tuple[str, bytes]]:
    """The name and the contents of each model."""
    for path in sorted(LIGHT.glob("*.onnx")):
        yield path.stem, path.read_bytes()
    for wheel in sorted(PRETRAINED.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.namelist():
                if member.endswith(".onnx"):
                    yield f"{wheel.stem.split('-')[0]}/{Path(member).stem}", archive.read(member)


def drawn(name: str, tensor: Any) -> np.ndarray[Any, Any]:
    """Random values of the type of an input."""
    rng = np.random.default_rng(0)
    sizes = [dim.dim_value or SIZES.get(dim.dim_param, 1) for dim in tensor.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    if name == "sr":
        return np.array(16000, dtype)
    if name == "input" and not any(dim.dim_value or dim.dim_param for dim in tensor.shape.dim):
        sizes = [1, 576]
    if dtype.kind in "iu":
        return rng.integers(0, 256, sizes).astype(dtype)
    return (rng.random(sizes) * 0.1).astype(dtype)


def least(calls: list[Callable[[], Any]]) -> list[float]:
    """The least time of each call, in seconds; they are made in turn, several at a time."""
    best = [float("inf")] * len(calls)
    for _ in range(ROUNDS):
        for k, call in enumerate(calls):
            time.sleep(PAUSE)
            end = CLOCK() + SECONDS
            while (start := CLOCK()) < end:
                call()
                best[k] = min(best[k], CLOCK() - start)
    return best


def main(chosen: str = "") -> None:
    """Print a row for each model whose name contains `chosen`."""
    print(
        f"{'model':34}{'nodes':>7}{'import s':>10}{'compile s':>10}{'ORT ms':>10}{'ratio':>8} error"
    )
    ratios = []
    for name, data in models():
        if chosen not in name:
            continue
        proto = onnx.load_model_from_string(data)
        known = {tensor.name for tensor in proto.graph.initializer}
        inputs = {
            value.name: drawn(value.name, value.type.tensor_type)
            for value in proto.graph.input
            if value.name not in known
        }
        begin = time.perf_counter()
        module = from_onnx(data)
        imported = time.perf_counter()
        executable = compile(module)
        args = tuple(inputs.values())
        found = executable["main"](*args)
        compiled = time.perf_counter()
        options = ort.SessionOptions()
        options.intra_op_num_threads = THREADS
        options.log_severity_level = 3
        session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        expected = session.run(None, inputs)
        results = found if isinstance(found, tuple) else (found,)
        error = max(
            float(np.abs(np.asarray(a, np.float64) - b).max())
            for a, b in zip(results, expected, strict=True)
        )
        run, main_ = session.run, executable["main"]
        peer, ours = least([lambda: run(None, inputs), lambda: main_(*args)])  # noqa: B023
        ratios.append(ours / peer)
        print(
            f"{name:34}{len(proto.graph.node):7}{imported - begin:10.2f}{compiled - imported:10.2f}"
            f"{peer * 1e3:10.3f}{ours / peer:8.2f}  {error:.1e}",
            flush=True,
        )
    print(f"geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, largest {max(ratios):.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
