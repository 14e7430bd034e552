"""Optimisers as Relax functions."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.training.optimizer import (
        SGD as SGD,
        Adam as Adam,
        MomentumSGD as MomentumSGD,
        Optimizer as Optimizer,
    )
else:
    _face(
        globals(),
        """
        relaxpy.ir.relax.training.optimizer: SGD Adam MomentumSGD Optimizer
        """,
    )
