"""Attention of some queries to the keys and values of one sequence."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

_LARGEST_SCORES = 1 << 24
"""The most scores that are in memory at once: 64 MiB."""
_LOG2_E = math.log2(math.e)


def attend(
    q: Array, k: Array, v: Array, scale: float, mask: Array | None = None
) -> tuple[Array, Array]:
    """The weighted values, and log2 of the sums of the weights, both in float32.

    Groups of query heads share a head of keys and values. The last rows of keys are those of the
    queries themselves where there is a mask, which says whether a query sees one of these.

    Shapes:
        q        (rows, heads, d)
        k        (past + rows, kv heads, d)
        v        (past + rows, kv heads, dv)
        mask     (rows, rows), bool
        results  (rows, heads, dv), (rows, heads)
    """
    rows, heads, _ = q.shape
    size, kv_heads, _ = k.shape
    group, dv = heads // kv_heads, v.shape[2]
    keys = k.astype(np.float32, copy=False).transpose(1, 2, 0)
    values = v.astype(np.float32, copy=False).transpose(1, 0, 2)
    out: Array = np.empty((rows, heads, dv), np.float32)
    lse: Array = np.empty((rows, heads), np.float32)
    step = max(1, _LARGEST_SCORES // max(1, heads * size))
    for start in range(0, rows, step):
        part = slice(start, min(start + step, rows))
        count = part.stop - start
        scaled = q[part].astype(np.float32).reshape(count, kv_heads, group, -1)
        scaled *= np.float32(scale)
        queries = scaled.transpose(1, 0, 2, 3).reshape(kv_heads, count * group, -1)
        scores = queries @ keys
        if mask is not None:
            of_new = scores.reshape(kv_heads, count, group, size)[..., size - rows :]
            np.copyto(of_new, -np.inf, where=~mask[part][:, np.newaxis])
        top = scores.max(-1, keepdims=True)
        np.subtract(scores, top, out=scores)
        np.exp(scores, out=scores)
        total = scores.sum(-1, keepdims=True)
        weighted = (scores @ values) / total
        logs = np.log2(total) + top * np.float32(_LOG2_E)
        out[part] = _by_row(weighted, count).reshape(count, heads, dv)
        lse[part] = _by_row(logs, count).reshape(count, heads)
    return out, lse


def _by_row(x: Array, rows: int) -> Array:
    """(kv heads, rows * group, d) as (rows, kv heads, group, d)."""
    return x.reshape(x.shape[0], rows, -1, x.shape[2]).transpose(1, 0, 2, 3)


def merge(out: Array, lse: Array, other: Array, other_lse: Array) -> None:
    """Make `out` and `lse` what attention to the keys of both results gives, in place."""
    top = np.maximum(lse, other_lse)
    own, others = np.exp2(lse - top), np.exp2(other_lse - top)
    total = own + others
    mixed = out * (own / total)[..., np.newaxis] + other * (others / total)[..., np.newaxis]
    out[...] = mixed.astype(out.dtype)
    lse[...] = (np.log2(total) + top).astype(lse.dtype)
