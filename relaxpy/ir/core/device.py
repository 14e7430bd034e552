"""Devices at run time, by kind and number: what `R.cuda(0)` means."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import override

from relaxpy.entry import user_facing
from relaxpy.errors import MisuseError, close_names
from relaxpy.ir.core.node import Node

KINDS = (
    *("cpu", "cuda", "opencl", "vulkan", "metal", "vpi", "rocm", "ext_dev", "hexagon", "webgpu"),
)
# The numbers of the kinds in DLPack.
_NUMBERED = dict(zip((1, 2, 4, 7, 8, 9, 10, 12, 16, 15), KINDS, strict=True))


def split_device(text: object) -> tuple[str, int]:
    """The kind and the number of "cuda:1"; a kind alone is its first device.

    Errors:
        MisuseError (also ValueError): it is no device's name.
    """
    kind, colon, digits = text.partition(":") if isinstance(text, str) else ("", "", "")
    if not kind or (colon and not re.fullmatch("[0-9]{1,9}", digits)):
        raise MisuseError(
            f"a device is its kind and number, found {text!r:.60}",
            about=text,
            hint='write "cuda:0"',
        )
    return kind, int(digits or 0)


@dataclass(frozen=True, slots=True, repr=False)
class Device(Node):
    """One device of a machine.

    Errors:
        MisuseError (also ValueError): there is no such kind, or the number is no integer from 0.
    """

    _fields = ("kind", "index")
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
            raise MisuseError(
                f"devices are numbered from 0, found {self.index!r:.60}", about=self.index
            )

    @override
    def __str__(self) -> str:
        return f"{self.kind}:{self.index}"


@user_facing
def device(name: str | int, index: int | None = None) -> Device:
    """The device of a kind and number, as in `device("cuda", 1)` or `device("cuda:1")`.

    A kind may be given by its number in DLPack, too: `device(2, 1)`.

    Errors:
        MisuseError (also ValueError): there is no such kind, or it is no number.
    """
    named = _NUMBERED.get(name, name) if type(name) is int else name
    kind, number = split_device(named)
    if index is not None and ":" in str(named) and index != number:
        raise MisuseError(f"{name} is no device of number {index!r:.60}", about=index)
    return Device(kind, number if index is None else index)


def _of_kind(kind: str) -> Callable[..., Device]:
    def make(index: int = 0) -> Device:
        return Device(kind, index)

    make.__name__ = make.__qualname__ = kind
    make.__doc__ = f"The {kind} device of this number."
    return user_facing(make)


cpu, cuda, opencl, vulkan, metal, vpi, rocm, ext_dev, hexagon, webgpu = map(_of_kind, KINDS)
