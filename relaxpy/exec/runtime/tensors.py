"""Creation of tensors at run time, by TVM's names, and the memory of mapped ones."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np

from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.exec.runtime.values import ShapeTuple, as_tensor
from relaxpy.ir.core.device import Device
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.ir.core.tensor import Tensor, as_tensor_view, check_device, foreign_array
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_facing


def as_tensors(value: Any, args: Sequence[object] = ()) -> Any:
    """A value in which arrays are tensors, over the same memory; so are those in tuples.

    Arrays that are among `args` stay unchanged.
    """
    if type(value) is np.ndarray:
        return next((arg for arg in args if _is_same(arg, value)), as_tensor_view(value))
    if type(value) is tuple:
        return tuple(as_tensors(field, args) for field in value)
    return value


def _is_same(arg: object, value: Array) -> bool:
    """True if an argument was passed as this array."""
    if type(arg) is not Tensor:
        return arg is value
    return arg.__array_interface__ == value.__array_interface__


@user_facing
def tensor(arr: object, device: Device | str | None = None) -> Tensor:
    """A new tensor, which is a NumPy array, with the elements of an array, list or scalar.

    Errors:
        MisuseError (also ValueError, TypeError): the elements have no datatype of tensors, or the
        device is not a CPU.
    """
    check_device(device)
    try:
        array = np.array(as_tensor(arr))
        DataType(array.dtype.name)
    except (ValueError, TypeError, RelaxpyError) as error:
        raise MisuseError(
            f"expected an array, a list or a scalar, found {arr!r:.60}: {error}", about=arr
        ) from None
    return array.view(Tensor)


@dataclass(frozen=True, slots=True)
class _Capsule:
    """An array as a capsule of DLPack, in the form in which NumPy reads it."""

    capsule: object

    def __dlpack__(self, **_options: object) -> object:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # NumPy reads the device from the capsule


@user_facing
def from_dlpack(ext_tensor: object) -> Tensor:
    """A tensor over the memory of an array of any library that supports DLPack, or of its capsule.

    Errors:
        MisuseError (also TypeError, ValueError): it does not support DLPack, or its memory is not
        on the CPU.
    """
    problem = "it does not support DLPack"
    if type(ext_tensor).__name__ == "PyCapsule":
        ext_tensor = _Capsule(ext_tensor)
    try:
        if hasattr(ext_tensor, "__dlpack__") and (array := foreign_array(ext_tensor)) is not None:
            return array.view(Tensor)
    except BufferError as error:
        problem = str(error)
    raise MisuseError(
        f"expected an array that supports DLPack, found {ext_tensor!r:.60}: {problem}",
        about=ext_tensor,
    )


@user_facing
def empty(
    shape: Sequence[int], dtype: str = "float32", device: Device | str | None = None
) -> Tensor:
    """A new tensor, which is a NumPy array, of this shape and datatype, with arbitrary elements.

    Errors:
        MisuseError (also ValueError): the shape, datatype or device is not valid.
    """
    check_device(device)
    sizes = ShapeTuple(shape)
    if min(sizes, default=0) < 0:
        raise MisuseError(f"a tensor has no negative dimensions, found {sizes}", about=shape)
    return np.empty(sizes, DataType(dtype).of_elements()).view(Tensor)


@user_facing
def convert(value: Any) -> Any:
    """The value that a program gets for a Python object: lists become tuples, at any depth.

    Tensors, functions and all others stay unchanged.
    """
    return tuple(map(convert, value)) if type(value) in (list, tuple) else value


def release(array: Array) -> bool:
    """Let the system drop the memory of a mapped array, which is read again if needed.

    Return whether the array is mapped from a file.
    """
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    file = root.base.obj if isinstance(root.base, memoryview) else None
    if not isinstance(file, mmap.mmap):
        return False
    if hasattr(mmap, "MADV_DONTNEED"):
        begin = array.ctypes.data - root.ctypes.data
        page = begin // mmap.PAGESIZE * mmap.PAGESIZE
        file.madvise(mmap.MADV_DONTNEED, page, max(begin + array.nbytes - page, 1))
    return True
