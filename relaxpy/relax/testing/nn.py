"""Layers that emit kernels, and checkpoints around functions that build programs."""

from relaxpy.ir.relax.frontend.testing import (
    Linear as Linear,
    LogSoftmax as LogSoftmax,
    Module as Module,
    Parameter as Parameter,
    Placeholder as Placeholder,
    ReLU as ReLU,
    Sequential as Sequential,
    emit as emit,
    emit_te as emit_te,
    init_params as init_params,
)
from relaxpy.ir.relax.training.checkpoint import (
    checkpoint as checkpoint,
    emit_checkpoint as emit_checkpoint,
    emit_checkpoint_sequential as emit_checkpoint_sequential,
)
