"""Devices at run time, by kind and number, such as `R.cuda(0)`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

from typing_extensions import override

from relaxpy.errors import MisuseError, close_names, unexpected
from relaxpy.ir.core.node import Node
from relaxpy.support.dataclass import dataclass
from relaxpy.support.entry import user_constructed, user_facing

KINDS = (
    *("cpu", "cuda", "opencl", "vulkan", "metal", "vpi", "rocm", "ext_dev", "hexagon", "webgpu"),
)
# The device type numbers of DLPack.
_KIND_BY_TARGET = {"llvm": "cpu", "c": "cpu", "nvptx": "cuda"}
_KIND_BY_NUMBER = dict(zip((1, 2, 4, 7, 8, 9, 10, 12, 16, 15), KINDS, strict=True))
_NUMBER_BY_KIND = {kind: number for number, kind in _KIND_BY_NUMBER.items()}


def split_device(text: object) -> tuple[str, int]:
    """Split "cuda:1" into its kind and its number; the number is 0 where it is left out.

    Errors:
        MisuseError (also ValueError): `text` does not name a device.
    """
    kind, colon, digits = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not kind or (colon and not re.fullmatch("[0-9]{1,9}", digits)):
        raise unexpected(text, "a device is its kind and number", hint='write "cuda:0"')
    return kind, int(digits or 0)


@user_constructed
@dataclass(frozen=True, slots=True, repr=False)
class Device(Node):
    """One device of a machine.

    Errors:
        MisuseError (also ValueError): the kind is unknown, or the number is not an integer >= 0.
    """

    _fields = ("kind", "index")
    _DEVICE_TYPE_TO_NAME: ClassVar[Mapping[int, str]] = MappingProxyType(_KIND_BY_NUMBER)
    kind: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise MisuseError(
                f"no kind of device is called {self.kind!r:.60}; there are {', '.join(KINDS)}",
                about=self.kind,
                hint=close_names(str(self.kind), KINDS),
            )
        if isinstance(self.index, bool) or not isinstance(self.index, int) or self.index < 0:
            raise unexpected(self.index, "devices are numbered from 0")

    @property
    def exist(self) -> bool:
        """True if programs can run on the device: only on the first CPU."""
        return self.kind == "cpu" and self.index == 0

    @property
    def type(self) -> str:
        """The kind, by the name that TVM has for it."""
        return self.kind

    def dlpack_device_type(self) -> int:
        """The number of the kind in DLPack."""
        return _NUMBER_BY_KIND[self.kind]

    @override
    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@user_facing
def device(device_type: str | int, index: int | None = None) -> Device:
    """The device of a kind and number, as in `device("cuda", 1)` or `device("cuda:1")`.

    The kind may also be its number in DLPack, `device(2, 1)`, or the name of a target, "llvm".

    Errors:
        MisuseError (also ValueError): the kind or the number is not valid.
    """
    text = device_type
    if type(device_type) is int:
        text = _KIND_BY_NUMBER.get(device_type, device_type)
    kind, number = split_device(text)
    if index is not None and ":" in str(text) and index != number:
        raise MisuseError(f"device {text} does not have the number {index!r:.60}", about=index)
    return Device(_KIND_BY_TARGET.get(kind, kind), number if index is None else index)


def _constructor(kind: str) -> Callable[..., Device]:
    def make(dev_id: int = 0) -> Device:
        return Device(kind, dev_id)

    make.__name__ = make.__qualname__ = kind
    absent = "" if kind == "cpu" else " It is a name for annotations: no program runs there."
    make.__doc__ = f"Return the {kind} device with this number.{absent}"
    return user_facing(make)


cpu, cuda, opencl, vulkan, metal, vpi, rocm, ext_dev, hexagon, webgpu = map(_constructor, KINDS)
