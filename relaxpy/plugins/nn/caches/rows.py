"""The packed functions of `nn.KVCache`: rows that are appended, in a window or without one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import Array, ShapeTuple
from relaxpy.ir.core.tensor import Tensor


class AttentionKVCache:
    """Memory for rows; the first `count` have been added.

    In a cache that is a window, `next_row` is where the next row is stored.
    """

    def __init__(self, rows: Array, count: int) -> None:
        self.rows = rows
        self.count = count
        self.next_row = 0

    def reserve(self, count: int) -> None:
        """Have memory for `count` rows; it at least doubles when it grows."""
        if count > len(self.rows):
            capacity = max(count, 2 * len(self.rows))
            rows = np.empty((capacity, *self.rows.shape[1:]), self.rows.dtype)
            rows[: self.count] = self.rows[: self.count]
            self.rows = rows


@provided("vm.builtin.attention_kv_cache_create")
def create(data: Array, shape: Sequence[int], count: int = -1) -> AttentionKVCache:
    """A cache with memory of a shape, and the first `count` rows of `data`, all of them for -1.

    Errors:
        RuntimeCheckError: there are not so many rows, or they have another shape.
    """
    count = len(data) if count == -1 else int(count)
    if not 0 <= count <= len(data) or tuple(shape[1:]) != data.shape[1:]:
        raise RuntimeCheckError(
            f"a cache of shape {tuple(shape)} cannot begin with {count} rows of data of shape "
            f"{data.shape}"
        )
    cache = AttentionKVCache(np.empty(tuple(shape), data.dtype), 0)
    append(cache, data[:count])
    cache.next_row = count
    return cache


@provided("vm.builtin.attention_kv_cache_append")
def append(cache: AttentionKVCache, data: Array) -> AttentionKVCache:
    """Add rows at the end; return the cache itself.

    Errors:
        RuntimeCheckError: the rows have another shape or datatype.
    """
    _check_rows(cache, data)
    count = cache.count + len(data)
    cache.reserve(count)
    cache.rows[cache.count : count] = data
    cache.count = count
    return cache


@provided("vm.builtin.attention_kv_cache_update")
def update(cache: AttentionKVCache, data: Array) -> AttentionKVCache:
    """Replace all rows; return the cache itself. Errors: as of appending."""
    _check_rows(cache, data)
    cache.count = 0
    return append(cache, data)


def _check_rows(cache: AttentionKVCache, data: Array) -> None:
    if data.shape[1:] != cache.rows.shape[1:] or data.dtype != cache.rows.dtype:
        raise RuntimeCheckError(
            f"a cache of {cache.rows.dtype} rows of shape {cache.rows.shape[1:]} cannot contain "
            f"{data.dtype} data of shape {data.shape}"
        )


@provided("vm.builtin.attention_kv_cache_window_override")
def override(cache: AttentionKVCache, data: Array, size: int) -> AttentionKVCache:
    """Store rows in a ring buffer of `size` rows.

    Errors:
        RuntimeCheckError: the rows have another shape or datatype, or do not fit the window.
    """
    return override_with_sinks(cache, data, size, 0)


@provided("vm.builtin.attention_kv_cache_window_override_with_sinks")
def override_with_sinks(
    cache: AttentionKVCache, data: Array, size: int, sinks: int
) -> AttentionKVCache:
    """Store rows in a ring buffer whose first `sinks` rows are kept once they have been stored.

    Errors:
        RuntimeCheckError: the rows have another shape or datatype, or do not fit the window.
    """
    _check_rows(cache, data)
    if len(data) > size - sinks:
        raise RuntimeCheckError(
            f"a window of {size} rows, of which {sinks} are kept, cannot contain {len(data)} rows"
        )
    cache.reserve(size)
    first = min(len(data), size - cache.next_row)
    cache.rows[cache.next_row : cache.next_row + first] = data[:first]
    cache.next_row += first
    if first < len(data):
        cache.next_row = sinks + len(data) - first
        cache.rows[sinks : cache.next_row] = data[first:]
    cache.count = min(size, cache.count + len(data))
    return cache


@provided("vm.builtin.attention_kv_cache_view")
def view(cache: AttentionKVCache, shape: ShapeTuple) -> Tensor:
    """The rows of the cache, which must have this shape.

    Errors:
        RuntimeCheckError: they have another shape.
    """
    rows = cache.rows[: cache.count]
    if rows.shape != tuple(shape):
        raise RuntimeCheckError(
            f"the cache has rows of shape {rows.shape}, expected {tuple(shape)}",
            hint="the first dimension is the number of rows that were added",
        )
    return rows.view(Tensor)


@provided("vm.builtin.attention_kv_cache_array_clear")
def clear(caches: Sequence[AttentionKVCache]) -> None:
    """Remove all rows of caches."""
    for cache in caches:
        cache.count = cache.next_row = 0


@provided("vm.builtin.attention_kv_cache_array_popn")
def remove_last(caches: Sequence[AttentionKVCache], count: int) -> None:
    """Remove the last `count` rows of caches. Errors: RuntimeCheckError if one has fewer."""
    for cache in caches:
        if not 0 <= count <= cache.count:
            raise RuntimeCheckError(f"cannot remove {count} of the {cache.count} rows of a cache")
        cache.count -= int(count)
