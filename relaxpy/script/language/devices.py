"""Lookup of devices: `"cuda:1"` is a device in the module's list, or the device of that number."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from relaxpy.errors import MisuseError, close_names
from relaxpy.ir.core.device import split_device
from relaxpy.ir.global_info import VDevice
from relaxpy.ir.relax.nodes.distributed import DeviceMesh

#: The name under which a module lists its devices.
KEY = "vdevice"


class Devices:
    """The devices and meshes in a module's global infos."""

    def __init__(self) -> None:
        self.global_infos: Mapping[str, Sequence[object]] = {}

    @property
    def listed(self) -> Sequence[object] | None:
        """The module's devices, or None if it has no list of them."""
        return self.global_infos.get(KEY)

    def mesh(self, text: str) -> DeviceMesh:
        """Return the mesh called `text`: "mesh[0]" is the first in the module's list "mesh".

        Errors:
            MisuseError (also ValueError): the module lists no such mesh.
        """
        matched = re.fullmatch(r"(\w+)(?:\[([0-9]{1,6})\])?", text)
        listed = self.global_infos.get(matched[1], ()) if matched else ()
        number = int(matched[2] or 0) if matched else 0
        if number < len(listed):
            mesh = listed[number]
            if isinstance(mesh, DeviceMesh):
                return mesh
        raise MisuseError(
            f"the module lists no mesh {text!r:.60}",
            about=text,
            hint='list it: I.module_global_infos({"mesh": [R.dist.device_mesh((2,), [0, 1])]})',
        )

    def find(self, text: str) -> VDevice:
        """Return device `text`: "cuda:1" is the second of its kind, "vdevice:3" the fourth of all.

        A memory scope may follow, as in "cuda:1:global". Without a list, the number is the physical
        number of the device.

        Errors:
            MisuseError (also ValueError): there is no such device, it has another memory scope, or
                its number is not a number.
        """
        name, scope = text, ""
        if isinstance(text, str) and text.count(":") == 2:
            name, _, scope = text.rpartition(":")
        kind, number = split_device(name)
        if self.listed is None:
            return VDevice(kind, number, scope or "global")
        devices = [device for device in self.listed if isinstance(device, VDevice)]
        candidates = devices if kind == KEY else [d for d in devices if d.kind == kind]
        if number < len(candidates):
            found = candidates[number]
            if scope and scope != found.memory_scope:
                raise MisuseError(
                    f"the memory of device {name!r} is {found.memory_scope!r}, found {scope!r}",
                    about=text,
                )
            return found
        kinds = [device.kind for device in devices]
        raise MisuseError(
            f"the module lists no device {text!r}; it lists {', '.join(kinds) or 'none'}",
            about=text,
            hint=close_names(kind, kinds),
        )
