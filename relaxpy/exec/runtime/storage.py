"""Storage as a value, and tensors in storage or in the memory of another tensor."""

from __future__ import annotations

import math

import numpy as np

from relaxpy.errors import RuntimeCheckError
from relaxpy.exec.runtime.values import Array, Category, Value, category_of, describe, empty
from relaxpy.ir.core.dtype import DataType
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
