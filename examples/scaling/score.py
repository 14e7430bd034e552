"""Scores an array in batches on the workers of Dask, to which the model travels once.

python examples/scaling/score.py
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client
from numpy.typing import NDArray

import relaxpy
from relaxpy.script import ir as I, relax as R


@I.ir_module
class Classifier:
    """The most likely of 10 classes, and how likely it is."""

    @R.function
    def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 10), "float32")):
        with R.dataflow():
            p = R.nn.softmax(R.matmul(x, w))
            y = R.stack([R.astype(R.argmax(p, axis=1), "float32"), R.max(p, axis=1)], axis=1)
            R.output(y)
        return y


def model(seed: int = 0) -> relaxpy.Executable:
    """The compiled classifier with its weights."""
    weights = np.random.default_rng(seed).standard_normal((64, 10)).astype("float32")
    return relaxpy.compile(relaxpy.relax.transform.BindParams("main", {"w": weights})(Classifier))


def score(batch: NDArray[np.float32], model: relaxpy.Executable) -> NDArray[np.float32]:
    return model["main"](batch)


def scores(client: Client, x: da.Array, model: relaxpy.Executable) -> da.Array:
    """The scores of the rows of `x`, each of its chunks being a batch.

    Workers load a chunk when they are free to score it, so that no more than a few are in memory.
    """
    everywhere = client.scatter(model, broadcast=True)
    return x.map_blocks(score, everywhere, chunks=(x.chunks[0], (2,)), dtype="float32")


def main(client: Client) -> None:
    x = da.random.default_rng(0).standard_normal((100_000, 64), chunks=(5_000, 64))
    found = scores(client, x.astype("float32"), model())
    counts = da.bincount(found[:, 0].astype("int64"), minlength=10)
    for digit, count in enumerate(client.compute(counts).result()):
        print(f"{digit}: {count}")


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        main(client)
