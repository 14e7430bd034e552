"""Tools for training."""

from relaxpy.ir.relax.op.definition.te_gradients import (
    register_te_gradient as register_te_gradient,
)
