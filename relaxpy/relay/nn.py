"""Operators of neural networks: the functions that build their calls."""

# Written by tools/faces.py from relaxpy/names.toml.
from typing import Any as _Any

from relaxpy.support.lazy import TYPE_CHECKING, face as _face

_face(globals(), "relaxpy.relay.nn", "relaxpy.plugins.relay.op.makers:public_name")
if TYPE_CHECKING:
    from relaxpy.plugins.relay.op.makers import maker as maker

    def __getattr__(name: str) -> _Any: ...
