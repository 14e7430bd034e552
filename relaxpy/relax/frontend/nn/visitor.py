"""Replacement of parts of a model."""

from relaxpy.ir.relax.frontend.nn.visitor import Mutator as Mutator
