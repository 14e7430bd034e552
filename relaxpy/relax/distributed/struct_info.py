"""Struct info of distributed tensors."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.distributed.struct_info")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as DTensorStructInfo, Placement as Placement, PlacementSpec as PlacementSpec
