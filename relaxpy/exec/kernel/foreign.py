"""What kernels meet outside of themselves: called functions, memory laid otherwise, constants."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.exec.kernel.arguments import Array, laid
from relaxpy.exec.registry import call_packed
from relaxpy.exec.scalar import cast
from relaxpy.exec.values import describe
from relaxpy.ir.dtype import DataType

Function = Callable[..., Any]


def outside(name: str, function: str | Function, kind: type[Any] | None, *args: Any) -> Any:
    """What `function`, by itself or as it is registered, gives for `args`: a scalar of `kind`.

    Errors:
        UnknownPackedFuncError: nothing is registered under that name (EV-13).
        RuntimeCheckError: it gives something else than a scalar.
    """
    values = tuple(map(_passed, args))
    found = call_packed(function, values) if isinstance(function, str) else function(*values)
    if found is None or kind is None:
        return None
    dtype = DataType("bool" if kind is np.bool_ else np.dtype(kind).name)
    try:
        return kind(cast(found, DataType(np.asarray(found).dtype), dtype))
    except (MisuseError, TypeError, ValueError):
        called = function if isinstance(function, str) else function.__name__
        raise RuntimeCheckError(f"{name}: {called} gave {describe(found)}, no {dtype}") from None


def _passed(value: Any) -> Any:
    """A scalar as functions outside take it: integers and truth values are Python's."""
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    return value


def overlay(
    array: Array,
    kind: type[Any],
    shape: tuple[int, ...] | None,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Array:
    """The memory of `array` as another datatype and shape; without a shape, all in one dimension.

    Units:
        offset, strides  elements of the new datatype
    Errors:
        RuntimeCheckError: it is too small, or has gaps.
    """
    if not isinstance(array, np.ndarray) or not array.flags.c_contiguous:
        raise RuntimeCheckError("a buffer is declared over memory with gaps")
    size = np.dtype(kind).itemsize
    whole = array.reshape(-1).view(np.uint8)[offset * size :]
    flat = whole[: whole.size // size * size].view(kind)
    if shape is None:
        every: Array = flat
        return every
    steps = strides or ()
    reach = math.prod(shape)
    if strides and reach:
        reach = 1 + sum((n - 1) * step for n, step in zip(shape, steps, strict=True))
    if reach > flat.size:
        raise RuntimeCheckError(f"a buffer of shape {shape} is larger than its memory")
    if strides:
        return laid(flat, shape, (s * size for s in steps))
    view: Array = flat[:reach].reshape(shape)
    return view


@cache
def constant(data: str | tuple[Any, ...], kind: type[Any], shape: tuple[int, ...]) -> Array:
    """An array that is never written: its elements in order, or their packed bytes."""
    if isinstance(data, str):
        found = np.frombuffer(zlib.decompress(base64.b85decode(data)), kind)
    else:
        found = np.array(data).astype(kind)
    whole: Array = found.reshape(shape)
    whole.flags.writeable = False
    return whole
