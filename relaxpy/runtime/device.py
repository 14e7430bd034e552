"""Devices."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.runtime.device")
if TYPE_CHECKING:
    from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
