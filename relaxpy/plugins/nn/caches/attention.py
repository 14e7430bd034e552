"""Attention of queries to the keys and values of one sequence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from relaxpy.exec.runtime.values import Array

_SCORES_AT_ONCE = 1 << 20
"""The scores of a block: 4 MiB."""
_FEW_COLUMNS = 16
"""So few columns are reduced faster after a transposing copy."""
_LOG2_E = math.log2(math.e)

Parts: TypeAlias = "Sequence[tuple[Array, Array]]"
"""The keys and values of successive tokens: (kv heads, count, d) and (kv heads, count, dv)."""


def attend(q: Array, parts: Parts, scale: float, mask: Array | None = None) -> tuple[Array, Array]:
    """The weighted values, and log2 of the sums of the weights, both in float32.

    Groups of query heads share a head of keys and values. The last keys are those of the queries
    themselves where there is a mask, which says whether a query sees one of these.

    Shapes:
        q        (rows, heads, d)
        mask     (rows, rows), bool
        results  (rows, heads, dv), (rows, heads)
    """
    rows, heads, _ = q.shape
    kv_heads, _, dv = parts[0][1].shape
    size, group = sum(keys.shape[1] for keys, _ in parts), heads // kv_heads
    scaled = q.astype(np.float32) * np.float32(scale)
    queries = scaled.reshape(rows, kv_heads, group, -1).transpose(1, 0, 2, 3)
    out: Array = np.empty((kv_heads, rows, group, dv), np.float32)
    lse: Array = np.empty((kv_heads, rows, group, 1), np.float32)
    of_a_row = max(1, group * size)
    row_step = max(1, min(rows, _SCORES_AT_ONCE // of_a_row))
    head_step = max(1, _SCORES_AT_ONCE // (of_a_row * rows))
    for head in range(0, kv_heads, head_step):
        some = slice(head, head + head_step)
        own = [(keys[some], values[some]) for keys, values in parts]
        for row in range(0, rows, row_step):
            part = slice(row, row + row_step)
            seen = None if mask is None else mask[part]
            out[some, part], lse[some, part] = _block(queries[some, part], own, seen)
    return (
        out.transpose(1, 0, 2, 3).reshape(rows, heads, dv),
        lse.transpose(1, 0, 2, 3).reshape(rows, heads),
    )


def attend_by(
    kernel: Callable[..., object],
    queries: Array,
    parts: Parts,
    scale: float,
    seen: Array,
    out: Array,
) -> Array:
    """The log2 sums that `attend` returns, by the kernel `attention_of_rows` of a module.

    The weighted values are written to `out`.

    Shapes:
        queries      (rows, kv heads, heads / kv heads, d), contiguous, of the datatype of the keys
        seen         (rows * heads / kv heads, keys of all parts), bool
        out, result  (rows, heads, dv), (rows, heads)
    """
    dtype = queries.dtype
    is_direct = out.dtype == dtype and out.flags.c_contiguous
    found: Array = out if is_direct else np.empty(out.shape, dtype)
    lse = _by(kernel, queries, parts[0], scale, seen, found)
    if len(parts) > 1:
        found = found.astype(np.float32)
    start = 0
    for before, part in pairwise(parts):
        start += before[0].shape[1]
        other: Array = np.empty(out.shape, dtype)
        other_lse = _by(kernel, queries, part, scale, seen[:, start:], other)
        merge(found, lse, other, other_lse)
    if found is not out:
        out[...] = found
    return lse


def _by(
    kernel: Callable[..., object],
    queries: Array,
    part: tuple[Array, Array],
    scale: float,
    seen: Array,
    out: Array,
) -> Array:
    keys, values = part
    groups = queries.shape[:3]
    size = keys.shape[1]
    lse: Array = np.empty(groups, np.float32)
    mask = seen if seen.shape[1] == size else seen[:, :size]
    kernel(queries, keys, values, mask, scale, out.reshape(*groups, out.shape[2]), lse)
    return lse.reshape(out.shape[:2])


def grouped(q: Array, keys: Array) -> Array:
    """Queries (rows, heads, d) as `attend_by` takes them for these keys."""
    rows, heads, d = q.shape
    queries: Array = np.ascontiguousarray(q, keys.dtype)
    return queries.reshape(rows, len(keys), heads // len(keys), d)


def _block(q: Array, parts: Parts, mask: Array | None) -> tuple[Array, Array]:
    """The results for queries (kv heads, rows, group, d) whose scores are in memory at once."""
    kv_heads, rows, group, d = q.shape
    queries = q.reshape(kv_heads, rows * group, d).transpose(0, 2, 1)
    bounds = np.cumsum([0, *(keys.shape[1] for keys, _ in parts)])
    places = [slice(*pair) for pair in pairwise(bounds.tolist())]
    # BLAS is faster with the queries as columns.
    columns: Array = np.empty((kv_heads, bounds[-1], rows * group), np.float32)
    for place, (keys, _) in zip(places, parts, strict=True):
        np.matmul(_float32(keys), queries, out=columns[:, place])
    if mask is not None:
        of_new = columns.reshape(kv_heads, -1, rows, group)[:, -mask.shape[1] :]
        np.copyto(of_new, -np.inf, where=~mask.T[..., np.newaxis])
    scores = columns.transpose(0, 2, 1)
    if rows * group < _FEW_COLUMNS:
        scores = np.ascontiguousarray(scores)
    top = scores.max(-1, keepdims=True)
    np.subtract(scores, top, out=scores)
    np.exp(scores, out=scores)
    total = scores.sum(-1, keepdims=True)
    weighted: Array = np.matmul(scores[..., places[0]], _float32(parts[0][1]))
    for place, (_, values) in zip(places[1:], parts[1:], strict=True):
        weighted += scores[..., place] @ _float32(values)
    weighted /= total
    logs = np.log2(total) + top * np.float32(_LOG2_E)
    shape = (kv_heads, rows, group, -1)
    return weighted.reshape(shape), logs.reshape(shape)


def _float32(x: Array) -> Array:
    return x.astype(np.float32, copy=False)


def merge(out: Array, lse: Array, other: Array, other_lse: Array) -> None:
    """Merge two partial attention results into `out` and `lse`, in place."""
    top = np.maximum(lse, other_lse)
    own, others = np.exp2(lse - top), np.exp2(other_lse - top)
    total = own + others
    mixed = out * (own / total)[..., np.newaxis] + other * (others / total)[..., np.newaxis]
    out[...] = mixed.astype(out.dtype)
    lse[...] = (np.log2(total) + top).astype(lse.dtype)


def with_sinks(out: Array, lse: Array, sinks: Array) -> Array:
    """Attention in which each head gives some weight to a sink, a score without a value."""
    share: Array = 1 / (1 + np.exp2(sinks.astype(np.float32) * np.float32(_LOG2_E) - lse))
    return out * share[..., np.newaxis]
