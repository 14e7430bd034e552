"""Packed functions on sequences of unknown length, which are Python's tuples, and on optionals."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.registry import provided

PREFIX = "relaxpy.onnx.sequence."


def pack(*values: Any) -> tuple[Any, ...]:
    """A sequence of these values."""
    return values


def length(sequence: Any) -> Any:
    """The number of values."""
    return np.array(len(sequence), np.int64)


def _place(position: Any, count: int, places: int) -> int:
    """The index of a position; negative ones count from the end of `count`."""
    number = int(np.asarray(position).item())
    place = number + count if number < 0 else number
    if not 0 <= place < places:
        raise RuntimeCheckError(f"position {number} is not in a sequence of {count}")
    return place


def at(sequence: Any, position: Any) -> Any:
    """The value at a position; negative ones count from the end."""
    return sequence[_place(position, len(sequence), len(sequence))]


def insert(sequence: Any, value: Any, position: Any = None) -> tuple[Any, ...]:
    """The sequence with an inserted value, at its end by default."""
    values = list(sequence)
    count = len(values)
    values.insert(count if position is None else _place(position, count, count + 1), value)
    return tuple(values)


def erase(sequence: Any, position: Any = None) -> tuple[Any, ...]:
    """The sequence without a value, the last one by default."""
    values = list(sequence)
    del values[_place(-1 if position is None else position, len(values), len(values))]
    return tuple(values)


def concat(sequence: Any, axis: int, new_axis: int) -> Any:
    """The values joined along an axis, or along a new one."""
    arrays = [np.asarray(value) for value in sequence]
    return np.stack(arrays, int(axis)) if new_axis else np.concatenate(arrays, int(axis))


def split(x: Any, sizes: Any, axis: int) -> tuple[Any, ...]:
    """The parts of a tensor along an axis: of these sizes, or of this size but the last."""
    array, wanted = np.asarray(x), np.asarray(sizes)
    whole = array.shape[int(axis)]
    least = 0 if wanted.ndim else 1
    if wanted.min(initial=least) < least or (wanted.ndim and wanted.sum() != whole):
        raise RuntimeCheckError(f"parts of {wanted.tolist()} elements, expected {whole} in all")
    ends = np.cumsum(wanted)[:-1] if wanted.ndim else np.arange(int(wanted), whole, int(wanted))
    return tuple(np.ascontiguousarray(part) for part in np.split(array, ends, int(axis)))


def unstack(x: Any, axis: int) -> tuple[Any, ...]:
    """The elements of a tensor along an axis, without it."""
    elements = np.moveaxis(np.asarray(x), int(axis), 0)
    return tuple(np.array(element, order="C") for element in elements)


def has(value: Any) -> Any:
    """True if an optional has a value."""
    return np.array(value is not None, bool)


def get(value: Any) -> Any:
    """The value of an optional that has one."""
    if value is None:
        raise RuntimeCheckError("an optional without a value is read")
    return value


@lru_cache
def _names_of(keys: str) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """The keys, and a map that has them, whose copies have room for all."""
    names = tuple(json.loads(keys))
    return names, dict.fromkeys(names)


def maps(rows: Any, keys: str) -> tuple[dict[Any, float], ...]:
    """A map from keys to numbers for each row; many rows are filled key by key."""
    array, (names, one) = np.asarray(rows), _names_of(keys)
    if array.shape[1] != len(names):
        raise RuntimeCheckError(f"rows of {array.shape[1]} numbers, expected {len(names)}")
    found = tuple([one.copy() for _ in array])
    if len(array) < len(names):
        for row, numbers in zip(found, array.tolist(), strict=True):
            row.update(zip(names, numbers, strict=True))
        return found
    for name, column in zip(names, array.T.tolist(), strict=True):
        for row, number in zip(found, column, strict=True):
            row[name] = number
    return found


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(pack, length, at, insert, erase),
    *(concat, split, unstack, has, get, maps),
)
for _function in _FUNCTIONS:
    provided(PREFIX + _function.__name__, pure=True)(_function)
