"""Implementations of operators on run-time values for both targets."""

from __future__ import annotations

import builtins
import re
from math import prod
from string import Formatter
from typing import Final

import numpy as np

from relaxpy.errors import AssertionFailedError, MisuseError, RuntimeCheckError, counted
from relaxpy.exec.runtime import (
    sorting as sorting,  # registers functions that kernels call
    tuples as tuples,  # registers functions that passes call
)
from relaxpy.exec.runtime.closures import make_closure
from relaxpy.exec.runtime.storage import (
    new_storage,
    new_tensor,
    planned_storage,
    released,
    tensor_in,
    view,
)
from relaxpy.exec.runtime.values import Array, Category, ShapeTuple, Value, category_of, describe
from relaxpy.ir.core.dtype import DataType
from relaxpy.ir.relax import op
from relaxpy.ir.relax.op import misc, packed, python_syntax


def _tensor(value: Value, operator: str, ndim: int | None = None) -> Array:
    if category_of(value) is not Category.TENSOR or ndim not in (None, value.ndim):
        rank = "" if ndim is None else f" of rank {ndim}"
        raise RuntimeCheckError(f"{operator} takes a tensor{rank}, found {describe(value)}")
    array: Array = value
    return array


@op.shape_of.implement
def shape_of(value: Value) -> ShapeTuple:
    """The shape of a tensor, as a new shape value (OP-12)."""
    return ShapeTuple(_tensor(value, "shape_of").shape)


@misc.tensor_to_shape.implement
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


@misc.shape_to_tensor.implement
def shape_to_tensor(value: Value) -> Array:
    """The members of a shape, as a new int64 tensor."""
    if category_of(value) is not Category.SHAPE:
        raise RuntimeCheckError(f"shape_to_tensor takes a shape, found {describe(value)}")
    return np.array(value, np.int64)


@python_syntax.tensor_dtype_code.implement
def tensor_dtype_code(value: Value) -> np.uint8:
    """DLPack's type code of the elements of a tensor."""
    return np.uint8(_datatype(value, "tensor_dtype_code").type_code)


@python_syntax.tensor_dtype_bits.implement
def tensor_dtype_bits(value: Value) -> np.uint8:
    """The bits of an element of a tensor."""
    return np.uint8(_datatype(value, "tensor_dtype_bits").bits)


@python_syntax.tensor_dtype_lanes.implement
def tensor_dtype_lanes(value: Value) -> np.uint16:
    """The lanes of an element of a tensor."""
    return np.uint16(_datatype(value, "tensor_dtype_lanes").lanes)


def _datatype(value: Value, operator: str) -> DataType:
    return DataType(_tensor(value, operator).dtype)


@python_syntax.tensor_ndim.implement
def tensor_ndim(value: Value) -> np.int32:
    """The rank of a tensor."""
    return np.int32(_tensor(value, "tensor_ndim").ndim)


@python_syntax.tensor_shape_i.implement
def tensor_shape_i(value: Value, axis: Value) -> int:
    """The size of a tensor along an axis."""
    array = _tensor(value, "tensor_shape_i")
    size: int = array.shape[_axis(array, axis, "tensor_shape_i")]
    return size


@python_syntax.tensor_stride_i.implement
def tensor_stride_i(value: Value, axis: Value) -> int:
    """The stride, in elements, along an axis of a compact row-major tensor.

    It depends on the shape only, since programs do not see the strides of NumPy arrays.
    """
    array = _tensor(value, "tensor_stride_i")
    return prod(array.shape[_axis(array, axis, "tensor_stride_i") + 1 :])


@python_syntax.tensor_byte_offset.implement
def tensor_byte_offset(value: Value) -> np.uint64:
    """The offset of the first element of a tensor in its memory: 0, unless it is a view."""
    return np.uint64(getattr(_tensor(value, "tensor_byte_offset"), "byte_offset", 0))


