"""New tensors at run time, by the names that programs of TVM call."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, RelaxpyError
from relaxpy.exec.runtime.values import Array, ShapeTuple, as_tensor
from relaxpy.ir.core.device import Device, device as device_of
from relaxpy.ir.core.dtype import DataType


def _check_device(device: Device | str | None) -> None:
    """Errors: MisuseError unless the device is a processor, where NumPy keeps its arrays."""
    if device is None:
        return
    found = device if isinstance(device, Device) else device_of(device)
    if found.kind != "cpu":
        raise MisuseError(f"tensors are NumPy arrays on cpu:0, found device {found}", about=device)


@user_facing
def tensor(arr: object, device: Device | str | None = None) -> Array:
    """A new NumPy array with the elements of an array, list or scalar.

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
    return array


@user_facing
def empty(
    shape: Sequence[int], dtype: str = "float32", device: Device | str | None = None
) -> Array:
    """A new NumPy array of this shape and datatype, with arbitrary elements.

    Errors:
        MisuseError (also ValueError): the shape, datatype or device is not valid.
    """
    _check_device(device)
    sizes = ShapeTuple(shape)
    if min(sizes, default=0) < 0:
        raise MisuseError(f"a tensor has no negative dimensions, found {sizes}", about=shape)
    return np.empty(sizes, DataType(dtype).numpy())
