"""Devices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.runtime.device")
if TYPE_CHECKING:
    from relaxpy.ir.core.device import Device as Device, cpu as cpu, cuda as cuda, device as device
