"""New tensors at run time, by the names that programs of TVM call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.exec.runtime.values import Array, ShapeTuple, as_tensor
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.dtype import DataType


class Tensor(np.ndarray[Any, Any]):
    """A NumPy array with the methods of the tensors of TVM, over the same memory."""

    @property
    @override
    def device(self) -> Device:  # type: ignore[override]  # NumPy names its device by a string
        """The processor, where NumPy keeps its arrays."""
        return Device("cpu", 0)

    def numpy(self) -> Array:
        """A copy of the elements, as an array of NumPy."""
        return np.array(self)

    @user_facing
    def copyfrom(self, source_array: object) -> Tensor:
        """Overwrite the elements with those of an array of this shape; return the tensor.

        Errors:
            MisuseError (also ValueError): the array has another shape.
        """
        source = np.asarray(source_array)
        if source.shape != self.shape:
            raise MisuseError(
                f"expected elements of shape {self.shape}, found {source.shape}", about=source_array
            )
        self[...] = source
        return self

    @user_facing
    def copyto(self, target: Array | Device | str) -> Array:
        """Copy the elements to an array of this shape, or to a new one on a device; return it.

        Errors:
            MisuseError (also ValueError): the array has another shape, or the device is not a
                processor.
        """
        if not isinstance(target, np.ndarray):
            return tensor(self, target)
        target.view(Tensor).copyfrom(self)
        return target


def as_tensors(value: Any, args: Sequence[object] = ()) -> Any:
    """A value in which arrays are tensors, over the same memory; so are those in tuples.

    Arrays that are among `args` stay what they are.
    """
    if type(value) is np.ndarray:
        return next((arg for arg in args if _is_same(arg, value)), value.view(Tensor))
    if type(value) is tuple:
        return tuple(as_tensors(field, args) for field in value)
    return value


def _is_same(arg: object, value: Array) -> bool:
    """Whether an argument was passed as this array."""
    if type(arg) is not Tensor:
        return arg is value
    return arg.__array_interface__ == value.__array_interface__


def _check_device(device: Device | str | None) -> None:
    """Errors: MisuseError unless the device is a processor, where NumPy keeps its arrays."""
    if device is None:
        return
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(f"tensors are NumPy arrays on cpu:0, found device {found}", about=device)


@user_facing
def tensor(arr: object, device: Device | str | None = None) -> Tensor:
    """A new tensor, which is a NumPy array, with the elements of an array, list or scalar.

    Errors:
        MisuseError (also ValueError, TypeError): the elements have no datatype of tensors, or the
            device is not a processor.
    """
    _check_device(device)
    try:
        array = np.array(as_tensor(arr))
        DataType(array.dtype.name)
    except (ValueError, TypeError, RelaxpyError) as error:
        raise MisuseError(
            f"expected an array, a list or a scalar, found {arr!r:.60}: {error}", about=arr
        ) from None
    return array.view(Tensor)


@user_facing
def empty(
    shape: Sequence[int], dtype: str = "float32", device: Device | str | None = None
) -> Tensor:
    """A new tensor, which is a NumPy array, of this shape and datatype, with arbitrary elements.

    Errors:
        MisuseError (also ValueError): the shape, datatype or device is not valid.
    """
    _check_device(device)
    sizes = ShapeTuple(shape)
    if min(sizes, default=0) < 0:
        raise MisuseError(f"a tensor has no negative dimensions, found {sizes}", about=shape)
    return np.empty(sizes, DataType(dtype).numpy()).view(Tensor)
