"""Losses as Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.training.loss")
if TYPE_CHECKING:
    from relaxpy.plugins.training.loss import CategoricalCrossEntropyLoss as CategoricalCrossEntropyLoss, CrossEntropyLoss as CrossEntropyLoss, L1Loss as L1Loss, Loss as Loss, MSELoss as MSELoss
