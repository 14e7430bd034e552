"""Operators that run as they stand, being functions of run-time values; both targets share them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from math import inf, prod
from types import MappingProxyType

import numpy as np

from relaxpy.errors import AssertionFailedError, MisuseError, RuntimeCheckError, counted
from relaxpy.exec.closures import make_closure
from relaxpy.exec.storage import new_storage, new_tensor, planned_storage, released, tensor_in, view
from relaxpy.exec.values import Array, Category, ShapeTuple, Value, category_of, describe
from relaxpy.ir.dtype import DataType


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
    try:
        return ShapeTuple(array.tolist())
    except MisuseError as error:
        raise RuntimeCheckError(
            f"tensor_to_shape: {error.diagnostic.message}", rule="PX-9"
        ) from None


def shape_to_tensor(value: Value) -> Array:
    """The members of a shape, as a new int64 tensor."""
    if category_of(value) is not Category.SHAPE:
        raise RuntimeCheckError(f"shape_to_tensor takes a shape, found {describe(value)}")
    return np.array(value, np.int64)


def tensor_dtype_code(value: Value) -> np.uint8:
    """The kind of elements of a tensor, as DLPack counts them."""
    return np.uint8(_datatype(value, "tensor_dtype_code").type_code)


def tensor_dtype_bits(value: Value) -> np.uint8:
    """The bits of an element of a tensor."""
    return np.uint8(_datatype(value, "tensor_dtype_bits").bits)


def tensor_dtype_lanes(value: Value) -> np.uint16:
    """The lanes of an element of a tensor."""
    return np.uint16(_datatype(value, "tensor_dtype_lanes").lanes)


def _datatype(value: Value, operator: str) -> DataType:
    return DataType(_tensor(value, operator).dtype)


def tensor_ndim(value: Value) -> np.int32:
    """The rank of a tensor."""
    return np.int32(_tensor(value, "tensor_ndim").ndim)


def tensor_shape_i(value: Value, axis: Value) -> int:
    """The size of a tensor along an axis."""
    array = _tensor(value, "tensor_shape_i")
    size: int = array.shape[_axis(array, axis, "tensor_shape_i")]
    return size


def tensor_stride_i(value: Value, axis: Value) -> int:
    """The elements between neighbours along an axis of a tensor whose rows follow one another.

    It depends on the shape alone: where NumPy has the elements is no matter of the program.
    """
    array = _tensor(value, "tensor_stride_i")
    return prod(array.shape[_axis(array, axis, "tensor_stride_i") + 1 :])


def tensor_offset(value: Value) -> np.uint64:
    """What lies before the first element of a tensor in its memory, which begins with it."""
    _tensor(value, "tensor_offset")
    return np.uint64(0)


def _axis(array: Array, axis: Value, operator: str) -> int:
    if isinstance(axis, (int, np.integer)) and 0 <= axis < array.ndim:
        return int(axis)
    raise RuntimeCheckError(
        f"{operator}: axis {axis} is out of range for {describe(array)}", rule="DER-36"
    )


def null_value() -> None:
    """The null object (OP-14)."""


def print_values(*values: Value, format: str = "") -> tuple[()]:
    """Write the values to the console, through `format` if there is one (OP-15); unit."""
    builtins.print(_formatted(format, values) if format else " ".join(map(shown, values)))
    return ()


def assert_op(condition: Value, *values: Value, format: str = "") -> tuple[()]:
    """Unit.

    Errors:
        AssertionFailedError (also AssertionError): the condition is false.
        RuntimeCheckError: the condition is no Boolean of rank 0.
    """
    if condition is True or (condition is not False and truth(condition)):
        return ()
    if format:
        raise AssertionFailedError(f"Assertion Failed: {_formatted(format, values)}")
    listed = ", ".join(map(shown, values))
    raise AssertionFailedError("Assertion Failed" + (f": {listed}" if listed else ""))


def _formatted(format: str, values: tuple[Value, ...]) -> str:
    try:
        return format.format(*map(shown, values))
    except (LookupError, ValueError, AttributeError, TypeError, MemoryError) as error:
        raise RuntimeCheckError(
            f"the format {format!r} does not fit its {counted(len(values), 'value')}: "
            f"{str(error) or 'not enough memory'}"
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


def same_value(value: Value, *, dst_vdevice: object = None, memory_scope: object = None) -> Value:
    """The value itself: there is one memory."""
    return value


SPECIAL_OPERATORS: Mapping[str, tuple[int, float]] = MappingProxyType(
    {
        "relax.call_tir": (2, 3),
        "relax.call_tir_inplace": (2, 3),
        "relax.call_tir_with_grad": (2, 3),
        "relax.call_dps_packed": (2, 2),
        "relax.call_pure_packed": (1, inf),
        "relax.call_inplace_packed": (1, inf),
        "relax.call_builtin_with_ctx": (2, 2),
        "relax.call_py_func": (2, 2),
        "relax.vm.call_tir_dyn": (2, 2),
        "relax.invoke_closure": (2, 2),
        "relax.invoke_pure_closure": (2, 2),
    }
)
"""Operators that call something, and so need more than their values: the numbers they take."""

RUNTIME_OPERATORS: Mapping[str, Callable[..., Value]] = MappingProxyType(
    {
        "relax.shape_of": shape_of,
        "relax.tensor_to_shape": tensor_to_shape,
        "relax.shape_to_tensor": shape_to_tensor,
        "relax.inspect.tensor_dtype_code": tensor_dtype_code,
        "relax.inspect.tensor_dtype_bits": tensor_dtype_bits,
        "relax.inspect.tensor_dtype_lanes": tensor_dtype_lanes,
        "relax.inspect.tensor_ndim": tensor_ndim,
        "relax.inspect.tensor_shape_i": tensor_shape_i,
        "relax.inspect.tensor_stride_i": tensor_stride_i,
        "relax.inspect.tensor_byte_offset": tensor_offset,
        "relax.inspect.tensor_elem_offset": tensor_offset,
        "relax.null_value": null_value,
        "relax.print": print_values,
        "relax.assert_op": assert_op,
        "relax.to_vdevice": same_value,
        "relax.hint_on_device": same_value,
        "relax.make_closure": make_closure,
        "relax.builtin.alloc_tensor": new_tensor,
        "relax.builtin.stop_lift_params": same_value,
        "relax.memory.alloc_storage": planned_storage,
        "relax.memory.alloc_tensor": tensor_in,
        "relax.memory.kill_storage": released,
        "relax.memory.kill_tensor": released,
        "relax.memory.ensure_zero_offset": same_value,
        "relax.memory.view": view,
        "relax.vm.alloc_storage": new_storage,
        "relax.vm.alloc_tensor": tensor_in,
        "relax.vm.kill_object": released,
    }
)
"""What each operator does to values; attributes are passed by keyword."""

SHOWING_OPERATORS = frozenset(("relax.print", "relax.assert_op"))
"""Those that write values, opaque objects among them."""
