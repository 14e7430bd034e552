"""Arrays of NumPy with the methods of the tensors of TVM."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.dtype import DataType
from relaxpy.support.entry import user_facing


def check_device(device: Device | str | None) -> None:
    """Errors: MisuseError unless the device is a CPU, where NumPy keeps its arrays."""
    if device is None:
        return
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(
            f"tensors are NumPy arrays on cpu:0, found device {found}",
            about=device,
            hint="programs run on the processor: omit the device",
        )


class Tensor(np.ndarray[Any, Any]):
    """A NumPy array with the methods of the tensors of TVM, over the same memory.

    `released` computes the elements again, if they are those of a literal that does not keep them.

    Units: `byte_offset`, by which a view begins after the tensor that it is a view of, is in bytes.
    """

    byte_offset: int = 0
    released: Callable[[], Tensor] | None = None

    @property
    @override
    def device(self) -> Device:  # type: ignore[override]  # NumPy names its device by a string
        """The CPU, where NumPy keeps its arrays."""
        return Device("cpu", 0)

    @user_facing
    def _create_view(
        self, shape: Sequence[int], dtype: Any = None, relative_byte_offset: int = 0
    ) -> Tensor:
        """A view of the memory from `relative_byte_offset` on, in another shape and datatype.

        Errors:
            MisuseError (also ValueError): the tensor is not contiguous, the view is not inside of
                it, or its offset does not fit its datatype.
        """
        of = self.dtype if dtype is None else DataType(dtype).numpy()
        count, start = prod(shape), operator.index(relative_byte_offset)
        inside = start >= 0 and start + count * of.itemsize <= self.nbytes
        if not self.flags.c_contiguous or not inside or start % of.itemsize:
            raise MisuseError(
                f"a view of shape {tuple(shape)} and datatype {of} at byte {start} "
                f"is not a part of a tensor of {self.nbytes} bytes",
                about=shape,
            )
        memory = self.reshape(-1).view("uint8")[start : start + count * of.itemsize]
        view = memory.view(of).reshape(tuple(shape)).view(Tensor)
        view.byte_offset = self.byte_offset + start
        return view

    def same_as(self, other: object) -> bool:
        """Return whether this is the same tensor, by identity."""
        return self is other

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of the elements, as an array of NumPy."""
        return np.array(self)

    #: The name of `numpy` up to TVM v0.19.
    asnumpy = numpy

    @user_facing
    def to_dlpack(self) -> object:
        """The memory as a capsule of DLPack, which `from_dlpack` of other libraries reads.

        Errors:
            MisuseError (also ValueError): NumPy has no capsule for the datatype, such as bfloat16,
                or for memory that is read-only.
        """
        try:
            return self.__dlpack__()
        except BufferError as error:
            raise MisuseError(f"a tensor of {self.dtype} has no capsule: {error}") from None

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
            MisuseError (also ValueError): the array has another shape, or the device is not a CPU.
        """
        if not isinstance(target, np.ndarray):
            check_device(target)
            return np.array(self).view(Tensor)
        target.view(Tensor).copyfrom(self)
        return target


def is_writable(array: np.ndarray[Any, Any]) -> bool:
    """Return whether an array, or one of which it is a view, is writable."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


def as_tensor_view(value: Any) -> Any:
    """An array as a tensor over the same memory; any other value itself."""
    return value.view(Tensor) if type(value) is np.ndarray else value
