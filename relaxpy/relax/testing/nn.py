"""Checkpoints around functions that build programs."""

from relaxpy.ir.relax.training.checkpoint import (
    checkpoint as checkpoint,
    emit_checkpoint as emit_checkpoint,
    emit_checkpoint_sequential as emit_checkpoint_sequential,
)
