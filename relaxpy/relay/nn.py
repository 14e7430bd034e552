"""Operators of neural networks: the functions that build their calls."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.ir.relay.op.makers import maker as maker
else:
    _face(globals(), """
        relaxpy.ir.relay.op.makers: maker
    """, "relaxpy.ir.relay.op.makers:public_name")
