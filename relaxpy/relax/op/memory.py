"""Explicit memory."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.memory")
if TYPE_CHECKING:
    from relaxpy.ir.ops.memory import alloc_storage as alloc_storage, alloc_tensor as alloc_tensor, ensure_zero_offset as ensure_zero_offset, kill_storage as kill_storage, kill_tensor as kill_tensor, view as view
