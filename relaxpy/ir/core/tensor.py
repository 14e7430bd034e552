"""Arrays of NumPy with the methods of the tensors of TVM."""

from __future__ import annotations

from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError
from relaxpy.ir.core.device import Device, device as device_of


def check_device(device: Device | str | None) -> None:
    """Errors: MisuseError unless the device is a processor, where NumPy keeps its arrays."""
    if device is None:
        return
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(f"tensors are NumPy arrays on cpu:0, found device {found}", about=device)


class Tensor(np.ndarray[Any, Any]):
    """A NumPy array with the methods of the tensors of TVM, over the same memory."""

    @property
    @override
    def device(self) -> Device:  # type: ignore[override]  # NumPy names its device by a string
        """The processor, where NumPy keeps its arrays."""
        return Device("cpu", 0)

    def numpy(self) -> np.ndarray[Any, Any]:
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
    def copyto(self, target: np.ndarray[Any, Any] | Device | str) -> np.ndarray[Any, Any]:
        """Copy the elements to an array of this shape, or to a new one on a device; return it.

        Errors:
            MisuseError (also ValueError): the array has another shape, or the device is not a
                processor.
        """
        if not isinstance(target, np.ndarray):
            check_device(target)
            return np.array(self).view(Tensor)
        target.view(Tensor).copyfrom(self)
        return target


def as_tensor_view(value: Any) -> Any:
    """An array as a tensor over the same memory; any other value itself."""
    return value.view(Tensor) if type(value) is np.ndarray else value
