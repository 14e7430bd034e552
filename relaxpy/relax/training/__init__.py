"""Training: losses, optimisers, and the trainer that runs them."""

# Written by tools/faces.py from relaxpy/names.toml.
from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relax.training")
if TYPE_CHECKING:
    from relaxpy.plugins.training.trainer import DataParallel as DataParallel, SetupTrainer as SetupTrainer, Trainer as Trainer
    from relaxpy.relax.training import loss as loss, optimizer as optimizer, setup_trainer as setup_trainer, trainer as trainer, utils as utils
    from relaxpy.relax.training.utils import AppendLoss as AppendLoss
