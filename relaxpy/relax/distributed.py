"""Tensors that are spread over several devices."""

from relaxpy.ir.relax.nodes.distributed import (
    DeviceMesh,
    DTensorStructInfo,
    Placement,
    PlacementSpec,
    device_mesh,
)

__all__ = ["DTensorStructInfo", "DeviceMesh", "Placement", "PlacementSpec", "device_mesh"]
