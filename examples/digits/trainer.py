"""Trains a perceptron on the digits inside relaxpy: model, loss, gradients and optimiser.

python examples/digits/trainer.py
mpiexec -n 2 python examples/digits/trainer.py     the same, by two processes
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import data
import numpy as np
from data import Digits
from numpy.typing import NDArray
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from train import initial_weights

import relaxpy
from relaxpy import IRModule
from relaxpy.distributed import current_workers
from relaxpy.relax.training import DataParallel, SetupTrainer, Trainer
from relaxpy.relax.training.loss import CrossEntropyLoss
from relaxpy.relax.training.optimizer import Adam
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Perceptron:
    """64 pixels to 32 hidden units to 10 scores, for any number `n` of pictures at once."""

    I.module_attrs({"param_num": 4, "state_num": 0})

    @R.function
    def backbone(
        x: R.Tensor(("n", 64), "float32"),
        w1: R.Tensor((64, 32), "float32"),
        b1: R.Tensor((32,), "float32"),
        w2: R.Tensor((32, 10), "float32"),
        b2: R.Tensor((10,), "float32"),
    ) -> R.Tensor(("n", 10), "float32"):
        with R.dataflow():
            hidden = R.nn.relu(R.add(R.matmul(x, w1), b1))
            scores = R.add(R.matmul(hidden, w2), b2)
            R.output(scores)
        return scores


def create(rate: float = 2e-3) -> Trainer:
    """A trainer of the perceptron by Adam, compiled for this machine."""
    n = relaxpy.tir.Var("n", "int64")
    scores, labels = R.Tensor((n, 10), "float32"), R.Tensor((n,), "int64")
    assert isinstance(Perceptron, IRModule)
    module = SetupTrainer(CrossEntropyLoss(), Adam(rate), [scores, labels])(Perceptron)
    if current_workers().size > 1:
        module = DataParallel()(module)
    return Trainer(module, relaxpy.VirtualMachine(relaxpy.compile(module)))


def train(
    trainer: Trainer,
    digits: Digits,
    *,
    epochs: int = 60,
    batch: int = 32,
    seed: int = 0,
    after_epoch: Callable[[int, float], None] | None = None,
    checkpoint: Path | None = None,
) -> list[float]:
    """Train on shuffled batches; return the mean loss of each epoch.

    Where several processes train, each has its part of every batch. A checkpoint is written after
    each epoch, and training goes on from there if the file exists: the losses are of what is left.

    Errors:
        ValueError: they cannot have equal parts.
    """
    workers = current_workers()
    if batch % workers.size:
        raise ValueError(f"{workers.size} processes cannot divide batches of {batch}")
    own = slice(workers.rank, None, workers.size)
    random = np.random.default_rng(seed)
    count, done = len(digits.x_train), 0
    if checkpoint is not None and checkpoint.exists():
        done = int(trainer.load_checkpoint(checkpoint)["epochs"])
    else:
        trainer.load_params(initial_weights(seed))
    curve = []
    orders = [random.permutation(count) for _ in range(epochs)]
    for epoch, order in list(enumerate(orders))[done:]:
        losses = []
        for start in range(0, count - batch + 1, batch):
            chosen = order[start : start + batch][own]
            losses.append(trainer.update(digits.x_train[chosen], digits.y_train[chosen]))
        curve.append(float(np.mean(losses)))
        if checkpoint is not None:
            trainer.save_checkpoint(checkpoint, epochs=epoch + 1)
        if after_epoch is not None:
            after_epoch(epoch, curve[-1])
    return curve


def accuracy(trainer: Trainer, x: NDArray[np.float32], y: NDArray[np.int64]) -> float:
    """The share of pictures whose digit is the class with the highest score."""
    return float(np.mean(trainer.predict(x).argmax(axis=1) == y))


def main(argv: list[str] | None = None) -> int:
    """Train and show the accuracy; 0 if that worked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60, help="passes over the data (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the numbers (default: 0)")
    parser.add_argument("--checkpoint", type=Path, help="a .safetensors file to go on from")
    options = parser.parse_args(argv)
    try:
        digits = data.load()
    except ModuleNotFoundError as err:
        print(err, file=sys.stderr)
        return 1
    trainer = create()
    columns = (
        TextColumn("epoch"),
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}"),
        TimeRemainingColumn(),
    )
    is_first = current_workers().rank == 0
    start = perf_counter()
    with Progress(*columns, disable=not is_first) as progress:
        task = progress.add_task("training", total=options.epochs, loss=float("nan"))
        train(
            trainer,
            digits,
            epochs=options.epochs,
            seed=options.seed,
            after_epoch=lambda epoch, loss: progress.update(task, completed=epoch + 1, loss=loss),
            checkpoint=options.checkpoint,
        )
    share = accuracy(trainer, digits.x_test, digits.y_test)
    if is_first:
        print(
            f"{share:.1%} of {len(digits.x_test)} test pictures right after "
            f"{perf_counter() - start:.1f} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
