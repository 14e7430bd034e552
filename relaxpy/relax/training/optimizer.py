"""Optimisers as Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.training.optimizer")
if TYPE_CHECKING:
    from relaxpy.plugins.training.optimizer import Adam as Adam, AdamW as AdamW, MomentumSGD as MomentumSGD, Optimizer as Optimizer, SGD as SGD
