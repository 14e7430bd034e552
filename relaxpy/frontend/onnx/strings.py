"""Packed functions on arrays of strings, which Relax has no tensors for: they are objects there."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from relaxpy.exec.runtime.registry import register_func
from relaxpy.ir.core.dtype import DataType

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
PREFIX = "relaxpy.onnx."


def _objects(items: Sequence[Any], shape: Sequence[int]) -> Array:
    result = np.empty(len(items), object)
    result[:] = items
    return result.reshape(tuple(shape))


def _texts(value: Any) -> list[str]:
    flat = np.asarray(value, object).reshape(-1)
    return [item.decode() if isinstance(item, bytes) else str(item) for item in flat]


def literal(text: str, shape: Sequence[int]) -> Array:
    """The strings of a JSON list, as an array."""
    return _objects(json.loads(text), shape)


def concat(x: Any, y: Any) -> Array:
    """The strings joined element by element; shapes broadcast."""
    left, right = np.broadcast_arrays(np.asarray(x, object), np.asarray(y, object))
    pairs = zip(_texts(left), _texts(right), strict=True)
    return _objects([a + b for a, b in pairs], left.shape)


def equal(x: Any, y: Any) -> Array:
    """Whether strings are equal; shapes broadcast."""
    left, right = np.broadcast_arrays(np.asarray(x, object), np.asarray(y, object))
    pairs = zip(_texts(left), _texts(right), strict=True)
    return np.array([a == b for a, b in pairs], bool).reshape(left.shape)


def full_match(x: Any, pattern: str) -> Array:
    """Whether each string matches the pattern as a whole."""
    compiled = re.compile(pattern)
    found = [compiled.fullmatch(text) is not None for text in _texts(x)]
    return np.array(found, bool).reshape(np.shape(x))


def split(x: Any, delimiter: str, maxsplit: int) -> tuple[Array, Array]:
    """The parts of each string, padded by empty ones, and their numbers."""
    most = -1 if maxsplit < 0 else maxsplit
    parts = [text.split(delimiter or None, most) for text in _texts(x)]
    width = max(map(len, parts), default=0)
    rows = [part for row in parts for part in [*row, *[""] * (width - len(row))]]
    counts = np.array([len(row) for row in parts], np.int64).reshape(np.shape(x))
    return _objects(rows, (*np.shape(x), width)), counts


def normalize(x: Any, change: str, case_sensitive: int, stopwords: str) -> Array:
    """The strings in lower or upper case (`change`), without the stop words of a JSON list."""
    stop = json.loads(stopwords)
    fold = {"LOWER": str.lower, "UPPER": str.upper}.get(change, str)
    unwanted = set(stop if case_sensitive else map(fold if change != "NONE" else str.lower, stop))
    compared = str if case_sensitive else (fold if change != "NONE" else str.lower)
    rows = np.asarray(x, object)
    kept = [fold(text) for text in _texts(rows) if compared(text) not in unwanted]
    kept = kept or [""]
    return _objects(kept, (1, len(kept)) if rows.ndim == 2 else (len(kept),))


def labels(x: Any, rows: str, dtype: str) -> Array:
    """The label of each element, by a JSON list of keys, labels, and the label of all others."""
    keys, values, default = json.loads(rows)
    flat = np.asarray(x).reshape(-1)
    items = _texts(flat) if keys and isinstance(keys[0], str) else flat.tolist()
    # A key that is no number, and so differs from itself, stands for all that are none.
    keys, items = ([None if key != key else key for key in some] for some in (keys, items))
    table = dict(zip(keys, values, strict=True))
    found = [table.get(item, default) for item in items]
    if dtype:
        return np.array(found).astype(dtype).reshape(np.shape(x))
    return _objects(found, np.shape(x))


def from_numbers(x: Any) -> Array:
    """The texts of numbers."""
    array = np.asarray(x)
    return _objects([_number_text(item) for item in array.reshape(-1)], array.shape)


def _number_text(item: Any) -> str:
    if isinstance(item, (bool, np.bool_)):
        return "1" if item else "0"
    if isinstance(item, np.integer):
        return str(int(item))
    return str(item) if np.isfinite(item) else {"inf": "INF", "-inf": "-INF"}.get(str(item), "NaN")


def to_numbers(x: Any, dtype: str) -> Array:
    """The numbers that texts stand for."""
    flat = [float(text) for text in _texts(x)]
    whole = [int(text) for text in _texts(x)] if "int" in dtype else flat
    return np.array(whole).astype(DataType(dtype).numpy()).reshape(np.shape(x))


def tf_idf(x: Any, settings: str) -> Array:
    """How often n-grams of a pool occur in each row; `settings` are the attributes, in JSON."""
    known = json.loads(settings)
    rows = np.asarray(x)
    matrix = rows.reshape(1, -1) if rows.ndim == 1 else rows
    texts = rows.dtype == object
    indexes, pool = known["ngram_indexes"], known["pool"]
    grams: dict[tuple[Any, ...], int] = {}
    starts = [*known["ngram_counts"], len(pool)]
    at = 0
    for n in range(1, len(starts)):
        for start in range(starts[n - 1], starts[n], n):
            if n >= known["min_gram_length"] and n <= known["max_gram_length"]:
                grams[tuple(pool[start : start + n])] = at
            at += 1
    counts = np.zeros((len(matrix), max(indexes) + 1), np.float32)
    for k, row in enumerate(matrix):
        items = _texts(row) if texts else [int(item) for item in row]
        for n in range(known["min_gram_length"], known["max_gram_length"] + 1):
            for skip in range(1, known["max_skip_count"] + 2 if n > 1 else 2):
                for first in range(len(items) - (n - 1) * skip):
                    place = grams.get(tuple(items[first : first + (n - 1) * skip + 1 : skip]))
                    if place is not None:
                        counts[k, indexes[place]] += 1
    weights = known["weights"]
    scale = np.ones(counts.shape[1], np.float32)
    if weights:
        scale[indexes] = weights
    result = {"TF": counts, "IDF": np.where(counts > 0, scale, 0), "TFIDF": counts * scale}[
        known["mode"]
    ].astype(np.float32)
    return result[0] if rows.ndim == 1 else result


for _function in (
    *(literal, concat, equal, full_match, split, normalize),
    *(labels, from_numbers, to_numbers, tf_idf),
):
    register_func(PREFIX + _function.__name__, _function, override=True, pure=True)
