"""Training: losses, optimisers, and the trainer that runs them."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.training.data_parallel import DataParallel as DataParallel
    from relaxpy.ir.relax.training.setup_trainer import SetupTrainer as SetupTrainer
    from relaxpy.ir.relax.training.trainer import Trainer as Trainer
    from relaxpy.relax.training import loss as loss, optimizer as optimizer, setup_trainer as setup_trainer, trainer as trainer, utils as utils
    from relaxpy.relax.training.utils import AppendLoss as AppendLoss
else:
    _face(globals(), """
        relaxpy.ir.relax.training.data_parallel: DataParallel
        relaxpy.ir.relax.training.setup_trainer: SetupTrainer
        relaxpy.ir.relax.training.trainer: Trainer
        relaxpy.relax.training.: loss optimizer setup_trainer trainer utils
        relaxpy.relax.training.utils: AppendLoss
    """)
