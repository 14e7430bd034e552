"""Training in epochs, with the losses so far, callbacks and checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxpy.errors import MisuseError, check_type, unexpected
from relaxpy.ir import hooks
from relaxpy.support import progress
from relaxpy.support.dataclass import dataclass
from relaxpy.support.progress import long_work

if TYPE_CHECKING:
    from relaxpy.plugins.training.trainer import Trainer


@dataclass(slots=True)
class History:
    """The history of a training: for each epoch the mean loss of its steps, and its seconds."""

    losses: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    @property
    def epochs(self) -> int:
        """The number of epochs that are complete."""
        return len(self.losses)

    def plot(self) -> Any:
        """The curve of the losses, which a notebook shows and `save` writes to a file .svg."""
        return hooks.call("curve", self.losses)


Callback: TypeAlias = Callable[[History], object]


def fit(
    trainer: Trainer,
    data: Iterable[tuple[Any, Any]],
    epochs: int,
    callbacks: Sequence[Callback],
    checkpoint: str | PathLike[str] | None,
    resume: bool,
) -> History:
    """Train a trainer, as `Trainer.fit` says."""
    if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 0:
        raise unexpected(epochs, "epochs is 0, 1, 2, ...")
    check_type(data, Iterable, "data is an iterable of pairs of inputs and targets")
    if resume and checkpoint is None:
        raise MisuseError("resume needs the name of a checkpoint")
    if epochs > 1 and iter(data) is data:
        raise MisuseError(
            "data is an iterator, which has values for one epoch only",
            hint="pass a list of pairs, or an object whose __iter__ begins anew",
            about=data,
        )
    history = History()
    if resume and checkpoint is not None and Path(checkpoint).exists():
        known = trainer.load_checkpoint(checkpoint)
        history.losses = [float(loss) for loss in known.get("losses", ())]
        history.seconds = [float(seconds) for seconds in known.get("seconds", ())]
    with long_work("training", epochs) as work:
        work.done = history.epochs
        while history.epochs < epochs:
            start = time.perf_counter()
            loss = _epoch(trainer, data)
            history.losses.append(loss)
            history.seconds.append(time.perf_counter() - start)
            work.advance(f"loss {loss:.4g}")
            if checkpoint is not None:
                losses, seconds = np.array(history.losses), np.array(history.seconds)
                trainer.save_checkpoint(checkpoint, losses=losses, seconds=seconds)
            answers = [callback(history) for callback in callbacks]
            if any(isinstance(answer, (bool, np.bool_)) and not answer for answer in answers):
                break
    return history


def _epoch(trainer: Trainer, data: Iterable[tuple[Any, Any]]) -> float:
    """Train by one step on each pair, and return the mean loss."""
    losses = []
    for pair in data:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise MisuseError(
                f"data has pairs of inputs and targets, found {type(pair).__name__}", about=pair
            )
        losses.append(float(trainer.update(*pair)))
        progress.now(f"step {len(losses)}, loss {losses[-1]:.4g}")
    if not losses:
        raise MisuseError("data is empty, expected pairs of inputs and targets", about=data)
    return sum(losses) / len(losses)
