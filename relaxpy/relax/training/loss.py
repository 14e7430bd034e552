"""Losses as Relax functions."""

from relaxpy.ir.relax.training.loss import (
    CategoricalCrossEntropyLoss as CategoricalCrossEntropyLoss,
    CrossEntropyLoss as CrossEntropyLoss,
    L1Loss as L1Loss,
    Loss as Loss,
    MSELoss as MSELoss,
)
