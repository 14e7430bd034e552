"""Models of PyTorch: imported and compiled by relaxpy, beside PyTorch and `torch.compile`.

`PYTHONPATH=. python benchmarks/torch_models.py [NAME]` prints, for each model, the times of import
and compilation, the least time of the fastest of PyTorch's two, and the ratios to it of the
executable and of `torch.compile` on relaxpy; then the geometric means. All are called in turn, with
as many threads.
"""

from __future__ import annotations

import copy
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.onnx_models import least
from relaxpy.exec.compile import compile
from relaxpy.relax.frontend.torch import from_exported_program, relax_dynamo

THREADS = len(os.sched_getaffinity(0))
nn = torch.nn


class Block(nn.Module):  # type: ignore[misc]
    """A residual block of convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
        )

    def forward(self, x: Any) -> Any:
        """The block's result plus its operand."""
        return torch.relu(x + self.body(x))


class Tagger(nn.Module):  # type: ignore[misc]
    """A label for each word, by a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.layer = nn.LSTM(64, 64, batch_first=True)
        self.labels = nn.Linear(64, 12)

    def forward(self, words: Any) -> Any:
        """The scores of the labels."""
        return self.labels(self.layer(self.words(words))[0])


def images() -> Any:
    """A small residual network."""
    stem = (nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU())
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), Block(64), Block(64), *head)


def encoder() -> Any:
    """Two layers of a transformer."""
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def perceptron() -> Any:
    """Three linear layers."""
    layers = (nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))
    return nn.Sequential(*layers)


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "perceptron, 1 row": (perceptron, lambda: torch.randn(1, 256)),
    "perceptron, 64 rows": (perceptron, lambda: torch.randn(64, 256)),
    "residual network": (images, lambda: torch.randn(1, 3, 112, 112)),
    "encoder, 64 words": (encoder, lambda: torch.randn(1, 64, 256)),
    "tagger, 20 words": (Tagger, lambda: torch.randint(0, 1000, (1, 20))),
}


def main(chosen: str = "") -> None:
    """Print a row for each model whose name contains `chosen`."""
    torch.set_num_threads(THREADS)
    print(
        f"{'model':22}{'import s':>9}{'compile s':>10}{'eager ms':>9}{'inductor':>9}"
        f"{'exported':>9}{'compiled':>9} error"
    )
    ratios: list[tuple[float, float]] = []
    for name, (make, draw) in MODELS.items():
        if chosen not in name:
            continue
        torch.manual_seed(0)
        model, x = make().eval(), draw()
        program = torch.export.export(model, (x,))
        begin = time.perf_counter()
        module = from_exported_program(program, unwrap_unit_return_tuple=True)
        imported = time.perf_counter()
        run = compile(module)["main"]
        found = run(x)
        built = time.perf_counter()
        torch._dynamo.reset()
        ours = torch.compile(copy.deepcopy(model), backend=relax_dynamo())
        peer = torch.compile(copy.deepcopy(model))
        with torch.inference_mode():
            expected = model(x)
            calls = [lambda: model(x), lambda: peer(x), lambda: run(x), lambda: ours(x)]  # noqa: B023
            for call in calls:
                call()
            times = least(calls)
        best = min(times[:2])
        ratios.append((times[2] / best, times[3] / best))
        print(
            f"{name:22}{imported - begin:9.2f}{built - imported:10.2f}{times[0] * 1e3:9.3f}"
            f"{times[1] / times[0]:9.2f}{ratios[-1][0]:9.2f}{ratios[-1][1]:9.2f}"
            f" {float((found - expected).abs().max()):.1e}",
            flush=True,
        )
    means = np.exp(np.log(np.array(ratios)).mean(axis=0))
    print(f"geometric means {means[0]:.2f} {means[1]:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
