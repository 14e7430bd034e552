"""Tensors that are distributed over several devices."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.distributed import (
        DeviceMesh as DeviceMesh,
        DTensorStructInfo as DTensorStructInfo,
        Placement as Placement,
        PlacementSpec as PlacementSpec,
        device_mesh as device_mesh,
    )
    from relaxpy.relax.distributed import (
        global_info as global_info,
        struct_info as struct_info,
        transform as transform,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.nodes.distributed: DeviceMesh DTensorStructInfo Placement PlacementSpec
            device_mesh
        relaxpy.relax.distributed.: global_info struct_info transform
        """,
    )
