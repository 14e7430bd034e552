"""Measure what programs of several workers cost beside mpi4py's own calls, and how they scale.

Without arguments, starts itself by `mpiexec` on 1, 2 and 4 processes, one thread each. Collective
operators are in microseconds, the least of 15 rounds in which the contestants take turns; steps
are milliseconds for the same work by all workers together.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from shutil import which
from typing import Any

import numpy as np

import relaxpy
from relaxpy import tir
from relaxpy.distributed import current_workers
from relaxpy.relax.training import DataParallel, SetupTrainer, Trainer
from relaxpy.relax.training.loss import MSELoss
from relaxpy.relax.training.optimizer import SGD
from relaxpy.script import from_source, ir as I, relax as R

ROUNDS = 15
WIDTH, BATCH = 512, 512


@I.ir_module
class Collectives:
    @R.function(pure=False)
    def allreduce(x: R.Tensor(("n",), "float32")):
        return R.ccl.allreduce(x, "sum")

    @R.function
    def nothing(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return x


@I.ir_module
class Perceptron:
    I.module_attrs({"param_num": 3, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor(("n", 512), "float32"),
        w0: R.Tensor((512, 512), "float32"),
        w1: R.Tensor((512, 512), "float32"),
        w2: R.Tensor((512, 512), "float32"),
    ):
        with R.dataflow():
            h0 = R.nn.relu(R.matmul(x, w0))
            h1 = R.nn.relu(R.matmul(h0, w1))
            y = R.matmul(h1, w2)
            R.output(y)
        return y


SPLIT = """
@I.ir_module
class Layer:
    I.module_global_infos({{"mesh": [R.device_mesh(({workers},), I.Range(0, {workers}))]}})

    @R.function
    def main(
        x: R.Tensor((128, 512), "float32"),
        gate: R.Tensor((512, 2048), "float32"),
        up: R.Tensor((512, 2048), "float32"),
        down: R.Tensor((2048, 512), "float32"),
    ):
        R.func_attr({{"num_input": 1}})
        with R.dataflow():
            g = R.dist.annotate_sharding(gate, "mesh[0]", "S[1]")
            u = R.dist.annotate_sharding(up, "mesh[0]", "S[1]")
            y = R.matmul(R.nn.silu(R.matmul(x, g)) * R.matmul(x, u), down)
            R.output(y)
        return y
"""


def least(contestants: list[Callable[[], object]], calls: int) -> list[float]:
    """The least seconds of a call of each, all workers together."""
    best = [float("inf")] * len(contestants)
    for _ in range(ROUNDS):
        for i, run in enumerate(contestants):
            meet()
            start = time.perf_counter()
            for _ in range(calls):
                run()
            best[i] = min(best[i], (time.perf_counter() - start) / calls)
    return best


def meet() -> None:
    """Wait until all workers are here."""
    if current_workers().size > 1:
        from mpi4py import MPI

        MPI.COMM_WORLD.Barrier()


def show(line: str) -> None:
    """Print by the first worker."""
    if current_workers().rank == 0:
        print(line, flush=True)


def collectives() -> None:
    """An allreduce by mpi4py, by a method of the workers, and by a call of an executable."""
    from mpi4py import MPI

    workers, program = current_workers(), relaxpy.compile(Collectives)
    allreduce, nothing = program["allreduce"], program["nothing"]
    show(
        f"{'allreduce of':>16} {'mpi4py':>9} {'workers':>9} {'a call':>9} {'an empty call':>14}  us"
    )
    for size in (1, 1024, 1 << 20):
        x = np.ones(size, "float32")
        # Each contestant allocates its result, as programs do.
        own: Callable[[], object] = lambda x=x: MPI.COMM_WORLD.Allreduce(x, np.empty_like(x))  # noqa: E731
        contestants = [
            own,
            lambda x=x: workers.combined(x, "sum"),
            lambda x=x: allreduce(x),
            lambda x=x: nothing(x),
        ]
        times = least(contestants, 500 if size < 1 << 20 else 5)
        show(f"{size:9} floats " + " ".join(f"{t * 1e6:9.1f}" for t in times[:3])
             + f" {times[3] * 1e6:14.1f}")  # fmt: skip


def training() -> float:
    """Seconds of a step of a perceptron, the batch divided among the workers."""
    n = tir.Var("n", "int64")
    module: Any = SetupTrainer(MSELoss(), SGD(0.01), [R.Tensor((n, WIDTH), "float32")] * 2)(
        Perceptron
    )
    size = current_workers().size
    if size > 1:
        module = DataParallel()(module)
    trainer = Trainer(module, relaxpy.VirtualMachine(relaxpy.compile(module)))
    random = np.random.default_rng(0)
    trainer.load_params([random.standard_normal((WIDTH, WIDTH)).astype("float32") / 30] * 3)
    x = random.standard_normal((BATCH // size, WIDTH)).astype("float32")
    return least([lambda: trainer.update(x, x)], 5)[0]


def split_layer() -> float:
    """Seconds of a gated layer whose hidden units are divided among the workers."""
    workers = current_workers()
    mod = from_source(SPLIT.format(workers=workers.size))
    pipeline = relaxpy.get_pipeline("distributed", own_params=True)
    random, part = np.random.default_rng(0), 2048 // workers.size
    shapes = [(128, 512), (512, part), (512, part), (part, 512)]
    args = [random.standard_normal(shape).astype("float32") for shape in shapes]
    main = relaxpy.compile(mod, relax_pipeline=pipeline)["main"]
    return least([lambda: main(*args)], 10)[0]


def main() -> int:
    """Measure and print, or start the workers that do."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().worker:
        size = current_workers().size
        if size > 1:
            collectives()
        show(f"{size} workers: step of training {training() * 1e3:.2f} ms, "
             f"layer {split_layer() * 1e3:.2f} ms")  # fmt: skip
        return 0
    beside = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    launcher = beside if os.path.exists(beside) else which("mpiexec")
    if launcher is None:
        print("this needs mpiexec: pip install mpi4py mpich", file=sys.stderr)
        return 1
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores")
    single = {"OPENBLAS_NUM_THREADS": "1", "RELAXPY_NUM_THREADS": "1"}
    for count in (1, 2, 4):
        command = [launcher, "-n", str(count), sys.executable, __file__, "--worker"]
        subprocess.run(command, env=os.environ | single, check=True, timeout=600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
