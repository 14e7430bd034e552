"""Run-time support for kernels: external functions, reinterpreted memory, and constants."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

import numpy as np

from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.exec.kernel.arguments import Array, reinterpreted
from relaxpy.exec.runtime.registry import call_packed
from relaxpy.exec.runtime.scalar import cast
from relaxpy.exec.runtime.values import describe
from relaxpy.ir.core.dtype import DataType

Function = Callable[..., Any]


def call_external(name: str, function: str | Function, kind: type[Any] | None, *args: Any) -> Any:
    """Call `function`, which may be the name of a registered one, and return a scalar of `kind`.

    A function that returns nothing counts as one that returns 0.

    Errors:
        UnknownPackedFuncError: no function is registered under that name (EV-13).
        RuntimeCheckError: the result is not a scalar.
    """
    values = tuple(map(_as_python, args))
    result = call_packed(function, values) if isinstance(function, str) else function(*values)
    if result is None or kind is None:
        return kind and kind(0)
    dtype = DataType("bool" if kind is np.bool_ else np.dtype(kind).name)
    try:
        return kind(cast(result, DataType(np.asarray(result).dtype), dtype))
    except (MisuseError, TypeError, ValueError):
        called = function if isinstance(function, str) else function.__name__
        message = f"{name}: {called} returned {describe(result)}, expected {dtype}"
        raise RuntimeCheckError(message) from None


def _as_python(value: Any) -> Any:
    """An argument for an external function: integers and bools become Python's."""
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    return value


class OutOfMemory:
    """Stands for a buffer that does not fit its memory: any use of it stops the program."""

    def __init__(self, error: RuntimeCheckError, kind: type[Any]) -> None:
        self._error = error
        self.kind = kind

    def unless_unused(self, where: Any) -> None:
        """Stop the program if an element is accessed. Errors: RuntimeCheckError: one is."""
        if np.any(where):
            self._raise()

    def _raise(self, *args: object, **keywords: object) -> NoReturn:
        raise self._error

    __getattr__ = __getitem__ = __setitem__ = __array_ufunc__ = __array_function__ = _raise


def overlay(
    array: Array,
    kind: type[Any],
    shape: tuple[int, ...] | None,
    name: str,
    offset: int = 0,
    strides: tuple[int, ...] | None = None,
) -> Array | OutOfMemory:
    """As `reinterpreted`, but its errors are raised when an element is accessed."""
    try:
        return reinterpreted(array, kind, shape, name, offset, strides)
    except RuntimeCheckError as error:
        return OutOfMemory(error, kind)


@lru_cache(maxsize=256)
def constant(data: str | tuple[Any, ...], kind: type[Any], shape: tuple[int, ...]) -> Array:
    """A read-only array, from its elements in order or from their compressed bytes."""
    if isinstance(data, str):
        elements = np.frombuffer(zlib.decompress(base64.b85decode(data)), kind)
    else:
        elements = np.array(data).astype(kind)
    array: Array = elements.reshape(shape)
    array.flags.writeable = False
    return array
