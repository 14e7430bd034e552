"""What kernels meet outside of themselves: called functions, memory laid otherwise, constants."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.exec.kernel.arguments import Array, laid_over
from relaxpy.exec.runtime.registry import call_packed
from relaxpy.exec.runtime.scalar import cast
from relaxpy.exec.runtime.values import describe
from relaxpy.ir.core.dtype import DataType

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


class _Beyond:
    """In the place of a buffer that its memory does not hold: the program stops where it is met."""

    def __init__(self, error: RuntimeCheckError) -> None:
        self._error = error

    def _met(self, *args: object, **keywords: object) -> NoReturn:
        raise self._error

    __getattr__ = __getitem__ = __setitem__ = __array_ufunc__ = __array_function__ = _met


def overlay(
    array: Array,
    kind: type[Any],
    shape: tuple[int, ...] | None,
    name: str,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Array | _Beyond:
    """As `laid_over`, with its errors where an element is met."""
    try:
        return laid_over(array, kind, shape, name, offset, strides)
    except RuntimeCheckError as error:
        return _Beyond(error)


@lru_cache(maxsize=256)
def constant(data: str | tuple[Any, ...], kind: type[Any], shape: tuple[int, ...]) -> Array:
    """An array that is never written: its elements in order, or their packed bytes."""
    if isinstance(data, str):
        found = np.frombuffer(zlib.decompress(base64.b85decode(data)), kind)
    else:
        found = np.array(data).astype(kind)
    whole: Array = found.reshape(shape)
    whole.flags.writeable = False
    return whole
