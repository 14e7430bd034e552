"""The trainer."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

_face(globals(), "relaxpy.relax.training.trainer")
if TYPE_CHECKING:
    from relaxpy.plugins.training.trainer import Trainer as Trainer
