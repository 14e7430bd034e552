"""Builtins."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.op.builtin")
if TYPE_CHECKING:
    from relaxpy.ir.ops.builtin import alloc_tensor as alloc_tensor, stop_lift_params as stop_lift_params
