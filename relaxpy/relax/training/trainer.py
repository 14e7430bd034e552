"""The trainer."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relax.training.trainer import Trainer as Trainer
else:
    _face(globals(), """
        relaxpy.ir.relax.training.trainer: Trainer
    """)
