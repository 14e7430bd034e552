"""Tensors that are distributed over several devices."""

from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh as DeviceMesh,
    DTensorStructInfo as DTensorStructInfo,
    Placement as Placement,
    PlacementSpec as PlacementSpec,
    device_mesh as device_mesh,
)
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.distributed import (
    global_info as global_info,
    struct_info as struct_info,
    transform as transform,
)

_hint_at_absent(globals())
