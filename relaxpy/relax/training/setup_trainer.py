"""The pass that prepares a program for the trainer."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.training.setup_trainer")
if TYPE_CHECKING:
    from relaxpy.plugins.training.trainer import SetupTrainer as SetupTrainer
