"""Scores a dataset in batches by actors of Ray, which load the model once.

python examples/scaling/score_ray.py
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import ray
import ray.data
from numpy.typing import NDArray
from score import model

import relaxpy

Batch = dict[str, NDArray[np.float32]]


class Scorer:
    """An actor: the model arrives when it starts, and batches after that."""

    def __init__(self, model: relaxpy.Executable) -> None:
        self.model = model

    def __call__(self, batch: Batch) -> Batch:
        return {"class": self.model["main"](batch["data"])[:, 0]}


def scores(data: ray.data.Dataset, model: relaxpy.Executable) -> ray.data.Dataset:
    """The classes of the rows, whose batches are read when actors are free to score them."""
    return data.map_batches(
        Scorer,
        fn_constructor_args=[model],
        batch_size=1_000,
        compute=ray.data.ActorPoolStrategy(size=2, max_tasks_in_flight_per_actor=2),
        num_cpus=0.5,
    )


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    x = np.random.default_rng(0).standard_normal((20_000, 64)).astype("float32")
    data = ray.data.from_numpy(np.array_split(x, 20))
    print(sorted(Counter(int(row["class"]) for row in scores(data, model()).iter_rows()).items()))


if __name__ == "__main__":
    main()
