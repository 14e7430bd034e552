"""Operators of neural networks: the functions that build their calls."""

# Written by tools/faces.py from relaxpy/names.toml.
# fmt: off
# ruff: noqa
from typing import TYPE_CHECKING

from relaxpy.support.lazy import face as _face

if TYPE_CHECKING:
    from relaxpy.plugins.relay.op.makers import maker as maker
else:
    _face(globals(), """
        relaxpy.plugins.relay.op.makers: maker
    """, "relaxpy.plugins.relay.op.makers:public_name")
