"""Optimisers as Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.training.optimizer")
if TYPE_CHECKING:
    from relaxpy.plugins.training.optimizer import Adam as Adam, AdamW as AdamW, MomentumSGD as MomentumSGD, Optimizer as Optimizer, SGD as SGD
