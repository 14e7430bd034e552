"""Training: losses, optimisers, and the trainer that runs them."""

from relaxpy.ir.relax.training.data_parallel import DataParallel as DataParallel
from relaxpy.ir.relax.training.setup_trainer import SetupTrainer as SetupTrainer
from relaxpy.ir.relax.training.trainer import Trainer as Trainer
from relaxpy.missing import hint_at_absent as _hint_at_absent
from relaxpy.relax.training import (
    loss as loss,
    optimizer as optimizer,
    setup_trainer as setup_trainer,
    trainer as trainer,
    utils as utils,
)
from relaxpy.relax.training.utils import AppendLoss as AppendLoss

_hint_at_absent(globals())
