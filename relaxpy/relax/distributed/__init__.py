"""Tensors that are distributed over several devices."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.distributed")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as DTensorStructInfo, DeviceMesh as DeviceMesh, Placement as Placement, PlacementSpec as PlacementSpec, device_mesh as device_mesh
    from relaxpy.relax.distributed import global_info as global_info, struct_info as struct_info, transform as transform
