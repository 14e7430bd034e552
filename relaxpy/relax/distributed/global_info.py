"""Meshes of devices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.distributed.global_info")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.distributed import DeviceMesh as DeviceMesh, device_mesh as device_mesh
