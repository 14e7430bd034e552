"""The handwritten digits of the UCI repository, as scikit-learn ships them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

INSTALL = """\
the digits come with scikit-learn, which is not installed; put it in with
    python -m pip install 'scikit-learn>=1.5'
or, in a clone of relaxpy, together with everything else the examples import
    python -m pip install -e '.[examples]'"""


@dataclass(frozen=True, slots=True)
class Digits:
    """Pictures of 8 x 8 pixels and the digits they show: some to learn from, some to be asked.

    Shapes:
        x_train, x_test     (count, 64), float32, row by row, 0 for paper to 1 for ink
        y_train, y_test     (count,), int64, the digit
    """

    x_train: NDArray[np.float32]
    y_train: NDArray[np.int64]
    x_test: NDArray[np.float32]
    y_test: NDArray[np.int64]


def load(test_share: float = 0.2, seed: int = 0) -> Digits:
    """The digits, the same split every time for the same `seed`.

    Errors:
        ModuleNotFoundError: scikit-learn is missing; the message says how to install it.
    """
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as err:
        raise ModuleNotFoundError(INSTALL, name=err.name) from err
    pixels, labels = load_digits(return_X_y=True)
    x = (np.asarray(pixels, np.float64) / 16).astype(np.float32)
    y = np.asarray(labels, np.int64)
    order = np.random.default_rng(seed).permutation(len(x))
    test, train = np.split(order, [round(test_share * len(x))])
    return Digits(x[train], y[train], x[test], y[test])
