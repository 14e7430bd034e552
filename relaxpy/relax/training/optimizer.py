"""Optimisers as Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.training.optimizer import Adam as Adam, MomentumSGD as MomentumSGD, Optimizer as Optimizer, SGD as SGD
else:
    _face(globals(), """
        relaxpy.ir.relax.training.optimizer: Adam MomentumSGD Optimizer SGD
    """)