@python_syntax.tensor_elem_offset.implement
def tensor_elem_offset(value: Value) -> np.uint64:
    """The offset of the first element of a tensor in elements."""
    array = _tensor(value, "tensor_elem_offset")
    return np.uint64(getattr(array, "byte_offset", 0) // array.itemsize)


def _axis(array: Array, axis: Value, operator: str) -> int:
    if isinstance(axis, (int, np.integer)) and 0 <= axis < array.ndim:
        return int(axis)
    raise RuntimeCheckError(
        f"{operator}: axis {axis} is out of range for {describe(array)}", rule="DER-36"
    )


@op.null_value.implement
def null_value() -> None:
    """The null object (OP-14)."""


@op.print.implement
def print_values(*values: Value, format: str = "") -> tuple[()]:
    """Print the values, formatted by `format` if it is not empty (OP-15); return unit."""
    builtins.print(_formatted(format, values) if format else " ".join(map(shown, values)))
    return ()


@op.assert_op.implement
def assert_op(condition: Value, *values: Value, format: str = "") -> tuple[()]:
    """Check the condition and return unit.

    Errors:
        AssertionFailedError (also AssertionError): the condition is false.
        RuntimeCheckError: the condition is not a Boolean tensor of rank 0.
    """
    if condition is True or (condition is not False and truth(condition)):
        return ()
    if format:
        raise AssertionFailedError(f"Assertion Failed: {_formatted(format, values)}")
    listed = ", ".join(map(shown, values))
    raise AssertionFailedError("Assertion Failed" + (f": {listed}" if listed else ""))


_SPEC: Final = re.compile(r"(?s:.?[<>^])?(\d*)(?:\.(\d+))?s?")
_WIDEST: Final = 1000


def _check_fields(format: str) -> None:
    """Check that the fields of a format are texts of values.

    Errors:
        ValueError: one is part of a value, or has a width of more than `_WIDEST` characters.
    """
    for _, name, spec, _ in Formatter().parse(format):
        if name and not name.isdecimal():
            raise ValueError(f"a field is a number or empty, found {name!r:.80}")
        match = _SPEC.fullmatch(spec or "")
        if match is None:
            raise ValueError(f"a field may have an alignment and a width, found {spec!r:.80}")
        if any(len(n) > len(str(_WIDEST)) or int(n) > _WIDEST for n in match.groups() if n):
            raise ValueError(f"a field has at most {_WIDEST} characters, found {spec!r:.80}")


def _formatted(format: str, values: tuple[Value, ...]) -> str:
    try:
        _check_fields(format)
        return format.format(*map(shown, values))
    except (LookupError, ValueError, AttributeError, TypeError, MemoryError) as error:
        raise RuntimeCheckError(
            f"the format {format!r} does not match its {counted(len(values), 'value')}: "
            f"{str(error) or 'not enough memory'}"
        ) from None


def shown(value: Value) -> str:
    """The text that programs print for a value."""
    if isinstance(value, ShapeTuple):
        return str(list(value))
    if isinstance(value, tuple):
        return f"({', '.join(map(shown, value))}{',' if len(value) == 1 else ''})"
    return str(value)


def truth(value: Value) -> bool:
    """The value of the condition of an If, as a bool (EV-12).

    Errors:
        RuntimeCheckError: it is not a Boolean tensor of rank 0 (RES-24).
    """
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype == np.bool_:
        return bool(value)
    raise RuntimeCheckError(
        f"a condition is a Boolean tensor of rank 0, found {describe(value)}", rule="DER-9"
    )


@misc.to_vdevice.implement
@misc.hint_on_device.implement
@op.builtin.stop_lift_params.implement
@op.memory.ensure_zero_offset.implement
def same_value(value: Value, *, dst_vdevice: object = None, memory_scope: object = None) -> Value:
    """The value itself, since there is only one memory."""
    return value


packed.make_closure.implement(make_closure)
op.builtin.alloc_tensor.implement(new_tensor)
op.memory.alloc_storage.implement(planned_storage)
op.memory.alloc_tensor.implement(tensor_in)
op.memory.kill_storage.implement(released)
op.memory.kill_tensor.implement(released)
op.memory.view.implement(view)
op.vm.alloc_storage.implement(new_storage)
op.vm.alloc_tensor.implement(tensor_in)
op.vm.kill_object.implement(released)
