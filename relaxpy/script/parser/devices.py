"""What `"cuda:1"` in an annotation means: a device that the module lists, or one by its number."""

from __future__ import annotations

from collections.abc import Sequence

from relaxpy.errors import MisuseError, close_names
from relaxpy.ir.device import split_device
from relaxpy.ir.global_info import VDevice

#: The name under which a module lists its devices.
KEY = "vdevice"


class Devices:
    """The devices that a module lists; None where it lists none."""

    def __init__(self) -> None:
        self.listed: Sequence[object] | None = None

    def find(self, text: str) -> VDevice:
        """The device `text`: "cuda:1" is the second of its kind, "vdevice:3" the fourth of all.

        Where none are listed, the number is that of the device itself.

        Errors:
            MisuseError (also ValueError): the module lists no such device, or it is no number.
        """
        kind, number = split_device(text)
        if self.listed is None:
            return VDevice(kind, number)
        devices = [device for device in self.listed if isinstance(device, VDevice)]
        found = devices if kind == KEY else [d for d in devices if d.kind == kind]
        if number < len(found):
            return found[number]
        kinds = [device.kind for device in devices]
        raise MisuseError(
            f"the module lists no device {text!r}; it lists {', '.join(kinds) or 'none'}",
            about=text,
            hint=close_names(kind, kinds),
        )
