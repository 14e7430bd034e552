"""Tools for training."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.training.utils")
if TYPE_CHECKING:
    from relaxpy.ir.ops.definition.gradients import register_te_gradient as register_te_gradient
    from relaxpy.plugins.training.loss import AppendLoss as AppendLoss
