"""Caches of keys and values that are windows: new rows take the place of the oldest ones."""

import numpy as np
import pytest

from relaxpy import get_global_func, runtime
from relaxpy.errors import RuntimeCheckError

PREFIX = "vm.builtin.attention_kv_cache_"


def new_cache(rows: int, count: int) -> object:
    data = runtime.tensor(np.full((rows, 2), -1, "int32"))
    return get_global_func(f"{PREFIX}create")(data, runtime.ShapeTuple([rows, 2]), count)


def rows_of(cache: object, rows: int) -> np.ndarray:
    tensor = get_global_func(f"{PREFIX}view")(cache, runtime.ShapeTuple([rows, 2]))
    assert isinstance(tensor, runtime.Tensor)
    return tensor.numpy()


def test_the_last_rows_are_kept() -> None:
    store = get_global_func(f"{PREFIX}window_override")
    cache, position = new_cache(16, 4), 4
    stored = np.zeros((0, 2), "int32")
    for count in range(1, 10):
        rows = np.full((count, 2), count, "int32")
        stored = np.concatenate([stored, rows])
        assert store(cache, rows, 16) is cache
        position = (position + count) % 16
    found = rows_of(cache, 16)
    np.testing.assert_array_equal(np.roll(found, -position, axis=0), stored[-16:])


def test_sinks_are_kept_as_well() -> None:
    store = get_global_func(f"{PREFIX}window_override_with_sinks")
    cache = new_cache(8, 0)
    for k in range(20):
        store(cache, np.full((1, 2), k, "int32"), 8, 2)
        if k == 2:
            np.testing.assert_array_equal(rows_of(cache, 3)[:, 0], [0, 1, 2])
    found = rows_of(cache, 8)[:, 0]
    assert list(found[:2]) == [0, 1]
    assert sorted(found[2:]) == list(range(14, 20))


def test_rows_that_do_not_fit_are_refused() -> None:
    store = get_global_func(f"{PREFIX}window_override_with_sinks")
    with pytest.raises(RuntimeCheckError, match="a window of 4 rows, of which 2 are kept, cannot"):
        store(new_cache(4, 0), np.zeros((3, 2), "int32"), 4, 2)
    with pytest.raises(RuntimeCheckError, match="cannot contain float32 data"):
        store(new_cache(4, 0), np.zeros((1, 2), "float32"), 4, 2)


def test_rows_are_replaced() -> None:
    cache, update = new_cache(4, 4), get_global_func(f"{PREFIX}update")
    assert update(cache, np.full((3, 2), 7, "int32")) is cache
    np.testing.assert_array_equal(rows_of(cache, 3), np.full((3, 2), 7))
    with pytest.raises(RuntimeCheckError, match="cannot contain"):
        update(cache, np.zeros((3, 5), "int32"))
