"""Instructions of the virtual machine."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.vm")
if TYPE_CHECKING:
    from relaxpy.ir.ops.vm import alloc_storage as alloc_storage, alloc_tensor as alloc_tensor, call_tir_dyn as call_tir_dyn, kill_object as kill_object
