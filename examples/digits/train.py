"""Trains the model in plain NumPy, and keeps its weights in a file."""

from __future__ import annotations

import argparse
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Final

import data
import numpy as np
import numpy_model
from data import Digits
from numpy.typing import NDArray

from relaxpy.errors import MisuseError

Array = NDArray[np.float32]
Weights = dict[str, Array]

FILE: Final = Path(__file__).parents[2] / "build" / "digits" / "weights.npz"
SHAPES: Final = {"w1": (64, 32), "b1": (32,), "w2": (32, 10), "b2": (10,)}
# What reading a damaged file comes to: zipfile knows of features that it lacks (RuntimeError), and
# NumPy reads the header of an array as Python (TokenError).
UNREADABLE: Final = (
    OSError,
    EOFError,
    MemoryError,
    RuntimeError,
    ValueError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def initial_weights(seed: int) -> Weights:
    """Weights before training: normal, scaled so that a layer keeps the size of what it is given.

    Rule:
        Standard deviation sqrt(2 / inputs) for layers before a ReLU (He, Zhang, Ren & Sun, 2015).
    """
    rng = np.random.default_rng(seed)
    return {
        name: (
            rng.normal(0, np.sqrt(2 / shape[0]), shape).astype(np.float32)
            if len(shape) == 2
            else np.zeros(shape, np.float32)
        )
        for name, shape in SHAPES.items()
    }


def gradients(weights: Weights, x: Array, y: NDArray[np.int64]) -> Weights:
    """The gradient of a batch's mean cross-entropy, by the chain rule from the last layer."""
    w1, b1, w2, b2 = (weights[name] for name in SHAPES)
    probabilities, _ = numpy_model.main(x, w1, b1, w2, b2)
    hidden = np.maximum(x @ w1 + b1, 0)
    d_logits = probabilities
    d_logits[np.arange(len(y)), y] -= 1
    d_logits /= len(y)
    d_hidden: Array = np.matmul(d_logits, w2.T) * (hidden > 0)
    return {
        "w1": np.matmul(x.T, d_hidden),
        "b1": d_hidden.sum(axis=0),
        "w2": np.matmul(hidden.T, d_logits),
        "b2": d_logits.sum(axis=0),
    }


def train(
    digits: Digits,
    *,
    epochs: int = 60,
    batch: int = 32,
    rate: float = 2e-3,
    decay: float = 2e-2,
    seed: int = 0,
    each_epoch: Callable[[int], None] | None = None,
) -> Weights:
    """Weights that tell the digits apart; the same ones every time for the same `seed`.

    Rule:
        AdamW (Loshchilov & Hutter, 2019) with its usual moments, the rate falling to zero along a
        half cosine.
    """
    rng = np.random.default_rng(seed)
    weights = initial_weights(seed)
    mean = {name: np.zeros_like(value) for name, value in weights.items()}
    square = {name: np.zeros_like(value) for name, value in weights.items()}
    count = len(digits.x_train)
    starts = range(0, count, batch)
    steps = epochs * len(starts)
    step = 0
    for epoch in range(epochs):
        order = rng.permutation(count)
        for start in starts:
            step += 1
            chosen = order[start : start + batch]
            now = rate * (1 + np.cos(np.pi * step / steps)) / 2
            for name, slope in gradients(
                weights, digits.x_train[chosen], digits.y_train[chosen]
            ).items():
                mean[name] += 0.1 * (slope - mean[name])
                square[name] += 0.001 * (slope * slope - square[name])
                first = mean[name] / (1 - 0.9**step)
                second = square[name] / (1 - 0.999**step)
                weights[name] -= now * (first / (np.sqrt(second) + 1e-8) + decay * weights[name])
        if each_epoch is not None:
            each_epoch(epoch + 1)
    return weights


def accuracy(weights: Weights, x: Array, y: NDArray[np.int64]) -> float:
    """The share of the pictures `x` whose digit the plain NumPy model tells as `y` does, 0 to 1."""
    _, labels = numpy_model.main(x, *arguments(weights))
    return float(np.mean(labels == y))


def arguments(weights: Weights) -> tuple[Array, ...]:
    """The weights in the order in which the model takes them."""
    return tuple(weights[name] for name in SHAPES)


def save_weights(path: Path, weights: Weights) -> None:
    """Write `weights` to `path`, with the folders that lead there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, allow_pickle=False, **weights)


def _read(path: Path) -> Weights:
    with path.open("rb") as file:
        stored = np.load(file, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array")
        return {name: stored[name] for name in SHAPES if name in stored}


def load_weights(path: Path) -> Weights:
    """The weights that `save_weights` wrote to `path`.

    Errors:
        MisuseError: there is no such file, or it holds something else than this model's weights.
    """
    hint = f"python examples/digits/train.py --weights {path} writes the file anew"
    try:
        found = _read(path)
    except FileNotFoundError as err:
        raise MisuseError(f"there are no weights at {path}", hint=hint) from err
    except UNREADABLE as err:
        raise MisuseError(f"{path} cannot be read as weights: {err}", hint=hint) from err
    for name, shape in SHAPES.items():
        if name not in found:
            raise MisuseError(
                f"{path} has no {name!r}; a file of weights has {', '.join(SHAPES)}", hint=hint
            )
        value = found[name]
        if value.shape != shape or value.dtype != np.float32:
            raise MisuseError(
                f"{name!r} in {path} is {value.dtype} of shape {value.shape}, "
                f"not float32 of shape {shape}",
                hint=hint,
            )
        if not np.isfinite(value).all():
            raise MisuseError(f"{name!r} in {path} has values that are not finite", hint=hint)
    return found


def main(argv: list[str] | None = None) -> int:
    """Train and save; 0 if that worked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60, help="passes over the data (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="start of all chance (default: 0)")
    parser.add_argument("--weights", type=Path, default=FILE, help=f"where to (default: {FILE})")
    options = parser.parse_args(argv)
    try:
        digits = data.load()
    except ModuleNotFoundError as err:
        print(err, file=sys.stderr)
        return 1
    weights = train(digits, epochs=options.epochs, seed=options.seed)
    save_weights(options.weights, weights)
    share = accuracy(weights, digits.x_test, digits.y_test)
    print(f"{share:.1%} of {len(digits.x_test)} test pictures right; weights in {options.weights}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
