"""Operators that run as they stand, being functions of run-time values; both targets share them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.values import Array, Category, ShapeTuple, Value, category_of, describe


def _tensor(value: Value, operator: str, ndim: int | None = None) -> Array:
    if category_of(value) is not Category.TENSOR or ndim not in (None, value.ndim):
        rank = "" if ndim is None else f" of rank {ndim}"
        raise RuntimeCheckError(f"{operator} takes a tensor{rank}, found {describe(value)}")
    array: Array = value
    return array


def shape_of(value: Value) -> ShapeTuple:
    """The shape of a tensor, as a new shape value (OP-12)."""
    return ShapeTuple(_tensor(value, "shape_of").shape)


def tensor_to_shape(value: Value) -> ShapeTuple:
    """The shape whose members are the elements of a tensor of rank 1."""
    array = _tensor(value, "tensor_to_shape", 1)
    if array.dtype.kind not in "iu":
        raise RuntimeCheckError(f"tensor_to_shape takes integers, found {describe(value)}")
    return ShapeTuple(array.tolist())


def shape_to_tensor(value: Value) -> Array:
    """The members of a shape, as a new int64 tensor."""
    if category_of(value) is not Category.SHAPE:
        raise RuntimeCheckError(f"shape_to_tensor takes a shape, found {describe(value)}")
    return np.array(value, np.int64)


def null_value() -> None:
    """The null object (OP-14)."""


def print_values(*values: Value, format: str = "") -> tuple[()]:
    """Write the values to the console, through `format` if there is one (OP-15); unit."""
    builtins.print(_formatted(format, values) if format else " ".join(map(shown, values)))
    return ()


def assert_op(condition: Value, *values: Value, format: str = "") -> tuple[()]:
    """Unit.

    Errors:
        RuntimeCheckError: the condition is false, or no Boolean of rank 0.
    """
    if condition is True or (condition is not False and truth(condition)):
        return ()
    if format:
        raise RuntimeCheckError(f"assertion failed: {_formatted(format, values)}")
    listed = ", ".join(map(shown, values))
    raise RuntimeCheckError("assertion failed" + (f": {listed}" if listed else ""))


def _formatted(format: str, values: tuple[Value, ...]) -> str:
    try:
        return format.format(*map(shown, values))
    except (IndexError, KeyError, ValueError) as error:
        raise RuntimeCheckError(
            f"the format {format!r} does not fit its {len(values)} values: {error}"
        ) from None


def shown(value: Value) -> str:
    """A value as programs print it."""
    if isinstance(value, ShapeTuple):
        return str(list(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def truth(value: Value) -> bool:
    """What an If makes of its condition (EV-12).

    Errors:
        RuntimeCheckError: it is no Boolean of rank 0 (RES-24).
    """
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype == np.bool_:
        return bool(value)
    raise RuntimeCheckError(
        f"a condition is a Boolean tensor of rank 0, found {describe(value)}", rule="DER-9"
    )


def same_device(value: Value, **where: Any) -> Value:
    """The value itself: there is one memory."""
    return value


SPECIAL_OPERATORS = frozenset(
    (
        "relax.call_tir",
        "relax.call_tir_inplace",
        "relax.call_dps_packed",
        "relax.call_pure_packed",
        "relax.call_py_func",
        "relax.invoke_closure",
        "relax.invoke_pure_closure",
    )
)
"""Operators that call something, and so need more than their values."""

RUNTIME_OPERATORS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "relax.shape_of": shape_of,
        "relax.tensor_to_shape": tensor_to_shape,
        "relax.shape_to_tensor": shape_to_tensor,
        "relax.null_value": null_value,
        "relax.print": print_values,
        "relax.assert_op": assert_op,
        "relax.to_vdevice": same_device,
        "relax.hint_on_device": same_device,
    }
)
"""What each operator does to values; attributes are passed by keyword."""
