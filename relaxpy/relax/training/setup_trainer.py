"""The pass that prepares a program for the trainer."""

from relaxpy.ir.relax.training.setup_trainer import SetupTrainer as SetupTrainer
