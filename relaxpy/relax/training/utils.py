"""Tools for training."""

from relaxpy.ir.relax.op.definition.te_gradients import register_te_gradient as register_te_gradient
from relaxpy.ir.relax.training.append_loss import AppendLoss as AppendLoss
