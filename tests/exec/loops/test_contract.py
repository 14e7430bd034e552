"""Products over groups of axes copy little of what no matrix can view."""

import tracemalloc

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from relaxpy.exec.machine import tuning
from relaxpy.exec.numpy import products

COUNTS = [
    (1, 0, 2, 3),
    (2, 0, 1, 2),
    (0, 1, 2, 3),
    (1, 1, 2, 3),
    (2, 1, 2, 2),
    (0, 2, 1, 1),
    (1, 2, 0, 1),
    (0, 0, 2, 2),
]


@pytest.mark.parametrize("limit", [1, 100, 1 << 20])
@pytest.mark.parametrize("counts", COUNTS)
@pytest.mark.parametrize("turned", [False, True])
def test_pieces_are_the_product(counts, limit, turned, monkeypatch) -> None:
    monkeypatch.setattr(tuning.NumPy, "MOST_COPIED", limit)
    batch, rows, columns, summed = counts
    random = np.random.default_rng(0)
    heads, own, other, inner = ((2, 3)[:batch], (4, 5)[:rows], (3, 6)[:columns], (2, 3, 4)[:summed])
    left = random.standard_normal((*heads, *own, *inner))
    right = random.standard_normal((*heads[1:], *inner, *other))
    if turned:  # the same numbers in another order of memory
        left, right = np.asfortranarray(left), np.asfortranarray(right)
    a = left.reshape(*heads, -1, int(np.prod(inner)))
    b = right.reshape(*heads[1:], int(np.prod(inner)), -1)
    expected = (a @ b).reshape(*heads, *own, *other)
    np.testing.assert_allclose(products.contract(left, right, counts), expected)
    out = np.zeros(expected.shape[::-1]).T
    assert products.contract(left, right, counts, out=out) is out
    np.testing.assert_allclose(out, expected)


def test_windows_are_not_copied_all_at_once() -> None:
    image, weights = np.ones((32, 200, 200), "float32"), np.ones((4, 32, 5, 5), "float32")
    windows = sliding_window_view(image, (5, 5), axis=(1, 2)).transpose(0, 3, 4, 1, 2)
    out = np.empty((4, 196, 196), "float32")
    tracemalloc.start()
    try:
        products.contract(weights, windows, (0, 1, 2, 3), out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(out, 32 * 25)
    assert peak < 2 * tuning.NumPy.MOST_COPIED < windows.nbytes // 10


def test_a_row_is_multiplied_with_windows_without_a_copy() -> None:
    gradient, image = np.ones((32, 2, 98, 98), "float32"), np.ones((32, 2, 100, 100), "float32")
    windows = sliding_window_view(image, (98, 98), axis=(2, 3)).transpose(0, 1, 4, 5, 2, 3)
    out = np.empty((32, 3, 3), "float32")
    tracemalloc.start()
    try:
        products.contract(gradient, windows, (1, 0, 2, 3), out=out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(out, 2 * 98 * 98)
    assert peak < 1 << 16
