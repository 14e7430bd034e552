"""Arrays of NumPy with the methods of TVM's tensors, and tensors of other libraries as arrays.

Torch is never imported here: a tensor of it shows that it is loaded.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import ml_dtypes
import numpy as np
from typing_extensions import override

from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.dtype import Array, DataType
from relaxpy.support.entry import user_facing
from relaxpy.support.missing import digits


def check_device(device: Device | str | None) -> None:
    """Errors: MisuseError unless the device is a CPU, where NumPy keeps its arrays."""
    if device is None:
        return
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(
            f"tensors are NumPy arrays on cpu:0, found device {found}",
            about=device,
            hint="programs run on the CPU: omit the device",
        )


class Tensor(Array):
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
        """True if this is the same tensor, by identity."""
        return self is other

    def numpy(self) -> Array:
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
    def copyto(self, target: Array | Device | str) -> Array:
        """Copy the elements to an array of this shape, or to a new one on a device; return it.

        Errors:
            MisuseError (also ValueError): the array has another shape, or the device is not a CPU.
        """
        if not isinstance(target, np.ndarray):
            check_device(target)
            return np.array(self).view(Tensor)
        target.view(Tensor).copyfrom(self)
        return target


def is_writable(array: Array) -> bool:
    """True if an array, or one of which it is a view, is writable."""
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


def may_change(array: Array) -> bool:
    """True unless the memory is that of an array, or object of Python, that nobody can write.

    Arrays that are not writable may share the memory of a tensor of PyTorch, which is.
    """
    base: object = array
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    try:
        memory: Any = base.obj if isinstance(base, memoryview) else base
        return memory is not None and not memoryview(memory).readonly
    except TypeError:  # it shows its memory in another way
        return True


MASKED = (
    "found an array with masked elements, which tensors cannot have: "
    "x.filled(value) is the array with a value in their place"
)


def is_masked(value: object) -> bool:
    """True if `value` is a NumPy array with masked elements."""
    if type(value) is np.ndarray or not isinstance(value, np.ndarray):
        return False
    # The import of numpy.ma takes 11 ms.
    return hasattr(value, "mask") and bool(np.ma.is_masked(value))


def literal_array(value: Any, about: object, rule: str) -> Array:
    """The elements of a literal: `value` itself if nothing can change it, or else a copy.

    Errors:
        MisuseError: tensors cannot have such elements; `about` is what the user passed.
    """
    if is_masked(value):
        raise MisuseError(MASKED, about=about)
    try:
        data = np.asarray(read_array(value))
    except (ValueError, BufferError) as error:
        raise MisuseError(f"cannot make a tensor of {about!r:.60}: {error}", rule=rule) from None
    check_elements(data, about, rule)
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    if data is not value or is_writable(data):
        data = data.copy()
        data.flags.writeable = False
    return data


def as_tensor_view(value: Any) -> Any:
    """An array as a tensor over the same memory; any other value itself."""
    if type(value) is not np.ndarray:
        return value
    # The first view is NumPy's own: the second one may run code that changes the array's shape.
    return value.view().view(Tensor)


#: The datatypes that torch and `ml_dtypes` have and NumPy does not, and the integers of their bits.
_BITS: Final = {
    "bfloat16": "int16",
    "float8_e4m3fn": "uint8",
    "float8_e4m3fnuz": "uint8",
    "float8_e5m2": "uint8",
    "float8_e5m2fnuz": "uint8",
    "float8_e8m0fnu": "uint8",
}


def is_torch(value: object) -> bool:
    """True if a value is a tensor of torch, or of a subclass that another library defines."""
    if not hasattr(type(value), "detach"):
        return False
    return any(kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__)


def has_torch(value: object) -> bool:
    """True if a value is a tensor of torch, or a tuple or list with one at any depth."""
    if not isinstance(value, (tuple, list)):
        return is_torch(value)
    return {*map(type, value)} != {np.ndarray} and any(map(has_torch, value))


def foreign_array(value: Any) -> Array | None:
    """The array over the memory of a tensor of another library; None for any other value.

    A tensor of torch that requires gradients is read as its data, as by `detach()`.

    Errors:
        BufferError: the tensor does not provide its elements; the message says why.
    """
    readers: tuple[tuple[bool, Callable[[Any], Array]], ...] = (
        (is_torch(value), _of_torch),
        (hasattr(type(value), "__dlpack__"), np.from_dlpack),
        (hasattr(type(value), "__array__"), np.asarray),
    )
    failure: Exception | None = None
    for applies, read in readers:
        if not applies:
            continue
        try:
            return np.asarray(read(value))
        except Exception as error:  # whatever the code of others raises
            failure = failure or error
    if failure is None:
        return None
    kind = type(value)
    raise BufferError(f"{kind.__module__}.{kind.__name__} cannot be read as an array: {failure}")


def read_array(value: Any) -> Any:
    """The array over the memory of a tensor of another library; any other value stays.

    Errors:
        BufferError: as for `foreign_array`.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return value
    array = foreign_array(value)
    return value if array is None else array


def check_elements(data: Any, value: object, rule: str) -> None:
    """Check that the array `data`, which was made of `value`, can be a constant.

    Errors:
        MisuseError: its elements are neither numbers nor Booleans.
    """
    if data.dtype.hasobject and isinstance(value, int):
        raise MisuseError(f"no datatype can represent {digits(value)}", rule=rule, about=value)
    if data.dtype.hasobject or data.dtype.kind in "USmMc" or data.dtype.char == "g":
        raise MisuseError(
            f"a tensor contains numbers or Booleans, found {digits(value)}", rule=rule, about=value
        )


def as_numpy(value: Any) -> Any:
    """A tensor of torch as an array, over the same memory; so are those in tuples and lists.

    Errors:
        RuntimeCheckError: a tensor does not provide its elements; the message says why.
    """
    if type(value) in (list, tuple):
        return type(value)(map(as_numpy, value))
    try:
        return foreign_array(value) if is_torch(value) else value
    except BufferError as error:
        raise RuntimeCheckError(str(error)) from None


def as_torch(value: Any) -> Any:
    """Arrays, also in tuples, as tensors of torch over the same memory; other values stay.

    Torch has been imported. Arrays that it cannot share are copied, and those of a datatype that it
    does not have stay arrays.
    """
    if type(value) is tuple:
        return tuple(map(as_torch, value))
    if not isinstance(value, np.ndarray):
        return value
    torch: Any = sys.modules["torch"]
    name = "" if value.dtype.isbuiltin == 1 else value.dtype.name  # which takes 1 us
    plain = value.view(_BITS[name]) if name in _BITS else value
    if not plain.flags.writeable or min(plain.strides, default=0) < 0:
        plain = plain.copy()
    try:
        tensor = torch.from_numpy(plain.view(np.ndarray))
        return tensor.view(getattr(torch, name)) if name in _BITS else tensor
    except (AttributeError, TypeError):
        return value


def _of_torch(tensor: Any) -> Array:
    device = str(getattr(tensor, "device", "cpu"))
    if not device.startswith("cpu"):
        raise BufferError(f"it is on {device}; tensor.cpu() is in main memory")
    memory = tensor.detach()
    data = memory.resolve_neg()  # of x.conj().imag, say, whose memory has other signs
    name = str(getattr(tensor, "dtype", "")).rpartition(".")[2]
    array: Array
    if name in _BITS:
        bits = data.view(getattr(sys.modules["torch"], _BITS[name])).numpy()
        array = bits.view(getattr(ml_dtypes, name))
    else:
        array = data.numpy()
    if data is not memory:  # what a program writes to a copy would be lost
        array.flags.writeable = False
    return array
