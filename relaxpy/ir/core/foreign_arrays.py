"""Tensors of other libraries as arrays of NumPy, and results as tensors of torch.

Torch is never imported here: a tensor of it shows that it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np

from relaxpy.errors import MisuseError, RuntimeCheckError
from relaxpy.support.description import digits

Array = np.ndarray[Any, Any]

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
    """Return whether a value is a tensor of torch, or a tuple or list with one at any depth."""
    return any(map(has_torch, value)) if isinstance(value, (tuple, list)) else is_torch(value)


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
            return read(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
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
    data = tensor.detach()
    name = str(getattr(tensor, "dtype", "")).rpartition(".")[2]
    if name not in _BITS:
        return data.numpy()  # type: ignore[no-any-return]
    bits = data.view(getattr(sys.modules["torch"], _BITS[name])).numpy()
    return bits.view(getattr(ml_dtypes, name))  # type: ignore[no-any-return]
