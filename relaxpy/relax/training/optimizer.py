"""Optimisers as Relax functions."""

from relaxpy.ir.relax.training.optimizer import (
    SGD as SGD,
    Adam as Adam,
    MomentumSGD as MomentumSGD,
    Optimizer as Optimizer,
)
