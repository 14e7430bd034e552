"""The trainer."""

from relaxpy.ir.relax.training.trainer import Trainer as Trainer
