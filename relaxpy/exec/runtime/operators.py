"""Implementations of operators on run-time values for both targets."""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from string import Formatter
from typing import Final

import numpy as np

from relaxpy.errors import AssertionFailedError, MisuseError, RuntimeCheckError, counted
from relaxpy.exec.runtime.checks import Bindings, Matcher
from relaxpy.exec.runtime.registry import provided
from relaxpy.exec.runtime.values import (
    Category,
    Closure,
    FunctionValue,
    ShapeTuple,
    Value,
    category_of,
    describe,
    empty,
)
from relaxpy.ir import ops as op
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.ops import array_order, misc, packed, python_syntax
from relaxpy.ir.relax.nodes import FuncStructInfo, StructInfo
from relaxpy.ir.relax.relations import erase_to_well_defined
from relaxpy.ir.relax.relations.shape_vars import substitute_info
from relaxpy.ir.tir import expr as tir, ops
from relaxpy.support.dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Memory that contains tensors."""

    data: Array


def _datatype(value: Value, operator: str) -> np.dtype[np.generic]:
    if isinstance(value, DataType) and not value.is_void:
        return value.numpy()
    raise RuntimeCheckError(f"{operator} takes a datatype, found {describe(value)}")


def _sizes(value: Value, operator: str) -> tuple[int, ...]:
    if category_of(value) is not Category.SHAPE:
        raise RuntimeCheckError(f"{operator} takes a shape, found {describe(value)}")
    return tuple(value)


def new_tensor(
    shape: Value, dtype: Value, device: Value, scope: Value, *, vdevice: object = None
) -> Array:
    """A new tensor with undefined elements."""
    return empty(_sizes(shape, "alloc_tensor"), _datatype(dtype, "alloc_tensor"))


def new_storage(shape: Value, device: Value, dtype: Value, scope: Value) -> Storage:
    """New memory for the elements of a tensor of this shape.

    Errors:
        RuntimeCheckError: a dimension is negative, or there is not enough memory.
    """
    kind = _datatype(dtype, "alloc_storage")
    sizes = _sizes(shape, "alloc_storage")
    if min(sizes, default=0) < 0:
        raise RuntimeCheckError(f"cannot allocate storage of shape {list(sizes)}", rule="PX-9")
    return Storage(empty((math.prod(sizes) * kind.itemsize,), np.dtype(np.uint8)))


def planned_storage(size: Value, device: Value, scope: Value, dtype: Value) -> Storage:
    """New memory of `size` bytes, or for the elements of a shape with several dimensions."""
    flat = len(_sizes(size, "alloc_storage")) == 1
    return new_storage(size, device, DataType("uint8") if flat else dtype, scope)


def tensor_in(
    storage: Value, offset: Value, shape: Value, dtype: Value, *, vdevice: object = None
) -> Array:
    """The tensor in storage that begins at byte `offset`.

    Errors:
        RuntimeCheckError: `storage` is not storage, or the tensor exceeds it.
    """
    if not isinstance(storage, Storage):
        raise RuntimeCheckError(f"alloc_tensor takes storage, found {describe(storage)}")
    kind = _datatype(dtype, "alloc_tensor")
    return _tensor_at(storage.data, int(offset), _sizes(shape, "alloc_tensor"), kind, "the storage")


def _tensor_at(
    data: Array, offset: int, shape: tuple[int, ...], kind: np.dtype[np.generic], where: str
) -> Array:
    """The tensor in the bytes `data` that begins at `offset`."""
    end = offset + math.prod(shape) * kind.itemsize
    if min(shape, default=0) < 0:
        raise RuntimeCheckError(f"a tensor has no negative sizes, found {list(shape)}")
    if offset < 0 or end > data.size:
        raise RuntimeCheckError(
            f"a {kind.name} tensor of shape {list(shape)} at byte {offset} leaves {where}, "
            f"which has {data.size} bytes"
        )
    return data[offset:end].view(kind).reshape(shape)


def released(value: Value) -> tuple[()]:
    """Return unit; Python frees unreferenced memory."""
    return ()


def view(data: Value, shape: Value = (), dtype: Value = (), offset: Value = ()) -> Array:
    """A tensor over the memory of another; arguments that are unit default to those of `data`.

    Errors:
        RuntimeCheckError: `data` is not a compact row-major tensor, or the view exceeds it.
    """
    if category_of(data) is not Category.TENSOR:
        raise RuntimeCheckError(f"view takes a tensor, found {describe(data)}")
    if not data.flags.c_contiguous:
        raise RuntimeCheckError("view takes a tensor in row-major order without gaps")
    sizes = data.shape if category_of(shape) is Category.TUPLE else _sizes(shape, "view")
    kind = data.dtype if category_of(dtype) is Category.TUPLE else _datatype(dtype, "view")
    begin = 0 if category_of(offset) is Category.TUPLE else int(offset)
    return _tensor_at(data.reshape(-1).view(np.uint8), begin, sizes, kind, "the tensor")


def make_closure(function: Value, captured: tuple[Value, ...]) -> Value:
    """The closure that appends the `captured` values to its arguments.

    Errors:
        RuntimeCheckError: `function` is not a function, or takes fewer arguments.
    """
    if category_of(function) is Category.PACKED_FUNC:
        return lambda *args: function(*args, *captured)
    if not isinstance(function, FunctionValue):
        raise RuntimeCheckError(f"make_closure takes a function, found {describe(function)}")
    open_count = function.arity - len(captured)
    if open_count < 0:
        raise RuntimeCheckError(
            f"a function of {counted(function.arity, 'argument')} cannot capture {len(captured)}",
            rule="FN-11",
        )
    sinfo = function.struct_info
    assert sinfo.params is not None
    rest = FuncStructInfo(sinfo.params[:open_count], sinfo.ret, sinfo.purity)
    rest = substitute_info(rest, _captured_sizes(sinfo.params[open_count:], captured))
    return Closure(
        lambda *args: function(*args, *captured), erase_to_well_defined(rest), function.name
    )


def _captured_sizes(
    params: Sequence[StructInfo], captured: tuple[Value, ...]
) -> dict[tir.Var, tir.PrimExpr]:
    """The values of shape variables that are captured, or are sizes of captured values."""
    bindings = Bindings()
    matcher = Matcher(bindings, RuntimeCheckError, defer=True)
    for param, value in zip(params, captured, strict=True):
        with suppress(RuntimeCheckError):  # calls of the closure raise it
            matcher.check(value, param, "a captured value")
    return {var: ops.const(value, var.dtype) for var, value in bindings.sizes.items()}


def _places(data: Array, axis: int, is_ascend: int, count: int) -> Array:
    return np.take(array_order.order(data, axis, descending=not is_ascend), np.arange(count), axis)


@provided("tvm.contrib.sort.sort", pure=True)
def sort(data: Array, out: Array, axis: int, is_ascend: int) -> None:
    """Store the elements in order along an axis."""
    if is_ascend:
        out[...] = data
        out.sort(axis, kind="stable")
        return
    out[...] = np.take_along_axis(data, array_order.order(data, axis, descending=True), axis)


@provided("tvm.contrib.sort.argsort", pure=True)
def argsort(data: Array, out: Array, axis: int, is_ascend: int) -> None:
    """Store the indices that sort the elements along an axis."""
    out[...] = array_order.order(data, axis, descending=not is_ascend)


@provided("tvm.contrib.sort.argsort_nms", pure=True)
def argsort_valid(data: Array, valid: Array, out: Array, axis: int, is_ascend: int) -> None:
    """Store the indices that sort the first elements of each line, then the other indices."""
    lines, found = np.moveaxis(data, axis, -1), np.moveaxis(out, axis, -1)
    found[...] = np.arange(lines.shape[-1])
    for place, count in np.ndenumerate(valid.reshape(lines.shape[:-1])):
        found[place][:count] = array_order.order(lines[place][:count], 0, descending=not is_ascend)


@provided("tvm.contrib.sort.topk", pure=True)
def topk(data: Array, values: Array, indices: Array, axis: int, is_ascend: int) -> None:
    """Store the first elements in order along an axis, and their indices."""
    places = _places(data, axis, is_ascend, values.shape[axis])
    values[...] = np.take_along_axis(data, places, axis)
    indices[...] = places


@provided("tvm.contrib.sort.topk_values", pure=True)
def topk_values(data: Array, values: Array, axis: int, is_ascend: int) -> None:
    """Store the first elements in order along an axis."""
    places = _places(data, axis, is_ascend, values.shape[axis])
    values[...] = np.take_along_axis(data, places, axis)


@provided("tvm.contrib.sort.topk_indices", pure=True)
def topk_indices(data: Array, indices: Array, axis: int, is_ascend: int) -> None:
    """Store the indices of the first elements in order along an axis."""
    indices[...] = _places(data, axis, is_ascend, indices.shape[axis])


@provided("tvm.contrib.sort.searchsorted", pure=True)
def searchsorted(sequence: Array, values: Array, out: Array, right: int) -> None:
    """Store the number of elements of an ascending sequence below each value, or not above it."""
    side = "right" if right else "left"
    if sequence.ndim == 1:
        out[...] = np.searchsorted(sequence, values, side)  # type: ignore[call-overload]
        return
    for line in np.ndindex(*values.shape[:-1]):
        out[line] = np.searchsorted(sequence[line], values[line], side)  # type: ignore[call-overload]


@provided("vm.builtin.tuple_reset_item", pure=True)
def tuple_reset_item(values: tuple[Value, ...], index: int) -> tuple[()]:
    """Mark that a field is dead: a no-op, as tuples are immutable."""
    return ()


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
    return np.uint8(_known_datatype(value, "tensor_dtype_code").type_code)


@python_syntax.tensor_dtype_bits.implement
def tensor_dtype_bits(value: Value) -> np.uint8:
    """The bits of an element of a tensor."""
    return np.uint8(_known_datatype(value, "tensor_dtype_bits").bits)


@python_syntax.tensor_dtype_lanes.implement
def tensor_dtype_lanes(value: Value) -> np.uint16:
    """The lanes of an element of a tensor."""
    return np.uint16(_known_datatype(value, "tensor_dtype_lanes").lanes)


def _known_datatype(value: Value, operator: str) -> DataType:
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
    """Check that the fields of a format are texts of values."""
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
