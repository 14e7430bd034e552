"""Struct info of distributed tensors."""

from relaxpy.ir.relax.nodes.distributed import (
    DTensorStructInfo as DTensorStructInfo,
    Placement as Placement,
    PlacementSpec as PlacementSpec,
)
