"""Struct info of distributed tensors."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.distributed.struct_info")
if TYPE_CHECKING:
    from relaxpy.ir.relax.nodes.distributed import DTensorStructInfo as DTensorStructInfo, Placement as Placement, PlacementSpec as PlacementSpec
