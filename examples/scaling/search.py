"""Searches the rate, momentum and decay that train a model best, on the workers of Dask.

python examples/scaling/search.py
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

import numpy as np
from distributed import Client, Future, as_completed
from numpy.typing import NDArray

import relaxpy
from relaxpy.script import ir as I, relax as R

Array = NDArray[np.float32]
Setting = tuple[float, float, float]


@I.ir_module
class Regression:
    """The mean square error of two layers."""

    @R.function
    def main(
        x: R.Tensor(("n", 8), "float32"),
        y: R.Tensor(("n", 1), "float32"),
        w: R.Tensor((8, 16), "float32"),
        v: R.Tensor((16, 1), "float32"),
    ) -> R.Tensor((), "float32"):
        with R.dataflow():
            error = R.subtract(R.matmul(R.tanh(R.matmul(x, w)), v), y)
            loss = R.mean(R.multiply(error, error))
            R.output(loss)
        return loss


def model() -> relaxpy.Executable:
    """The loss and its gradients, compiled once for all settings, which are not in the program."""
    adjoint = relaxpy.relax.transform.Gradient("main", list(Regression["main"].params[2:]))
    return relaxpy.compile(adjoint(Regression))


def data(seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    x = random.standard_normal((512, 8)).astype("float32")
    return x, np.sin(x.sum(1, keepdims=True)).astype("float32")


def trial(model: relaxpy.Executable, data: tuple[Array, Array], setting: Setting) -> float:
    """The loss on the second half of the data after training on the first."""
    rate, momentum, decay = setting
    random = np.random.default_rng(0)
    params = [random.normal(0, 0.3, shape).astype("float32") for shape in ((8, 16), (16, 1))]
    speed = [np.zeros_like(param) for param in params]
    (x, y), half = data, len(data[0]) // 2
    for _ in range(200):
        _, gradients = model["main_adjoint"](x[:half], y[:half], *params)
        for param, v, gradient in zip(params, speed, gradients, strict=True):
            v *= momentum
            v -= rate * (gradient + decay * param)
            param += v
    return float(model["main"](x[half:], y[half:], *params))


def search(client: Client, settings: Iterator[Setting]) -> Iterator[tuple[Setting, float]]:
    """The settings with their losses, as they are found.

    A new trial is submitted when another has ended, so that `settings` may be without an end.
    """
    parts = client.scatter([model(), data()], broadcast=True)

    def begun(count: int) -> list[Future]:
        chosen = list(islice(settings, count))
        futures = [client.submit(trial, *parts, setting) for setting in chosen]
        setting_of.update(zip(futures, chosen, strict=True))
        return futures

    setting_of: dict[Future, Setting] = {}
    running = as_completed(begun(2 * sum(client.nthreads().values())))
    for future in running:
        yield setting_of.pop(future), future.result()
        running.update(begun(1))


def main(client: Client) -> None:
    settings = product((0.01, 0.03, 0.1, 0.3), (0.0, 0.9), (0.0, 1e-3))
    found = dict(search(client, settings))
    for setting, loss in sorted(found.items(), key=lambda item: item[1])[:3]:
        print("rate {} momentum {} decay {}:".format(*setting), f"{loss:.4f}")


if __name__ == "__main__":
    with Client(n_workers=2, threads_per_worker=1, dashboard_address=":0") as client:
        main(client)
